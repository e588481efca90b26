//! Attacks past the commands: some are denied at the write, and the others are stored without an effect.
//!
//! The attacker has every right that RBAC can give on these kinds, except the verb `approve`. Each attack has a control: the same request by an allowed user.

use http::Method;
use serde_json::{Value, json};

use super::{
    PLATFORM, VERSION, clear, grant, name_of, object, path, request, send, set, state_of, store, wait_for_rights,
    wait_for_ruling,
};

/// The user who may do the same, and their body.
type Control<'a> = Option<(&'a str, Value)>;
/// The attack: its name, the user, the request, the body, the words of the denial, and the control.
type Attack<'a> = (&'a str, &'a str, (Method, String), Value, &'a str, Control<'a>);

/// A user that may not answer for a project gets its credential by no request.
#[tokio::test]
async fn user_without_right_to_approve_gets_no_credential() {
    let cluster = set().await;
    let asked = store(&cluster, request(42, "alice")).await;
    let own = store(&cluster, request(42, "olga")).await;
    let name = path("fluxaccessrequests", name_of(&asked));
    let order = |by: &str| json!({"metadata": {"annotations": {"tenure.dev/rotate": format!("by: {by}\nat: 2026-01-01T00:00:00Z\ncause: x\n")}}});
    let grants = path("fluxaccessgrants", "");
    let standing_grant = |by: &str, targets: Value| {
        let spec = json!({"targets": targets, "roles": ["read_repository"], "namespaces": ["access-*"], "maxRotate": "90d", "approvedBy": by});
        object("FluxAccessStandingGrant", "s", spec)
    };
    let post = |target: &str| (Method::POST, target.to_owned());
    let patch = |target: &str| (Method::PATCH, target.to_owned());

    // Another user's answer as stored, with an order on the request.
    wait_for_ruling(
        &cluster,
        "petra",
        (Method::POST, &grants),
        &grant(&asked, "petra", &[]),
        None,
    )
    .await;
    let mut kept = grant(&asked, "petra", &[]);
    kept["metadata"]["name"] = json!("kept");
    let answer = send(&cluster, "petra", (Method::POST, &grants), &kept).await.unwrap();
    send(&cluster, "petra", (Method::PATCH, &name), &order("petra"))
        .await
        .unwrap();
    let finalizer = json!({"metadata": {"finalizers": ["tenure.dev/access"]}});
    cluster
        .admin
        .api(&asked)
        .patch(
            name_of(&asked),
            &Default::default(),
            &kube::api::Patch::Merge(&finalizer),
        )
        .await
        .unwrap();
    let granted = path("fluxaccessgrants", name_of(&answer));
    let access = |by: &str| {
        json!({"apiVersion": VERSION, "kind": "FluxAccess", "metadata": {"name": "x", "namespace": "access-a", "annotations": {"tenure.dev/requested-by": by}},
            "spec": {"provider": "work"}})
    };
    let asks = format!("/apis/{VERSION}/namespaces/access-a/fluxaccesses");
    let labelled = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new-evil", "labels": {"groups.access.tenure.dev/work-42": "yes"}}});
    let label = json!({"metadata": {"labels": {"groups.access.tenure.dev/work-42": "yes"}}});
    let target = json!({"apiVersion": VERSION, "kind": "FluxAccessTarget", "metadata": {"name": "work-7"}, "spec": {"provider": "work", "scope": "project", "id": 7}});
    let status = json!({"status": {"state": "Approved"}});
    let conditions = json!({"status": {"conditions": []}});
    let none = || Value::Null;

    // The name, the user, the request, the words of the denial; and the user who may do the same, unless only an administrator may.
    let attacks: Vec<Attack<'_>> = vec![
        (
            "one's own request approved",
            "olga",
            post(&grants),
            grant(&own, "olga", &[]),
            "olga asked for this access itself",
            Some(("petra", grant(&own, "petra", &[]))),
        ),
        (
            "approved without the verb",
            "alice",
            post(&grants),
            grant(&asked, "alice", &[]),
            "alice may not approve for what it names",
            Some(("olga", grant(&asked, "olga", &[]))),
        ),
        (
            "approved in another one's name",
            "alice",
            post(&grants),
            grant(&asked, "olga", &[]),
            "spec.approvedBy is olga, but the writer is alice",
            Some(("olga", grant(&asked, "olga", &[]))),
        ),
        (
            "approved for another project",
            "olga",
            post(&grants),
            grant(&asked, "olga", &[("target", json!("work-43"))]),
            "olga may not approve for what it names",
            Some(("olga", grant(&asked, "olga", &[]))),
        ),
        (
            "approved as a person of the host",
            "olga",
            post(&grants),
            grant(&asked, "gitlab:7", &[]),
            "olga may not vouch for what it names",
            None,
        ),
        (
            "a standing grant wider than one's targets",
            "olga",
            post(&path("fluxaccessstandinggrants", "")),
            standing_grant("olga", json!(["work-42", "work-43"])),
            "olga may not approve for what it names",
            Some(("olga", standing_grant("olga", json!(["work-42"])))),
        ),
        (
            "an answer changed",
            "petra",
            patch(&granted),
            json!({"spec": {"decision": "Denied"}}),
            "spec can't be changed",
            Some(("petra", json!({"metadata": {"labels": {"a": "b"}}}))),
        ),
        (
            "the status of an answer written",
            "olga",
            patch(&format!("{granted}/status")),
            conditions.clone(),
            "olga may not write status of fluxaccessgrants",
            None,
        ),
        (
            "a request written",
            "alice",
            post(&path("fluxaccessrequests", "")),
            request(43, "bob"),
            "alice may not write spec of fluxaccessrequests",
            None,
        ),
        (
            "a request changed",
            "alice",
            patch(&name),
            json!({"spec": {"namespaces": ["*"]}}),
            "spec can't be changed",
            Some(("alice", json!({"metadata": {"labels": {"a": "b"}}}))),
        ),
        (
            "the status of a request written",
            "alice",
            patch(&format!("{name}/status")),
            status,
            "alice may not write status of fluxaccessrequests",
            None,
        ),
        (
            "a target written",
            "alice",
            post(&format!("/apis/{VERSION}/fluxaccesstargets")),
            target,
            "alice may not write spec of fluxaccesstargets",
            None,
        ),
        (
            "asked in another one's name",
            "alice",
            post(&asks),
            access("bob"),
            "the annotation tenure.dev/requested-by is bob, but the writer is alice",
            Some(("alice", access("alice"))),
        ),
        (
            "a namespace made to match, with the label of a group",
            "alice",
            post("/api/v1/namespaces"),
            labelled.clone(),
            "alice may not give namespace new-evil the credential that its labels name",
            Some(("olga", labelled)),
        ),
        (
            "the label of a group put on",
            "alice",
            patch("/api/v1/namespaces/access-a"),
            label.clone(),
            "alice may not give namespace access-a the credential that its labels name",
            Some(("olga", label)),
        ),
        (
            "a credential replaced without the verb",
            "alice",
            patch(&name),
            order("alice"),
            "alice may not order the replacement of credentials of work-42",
            Some(("olga", order("olga"))),
        ),
        (
            "a credential replaced in another one's name",
            "olga",
            patch(&name),
            order("alice"),
            "an order must begin with the line by: olga",
            Some(("olga", order("olga"))),
        ),
        (
            "an order taken away",
            "alice",
            patch(&name),
            json!({"metadata": {"annotations": {"tenure.dev/rotate": none()}}}),
            "alice may not order the replacement of credentials of work-42",
            Some((
                "olga",
                json!({"metadata": {"annotations": {"tenure.dev/rotate": none()}}}),
            )),
        ),
        (
            "a record let go before its credentials",
            "alice",
            patch(&name),
            json!({"metadata": {"finalizers": none()}}),
            "alice may not change finalizers and owners of fluxaccessrequests",
            None,
        ),
        (
            "the staging Secret read",
            "olga",
            (
                Method::GET,
                format!("/api/v1/namespaces/{PLATFORM}/secrets/access-staging"),
            ),
            none(),
            "cannot get resource \"secrets\"",
            None,
        ),
    ];
    assert!(attacks.len() >= 15);
    for (what, user, (method, target), body, part, control) in &attacks {
        println!("{what}");
        wait_for_ruling(&cluster, user, (method.clone(), target), body, Some(part)).await;
        if let Some((user, body)) = control {
            wait_for_ruling(&cluster, user, (method.clone(), target), body, None).await;
        }
    }
    let freed = json!({"metadata": {"finalizers": null}});
    cluster
        .admin
        .api(&asked)
        .patch(name_of(&asked), &Default::default(), &kube::api::Patch::Merge(&freed))
        .await
        .unwrap();
    clear(cluster).await;
}

