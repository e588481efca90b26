//! One delivered request, and the reports after single changes.

use serde_json::{Value, json};
use tenure_api::access::{AccessProvider, FluxAccess, FluxAccessTarget};
use tenure_tenancy::access::ReceivingNamespace;
use tenure_tenancy::{NamespaceFacts, TenancyFacts};

use super::chain::{Chain, NamespaceReads, StepState};
use super::receivers::KnownPlacements;
use super::*;
use tenure_git_access::request::hash_spec;

/// Sets values at JSON pointers. A null removes the field.
fn change_fields(mut object: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match value {
            Value::Null => parent.remove(key),
            value => parent.insert(key.to_owned(), value.clone()),
        };
    }
    object
}

fn make_request(changes: &[(&str, Value)]) -> FluxAccessRequest {
    let object = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "FluxAccessRequest",
        "metadata": { "name": "work-42-x", "namespace": "tenure-system", "uid": "u-r", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {} },
        "spec": {
            "provider": "work", "target": { "scope": "project", "id": 42, "path": "group-1/a" }, "role": "read_repository", "rotate": "30d",
            "secretName": "git", "namespaces": ["team-a", "new-*"], "serviceAccounts": ["flux"],
            "askedIn": { "kind": "FluxAccess", "namespace": "tenure-system", "name": "apps" },
            "requestedBy": "alice", "clusterUid": "c0ffee00-1", "specHash": ""
        },
        "status": {
            "state": "Approved", "path": "group-1/moved",
            "conditions": [
                { "type": "Ready", "status": "True", "reason": "Delivered", "message": "delivered to 1 namespace", "lastTransitionTime": "2026-05-01T00:00:00Z" },
                { "type": "Verified", "status": "Unknown", "reason": "WaitingForSources", "message": "team-a: GitRepository/apps has not fetched with it", "lastTransitionTime": "2026-05-01T00:00:00Z" }
            ],
            "credentials": [{
                "namespace": "team-a", "generation": 2, "failures": 0,
                "current": { "generation": 2, "id": 17, "name": "fa/c/r/2/1/n", "fingerprint": "f1f2", "begunAt": "2026-05-20T00:00:00Z",
                    "expiresAt": "2026-07-03T01:00:00Z", "verifiedAt": "2026-05-20T00:05:00Z" },
                "retiring": [{ "generation": 1, "id": 16, "name": "fa/c/r/1/1/n", "fingerprint": "e1e2", "begunAt": "2026-04-20T00:00:00Z" }]
            }],
            "history": [{ "at": "2026-05-20T00:00:00Z", "actor": "tenure", "action": "Minted", "namespace": "team-a", "id": 17, "cause": "Due" }]
        }
    });
    let mut request: FluxAccessRequest = serde_json::from_value(change_fields(object, changes)).unwrap();
    if request.spec.spec_hash.is_empty() {
        request.spec.spec_hash = hash_spec(&request.spec);
    }
    request
}

fn make_grant(request: &FluxAccessRequest, decision: &str) -> FluxAccessGrant {
    let object = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "FluxAccessGrant", "metadata": { "name": "g", "namespace": "tenure-system" },
        "spec": { "requestRef": { "name": "work-42-x", "uid": "u-r" }, "target": "work-42", "specHash": request.spec.spec_hash, "requestedBy": "alice",
            "decision": decision, "approvedBy": "olga", "notAfter": "2027-01-01T00:00:00Z" }
    });
    serde_json::from_value(object).unwrap()
}

fn make_provider(changes: &[(&str, Value)]) -> AccessProvider {
    let object = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "AccessProvider", "metadata": { "name": "work", "namespace": "tenure-system" },
        "spec": { "kind": "gitlab", "address": "https://gitlab.example.org", "topLevelGroup": "group-1", "namespaces": ["team-*"],
            "writerServiceAccountName": "access-writer" }
    });
    serde_json::from_value(change_fields(object, changes)).unwrap()
}

