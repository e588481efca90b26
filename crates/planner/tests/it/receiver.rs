//! Plans for a Receiver: the path for requests, and the refused fields.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_api::{ConditionStatus, Receiver};
use tenure_planner::receiver::{Attempt, Memory, Plan, Snapshot, Step, TokenFailure, find_path, plan};
use tenure_planner::{EventKind, Next, invariants};
use tenure_tenancy::TenancyFacts;

/// The path for token `sesame`, name `hook` and namespace `blue`, as `printf sesamehookblue | sha256sum` has it.
pub(crate) const PATH: &str = "/hook/eebb765e710b9d90f8e1c4b5e4fd69c2cc4afb153c0defdd5096886205f41a95";

pub(crate) fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

pub(crate) fn make_tenancy() -> TenancyFacts {
    serde_json::from_value(json!({
        "tenants": [{ "name": "blue", "uid": "t", "recorded": { "blue": "n-blue", "blue-dev": "n-blue-dev" } }],
        "namespaces": [
            { "name": "blue", "uid": "n-blue", "tenantLabel": "blue", "tenantOwners": [{ "name": "blue", "uid": "t" }] },
            { "name": "blue-dev", "uid": "n-blue-dev", "tenantLabel": "blue", "tenantOwners": [{ "name": "blue", "uid": "t" }] },
            { "name": "red" },
        ],
    }))
    .unwrap()
}

pub(crate) fn make_receiver(fields: &Value) -> Receiver {
    let mut spec = json!({
        "type": "github", "secretRef": { "name": "token" }, "resources": [{ "kind": "GitRepository", "name": "app" }],
    });
    for (key, value) in fields.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    serde_json::from_value(json!({
        "apiVersion": "notification.toolkit.fluxcd.io/v1", "kind": "Receiver",
        "metadata": { "name": "hook", "namespace": "blue", "generation": 1, "uid": "u" },
        "spec": spec,
    }))
    .unwrap()
}

fn make_snapshot(fields: &Value) -> Snapshot {
    let receiver = make_receiver(fields);
    Snapshot {
        placement: make_tenancy().find_placement("blue"),
        is_outdated: false,
        has_listener: true,
        attempt: Attempt::new(&receiver),
        memory: Memory::default(),
        receiver,
    }
}

fn planned_at(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let plan = plan(snapshot, now);
    assert_eq!(invariants::check_plan(&plan), Vec::<String>::new(), "{plan}");
    plan
}

fn plan_now(snapshot: &Snapshot) -> Plan {
    planned_at(snapshot, start())
}

/// The next plan of the same attempt, after a step was answered.
fn plan_with_token(mut snapshot: Snapshot, token: Result<&[u8], TokenFailure>) -> (Snapshot, Plan) {
    let asked = plan_now(&snapshot);
    assert_eq!(
        asked.steps,
        [Step::ReadToken {
            secret: "token".to_owned()
        }]
    );
    assert_eq!(
        asked.identity.unwrap().to_string(),
        "system:serviceaccount:blue:blue-gitops"
    );
    snapshot.memory = asked.memory;
    snapshot.attempt.path = Some(token.map(|token| find_path(token, &snapshot.receiver)));
    let plan = plan_now(&snapshot);
    snapshot.memory = plan.memory.clone();
    if let Some(status) = &plan.status {
        snapshot.receiver.status = Some(status.clone());
    }
    (snapshot, plan)
}

