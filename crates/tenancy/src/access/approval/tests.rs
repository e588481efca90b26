//! Requests and grants, each with one deviation.

use serde_json::{Value, json};

use super::*;

const HASH: &str = "sha256:aaaa";

fn spec() -> Value {
    json!({
        "provider": "work", "target": { "scope": "project", "id": 42, "path": "group-1/a" }, "role": "read_repository", "rotate": "30d",
        "secretName": "git", "namespaces": ["team-a", "team-b-*"], "serviceAccounts": ["flux"],
        "askedIn": { "kind": "FluxAccess", "namespace": "blue", "name": "apps", "tenant": "blue" },
        "requestedBy": "alice", "clusterUid": "c0ffee00-1", "specHash": HASH
    })
}

/// Sets values at JSON pointers.
fn with(mut object: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        object
            .pointer_mut(parent)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .insert(key.to_owned(), value.clone());
    }
    object
}

fn request(changes: &[(&str, Value)]) -> FluxAccessRequest {
    let object = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "FluxAccessRequest",
        "metadata": { "name": "r", "namespace": "tenure-system", "uid": "u-r", "creationTimestamp": "2026-01-01T00:00:00Z" }, "spec": spec()
    });
    serde_json::from_value(with(object, changes)).unwrap()
}

fn grant(changes: &[(&str, Value)]) -> FluxAccessGrant {
    let object = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "FluxAccessGrant", "metadata": { "name": "g", "namespace": "tenure-system" },
        "spec": { "requestRef": { "name": "r", "uid": "u-r" }, "target": "work-42", "specHash": HASH, "requestedBy": "alice", "decision": "Approved",
            "approvedBy": "olga", "reason": "fine" }
    });
    serde_json::from_value(with(object, changes)).unwrap()
}

fn make_standing_grant(changes: &[(&str, Value)]) -> FluxAccessStandingGrant {
    let object = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "FluxAccessStandingGrant", "metadata": { "name": "s", "namespace": "tenure-system" },
        "spec": { "tenant": "blue", "targets": ["work-41", "work-42"], "roles": ["read_repository"], "namespaces": ["team-a", "team-b-*"],
            "serviceAccounts": ["flux", "apps"], "maxRotate": "90d", "approvedBy": "admin" }
    });
    serde_json::from_value(with(object, changes)).unwrap()
}

fn verdict(
    request: &FluxAccessRequest,
    grants: &[FluxAccessGrant],
    standing_grants: &[FluxAccessStandingGrant],
) -> Verdict {
    let now: Time = serde_json::from_value(json!("2026-06-01T00:00:00Z")).unwrap();
    decide_approval(ApprovalFacts {
        request,
        hash: HASH,
        grants,
        standing_grants,
        platform: "tenure-system",
        judges_writes: true,
        now: &now,
    })
}

/// Returns the reason why an answer doesn't count. Empty if it counts.
fn why(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Pending(reasons) => reasons.join("; "),
        _ => String::new(),
    }
}

#[test]
fn grant_counts_only_if_it_repeats_request() {
    let answer = verdict(&request(&[]), &[grant(&[])], &[]);
    assert!(
        matches!(&answer, Verdict::Approved(word) if word.by == "olga" && !word.is_standing),
        "{answer:?}"
    );
    assert_eq!(verdict(&request(&[]), &[], &[]), Verdict::Pending(Vec::new()));
    for (change, saying) in [
        (
            ("/spec/target", json!("work-43")),
            "it is about work-43 and the request about work-42",
        ),
        (("/spec/specHash", json!("sha256:bbbb")), "its specHash differs"),
        (
            ("/spec/requestRef", json!({ "name": "r", "uid": "u-earlier" })),
            "an earlier request of this name",
        ),
        (("/spec/requestedBy", json!("bob")), "it says that bob asks"),
        (("/spec/decision", json!("approved")), "neither Approved nor Denied"),
        (("/spec/approvedBy", json!("")), "its spec.approvedBy is empty"),
        (
            ("/spec/notAfter", json!("2026-06-01T00:00:00Z")),
            "it ended at 2026-06-01T00:00:00Z",
        ),
        (
            ("/spec/maxRotate", json!("29d")),
            "it allows 29d between replacements, and the request asks for 30d",
        ),
        (
            ("/spec/maxRotate", json!("forever")),
            "its maxRotate \"forever\" is not a period",
        ),
        (
            ("/metadata/deletionTimestamp", json!("2026-05-01T00:00:00Z")),
            "it is revoked",
        ),
        (("/metadata/namespace", json!("blue")), ""),
        (("/spec/requestRef", json!({ "name": "other", "uid": "u-r" })), ""),
    ] {
        let answer = verdict(&request(&[]), &[grant(std::slice::from_ref(&change))], &[]);
        assert!(matches!(answer, Verdict::Pending(_)), "{change:?}");
        assert!(why(&answer).contains(saying), "{change:?}: {answer:?}");
    }
    let fine = [
        ("/spec/notAfter", json!("2026-06-01T00:00:01Z")),
        ("/spec/maxRotate", json!("30d")),
    ];
    assert!(matches!(
        verdict(&request(&[]), &[grant(&fine)], &[]),
        Verdict::Approved(_)
    ));
}