fn make_placements(names: &[&str]) -> KnownPlacements {
    let namespaces = names.iter().map(|name| ReceivingNamespace {
        name: (*name).to_owned(),
        ..ReceivingNamespace::default()
    });
    let facts = names.iter().map(|name| NamespaceFacts {
        name: (*name).to_owned(),
        ..NamespaceFacts::default()
    });
    KnownPlacements {
        tenancy: TenancyFacts {
            namespaces: facts.collect(),
            ..TenancyFacts::default()
        },
        namespaces: namespaces.collect(),
    }
}

fn make_facts(request: &FluxAccessRequest) -> ObservedFacts {
    ObservedFacts {
        requests: Ok(vec![request.clone()]),
        grants: Ok(vec![make_grant(request, "Approved")]),
        standing_grants: Ok(Vec::new()),
        providers: Ok(vec![make_provider(&[])]),
        surrounding: Ok(make_placements(&["tenure-system", "team-a", "new-b", "other"])),
        platform: "tenure-system".to_owned(),
        now: serde_json::from_value(json!("2026-06-01T00:00:00Z")).unwrap(),
    }
}

fn make_reads() -> NamespaceReads {
    let access: FluxAccess = serde_json::from_value(json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "FluxAccess", "metadata": { "name": "apps", "namespace": "tenure-system" }, "spec": { "provider": "work" },
        "status": { "requests": [{ "entry": "spec.projects[0]", "request": "work-42-x", "state": "Approved" }] }
    }))
    .unwrap();
    let target: FluxAccessTarget = serde_json::from_value(json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "FluxAccessTarget", "metadata": { "name": "work-42" },
        "spec": { "provider": "work", "scope": "project", "id": 42 }, "status": { "path": "group-1/moved" }
    }))
    .unwrap();
    NamespaceReads {
        namespace: "team-a".to_owned(),
        asked: Ok(Some(access)),
        target: Ok(Some(target)),
        lacking: Ok(Vec::new()),
        secret: Ok(Some(Some("work-42-x".to_owned()))),
    }
}

#[test]
fn a_row_says_how_a_request_stands() {
    let asked = make_request(&[]);
    let rows = rows::list(&make_facts(&asked)).unwrap();
    let reported = serde_json::to_value(&rows[0]).unwrap();
    for (pointer, expected) in [
        ("/state", json!("Approved")),
        ("/answer/by", json!("olga")),
        ("/target", json!("work-42")),
        ("/path", json!("group-1/moved")),
        ("/role", json!("read_repository")),
        ("/requestedBy", json!("alice")),
        ("/askedIn", json!("FluxAccess tenure-system/apps")),
        ("/namespaces", json!(["team-a", "new-*"])),
        ("/delivered", json!(1)),
        ("/since", json!("2026-01-01T00:00:00Z")),
        ("/ready", json!("True")),
    ] {
        assert_eq!(reported.pointer(pointer), Some(&expected), "{pointer} of {reported:#}");
    }
    // A month after its start, and a little earlier to spread the load.
    let next = reported["nextRotation"].as_str().unwrap();
    assert!(
        ("2026-06-17T12:00:00Z"..="2026-06-19T00:00:00Z").contains(&next),
        "{next}"
    );
    // Without grants, the recorded state counts, and a note says why.
    let mut blind = make_facts(&asked);
    blind.grants = Err("olga may not list them".to_owned());
    let state = blind.find_state(&asked);
    assert_eq!((state.word.as_str(), state.notes.len()), (APPROVED, 1));
    // A request that was approved earlier is revoked, not pending.
    let mut without = make_facts(&asked);
    without.grants = Ok(Vec::new());
    assert_eq!(without.find_state(&asked).word, REVOKED);
    let fresh = make_request(&[("/status", Value::Null)]);
    assert_eq!(without.find_state(&fresh).word, PENDING);
    without.requests = Err("no".to_owned());
    assert!(rows::list(&without).is_err());
}