#[test]
fn webhook_path_follows_from_token_name_and_namespace() {
    let (snapshot, plan) = plan_with_token(make_snapshot(&json!({})), Ok(b"sesame"));
    let status = plan.status.as_ref().unwrap();
    assert_eq!(status.webhook_path.as_deref(), Some(PATH));
    assert_eq!(status.observed_generation, Some(1));
    insta::assert_snapshot!(plan.to_string());
    assert_eq!(plan.memory.hook_path.as_ref().unwrap().as_str(), PATH);
    assert!(plan.events.iter().all(|event| !event.message.contains("/hook/")));
    // Nothing is read or written before the next look is due: at the interval, after a request, or after a change.
    let mut again = Snapshot {
        attempt: Attempt::new(&snapshot.receiver),
        ..snapshot
    };
    let idle = plan_now(&again);
    assert!(idle.steps.is_empty() && idle.status.is_none() && idle.memory.hook_path.is_some());
    let Next::Done(Some(due)) = idle.next else {
        panic!("{idle}")
    };
    let after = due.duration_since(start()).as_secs();
    assert!((570..=630).contains(&after), "{after}");
    assert_eq!(planned_at(&again, due).steps.len(), 1);
    again.is_outdated = true;
    assert_eq!(plan_now(&again).steps.len(), 1);
    again.is_outdated = false;
    let asked = BTreeMap::from([("reconcile.fluxcd.io/requestedAt".to_owned(), "now".to_owned())]);
    again.receiver.metadata.annotations = Some(asked);
    assert_eq!(plan_now(&again).next, Next::Restart);
    again.attempt = Attempt::new(&again.receiver);
    let (_, plan) = plan_with_token(again, Ok(b"sesame"));
    assert_eq!(plan.status.unwrap().last_handled_reconcile_at.as_deref(), Some("now"));
    assert!(plan.events.is_empty(), "it is no news");
}

#[test]
fn receiver_without_listener_is_not_ready() {
    let silent = Snapshot {
        has_listener: false,
        ..make_snapshot(&json!({}))
    };
    let (mut silent, plan) = plan_with_token(silent, Ok(b"sesame"));
    let status = plan.status.as_ref().unwrap();
    // The path is known already, so that a user can set it at the Git host.
    assert_eq!(status.webhook_path.as_deref(), Some(PATH));
    let ready = &status.conditions[0];
    assert_eq!(
        (ready.status, ready.reason.as_str()),
        (ConditionStatus::False, "NoListener")
    );
    for flag in ["tenure install --hooks", "--hook-address"] {
        assert!(ready.message.contains(flag), "{}", ready.message);
    }
    assert!(
        plan.events
            .iter()
            .all(|event| event.kind == EventKind::Warning && !event.message.contains("/hook/"))
    );
    // Reported once, until the listener is there.
    silent.attempt = Attempt::new(&silent.receiver);
    silent.is_outdated = true;
    let (mut silent, again) = plan_with_token(silent, Ok(b"sesame"));
    assert!(again.events.is_empty() && again.status.is_none(), "{again}");
    silent.attempt = Attempt::new(&silent.receiver);
    silent.has_listener = true;
    let (_, planned) = plan_with_token(silent, Ok(b"sesame"));
    assert_eq!(planned.status.unwrap().conditions[0].reason, "Succeeded");
}

#[test]
fn missing_token_closes_hook_and_failed_read_does_not() {
    let (known, _) = plan_with_token(make_snapshot(&json!({})), Ok(b"sesame"));
    let begin = |snapshot: &Snapshot| Snapshot {
        attempt: Attempt::new(&snapshot.receiver),
        is_outdated: true,
        ..snapshot.clone()
    };
    let failure = |is_known| {
        Err(TokenFailure {
            message: "Secret blue/token can't be read".to_owned(),
            is_known,
        })
    };
    let (_, unanswered) = plan_with_token(begin(&known), failure(false));
    assert_eq!(unanswered.memory.hook_path, known.memory.hook_path);
    assert_eq!(unanswered.status.as_ref().unwrap().webhook_path.as_deref(), Some(PATH));
    let (gone, plan) = plan_with_token(begin(&known), failure(true));
    insta::assert_snapshot!(plan.to_string());
    assert_eq!(
        (&plan.memory.hook_path, &plan.status.unwrap().webhook_path),
        (&None, &None)
    );
    assert_eq!(plan.events[0].kind, EventKind::Warning);
    // Tried again, less often each time.
    assert_eq!(plan.next, Next::Done(Some(start() + SignedDuration::from_secs(1))));
    let (_, third) = plan_with_token(begin(&gone), failure(true));
    assert_eq!(third.next, Next::Done(Some(start() + SignedDuration::from_secs(2))));
    assert!(third.events.is_empty(), "it is no news");
}

#[test]
fn suspended_receiver_keeps_hook_and_deleted_one_loses_it() {
    let (mut snapshot, _) = plan_with_token(make_snapshot(&json!({})), Ok(b"sesame"));
    snapshot.receiver.spec.suspend = true;
    let plan = plan_now(&snapshot);
    assert!(plan.status.is_none() && plan.memory.hook_path.is_some());
    snapshot.receiver.metadata.deletion_timestamp = Some(tenure_api::Time(start()));
    snapshot.receiver.metadata.finalizers = Some(vec!["finalizers.fluxcd.io".to_owned()]);
    let plan = plan_now(&snapshot);
    assert!(plan.memory.hook_path.is_none() && plan.finalizer.is_some());
    assert_eq!(plan.next, Next::Forget);
}