#[test]
fn a_denial_wins_and_has_its_reason() {
    let denial = grant(&[
        ("/spec/decision", json!("Denied")),
        ("/spec/reason", json!("not yours")),
        ("/metadata/name", json!("h")),
    ]);
    let answer = verdict(
        &request(&[]),
        &[grant(&[]), denial.clone()],
        &[make_standing_grant(&[])],
    );
    assert!(
        matches!(&answer, Verdict::Denied(word) if word.reason.as_deref() == Some("not yours")),
        "{answer:?}"
    );
    // A denial of another request gives no reason.
    let mut other = denial;
    other.spec.spec_hash = "sha256:bbbb".to_owned();
    assert!(matches!(
        verdict(&request(&[]), &[grant(&[]), other], &[]),
        Verdict::Approved(_)
    ));
}

#[test]
fn approval_needs_admission_and_hash_of_spec() {
    let now: Time = serde_json::from_value(json!("2026-06-01T00:00:00Z")).unwrap();
    let (request, grants) = (request(&[]), [grant(&[])]);
    let case = ApprovalFacts {
        request: &request,
        hash: HASH,
        grants: &grants,
        standing_grants: &[make_standing_grant(&[])],
        platform: "tenure-system",
        judges_writes: false,
        now: &now,
    };
    assert!(why(&decide_approval(case)).contains("turn admission on"));
    let forged = ApprovalFacts {
        judges_writes: true,
        hash: "sha256:bbbb",
        ..case
    };
    assert!(why(&decide_approval(forged)).contains("so the controller has not written it"));
}

#[test]
fn a_standing_grant_has_bounds() {
    let answer = verdict(&request(&[]), &[], &[make_standing_grant(&[])]);
    assert!(
        matches!(&answer, Verdict::Approved(word) if word.is_standing && word.by == "admin"),
        "{answer:?}"
    );
    for (change, saying) in [
        (
            ("/spec/role", json!("read_registry")),
            "it is not for role read_registry",
        ),
        (("/spec/rotate", json!("91d")), "it allows 90d between replacements"),
        (
            ("/spec/namespaces", json!(["team-a", "team-c"])),
            "it is not for namespace team-c",
        ),
        (
            ("/spec/namespaces", json!(["team-*"])),
            "it is not for namespace team-*",
        ),
        (
            ("/spec/serviceAccounts", json!(["flux", "default"])),
            "it is not for ServiceAccount default",
        ),
        (("/spec/serviceAccounts", json!([])), "the request names none"),
        (
            (
                "/spec/target",
                json!({ "scope": "project", "id": 43, "path": "group-1/a" }),
            ),
            "",
        ),
        (("/spec/provider", json!("other")), ""),
        (
            (
                "/spec/askedIn",
                json!({ "kind": "FluxAccess", "namespace": "red", "name": "apps", "tenant": "red" }),
            ),
            "",
        ),
        (
            (
                "/spec/askedIn",
                json!({ "kind": "FluxAccess", "namespace": "free", "name": "apps" }),
            ),
            "",
        ),
    ] {
        let answer = verdict(
            &request(std::slice::from_ref(&change)),
            &[],
            &[make_standing_grant(&[])],
        );
        assert!(matches!(answer, Verdict::Pending(_)), "{change:?}");
        assert!(why(&answer).contains(saying), "{change:?}: {answer:?}");
    }
    let ended = make_standing_grant(&[("/spec/notAfter", json!("2026-01-01T00:00:00Z"))]);
    assert!(why(&verdict(&request(&[]), &[], &[ended])).contains("it ended"));
    // A platform grant is for agents' requests and for requests from the platform namespace, and
    // for no others.
    let platform: FluxAccessStandingGrant = {
        let mut platform = make_standing_grant(&[]);
        platform.spec.tenant = None;
        platform
    };
    for (asked_in, counts) in [
        (json!({ "kind": "Agent", "name": "prod" }), true),
        (
            json!({ "kind": "FluxAccess", "namespace": "tenure-system", "name": "a" }),
            true,
        ),
        (json!({ "kind": "FluxAccess", "namespace": "free", "name": "a" }), false),
    ] {
        let answer = verdict(
            &request(&[("/spec/askedIn", asked_in.clone())]),
            &[],
            std::slice::from_ref(&platform),
        );
        assert_eq!(matches!(answer, Verdict::Approved(_)), counts, "{asked_in}");
    }
}