#[test]
fn all_about_one_has_numbers_and_no_value() {
    let ordered =
        json!({ "rotate.access.tenure.dev/team-a": "leak/by: olga\nat: 2026-05-30T00:00:00Z\ncause: a laptop\n" });
    let asked = make_request(&[("/metadata/annotations", ordered)]);
    let detail = detail::describe_request(&make_facts(&asked), &asked, Vec::new());
    let reported = serde_json::to_value(&detail).unwrap();
    for (pointer, expected) in [
        ("/hashMatches", json!(true)),
        ("/ledger/0/phase", json!("InUse")),
        ("/ledger/0/current/id", json!(17)),
        ("/ledger/0/current/fingerprint", json!("f1f2")),
        ("/ledger/0/current/ageSeconds", json!(12 * 86_400)),
        ("/ledger/0/retiring/0/id", json!(16)),
        ("/ledger/0/ordered", json!("olga ordered it: a laptop")),
        ("/orders/0/isLeak", json!(true)),
        ("/history/0/action", json!("Minted")),
        ("/receivers/known/0/namespace", json!("new-b")),
        ("/receivers/known/0/receives", json!(false)),
        ("/receivers/known/1/receives", json!(true)),
    ] {
        assert_eq!(reported.pointer(pointer), Some(&expected), "{pointer} of {reported:#}");
    }
    let mut blind = make_facts(&asked);
    blind.surrounding = Err("may not list namespaces".to_owned());
    let reported = serde_json::to_value(detail::describe_request(&blind, &asked, Vec::new())).unwrap();
    assert_eq!(reported["receivers"]["unknown"], "may not list namespaces");
}

#[test]
fn the_owner_of_a_contested_secret_is_reported() {
    let asked = make_request(&[]);
    let mut all = make_facts(&asked);
    // An agent's configuration comes first.
    let other = make_request(&[
        ("/metadata/name", json!("work-7-y")),
        ("/metadata/uid", json!("u-o")),
        (
            "/spec/target",
            json!({ "scope": "project", "id": 7, "path": "group-1/b" }),
        ),
        ("/spec/askedIn", json!({ "kind": "Agent", "name": "prod" })),
    ]);
    let mut granted = make_grant(&other, "Approved");
    granted.spec.target = "work-7".to_owned();
    granted.spec.request_ref.name = "work-7-y".to_owned();
    granted.spec.request_ref.uid = "u-o".to_owned();
    all.requests = Ok(vec![asked.clone(), other]);
    let mine = receivers::list(&all, &asked).unwrap();
    assert!(
        mine.iter().any(|one| one.namespace == "team-a" && one.receives),
        "{mine:?}"
    );
    if let Ok(grants) = &mut all.grants {
        grants.push(granted);
    }
    let mine = receivers::list(&all, &asked).unwrap();
    let here = mine.iter().find(|one| one.namespace == "team-a").unwrap();
    assert!(
        here.why
            .as_ref()
            .is_some_and(|why| why.contains("is that of FluxAccessRequest work-7-y")),
        "{mine:?}"
    );
}

fn check(chain: &Chain, expected: (&str, StepState, &str)) {
    let (step, state, part) = expected;
    let found = chain.steps.iter().find(|one| one.step == step).unwrap();
    assert_eq!(found.state, state, "{step}: {chain:#?}");
    assert!(found.says.contains(part), "{part:?} is not in {:?}", found.says);
    let reason = chain.find_reason();
    assert_eq!(
        reason.map(|reason| reason.step),
        (state != StepState::Holds).then_some(step),
        "{chain:#?}"
    );
}

