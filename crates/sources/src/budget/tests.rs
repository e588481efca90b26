//! Tests of the order in which a budget grants requests.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use futures::poll;

use super::*;

fn budget(lane: u64, all: u64) -> ByteBudget {
    ByteBudget::new(BudgetLimits {
        what: "things",
        lane,
        all,
        lane_setting: "--things-per-tenant",
        all_setting: "--things",
        is_half: false,
    })
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

type Request = Pin<Box<dyn Future<Output = Result<HeldBytes, OverBudget>> + Send>>;

/// A request in the queue.
async fn ask(budget: &ByteBudget, lane: &'static str, bytes: u64) -> Request {
    let budget = budget.clone();
    let mut request: Request = Box::pin(async move { budget.acquire(lane, bytes, later()).await });
    assert!(poll!(&mut request).is_pending(), "{lane} has to wait");
    request
}

async fn poll_grant(request: &mut Request) -> Option<HeldBytes> {
    match poll!(request) {
        Poll::Ready(held) => Some(held.unwrap()),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn few_lanes_may_hold_equal_parts_of_the_whole() {
    let limits = budget(60, 200).whole();
    let budget = ByteBudget::new_divided(limits);
    // Before the lanes are known, and for many lanes, the limit of one lane applies.
    assert_eq!(budget.process_limits().lane, 60);
    for (lanes, allowed) in [(0, 200), (1, 200), (2, 100), (3, 66), (4, 60), (1000, 60)] {
        budget.set_lane_count(lanes);
        assert_eq!(budget.process_limits().lane, allowed, "{lanes} lanes");
    }
    budget.set_lane_count(1);
    let mut a = budget.acquire("a", 150, later()).await.unwrap();
    budget.set_lane_count(2);
    let refused = budget.acquire("a", 150, later()).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "things take 150 bytes or more, and at most 100 bytes fit: --things-per-tenant"
    );
    // Lane a keeps what it holds, and the other lane waits for its part.
    let mut more = ask(&budget, "a", 10).await;
    let mut b = ask(&budget, "b", 80).await;
    a.shrink_to(110);
    assert!(poll_grant(&mut more).await.is_none(), "a holds more than its part");
    let b = poll_grant(&mut b).await.unwrap();
    // The last neighbour goes: the waiting request fits.
    drop(b);
    assert!(poll_grant(&mut more).await.is_none());
    budget.set_lane_count(1);
    assert!(poll_grant(&mut more).await.is_some());
    // A process with a share has the limits of the whole, with any number of lanes.
    budget.follow_share(false);
    assert_eq!(budget.process_limits().lane, 60);
}

/// A budget that an administrator set per lane isn't divided by the number of lanes.
#[test]
fn explicit_lane_budget_is_not_divided() {
    let budget = budget(60, 200);
    budget.set_lane_count(1);
    assert_eq!(budget.process_limits().lane, 60);
}

#[tokio::test]
async fn held_bytes_are_counted_per_lane_and_in_total() {
    let budget = budget(60, 100);
    let a = budget.acquire("a", 60, later()).await.unwrap();
    let mut b = budget.acquire("b", 40, later()).await.unwrap();
    assert_eq!((budget.held(), budget.held_by("a"), budget.held_by("b")), (100, 60, 40));
    assert!(!budget.is_wanted());
    b.shrink_to(10);
    assert_eq!((b.bytes(), budget.held()), (10, 70));
    b.try_grow_to(40).unwrap();
    assert_eq!((b.bytes(), budget.held_by("b")), (40, 40));
    let full = b.try_grow_to(50).unwrap_err();
    assert_eq!(
        full.to_string(),
        "things: another 10 bytes don't fit now (--things allows 100 bytes)"
    );
    assert!(full.is_transient());
    let large = b.try_grow_to(61).unwrap_err();
    assert_eq!(
        large.to_string(),
        "things take 61 bytes or more, and at most 60 bytes fit: --things-per-tenant"
    );
    assert!(!large.is_transient());
    drop((a, b));
    assert_eq!(budget.held(), 0);
    assert!(
        budget.shared.lock().lanes.is_empty(),
        "lanes that hold nothing are forgotten"
    );
}

#[tokio::test]
async fn request_over_the_limit_is_refused_with_its_setting() {
    let budget = budget(60, 50);
    for (bytes, setting) in [(61, "--things-per-tenant"), (51, "--things")] {
        let refused = budget.acquire("a", bytes, later()).await.unwrap_err();
        assert!(
            matches!(refused, OverBudget::TooLarge { setting: s, .. } if s == setting),
            "{refused}"
        );
        assert_eq!(budget.try_acquire("a", bytes).unwrap_err(), refused);
    }
}

#[tokio::test]
async fn a_wait_ends_at_its_time_and_leaves_nothing() {
    let budget = budget(60, 100);
    let held = budget.acquire("a", 60, later()).await.unwrap();
    let refused = budget.acquire("a", 1, Instant::now()).await;
    assert!(matches!(
        refused.unwrap_err(),
        OverBudget::Full {
            setting: "--things-per-tenant",
            ..
        }
    ));
    assert!(!budget.is_wanted());
    // A cancelled request has no effect, as if it had never been made.
    let request = ask(&budget, "a", 30).await;
    let mut behind = ask(&budget, "a", 40).await;
    drop(request);
    drop(held);
    assert_eq!(poll_grant(&mut behind).await.unwrap().bytes(), 40);
    // The request is granted after its owner has dropped it.
    let held = budget.acquire("a", 60, later()).await.unwrap();
    let request = ask(&budget, "a", 60).await;
    drop(held);
    assert_eq!(budget.held(), 60);
    drop(request);
    assert_eq!(budget.held(), 0);
}

#[tokio::test]
async fn request_waiting_for_its_lane_blocks_no_other_lane() {
    let budget = budget(60, 100);
    let held = budget.acquire("a", 60, later()).await.unwrap();
    let mut own = ask(&budget, "a", 60).await;
    for _ in 0..100 {
        assert_eq!(budget.try_acquire("b", 40).unwrap().bytes(), 40);
    }
    // Within a lane, requests are granted in order, even if a later one would fit.
    let mut small = ask(&budget, "a", 0).await;
    assert!(budget.try_acquire("a", 0).is_err());
    drop(held);
    assert!(poll_grant(&mut own).await.is_some() && poll_grant(&mut small).await.is_some());
}

#[tokio::test]
async fn lanes_take_turns_however_many_requests_one_has() {
    let budget = budget(100, 100);
    let mut held = Some(budget.acquire("x", 100, later()).await.unwrap());
    let mut requests = Vec::new();
    for _ in 0..5 {
        requests.push(("many", ask(&budget, "many", 100).await));
    }
    for lane in ["one", "other"] {
        requests.push((lane, ask(&budget, lane, 100).await));
    }
    let mut order = Vec::new();
    while held.take().is_some() {
        let mut left = Vec::new();
        for (lane, mut request) in requests {
            match poll_grant(&mut request).await {
                Some(now) => {
                    assert!(held.is_none(), "one at a time");
                    order.push(lane);
                    held = Some(now);
                }
                None => left.push((lane, request)),
            }
        }
        requests = left;
    }
    assert_eq!(order, ["many", "one", "other", "many", "many", "many", "many"]);
}

#[tokio::test]
async fn a_large_request_is_passed_a_few_times_only() {
    let budget = budget(100, 100);
    let mut small = budget.acquire("a", 10, later()).await.unwrap();
    let mut large = ask(&budget, "large", 95).await;
    let mut passed = 0;
    // Other requests come and go without end; each is released after the next one was granted.
    loop {
        let Ok(next) = budget.try_acquire("b", 10) else { break };
        drop(std::mem::replace(&mut small, next));
        passed += 1;
        let mut request: Request = {
            let budget = budget.clone();
            Box::pin(async move { budget.acquire("c", 10, later()).await })
        };
        match poll!(&mut request) {
            Poll::Ready(held) => small = held.unwrap(),
            Poll::Pending => break,
        }
        passed += 1;
        assert!(passed < 100, "the large request starves");
        assert!(poll_grant(&mut large).await.is_none());
    }
    assert_eq!(passed, PASSES);
    // Free bytes are now reserved for the large request, which is granted as soon as they suffice.
    assert!(budget.try_acquire("d", 1).is_err());
    drop(small);
    assert_eq!(poll_grant(&mut large).await.unwrap().bytes(), 95);
    assert!(budget.try_acquire("d", 5).is_ok());
}

#[tokio::test]
async fn share_allows_granted_bytes_and_refuses_by_whole_limit() {
    let budget = budget(60, 100);
    budget.follow_share(false);
    assert!(budget.try_acquire("a", 1).unwrap_err().is_transient());
    let mut first = ask(&budget, "a", 20).await;
    let demand = |share, held, first| BudgetDemand {
        share,
        held,
        first,
        growing: 0,
    };
    assert_eq!(budget.demand(), demand(0, 0, Some(20)));
    assert!(budget.is_short_of_share());
    // A request that can never fit is refused at once, by the setting and not by the share.
    let refused = budget.acquire("a", 61, later()).await.unwrap_err();
    assert!(refused.to_string().contains("--things-per-tenant"), "{refused}");
    budget.add_share(30);
    let held = poll_grant(&mut first).await.expect("it was granted");
    assert_eq!(budget.demand(), demand(30, 20, None));
    assert!(budget.try_acquire("b", 11).is_err());
    // Held bytes stay in the share, and so do kept ones.
    assert_eq!((budget.give_up_share(4), budget.give_up_share(4)), (6, 0));
    assert_eq!(budget.demand(), demand(24, 20, None));
    drop(held);
    assert_eq!((budget.give_up_share(0), budget.demand()), (24, demand(0, 0, None)));
    // A request that waits for its own lane's limit adds nothing to the demand.
    budget.add_share(100);
    let _all = budget.acquire("a", 60, later()).await.unwrap();
    let _waiting = ask(&budget, "a", 10).await;
    assert_eq!(budget.demand(), demand(100, 60, None));
}

#[tokio::test]
async fn followers_of_a_share_learn_every_change() {
    let budget = budget(60, 100);
    budget.follow_share(false);
    budget.add_share(50);
    budget.wait_for_change().await;
    let mut held = budget.try_acquire("a", 10).unwrap();
    budget.wait_for_change().await;
    held.try_grow_to(20).unwrap();
    budget.wait_for_change().await;
    held.shrink_to(5);
    budget.wait_for_change().await;
    let _waiting = ask(&budget, "a", 50).await;
    budget.wait_for_change().await;
    drop(held);
    budget.wait_for_change().await;
}

#[tokio::test]
async fn joined_bytes_are_released_once() {
    let (budget, other) = (budget(60, 100), budget(60, 100));
    let mut held = budget.try_acquire("a", 10).unwrap();
    held.join(budget.try_acquire("a", 20).unwrap()).unwrap();
    assert_eq!((held.bytes(), budget.held_by("a")), (30, 30));
    let strange = held.join(other.try_acquire("a", 5).unwrap()).unwrap_err();
    let foreign = held.join(budget.try_acquire("b", 5).unwrap()).unwrap_err();
    assert_eq!((held.bytes(), strange.bytes(), foreign.bytes()), (30, 5, 5));
    drop((held, strange, foreign));
    assert_eq!((budget.held(), other.held()), (0, 0));
}

#[tokio::test]
async fn request_waiting_for_larger_share_leaves_free_bytes_usable() {
    let budget = budget(100, 100);
    budget.follow_share(false);
    budget.add_share(20);
    let mut fetch = budget.try_acquire("green", 10).unwrap();
    let mut waiting = ask(&budget, "green", 50).await;
    fetch.try_grow_to(15).unwrap();
    // The control: no more bytes are free for growth, and the waiting request gets its bytes.
    assert!(fetch.try_grow_to(30).is_err());
    budget.add_share(60);
    let Poll::Ready(Ok(held)) = poll!(&mut waiting) else {
        panic!("it waits still")
    };
    assert_eq!((held.bytes(), fetch.bytes()), (50, 15));
    // With a share as large as the whole budget, a waiting request comes first.
    budget.add_share(20);
    let _waiting = ask(&budget, "green", 40).await;
    assert!(fetch.try_grow_to(20).is_err());
}

/// Namespaces without a tenant share one process, which has the limit of one tenant.
#[tokio::test]
async fn lanes_sharing_one_limit_get_half_each() {
    let budget = budget(60, 100);
    budget.follow_share(true);
    budget.add_share(60);
    let refused = budget.acquire("a", 31, later()).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "things take 31 bytes or more, and at most 30 bytes fit: half of --things-per-tenant, since namespaces without a tenant share it"
    );
    let mut all_of_one = budget.acquire("a", 30, later()).await.unwrap();
    assert!(all_of_one.try_grow_to(31).is_err());
    let full = budget.try_acquire("a", 1).unwrap_err();
    assert!(full.is_transient() && full.to_string().contains("half"), "{full}");
    // A request of one lane that waits leaves the other half free, and the hub is not asked for it.
    let _waiting = ask(&budget, "a", 10).await;
    assert_eq!(budget.demand().first, None);
    let of_another = budget.acquire("b", 30, later()).await.unwrap();
    assert_eq!((budget.whole().lane, budget.process_limits().lane), (60, 30));
    drop((all_of_one, of_another));
}

/// Growth has no turn to wait for, but an answer about a larger share takes a moment.
#[tokio::test]
async fn growing_holder_waits_for_a_larger_share() {
    let budget = budget(60, 100);
    budget.follow_share(false);
    budget.add_share(20);
    let mut held = budget.try_acquire("a", 20).unwrap();
    let growing = budget.clone();
    let mut taking = Box::pin(growing.take_patiently(|| held.try_grow_to(50)));
    assert!(poll!(&mut taking).is_pending());
    assert_eq!((budget.demand().growing, budget.demand().first), (30, None));
    // Less than it needs: it continues to wait.
    budget.add_share(10);
    assert!(poll!(&mut taking).is_pending());
    budget.add_share(20);
    assert_eq!(taking.await, Ok(()));
    assert_eq!((held.bytes(), budget.demand().growing), (50, 0));
    // After the growth is dropped, it wants nothing.
    let mut taking = Box::pin(growing.take_patiently(|| held.try_grow_to(55)));
    assert!(poll!(&mut taking).is_pending());
    drop(taking);
    assert_eq!(budget.demand().growing, 0);
    // Bytes that another holder of this process releases suffice, too.
    let other = {
        budget.add_share(10);
        budget.try_acquire("b", 10).unwrap()
    };
    let mut taking = Box::pin(growing.take_patiently(|| held.try_grow_to(60)));
    assert!(poll!(&mut taking).is_pending());
    drop(other);
    assert_eq!(taking.await, Ok(()));
}

#[test]
fn growing_holder_on_a_thread_waits_as_well() {
    let budget = budget(60, 100);
    budget.follow_share(false);
    budget.add_share(20);
    let mut held = budget.try_acquire("a", 20).unwrap();
    let granted = std::thread::scope(|threads| {
        let growing = budget.clone();
        let taking = threads.spawn(move || growing.take_patiently_blocking(|| held.try_grow_to(50).map(|()| 50)));
        while budget.demand().growing != 30 {
            std::thread::yield_now();
        }
        budget.add_share(30);
        taking.join().unwrap()
    });
    assert_eq!((granted, budget.demand().growing), (Ok(50), 0));
}

/// A holder that waits for other holders could wait for ever.
#[tokio::test]
async fn growing_holder_waits_only_for_a_larger_share() {
    let whole = budget(60, 100);
    let (_a, mut held) = (whole.try_acquire("a", 60).unwrap(), whole.try_acquire("b", 40).unwrap());
    let growing = whole.clone();
    let mut taking = Box::pin(growing.take_patiently(|| held.try_grow_to(50)));
    assert!(matches!(poll!(&mut taking), Poll::Ready(Err(_))));
    let part = budget(60, 100);
    part.follow_share(false);
    part.add_share(60);
    let mut held = part.try_acquire("a", 60).unwrap();
    let growing = part.clone();
    // The lane already holds its limit.
    let refused = growing.take_patiently(|| held.try_grow_to(61)).await.unwrap_err();
    assert!(!refused.is_transient(), "{refused}");
    let refused = growing.take_patiently(|| part.try_acquire("a", 1)).await.unwrap_err();
    assert!(refused.to_string().contains("--things-per-tenant"), "{refused}");
    // The time ends, and the error has the reason.
    let take = || part.try_acquire("b", 40);
    let refused = growing.take_until(Instant::now(), take).await.unwrap_err();
    assert!(refused.is_transient(), "{refused}");
    assert_eq!(part.demand().growing, 0);
}
