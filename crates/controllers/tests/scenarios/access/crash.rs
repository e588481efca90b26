//! A controller that dies while it replaces a credential, at each write and before or after its effect, and a host whose connection breaks at each request, before
//! or after its effect: whenever that is, no more than one token lives that is in no record, and in the end one lives, which is in use.

use std::collections::BTreeSet;

use http::Method;
use jiff::Timestamp;
use serde_json::Value;
use tenure_forge_server::{Fault, Misbehaviour};
use tenure_planner::access::order::Written;
use tenure_testkit::{SOON, choose_length, eventually};

use super::bed::{Bed, PLATFORM, PROVIDER_KIND, REQUEST, Setup, ledger};
use crate::faults::Kill;
use crate::stage::condition;

/// A replacement has more writes than this: fewer deaths would mean that it wasn't one that was watched.
const LEAST_WRITES: usize = 8;
/// How many requests a replacement sends to the host, at least.
const LEAST_ASKED: usize = 4;
/// After how many seconds an order that is on its way no more is told so, in place of a minute.
const PATIENCE: i64 = 2;
/// How often in a row it may have to be told so.
const MOST_WAITS: usize = 10;
/// What is recorded as that old was made so.
const AGED: i64 = 1_800;

/// One that is delivered and in use.
async fn begin(namespace: &'static str) -> Bed {
    let entries = format!("namespaces: [{namespace}]");
    let setup = Setup {
        namespaces: &[namespace],
        entries: &entries,
        is_failing: true,
        ..Setup::default()
    };
    let bed = Bed::set(setup).await;
    bed.source(namespace).await;
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    bed.delivered().await;
    bed
}

/// The host's numbers that the record has.
fn list_recorded(request: &Value) -> BTreeSet<u64> {
    let ledger = ledger(request);
    let retiring = ledger["retiring"].as_array().into_iter().flatten();
    let held = [&ledger["current"], &ledger["next"]].into_iter().chain(retiring);
    held.filter_map(|held| held["id"].as_u64()).collect()
}

impl Bed {
    async fn one_request(&self) -> Option<Value> {
        let all = self.admin().list(REQUEST, PLATFORM).await.ok()?;
        all.into_iter().next()
    }

    /// Makes what is recorded older, so that another one may be ordered, with controllers that have no list of before; and waits until these are at rest: whoever
    /// dies in the first attempt of each waits longer each time.
    pub(super) async fn prepare(&mut self, when: &str) {
        let count = |bed: &Self| bed.forge.count(&Method::GET, "personal_access_tokens/self");
        let before = count(self);
        self.stage.restart().await;
        self.age().await;
        let begun = eventually(SOON, || async { if count(self) > before { Ok(()) } else { Err(()) } });
        begun.await.expect("the host's authoriser was not tried");
        self.stage.come_to_rest(SOON, when).await;
    }

    /// At most one lives that no record has.
    async fn check_recorded(&self, when: &str) {
        let request = self.one_request().await.unwrap();
        let recorded = list_recorded(&request);
        let live = self.live();
        let unrecorded = live.iter().filter(|live| !recorded.contains(&live.id));
        assert!(
            unrecorded.count() <= 1,
            "{when}: {live:#?} live; {:#}",
            request["status"]
        );
    }

    /// Waits until nothing goes on by itself: whether that is since the order is carried out and the one that is in use lives alone, or since a minute has to pass.
    async fn until_rest(&self, order: &Written, when: &str) -> bool {
        let came = eventually(2 * SOON, || async {
            let request = self.one_request().await.ok_or("there is no request")?;
            let ledger = ledger(&request);
            let live: Vec<u64> = self.live().iter().map(|live| live.id).collect();
            let is_open = order.is_open(&serde_json::from_value(request.clone()).unwrap());
            let is_verified = condition(&request, "Verified").is_some_and(|said| said["status"] == "True");
            let is_alone = live.len() == 1 && ledger["current"]["id"] == live[0];
            if !is_open && is_verified && ledger["next"].is_null() && is_alone {
                return Ok(true);
            }
            let begun: Option<Timestamp> = ledger["next"]["begunAt"].as_str().and_then(|at| at.parse().ok());
            let since = begun.map_or(0, |at| Timestamp::now().duration_since(at).as_secs());
            let waits = ledger["next"]["phase"] == "Intent" && (PATIENCE..AGED).contains(&since);
            if waits || !ledger["retryAt"].is_null() {
                return Ok(false);
            }
            Err(format!("{live:?} live; {:#}", request["status"]))
        });
        match came.await {
            Ok(is_done) => is_done,
            Err(last) => {
                let provider = self.stage.get(PROVIDER_KIND, (PLATFORM, "work")).await.unwrap();
                panic!("{when}: it came to no end: {last}; {:#}", provider["status"])
            }
        }
    }

    /// Waits until the order is carried out and the one that is in use lives alone. Where a minute has to pass, it is said to be over: to controllers that
    /// begin anew, since the lists that others have would count as made after it.
    async fn check_the_end(&mut self, order: &Written, when: &str) {
        for _ in 0..MOST_WAITS {
            if self.until_rest(order, when).await {
                return;
            }
            self.prepare(when).await;
        }
        panic!(
            "{when}: it waits again and again: {:#}",
            self.one_request().await.unwrap()["status"]
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_dies_at_any_write_leaves_no_token_that_nobody_knows() {
    let mut bed = begin("acc-v").await;
    for after_effect in [false, true] {
        // In CI every third write, and others the second time.
        let step = choose_length(3, 1);
        let mut at = if after_effect { step } else { 1 };
        loop {
            let when = format!("killed at write {at}, after its effect: {after_effect}");
            bed.prepare(&when).await;
            bed.stage.life().kill_at_write(Kill { at, after_effect });
            let order = bed.order(true).await;
            let life = bed.stage.life();
            let died = tokio::select! {
                () = life.until_dead() => true,
                _ = bed.until_rest(&order, &when) => life.spare().await,
            };
            if died {
                bed.check_recorded(&when).await;
                bed.stage.restart_after_death();
            }
            bed.check_the_end(&order, &when).await;
            if !died {
                break;
            }
            at += step;
        }
        assert!(at > LEAST_WRITES, "it had only {at} writes");
    }
    bed.revoke("acc-v", "gitlab-flux-token").await;
    bed.stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_whose_connection_breaks_at_any_request_has_no_token_that_nobody_knows() {
    let mut bed = begin("acc-w").await;
    for (what, broken) in [("before", Misbehaviour::Cut), ("after", Misbehaviour::EffectThenCut)] {
        let mut after = 0;
        loop {
            let when = format!("cut off {what} the effect of request {after} of the host's");
            bed.prepare(&when).await;
            bed.forge.misbehave(Fault {
                method: None,
                path: "/projects/".to_owned(),
                after,
                times: 1,
                what: broken.clone(),
            });
            let before = bed.forge.heard().len();
            let order = bed.order(true).await;
            bed.check_the_end(&order, &when).await;
            bed.check_recorded(&when).await;
            bed.forge.behave();
            let heard = bed.forge.heard();
            let asked = heard
                .iter()
                .skip(before)
                .filter(|heard| heard.target.contains("/projects/"));
            if asked.count() <= after {
                break;
            }
            after += choose_length(2, 1);
        }
        assert!(after >= LEAST_ASKED, "it asked only {after} times");
    }
    bed.revoke("acc-w", "gitlab-flux-token").await;
    bed.stage.end().await;
}
