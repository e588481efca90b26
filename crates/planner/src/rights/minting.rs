//! Finds administrators' tokens that a lane of several namespaces may request (TokenRequest). The plan asks the API server every ten minutes, and reports what it
//! finds.
//!
//! Users of every other namespace of the lane would reach the administrator. A finding stops no lane: that would stop every tenant of the lane.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_tenancy::LaneAccount;
use tenure_tenancy::rights::MINT_ADMINISTRATOR;

use super::desired::DesiredObjects;
use super::{Plan, RETRY, Snapshot, Step};
use crate::outcome::add_duration;
use crate::plan::{Event, EventKind, EventPlace, Next};

/// The time until the next review of a lane: after an answer, and after no answer of the API server.
pub(super) const MINTING_REVIEWS: (Duration, Duration) = (Duration::from_secs(600), RETRY);

/// A finding: a lane of several namespaces may request administrators' tokens in one namespace, or the API server gave no answer about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMinting {
    pub(super) namespace: String,
    pub(super) lane: LaneAccount,
    /// Names of ServiceAccounts, `*` for all; or why the API server gave no answer.
    accounts: Result<Vec<String>, String>,
}

impl SharedMinting {
    /// Checks whether the API server has answered.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.accounts.is_ok()
    }
}

impl fmt::Display for SharedMinting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (namespace, lane) = (&self.namespace, &self.lane);
        match &self.accounts {
            Ok(accounts) => write!(
                formatter,
                "Namespace/{namespace}: {lane} may request tokens of administrators (serviceaccounts {}), and serves other namespaces too. Protect \
                 the namespace (--protected-namespaces), and grant mint-administrator to its own lane.",
                accounts.join(", ")
            ),
            Err(problem) => write!(
                formatter,
                "Namespace/{namespace}: whether {lane} may request tokens of administrators isn't known: {problem}"
            ),
        }
    }
}

/// Adds a review of the administrators' tokens that a lane of several namespaces may request, if one is due, and reports its result.
pub(super) fn review_minting(snapshot: &Snapshot, now: Timestamp, wanting: &DesiredObjects, plan: &mut Plan) {
    if let Some((asked, due)) = &plan.memory.minting_due
        && *asked == wanting.lane
        && now < *due
    {
        let due = *due;
        wake_at(plan, due);
        return;
    }
    let pause = match &snapshot.attempt.minting {
        None => {
            plan.steps = vec![Step::ReviewMinting(wanting.lane.clone())];
            plan.next = Next::Again;
            return;
        }
        // After a missing answer, the last finding stays.
        Some(Err(problem)) => {
            let last = plan.memory.minting.take();
            let known = last.filter(|last| last.is_known() && last.lane == wanting.lane);
            plan.memory.minting = Some(known.unwrap_or_else(|| SharedMinting {
                namespace: snapshot.namespace.clone(),
                lane: wanting.lane.clone(),
                accounts: Err(problem.clone()),
            }));
            MINTING_REVIEWS.1
        }
        Some(Ok(accounts)) => {
            let found = (!accounts.is_empty()).then(|| SharedMinting {
                namespace: snapshot.namespace.clone(),
                lane: wanting.lane.clone(),
                accounts: Ok(accounts.clone()),
            });
            if let Some(found) = found
                .as_ref()
                .filter(|found| plan.memory.minting.as_ref() != Some(found))
            {
                plan.events.push(Event {
                    kind: EventKind::Warning,
                    reason: "LaneMintsAdministrator".to_owned(),
                    message: found.to_string(),
                    annotations: BTreeMap::new(),
                    place: EventPlace::Platform,
                });
            }
            plan.memory.minting = found;
            MINTING_REVIEWS.0
        }
    };
    let due = add_duration(now, pause);
    plan.memory.minting_due = Some((wanting.lane.clone(), due));
    wake_at(plan, due);
}

/// Schedules the next attempt at this time, or earlier if one is due earlier.
fn wake_at(plan: &mut Plan, at: Timestamp) {
    plan.next = match plan.next {
        Next::Done(Some(earlier)) => Next::Done(Some(earlier.min(at))),
        _ => Next::Done(Some(at)),
    };
}

/// Writes the request of [`Step::ReviewMinting`].
#[must_use]
pub fn write_minting_review(namespace: &str) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": { "namespace": namespace },
    })
}

/// Reads the ServiceAccounts of which the answer to [`write_minting_review`] allows an administrator's token; `*` for all of them.
#[must_use]
pub fn read_minting_review(answer: &Value) -> Vec<String> {
    let rules = ObjectView::new(answer).list_views("/status/resourceRules");
    let grants = rules.filter(|rule| {
        let has = |path: &str, wanted: &str| rule.list_texts(path).any(|text| text == wanted || text == "*");
        has("/apiGroups", "") && has("/resources", "serviceaccounts") && has("/verbs", MINT_ADMINISTRATOR)
    });
    let mut accounts = BTreeSet::new();
    for rule in grants {
        let mut names = rule.list_texts("/resourceNames").peekable();
        if names.peek().is_none() {
            accounts.insert("*".to_owned());
        }
        accounts.extend(names.map(str::to_owned));
    }
    accounts.into_iter().collect()
}