#[test]
fn wider_request_waits_while_approved_one_is_served() {
    let old = request(&[]);
    let approved = || {
        Verdict::Approved(ApproverAnswer {
            object: "g".to_owned(),
            by: "olga".to_owned(),
            reason: None,
            not_after: None,
            is_standing: false,
        })
    };
    let new = |changes: &[(&str, Value)]| {
        let mut changes = changes.to_vec();
        changes.push(("/spec/specHash", json!("sha256:bbbb")));
        changes.push(("/metadata/name", json!("r2")));
        request(&changes)
    };
    for (change, is_more) in [
        (("/spec/namespaces", json!(["team-a"])), false),
        (("/spec/namespaces", json!(["team-b-1"])), false),
        (("/spec/namespaces", json!(["team-a", "team-c"])), true),
        (("/spec/namespaces", json!(["*"])), true),
        (("/spec/rotate", json!("1d")), false),
        (("/spec/rotate", json!("31d")), true),
        (("/spec/strict", json!(true)), false),
        (("/spec/role", json!("read_registry")), true),
        (("/spec/serviceAccounts", json!([])), true),
        (("/spec/serviceAccounts", json!(["flux", "b"])), true),
        (("/spec/imagePullSecrets", json!(true)), true),
        // Another member of the team has written the entry last.
        (("/spec/requestedBy", json!("bob")), false),
    ] {
        let wanted = new(std::slice::from_ref(&change));
        let requests = [(&old, approved()), (&wanted, Verdict::Pending(Vec::new()))];
        let expected = if is_more {
            ServedRequest::Meanwhile(&old)
        } else {
            ServedRequest::By(&old)
        };
        assert_eq!(
            choose_request(&wanted.spec, &requests, "tenure-system"),
            expected,
            "{change:?}"
        );
        // After its approval, the new request is served. If it is denied, the old one stays.
        let requests = [(&old, approved()), (&wanted, approved())];
        assert_eq!(
            choose_request(&wanted.spec, &requests, "tenure-system"),
            ServedRequest::By(&wanted),
            "{change:?}"
        );
        let Verdict::Approved(word) = approved() else {
            unreachable!()
        };
        let requests = [(&old, approved()), (&wanted, Verdict::Denied(word))];
        assert_eq!(
            choose_request(&wanted.spec, &requests, "tenure-system"),
            ServedRequest::Meanwhile(&old),
            "{change:?}"
        );
        // After the revocation, no request is served.
        let requests = [
            (&old, Verdict::Pending(Vec::new())),
            (&wanted, Verdict::Pending(Vec::new())),
        ];
        assert_eq!(
            choose_request(&wanted.spec, &requests, "tenure-system"),
            ServedRequest::Nobody,
            "{change:?}"
        );
    }
    // A request of another entry or for another target is never served.
    for change in [
        (
            "/spec/target",
            json!({ "scope": "project", "id": 43, "path": "group-1/a" }),
        ),
        ("/spec/clusterUid", json!("deadbeef-2")),
        ("/spec/secretName", json!("other")),
    ] {
        let wanted = new(std::slice::from_ref(&change));
        let requests = [(&old, approved())];
        assert_eq!(
            choose_request(&wanted.spec, &requests, "tenure-system"),
            ServedRequest::Nobody,
            "{change:?}"
        );
    }
}
