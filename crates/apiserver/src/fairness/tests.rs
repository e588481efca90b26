//! Shares of users, namespaces and tenants.

use super::*;

fn user(name: &str) -> UserInfo {
    UserInfo {
        name: name.to_owned(),
        ..UserInfo::default()
    }
}

fn account(namespace: &str, name: &str) -> UserInfo {
    UserInfo::service_account(namespace, name, "")
}

fn small_fairness() -> Fairness {
    with_bounds(Bounds {
        total: 3,
        user: 2,
        waiting: 1,
        patience: Duration::from_millis(20),
        watches: 3,
        user_watches: 2,
        long: 2,
        user_long: 1,
        ..Bounds::default()
    })
}

fn with_bounds(bounds: Bounds) -> Fairness {
    // Namespaces with this prefix are the tenant's.
    let find_tenant = |user: &UserInfo| find_namespace(user)?.starts_with("blue-").then(|| "blue".to_owned());
    Fairness::new(
        bounds,
        PerMemoryUse::new(|_| ByteLedger::new(1000, 1000)),
        Box::new(find_tenant),
    )
}

#[tokio::test]
async fn one_user_does_not_take_the_places_of_another() {
    let fairness = small_fairness();
    let greedy = user("greedy");
    let _first = fairness.wait_for_permit(&greedy).await.expect("a place");
    let _second = fairness.wait_for_permit(&greedy).await.expect("a place");
    assert_eq!(
        fairness.wait_for_permit(&greedy).await.err(),
        Some(Rejected),
        "waited in vain"
    );
    let other = fairness.wait_for_permit(&user("other")).await.expect("a place");
    assert!(other.wait_for_work_permit().await.expect("work").is_some());
    assert_eq!(fairness.rejected_count(), 1);
}

#[tokio::test]
async fn a_request_over_the_waiting_limit_is_refused_immediately() {
    let fairness = with_bounds(Bounds {
        patience: Duration::from_secs(3600),
        ..small_fairness().bounds
    });
    let greedy = user("greedy");
    let first = fairness.wait_for_permit(&greedy).await.expect("a place");
    let _second = fairness.wait_for_permit(&greedy).await.expect("a place");
    let mut waits = Box::pin(fairness.wait_for_permit(&greedy));
    assert!(futures::poll!(waits.as_mut()).is_pending());
    assert_eq!(fairness.wait_for_permit(&greedy).await.err(), Some(Rejected));
    drop(first);
    waits.await.expect("the place that was given back");
}

#[tokio::test]
async fn an_administrator_is_always_let_in() {
    let fairness = small_fairness();
    let mut admin = user("admin");
    admin.ensure_group(MASTERS);
    let mut places = Vec::new();
    for _ in 0..10 {
        places.push(fairness.wait_for_permit(&admin).await.expect("a place"));
        fairness.watch(&admin).expect("a watch");
    }
}

#[tokio::test]
async fn accounts_of_one_namespace_have_one_share() {
    let fairness = small_fairness();
    let _first = fairness.wait_for_permit(&account("a", "x")).await.expect("a place");
    let _second = fairness.wait_for_permit(&account("a", "y")).await.expect("a place");
    assert!(
        fairness.wait_for_permit(&account("a", "z")).await.is_err(),
        "a third name, and no third place"
    );
    fairness
        .wait_for_permit(&account("ab", "x"))
        .await
        .expect("another namespace's");
    assert!(
        fairness
            .watch(&account("a", "x"))
            .is_ok_and(|_first| fairness.watch(&account("a", "y")).is_ok())
    );
    // A user whose name only resembles a ServiceAccount's is not one.
    let namespace = |name: &str| find_namespace(&user(name)).map(str::to_owned);
    assert_eq!(namespace("system:serviceaccount:a:x").as_deref(), Some("a"));
    assert_eq!(namespace("system:serviceaccount:a"), None);
    assert_eq!(namespace("somebody"), None);
}

#[tokio::test]
async fn namespaces_of_one_tenant_have_one_share() {
    let fairness = with_bounds(Bounds {
        total: 100,
        user: 8,
        user_watches: 8,
        watches: 100,
        ..small_fairness().bounds
    });
    let mut places = Vec::new();
    for number in 0..24 {
        let greedy = account(&format!("blue-{number}"), "x");
        places.extend(fairness.wait_for_permit(&greedy).await.ok());
    }
    assert_eq!(places.len(), 8, "as many as one has");
    assert!(fairness.wait_for_permit(&account("green", "x")).await.is_ok());
    let watches: Vec<_> = (0..24)
        .filter_map(|number| fairness.watch(&account(&format!("blue-{number}"), "x")).ok())
        .collect();
    assert_eq!(watches.len(), 8);
    assert!(fairness.watch(&account("green", "x")).is_ok());
    let turns = |namespace: &str| fairness.step_limiter(&account(namespace, "x")).expect("turns");
    let _taken = turns("blue-1").acquire_permits().await;
    let (blue, green) = (turns("blue-2"), turns("green"));
    let other = blue.acquire_permits();
    assert!(
        futures::poll!(Box::pin(other).as_mut()).is_pending(),
        "one for a tenant"
    );
    let green = green.acquire_permits();
    assert!(futures::poll!(Box::pin(green).as_mut()).is_ready());
    let _held = fairness.account(&account("blue-1", "x")).try_charge(10);
    assert!(fairness.account(&account("blue-2", "x")).try_charge(10).is_none());
}