#[test]
fn every_step_says_why_it_does_not_hold() {
    let asked = make_request(&[]);
    let whole = chain::explain_delivery(&make_facts(&asked), &asked, &make_reads());
    assert!(whole.is_delivered, "{whole:#?}");
    assert_eq!(whole.find_reason(), None);
    let names: Vec<&str> = whole.steps.iter().map(|step| step.step).collect();
    assert_eq!(
        names,
        [
            "entry",
            "target",
            "grant",
            "namespace",
            "receiver",
            "writer",
            "ledger",
            "secret",
            "proof"
        ]
    );
    check(
        &whole,
        (
            "target",
            StepState::Holds,
            "which was group-1/a when it was asked for and is group-1/moved now",
        ),
    );

    // One change of the facts.
    type Change = fn(&mut ObservedFacts, &mut NamespaceReads);
    let cases: [(Change, &str, StepState, &str); 16] = [
        (
            |_, place| place.asked = Ok(None),
            "entry",
            StepState::Fails,
            "is gone, so the request goes",
        ),
        (
            |_, place| place.asked = Err("no".to_owned()),
            "entry",
            StepState::Unknown,
            "could not be looked at: no",
        ),
        (
            |_, place| {
                if let Ok(Some(access)) = &mut place.asked {
                    access.status = None;
                }
            },
            "entry",
            StepState::Waits,
            "asks for something else now",
        ),
        (
            |_, place| place.target = Ok(None),
            "target",
            StepState::Waits,
            "no FluxAccessTarget work-42 yet",
        ),
        (
            |seen, _| seen.providers = Ok(vec![make_provider(&[("/spec/suspend", json!(true))])]),
            "target",
            StepState::Waits,
            "is suspended",
        ),
        (
            |seen, _| seen.grants = Ok(Vec::new()),
            "grant",
            StepState::Fails,
            "tenure access approve work-42-x",
        ),
        (
            |seen, _| {
                if let Ok(grants) = &mut seen.grants {
                    grants[0].spec.decision = "Denied".to_owned();
                }
            },
            "grant",
            StepState::Fails,
            "olga denied it (FluxAccessGrant g): no reason is given",
        ),
        (
            |seen, _| {
                if let Ok(grants) = &mut seen.grants {
                    grants[0].spec.spec_hash = format!("sha256:{}", "a".repeat(64));
                }
            },
            "grant",
            StepState::Fails,
            "its specHash differs",
        ),
        (
            |seen, _| seen.providers = Ok(vec![make_provider(&[("/spec/namespaces", json!(["other"]))])]),
            "receiver",
            StepState::Fails,
            "for the platform namespace: ask an administrator",
        ),
        (
            |seen, _| seen.providers = Ok(vec![make_provider(&[("/spec/writerServiceAccountName", Value::Null)])]),
            "writer",
            StepState::Holds,
            "ServiceAccount tenure-system/tenure-secret-writer may write it",
        ),
        (
            |_, place| place.lacking = Ok(vec!["create secrets".to_owned()]),
            "writer",
            StepState::Fails,
            "ServiceAccount tenure-system/access-writer lacks in namespace team-a: create secrets",
        ),
        (
            |_, place| place.lacking = Err("no".to_owned()),
            "writer",
            StepState::Unknown,
            "isn't known: no",
        ),
        (
            |_, place| place.secret = Ok(None),
            "secret",
            StepState::Waits,
            "was delivered and is gone",
        ),
        (
            |_, place| place.secret = Ok(Some(None)),
            "secret",
            StepState::Fails,
            "not Tenure's, so it is not touched",
        ),
        (
            |_, place| place.secret = Ok(Some(Some("other".to_owned()))),
            "secret",
            StepState::Fails,
            "labelled for FluxAccessRequest other",
        ),
        (
            |_, place| place.secret = Err("no".to_owned()),
            "secret",
            StepState::Unknown,
            "could not be looked at: no",
        ),
    ];
    for (change, step, state, part) in cases {
        let (mut all, mut place) = (make_facts(&asked), make_reads());
        change(&mut all, &mut place);
        check(&chain::explain_delivery(&all, &asked, &place), (step, state, part));
    }
}