#[test]
fn invalid_receiver_fields_are_refused_by_name() {
    let resource = |fields: Value| {
        let mut resource = json!({ "kind": "GitRepository", "name": "app" });
        for (key, value) in fields.as_object().unwrap() {
            resource[key] = value.clone();
        }
        json!({ "resources": [resource] })
    };
    let long = "x".repeat(5000);
    for (fields, reason, part) in [
        (json!({ "type": "gcr" }), "UnsupportedField", "spec.type: gcr"),
        (json!({ "type": "acr" }), "UnsupportedField", "spec.type: acr"),
        (json!({ "type": "cdevents" }), "UnsupportedField", "spec.type: cdevents"),
        (
            json!({ "type": "generic-oidc", "secretRef": null }),
            "UnsupportedField",
            "spec.type: generic-oidc",
        ),
        (json!({ "type": "svn" }), "InvalidSpec", "generic-hmac, github, gitlab"),
        (
            json!({ "oidcProviders": [{ "issuerURL": "https://x", "validations": [{ "expression": "true", "message": "x" }] }] }),
            "UnsupportedField",
            "spec.oidcProviders",
        ),
        (
            json!({ "secretRef": null }),
            "ValidationFailed",
            "spec.secretRef is missing",
        ),
        (
            json!({ "secretRef": { "name": "../x" } }),
            "InvalidSpec",
            "spec.secretRef.name",
        ),
        (json!({ "interval": "-1s" }), "InvalidSpec", "spec.interval"),
        (
            resource(json!({ "kind": "HelmRelease" })),
            "UnsupportedField",
            "spec.resources[0].kind: HelmRelease",
        ),
        (
            resource(json!({ "apiVersion": "example.com/v1" })),
            "InvalidSpec",
            "spec.resources[0].apiVersion",
        ),
        (
            resource(json!({ "name": "*" })),
            "InvalidSpec",
            "spec.resources[0].matchLabels is missing",
        ),
        (
            resource(json!({ "name": "a/b" })),
            "InvalidSpec",
            "spec.resources[0].name",
        ),
        (
            resource(json!({ "namespace": "red" })),
            "AccessDenied",
            "cross-namespace references are not allowed",
        ),
        (
            json!({ "resourceFilter": "nobody()" }),
            "InvalidCELExpression",
            "spec.resourceFilter",
        ),
        (
            json!({ "resourceFilter": "'yes'" }),
            "InvalidCELExpression",
            "must yield bool",
        ),
        (
            resource(json!({ "filter": "claims.sub == 'x'" })),
            "InvalidCELExpression",
            "spec.resources[0].filter",
        ),
        (
            json!({ "resourceFilter": long }),
            "InvalidSpec",
            "spec.resourceFilter has 5000 bytes",
        ),
        (
            json!({ "resources": vec![json!({ "kind": "GitRepository", "name": "a" }); 101] }),
            "InvalidSpec",
            "spec.resources has 101 entries",
        ),
    ] {
        let plan = plan_now(&make_snapshot(&fields));
        let status = plan.status.as_ref().unwrap();
        for type_ in ["Ready", "Stalled"] {
            let found = status
                .conditions
                .iter()
                .find(|condition| condition.type_ == type_)
                .unwrap();
            assert_eq!(found.reason, reason, "{fields}: {}", found.message);
            assert!(found.message.contains(part), "{fields}: {}", found.message);
        }
        assert!(plan.memory.hook_path.is_none() && plan.steps.is_empty());
    }
    for fields in [
        resource(json!({ "namespace": "blue-dev" })),
        resource(json!({ "name": "*", "matchLabels": { "a": "b" }, "kind": "OCIRepository" })),
        resource(json!({ "kind": "Kustomization", "apiVersion": "kustomize.toolkit.fluxcd.io/v1" })),
        json!({ "resourceFilter": "res.metadata.name == req.repository.name" }),
    ] {
        assert_eq!(plan_now(&make_snapshot(&fields)).steps.len(), 1, "{fields}");
    }
}
