//! The deletion of a Package: its releases are removed after an administrator has allowed it, or left. The finalizer waits for that.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenure_api::metadata::TENURE_FINALIZER;
use tenure_api::package::{DELETION_POLICY, ORPHAN};
use tenure_api::reason;
use tenure_tenancy::identity;

use super::selection::Problem;
use super::writes::{Work, watch_release};
use super::{Plan, Snapshot, records, removal, status};
use crate::answer::Live;
use crate::outcome;
use crate::plan::{Event, EventKind, EventPlace, FinalizerChange, Next, Request, Withheld};
use crate::recorded_objects::Step;

/// Plans the next step of the deletion of a Package.
pub(super) fn plan_deletion(snapshot: &Snapshot, now: Timestamp, mut plan: Plan) -> Plan {
    let recorded = records::read_records(&snapshot.package);
    let names: Vec<String> = recorded.keys().map(tenure_api::ObjectId::subject).collect();
    if recorded.is_empty() || is_orphaning(snapshot) {
        return end_deletion(snapshot, plan, &names);
    }
    match identity::decide_for_packages(snapshot.settings.service_account.as_deref()) {
        Ok(account) => plan.identity = Some(account),
        Err(denial) => {
            let problem = Problem::new(denial.reason.as_str(), denial.message);
            return status::report_refusal(snapshot, now, plan, &problem);
        }
    }
    plan.watch = recorded.keys().map(watch_release).collect();
    let unread = plan
        .watch
        .iter()
        .filter(|watched| !snapshot.live.contains_key(&watched.id));
    let reads: Vec<Step> = unread
        .map(|watched| Step::Request(Request::Read(watched.clone())))
        .collect();
    if !reads.is_empty() {
        plan.steps = reads;
        plan.next = Next::Again;
        return plan;
    }
    let mut work = Work {
        snapshot,
        now,
        plan,
        records: records::update_records(snapshot, |_| false),
        problems: Vec::new(),
        contested: BTreeMap::new(),
        retry: None,
    };
    for (id, live) in &snapshot.live {
        if let (Live::Failed(failure), true) = (live, work.records.contains_key(id)) {
            let problem = Problem::of_failure(&snapshot.settings, id, "read", failure);
            work.problems.push(problem);
        }
    }
    let leftovers = removal::list_leftovers(&work, |_| false);
    let removal = removal::plan_removal(&mut work, leftovers, &BTreeSet::new());
    let steps = work.delete(&removal.deletes);
    if !steps.is_empty() {
        work.store_records_first();
        work.plan.steps = steps;
        work.plan.next = Next::Again;
        return work.plan;
    }
    if removal.waiting == 0 && work.problems.is_empty() && work.records.len() == removal.kept.len() {
        let mut plan = work.plan;
        plan.identity = None;
        plan.watch.clear();
        return end_deletion(snapshot, plan, &removal.kept);
    }
    status::report_deletion(work, &removal)
}

fn is_orphaning(snapshot: &Snapshot) -> bool {
    let annotations = snapshot.package.metadata.annotations.as_ref();
    annotations
        .and_then(|annotations| annotations.get(DELETION_POLICY))
        .map(String::as_str)
        == Some(ORPHAN)
}

/// Removes the finalizer. The event names the releases that stay.
fn end_deletion(snapshot: &Snapshot, mut plan: Plan, left: &[String]) -> Plan {
    let finalizers = snapshot.package.metadata.finalizers.as_deref().unwrap_or_default();
    if finalizers.iter().any(|finalizer| finalizer == TENURE_FINALIZER) {
        plan.finalizer = Some(FinalizerChange::Remove(TENURE_FINALIZER.to_owned()));
    }
    if !left.is_empty() {
        let message = format!("left in the cluster: {}", outcome::join_names(left, 4 << 10));
        plan.withheld.push(Withheld {
            what: "deletion of HelmReleases".to_owned(),
            why: message.clone(),
        });
        plan.events.push(Event {
            kind: EventKind::Warning,
            reason: reason::PRUNE_SKIPPED.to_owned(),
            message,
            annotations: BTreeMap::new(),
            place: EventPlace::Beside,
        });
    }
    plan.next = Next::Forget;
    plan
}