/// The controllers check facts that admission can't see. Such an answer is stored, and approves nothing.
#[tokio::test]
async fn answer_to_another_request_approves_nothing() {
    let cluster = set().await;
    let asked = store(&cluster, request(42, "alice")).await;
    let own = store(&cluster, request(42, "olga")).await;
    let grants = path("fluxaccessgrants", "");
    let hash = json!(format!("sha256:{}", "a".repeat(64)));
    wait_for_rights(&cluster, &asked, "alice", "olga").await;
    for (request, changes, part) in [
        (&asked, vec![("specHash", hash)], "its specHash differs"),
        (
            &asked,
            vec![(
                "requestRef",
                json!({"name": name_of(&asked), "uid": "of-an-earlier-one"}),
            )],
            "it answers an earlier request of this name",
        ),
        (
            &asked,
            vec![("notAfter", json!("2020-01-01T00:00:00Z"))],
            "it ended at 2020-01-01",
        ),
        (
            &asked,
            vec![("maxRotate", json!("7d"))],
            "it allows 7d between replacements, and the request asks for 30d",
        ),
        // A requester claims that another user made the request.
        (
            &own,
            vec![("requestedBy", json!("alice"))],
            "it says that alice asks, and the request says olga",
        ),
        (&asked, Vec::new(), ""),
    ] {
        let answer = grant(request, "olga", &changes);
        send(&cluster, "olga", (Method::POST, &grants), &answer).await.unwrap();
        let (state, notes) = state_of(&cluster, request);
        let expected = if part.is_empty() { "Approved" } else { "Pending" };
        assert_eq!(state, expected, "{changes:?}: {notes}");
        assert!(notes.contains(part), "{part:?} is not in {notes}");
        cluster.check(
            &["access", "why", name_of(request)],
            1,
            &[if part.is_empty() {
                "olga approves it (FluxAccessGrant g)"
            } else {
                part
            }],
        );
        cluster.admin.delete(&answer).await;
    }
    clear(cluster).await;
}