#[test]
fn ledger_entries_are_reported() {
    for (changes, step, state, part) in [
        (
            vec![("/metadata/deletionTimestamp", json!("2026-05-31T00:00:00Z"))],
            "entry",
            StepState::Fails,
            "no longer asks for it",
        ),
        (
            vec![("/spec/namespaces", json!(["other-*"]))],
            "namespace",
            StepState::Fails,
            "other-*",
        ),
        (
            vec![("/status/state", json!("Pending"))],
            "grant",
            StepState::Waits,
            "admission is off here",
        ),
    ] {
        let asked = make_request(&changes);
        let chain = chain::explain_delivery(&make_facts(&asked), &asked, &make_reads());
        let found = chain.find_reason().unwrap();
        assert_eq!((found.step, found.state), (step, state), "{chain:#?}");
        assert!(found.says.contains(part), "{}", found.says);
    }
    let ledger = |ledger: Value| make_request(&[("/status/credentials", json!([ledger]))]);
    let says = |asked: &FluxAccessRequest, step: &str| {
        let chain = chain::explain_delivery(&make_facts(asked), asked, &make_reads());
        let found = chain.steps.into_iter().find(|one| one.step == step).unwrap();
        (found.state, found.says)
    };
    let troubled = ledger(
        json!({ "namespace": "team-a", "trouble": { "reason": "AuthoriserRefused", "message": "the host says no" },
        "retryAt": "2026-06-01T01:00:00Z" }),
    );
    assert_eq!(
        says(&troubled, "ledger"),
        (
            StepState::Fails,
            "AuthoriserRefused: the host says no; it is tried again at 2026-06-01T01:00:00Z".to_owned()
        )
    );
    let held = json!({ "generation": 1, "id": 7, "name": "n", "fingerprint": "f", "begunAt": "2026-06-01T00:00:00Z", "retireAt": "2026-06-01T02:00:00Z" });
    let handed = ledger(json!({ "namespace": "team-a", "retiring": [held] }));
    let (state, message) = says(&handed, "ledger");
    assert!(
        state == StepState::Waits && message.contains("another request of the same entry has the Secret now"),
        "{message}"
    );
    let next = json!({ "phase": "Distributed", "generation": 1, "nonce": "n", "name": "n", "cause": "First", "begunAt": "2026-06-01T00:00:00Z" });
    let fresh = ledger(json!({ "namespace": "team-a", "next": next }));
    assert_eq!(says(&fresh, "ledger").0, StepState::Holds);
    let (state, text) = says(&fresh, "proof");
    assert_eq!(state, StepState::Waits);
    assert!(text.contains("GitRepository/apps has not fetched with it"), "{text}");
    assert_eq!(
        says(&ledger(json!({ "namespace": "team-b" })), "ledger").0,
        StepState::Waits
    );
}

#[test]
fn a_secret_is_asked_about_by_its_name() {
    let asked = make_request(&[]);
    for (namespace, secret, expected) in [
        ("team-a", "git", true),
        ("new-c", "git", true),
        ("team-a", "other", false),
        ("team-b", "git", false),
        ("tenure-system", "git", false),
    ] {
        let is_about = chain::is_about(&asked, namespace, secret, "tenure-system");
        assert_eq!(is_about, expected, "{namespace}/{secret}");
    }
    assert_eq!(chain::list_namespaces(&make_facts(&asked), &asked), ["new-b", "team-a"]);
}

#[test]
fn entry_without_request_reports_its_problem() {
    let access: FluxAccess = serde_json::from_value(json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "FluxAccess", "metadata": { "name": "apps", "namespace": "team-a" },
        "spec": { "provider": "work", "projects": [
            { "id": "group-1/a", "secretName": "git", "namespaces": ["team-*"] },
            { "id": "group-1/b", "namespaces": ["team-a"] },
            { "id": "group-1/c", "secretName": "git", "namespaces": ["Team_A", "team-a"], "role": "api" }
        ] },
        "status": {
            "problems": [{ "file": "FluxAccess team-a/apps", "entry": "spec.projects[2]", "message": "role api is refused" }],
            "requests": [{ "entry": "spec.projects[0]", "request": "work-1-x", "state": "Pending" }]
        }
    }))
    .unwrap();
    let all = [access];
    let found = chain::find_entries(&all, "team-a", "git", "tenure-system");
    let readers: Vec<_> = found
        .iter()
        .map(|one| (one.entry.as_str(), one.problem.as_deref(), one.request.as_deref()))
        .collect();
    assert_eq!(
        readers,
        [
            ("spec.projects[0]", None, Some("work-1-x")),
            ("spec.projects[2]", Some("role api is refused"), None)
        ]
    );
    let found = chain::find_entries(&all, "team-a", "gitlab-flux-token", "tenure-system");
    assert_eq!(found.len(), 1);
    assert!(chain::find_entries(&all, "other", "git", "tenure-system").is_empty());
}
