//! The invariants of every plan for a Package and a PackageSource: nothing is written that no stored record proves.

use tenure_api::{Condition, ObjectId, condition};
use tenure_planner::package::{self, Step};
use tenure_planner::{Live, Request, invariants};
use tenure_tenancy::record::digest_proof;

/// The record of an object: its uid, and the digests of its proofs.
pub(crate) type Record = (Option<String>, Vec<String>);

/// Checks the steps of a plan against the stored records.
pub(crate) fn check_steps(
    steps: &[Step],
    find_record: impl Fn(&ObjectId) -> Option<Record>,
    find_live: impl Fn(&ObjectId) -> Option<Live>,
) -> Vec<String> {
    let mut violations = Vec::new();
    for step in steps {
        match step {
            Step::Replace(replace) => {
                let id = &replace.target.id;
                let uid = replace.object.view().find_text("/metadata/uid").map(str::to_owned);
                let live = find_live(id);
                let live = live.as_ref().and_then(Live::object);
                let is_kept =
                    live.is_some_and(|live| live.pointer("/spec/suspend") == replace.object.0.pointer("/spec/suspend"));
                if !is_recorded(find_record(id), uid.as_deref(), live) || !is_kept {
                    violations.push(format!("replaces what is not recorded, or changes suspend: {step}"));
                }
                if replace.object.view().find_text("/metadata/resourceVersion").is_none() {
                    violations.push(format!("replaces an unknown version: {step}"));
                }
            }
            Step::Request(Request::Create(apply)) => {
                let proof = apply
                    .object
                    .view()
                    .find_annotation("tenure.dev/creation-proof")
                    .unwrap_or_default();
                let record = find_record(&apply.id);
                if !record.is_some_and(|(uid, digests)| uid.is_none() && digests.contains(&digest_proof(proof))) {
                    violations.push(format!("creates what no stored record names: {step}"));
                }
            }
            Step::Request(Request::Delete(delete)) => {
                let live = find_live(&delete.target.id);
                let live = live.as_ref().and_then(Live::object);
                if !is_recorded(find_record(&delete.target.id), delete.uid.as_deref(), live) {
                    violations.push(format!("deletes what is not recorded: {step}"));
                }
                if live.is_some_and(|live| live.pointer("/metadata/annotations/helm.sh~1resource-policy").is_some()) {
                    violations.push(format!("deletes what is to be kept: {step}"));
                }
            }
            Step::Request(Request::Apply(apply)) if apply.id.kind != "Namespace" => {
                violations.push(format!("applies more than a namespace: {step}"));
            }
            Step::Request(Request::Apply(_) | Request::Read(_)) => {}
            Step::Request(other) => violations.push(format!("is no step of a Package: {other}")),
        }
    }
    violations
}

fn is_recorded(record: Option<Record>, uid: Option<&str>, live: Option<&serde_json::Value>) -> bool {
    let proof = live.and_then(|live| {
        live.pointer("/metadata/annotations/tenure.dev~1creation-proof")?
            .as_str()
    });
    match record {
        Some((Some(recorded), _)) => Some(recorded.as_str()) == uid,
        Some((None, digests)) => proof.is_some_and(|proof| digests.contains(&digest_proof(proof))),
        None => false,
    }
}

/// Checks the invariants of all plans, and those of a Package's conditions.
pub(crate) fn check_plan<I, T, M>(
    plan: &tenure_planner::Plan<Step, I, T, M>,
    conditions: Option<&[Condition]>,
) -> Vec<String> {
    let mut violations = invariants::check_plan(plan);
    if let Some(conditions) = conditions {
        let [ready, stalled, reconciling] = [condition::READY, condition::STALLED, condition::RECONCILING]
            .map(|type_| condition::is_true(conditions, type_));
        if (ready && (stalled || reconciling)) || (stalled && reconciling) {
            violations.push("ready, stalled and reconciling exclude each other".to_owned());
        }
    }
    violations
}

/// Checks that the other clients can't read a proof from a status.
pub(crate) fn hides_proofs(plan: &package::Plan) -> bool {
    let status = serde_json::to_string(&plan.status).unwrap();
    plan.steps.iter().all(|step| match step {
        Step::Request(Request::Create(apply)) => {
            let proof = apply
                .object
                .view()
                .find_annotation("tenure.dev/creation-proof")
                .unwrap_or_default();
            !proof.is_empty() && !status.contains(proof)
        }
        _ => true,
    })
}
