//! A controller is killed while it replaces a credential, at each write, before or after its effect. Also, a host's connection breaks at each
//! request, before or after its effect. At any time, at most one unrecorded token lives. In the end exactly one lives, and it is in use.

use std::collections::BTreeSet;

use http::Method;
use jiff::Timestamp;
use serde_json::Value;
use tenure_forge_server::{Fault, Misbehaviour};
use tenure_git_access::rotation_order::RotationOrder;
use tenure_testkit::{SOON, choose_length, eventually};

use super::bed::{Bed, PLATFORM, PROVIDER_KIND, REQUEST, Setup, ledger};
use crate::faults::Kill;
use crate::stage::condition;

/// The minimum number of writes of a replacement. Fewer kills would mean that the test watched something else.
const LEAST_WRITES: usize = 8;
/// The minimum number of requests that a replacement sends to the host.
const LEAST_ASKED: usize = 4;
/// The seconds after which a lost order is declared as lost, in place of a minute.
const PATIENCE: i64 = 2;
/// The limit of such declarations in a row.
const MOST_WAITS: usize = 10;
/// The age in seconds that the records are given.
const AGED: i64 = 1_800;

/// Creates a bed with a credential that is delivered and in use.
async fn set_up_bed(namespace: &'static str) -> Bed {
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
    bed.wait_for_delivery().await;
    bed
}

/// Returns the host's numbers in the record.
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

    /// Makes the record older, so that another credential may be ordered. Restarts the controllers without old lists, and waits until they rest. A
    /// process that is killed in the first attempt of each would wait longer each time.
    pub(super) async fn prepare(&mut self, when: &str) {
        let count = |bed: &Self| bed.forge.count(&Method::GET, "personal_access_tokens/self");
        let before = count(self);
        self.stage.restart().await;
        self.age().await;
        let begun = eventually(SOON, || async { if count(self) > before { Ok(()) } else { Err(()) } });
        begun.await.expect("the host's authoriser was not tried");
        self.stage.come_to_rest(SOON, when).await;
    }

    /// Checks that at most one unrecorded token lives.
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

    /// Waits until nothing changes by itself. Returns whether the order is done and only the used token lives; otherwise a minute has to pass.
    async fn until_rest(&self, order: &RotationOrder, when: &str) -> bool {
        let came = eventually(2 * SOON, || async {
            let request = self.one_request().await.ok_or("there is no request")?;
            let ledger = ledger(&request);
            let live: Vec<u64> = self.live().iter().map(|live| live.id).collect();
            let is_open = order.is_open(&serde_json::from_value(request.clone()).unwrap());
            let is_verified = condition(&request, "Verified").is_some_and(|verified| verified["status"] == "True");
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

    /// Waits until the order is done and only the used token lives. If a minute has to pass, the record is changed as if it had passed, for restarted
    /// controllers: lists of running controllers would count as newer.
    async fn check_the_end(&mut self, order: &RotationOrder, when: &str) {
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
async fn controller_killed_at_any_write_leaves_no_unrecorded_token() {
    let mut bed = set_up_bed("acc-v").await;
    for after_effect in [false, true] {
        // In CI every third write, with other writes in the second pass.
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
    bed.stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_host_connection_leaves_no_unrecorded_token() {
    let mut bed = set_up_bed("acc-w").await;
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
            let before = bed.forge.requests().len();
            let order = bed.order(true).await;
            bed.check_the_end(&order, &when).await;
            bed.check_recorded(&when).await;
            bed.forge.behave();
            let requests = bed.forge.requests();
            let asked = requests
                .iter()
                .skip(before)
                .filter(|request| request.target.contains("/projects/"));
            if asked.count() <= after {
                break;
            }
            after += choose_length(2, 1);
        }
        assert!(after >= LEAST_ASKED, "it asked only {after} times");
    }
    bed.revoke("acc-w", "gitlab-flux-token").await;
    bed.stage.shut_down().await;
}