#[tokio::test]
async fn one_account_leaves_permits_for_others_of_its_tenant() {
    let fairness = with_bounds(Bounds {
        total: 100,
        user: 8,
        ..small_fairness().bounds
    });
    let mut places = Vec::new();
    while let Ok(place) = fairness.wait_for_permit(&account("blue-1", "greedy")).await {
        places.push(place);
    }
    assert_eq!(places.len(), 4);
    while let Ok(place) = fairness.wait_for_permit(&account("blue-1", "other")).await {
        places.push(place);
    }
    assert_eq!(places.len(), 6);
    assert!(fairness.wait_for_permit(&account("blue-2", "x")).await.is_ok());
    assert_eq!([0, 1, 2, 9].map(|depth| share_at_depth(8, depth)), [8, 6, 4, 2]);
    assert_eq!([0, 1, 2].map(|depth| share_at_depth(1, depth)), [1, 1, 1]);
}

/// A user that was counted alone counts against the tenant's share once it belongs to the tenant.
#[tokio::test]
async fn new_account_of_a_tenant_counts_against_its_share() {
    let is_taken = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let tenant = is_taken.clone();
    let find_tenant = move |_: &UserInfo| tenant.load(Ordering::Relaxed).then(|| "blue".to_owned());
    let ledgers = PerMemoryUse::new(|_| ByteLedger::new(1000, 1000));
    let fairness = Fairness::new(small_fairness().bounds, ledgers, Box::new(find_tenant));
    let _before = fairness.wait_for_permit(&account("a", "x")).await.expect("a place");
    is_taken.store(true, Ordering::Relaxed);
    let _first = fairness
        .wait_for_permit(&account("a", "x"))
        .await
        .expect("a place of the tenant's");
    let _second = fairness.wait_for_permit(&account("b", "x")).await.expect("another");
    assert!(fairness.wait_for_permit(&account("c", "x")).await.is_err());
}

#[tokio::test]
async fn long_work_has_places_of_its_own() {
    let fairness = small_fairness();
    let place = fairness.wait_for_permit(&user("greedy")).await.expect("a place");
    let turns = place.long_work().expect("who is counted has turns");
    let _own = turns.own[0].try_acquire().expect("the user's one");
    let _all = turns.all.try_acquire().expect("one of two");
    let second = fairness.wait_for_permit(&user("greedy")).await.expect("a place");
    assert!(
        second
            .long_work()
            .is_some_and(|turns| turns.own[0].try_acquire().is_err())
    );
    let other = fairness.wait_for_permit(&user("other")).await.expect("a place");
    let turns = other.long_work().expect("turns");
    assert!(turns.own[0].try_acquire().is_ok() && turns.all.try_acquire().is_ok());
    assert!(other.wait_for_work_permit().await.expect("a place for work").is_some());
    let mut admin = user("admin");
    admin.ensure_group(MASTERS);
    assert!(
        fairness
            .wait_for_permit(&admin)
            .await
            .expect("a place")
            .long_work()
            .is_none()
    );
}

#[tokio::test]
async fn long_work_counts_when_its_client_hung_up() {
    let fairness = small_fairness();
    let turn = {
        let place = fairness.wait_for_permit(&user("greedy")).await.expect("a place");
        let turns = place.long_work().expect("turns");
        turns.own[0].clone().try_acquire_owned().expect("the user's one")
    };
    let place = fairness.wait_for_permit(&user("greedy")).await.expect("a place");
    let turns = place.long_work().expect("turns");
    assert!(turns.own[0].try_acquire().is_err(), "a thread still computes for it");
    drop(turn);
    assert!(turns.own[0].try_acquire().is_ok());
}

#[test]
fn charges_of_a_user_outlive_its_requests() {
    let fairness = small_fairness();
    let charge = fairness.account(&user("a")).try_charge(10);
    assert!(fairness.account(&user("b")).try_charge(10).is_none(), "all is held");
    assert!(fairness.account(&user("a")).try_charge(10).is_none());
    drop(charge);
    assert!(fairness.account(&user("a")).try_charge(10).is_some());
}

#[test]
fn watches_are_counted_apart() {
    let fairness = small_fairness();
    let _first = fairness.watch(&user("a")).expect("a watch");
    let second = fairness.watch(&user("a")).expect("a watch");
    assert!(fairness.watch(&user("a")).is_err());
    let _other = fairness.watch(&user("b")).expect("a watch");
    assert!(fairness.watch(&user("b")).is_err(), "no more in all");
    drop(second);
    assert!(fairness.watch(&user("a")).is_ok());
}

/// Unused shares are removed without a scan for each new share.
#[test]
fn unused_shares_are_swept_only_once_in_a_while() {
    let fairness = small_fairness();
    let used: Vec<_> = (0..100)
        .map(|number| fairness.share_of(&user(&format!("used-{number}"))))
        .collect();
    fairness.users.lock().sweep(0);
    let mut scans = 0;
    for number in 0..1_000 {
        let before = fairness.users.lock().by_path.len();
        drop(fairness.share_of(&user(&format!("once-{number}"))));
        let after = fairness.users.lock().by_path.len();
        scans += usize::from(after <= before);
        assert!(after <= 2 * used.len() + 1, "{after}");
    }
    assert!((1..=10).contains(&scans), "{scans}");
}
