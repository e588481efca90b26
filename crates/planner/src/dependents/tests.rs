//! An object that Tenure takes over gets Tenure's label only in a version without a tenant's finalizers.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

use serde_json::json;

use super::*;

fn make_wanted() -> Wanted {
    Wanted {
        id: "blue_b_rbac.authorization.k8s.io_RoleBinding".parse().unwrap(),
        version: "v1",
        object: json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "b", "namespace": "blue", "labels": { "app.kubernetes.io/managed-by": "tenure" } },
        }),
    }
}

fn plan_writes(live: &Value, attempt: &Attempt, judges_writes: bool) -> Vec<Request> {
    let wanted = make_wanted();
    let live = BTreeMap::from([(wanted.id.clone(), Live::Present(Object(live.clone())))]);
    let mut memory = Memory::default();
    let mut dependents = Dependents {
        owner: "Tenant",
        live: &live,
        attempt,
        memory: &mut memory,
        now: Timestamp::UNIX_EPOCH,
        finalizers: FinalizerRule {
            judges_writes,
            listed: "",
        },
        lingering: BTreeMap::new(),
    };
    let judge = |live: &Value, wanted: &Wanted| match live["metadata"]["labels"] == wanted.object["metadata"]["labels"]
    {
        true => Verdict::AsWanted,
        false => Verdict::Differs,
    };
    match dependents.plan_writes([&wanted].into_iter(), judge, &mut Vec::new(), &mut Vec::new()) {
        NextWrites::Apply(steps) => steps,
        NextWrites::ReadFirst(_) => panic!("everything is known"),
    }
}

#[test]
fn object_is_labelled_only_after_finalizers_are_removed() {
    let mut attempt = Attempt::new(Timestamp::UNIX_EPOCH, &ObjectMeta::default());
    let held = json!({ "metadata": { "uid": "u", "resourceVersion": "7", "finalizers": ["example.org/hold"] } });
    let steps = plan_writes(&held, &attempt, true);
    assert!(matches!(steps.as_slice(), [Request::Release(_)]), "{steps:?}");
    let free = json!({ "metadata": { "uid": "u", "resourceVersion": "8", "finalizers": [] } });
    attempt.record_answer(Answer::Released(
        make_wanted().id,
        WriteAnswer::Done(Object(free.clone())),
    ));
    let steps = plan_writes(&free, &attempt, true);
    let [Request::Apply(apply)] = steps.as_slice() else {
        panic!("{steps:?}")
    };
    assert_eq!(apply.object.0["metadata"]["resourceVersion"], "8");
    // If no admission checks writes, each look removes the finalizers that were added meanwhile.
    let steps = plan_writes(
        &held,
        &Attempt::new(Timestamp::UNIX_EPOCH, &ObjectMeta::default()),
        false,
    );
    let [Request::Release(_), Request::Apply(apply)] = steps.as_slice() else {
        panic!("{steps:?}")
    };
    assert_eq!(apply.object.0["metadata"].get("resourceVersion"), None);
}
