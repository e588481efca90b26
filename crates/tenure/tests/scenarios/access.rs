//! Access requests for Git hosts: the output and the writes of the commands, by users with and without the rights, and attacks past the commands, on every kind of
//! server. Policies check the writes. No controller reconciles, so requests stay as written.

mod attacks;
mod vouching;

use http::Method;
use serde_json::{Value, json};
use tenure_admission_rules::policy;
use tenure_api::access::FluxAccessRequestSpec;
use tenure_git_access::request::{hash_spec, name_request};
use tenure_tenancy::Settings;
use tenure_testkit::eventually;

use crate::world::{Cluster, PATIENCE};

const VERSION: &str = "tenure.dev/v1alpha1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const PLATFORM: &str = "tenure-system";
/// A text that no command may print.
const CANARY: &str = "canary-7c20";

fn path(plural: &str, name: &str) -> String {
    let name = if name.is_empty() {
        String::new()
    } else {
        format!("/{name}")
    };
    format!("/apis/{VERSION}/namespaces/{PLATFORM}/{plural}{name}")
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": VERSION, "kind": kind, "metadata": {"name": name, "namespace": PLATFORM}, "spec": spec})
}

/// Returns a request for a project, with its hash and name, as the controllers make it.
fn request(id: u64, asked_by: &str) -> Value {
    let mut spec: FluxAccessRequestSpec = serde_json::from_value(json!({
        "provider": "work", "target": {"scope": "project", "id": id, "path": "group-1/a"}, "role": "read_repository", "rotate": "30d",
        "secretName": "git", "namespaces": ["access-a", "new-*"], "serviceAccounts": ["flux"],
        "askedIn": {"kind": "FluxAccess", "namespace": "access-a", "name": "apps"}, "requestedBy": asked_by, "clusterUid": "c0ffee00-1", "specHash": ""
    }))
    .unwrap();
    spec.spec_hash = hash_spec(&spec);
    object("FluxAccessRequest", &name_request(&spec), json!(spec))
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Returns the grant that answers a stored request, with changes of its spec.
fn grant(request: &Value, by: &str, changes: &[(&str, Value)]) -> Value {
    let id = &request["spec"]["target"]["id"];
    let mut spec = json!({
        "requestRef": {"name": request["metadata"]["name"], "uid": request["metadata"]["uid"]}, "target": format!("work-{id}"),
        "specHash": request["spec"]["specHash"], "requestedBy": request["spec"]["requestedBy"], "decision": "Approved", "approvedBy": by
    });
    for (key, value) in changes {
        spec[*key] = value.clone();
    }
    object("FluxAccessGrant", "g", spec)
}

/// Sends a request as a user; returns the object or the error.
async fn send(cluster: &Cluster, user: &str, (method, target): (Method, &str), body: &Value) -> Result<Value, String> {
    let content_type = if method == Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let request = http::Request::builder()
        .method(method)
        .uri(target)
        .header("content-type", content_type)
        .header("impersonate-user", user)
        .body(body.to_string().into_bytes())
        .unwrap();
    match cluster.admin.0.request::<Value>(request).await {
        Ok(value) => Ok(value),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => panic!("{error}"),
    }
}

/// Repeats a dry run until it is denied with these words, or without words until it is admitted. A server applies changes of policies and roles a moment later.
async fn wait_for_ruling(cluster: &Cluster, user: &str, way: (Method, &str), body: &Value, part: Option<&str>) {
    let target = format!("{}?dryRun=All", way.1);
    let seen = eventually(PATIENCE, || async {
        match (send(cluster, user, (way.0.clone(), &target), body).await, part) {
            (Ok(_), None) => Ok(()),
            (Err(message), Some(part)) if message.contains(part) => Ok(()),
            (last, _) => Err(format!("{user} {} {}: {last:?}, not {part:?}", way.0, way.1)),
        }
    });
    seen.await.unwrap();
}

/// Waits until the server knows that one user may not approve the request, and another user may.
async fn wait_for_rights(cluster: &Cluster, asked: &Value, may_not: &str, may: &str) {
    let grants = path("fluxaccessgrants", "");
    for (user, part) in [(may_not, Some("may not approve")), (may, None)] {
        wait_for_ruling(cluster, user, (Method::POST, &grants), &grant(asked, user, &[]), part).await;
    }
}

/// Users that RBAC lets write all objects of these kinds.
const WRITERS: [&str; 3] = ["alice", "olga", "petra"];
/// Users that may approve.
const APPROVERS: [&str; 3] = ["olga", "petra", "oscar"];

async fn bind(cluster: &Cluster, user: &str, role: &str) {
    let admin = &cluster.admin;
    let binding = json!({"apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": format!("{role}-{user}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    admin.apply(binding).await;
}

/// Starts a cluster with its users: RBAC lets all of them write these kinds, and some may approve.
async fn set() -> Cluster {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    let cluster_role = |name: &str, rules: Value| json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let all = json!(["get", "list", "create", "update", "patch", "delete"]);
    admin
        .apply(cluster_role(
            "access-writes",
            json!([
                {"apiGroups": ["tenure.dev"], "resources": ["*"], "verbs": all},
                {"apiGroups": [""], "resources": ["namespaces"], "verbs": all},
                {"apiGroups": ["capsule.clastix.io"], "resources": ["tenants"], "verbs": ["list"]}
            ]),
        ))
        .await;
    // Exactly the rights of a project's owner.
    let approver = json!([
        {"apiGroups": ["tenure.dev"], "resources": ["fluxaccesstargets"], "resourceNames": ["work-42"], "verbs": ["approve"]},
        {"apiGroups": ["tenure.dev"], "resources": ["fluxaccessrequests"], "verbs": ["get", "list", "patch"]},
        {"apiGroups": ["tenure.dev"], "resources": ["fluxaccessgrants"], "verbs": ["get", "list", "create", "delete"]},
        {"apiGroups": ["tenure.dev"], "resources": ["fluxaccessstandinggrants"], "verbs": ["list"]}
    ]);
    admin.apply(cluster_role("access-approves", approver)).await;
    for user in WRITERS {
        bind(&cluster, user, "access-writes").await;
    }
    for user in APPROVERS {
        bind(&cluster, user, "access-approves").await;
    }
    admin
        .apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "access-a"}}))
        .await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "access-staging", "namespace": PLATFORM}, "stringData": {"a": CANARY}});
    admin.apply(secret).await;
    for object in policy::list_policies(&Settings::default()) {
        admin.apply(object).await;
    }
    cluster
}

async fn clear(cluster: Cluster) {
    let mut rights = ["access-writes", "access-approves"]
        .map(|role| ("ClusterRole", role.to_owned()))
        .to_vec();
    for (role, users) in [("access-writes", WRITERS), ("access-approves", APPROVERS)] {
        rights.extend(users.map(|user| ("ClusterRoleBinding", format!("{role}-{user}"))));
    }
    for (kind, name) in rights {
        let right = json!({"apiVersion": RBAC, "kind": kind, "metadata": {"name": name}});
        cluster.admin.delete(&right).await;
    }
    for object in policy::list_policies(&Settings::default()) {
        cluster.admin.delete(&object).await;
    }
    for kind in [
        "FluxAccessRequest",
        "FluxAccessGrant",
        "FluxAccessStandingGrant",
        "FluxAccess",
    ] {
        let api = cluster.admin.api(&object(kind, "", json!({})));
        api.delete_collection(&Default::default(), &Default::default())
            .await
            .unwrap();
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "access-a"}});
    cluster.admin.delete(&namespace).await;
    cluster.wait_until_settled(&namespace).await;
}

/// Stores a request, and returns it as stored.
async fn store(cluster: &Cluster, request: Value) -> Value {
    cluster.admin.apply(request.clone()).await;
    cluster.admin.find(&request).await.unwrap()
}

/// Returns the state of a request by the command.
fn state_of(cluster: &Cluster, request: &Value) -> (String, String) {
    let output = cluster.run(&["access", "list", "-o", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["requests"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == request["metadata"]["name"]);
    let row = row.unwrap_or_else(|| panic!("{report:#}"));
    (row["state"].as_str().unwrap().to_owned(), row["notes"].to_string())
}

/// Writes the ledger of a request with a delivered credential.
async fn deliver(cluster: &Cluster, request: &Value) {
    let held = json!({"generation": 1, "id": 17, "name": "fa/c/r/1/1/n", "fingerprint": "f1f2", "begunAt": "2026-01-01T00:00:00Z", "verifiedAt": "2026-01-01T00:05:00Z"});
    let status = json!({"status": {
        "state": "Approved", "credentials": [{"namespace": "access-a", "generation": 1, "current": held}],
        "history": [{"at": "2026-01-01T00:00:00Z", "actor": "tenure", "action": "Minted", "namespace": "access-a", "id": 17}]
    }});
    let path = format!("{}/status", path("fluxaccessrequests", name_of(request)));
    send_as_admin(cluster, (Method::PATCH, &path), &status).await;
}

async fn send_as_admin(cluster: &Cluster, (method, target): (Method, &str), body: &Value) {
    let request = http::Request::builder()
        .method(method)
        .uri(target)
        .header("content-type", "application/merge-patch+json")
        .body(body.to_string().into_bytes())
        .unwrap();
    cluster.admin.0.request::<Value>(request).await.unwrap();
}

#[tokio::test]
async fn a_request_is_looked_at_answered_and_taken_back() {
    let cluster = set().await;
    let provider = json!({"kind": "gitlab", "address": "https://gitlab.example.org", "topLevelGroup": "group-1", "namespaces": ["access-*"],
        "authoriser": {"serviceAccountName": "access-authoriser", "secretRef": {"name": "access-authoriser"}},
        "writerServiceAccountName": "access-writer"});
    // No controller connects to this host in this test.
    cluster.admin.apply(object("AccessProvider", "work", provider)).await;
    let asked = store(&cluster, request(42, "alice")).await;
    let other = store(&cluster, request(43, "alice")).await;
    let name = name_of(&asked).to_owned();
    wait_for_rights(&cluster, &asked, "alice", "oscar").await;

    // Users who may only answer can see the request.
    let words = [
        "NAME",
        &name,
        "Pending",
        "work-42",
        "group-1/a",
        "read_repository",
        "alice",
        "access-a,new-*",
    ];
    cluster.check_as("oscar", &["access", "list"], 0, &words);
    cluster.check_as(
        "oscar",
        &["access", "list", "--state", "approved"],
        0,
        &["there are no requests"],
    );
    cluster.check_as(
        "oscar",
        &["access", "list", "-o", "yaml"],
        0,
        &["requests:\n", "state: Pending"],
    );
    let words = [
        "asked by     alice, in FluxAccess access-a/apps",
        "target       project work-42, group-1/a",
        "hash         sha256:",
        "read by      flux",
    ];
    cluster.check_as(
        "oscar",
        &["access", "show", &name],
        0,
        &[&words[..], &["would go to  isn't known"]].concat(),
    );
    cluster.check(&["access", "show", &name], 0, &["would go to  access-a"]);
    // The controllers record the receivers for approvers, who may not read the tenants of namespaces.
    let status = json!({"status": {"receivers": ["access-a", "new-b"], "moreReceivers": 3}});
    let target = format!("{}/status", path("fluxaccessrequests", &name));
    send_as_admin(&cluster, (Method::PATCH, &target), &status).await;
    let words = ["would go to  access-a", "would go to  new-b", "and 3 more namespaces"];
    cluster.check_as("oscar", &["access", "show", &name], 0, &words);
    cluster.check_as(
        "mallory",
        &["access", "list"],
        3,
        &["requests can't be listed", "hint:"],
    );
    cluster.check(
        &["access", "show", "none"],
        1,
        &["there is no FluxAccessRequest none", "tenure access list"],
    );

    // Answers: a user without the right sees the missing right, and no answer is recorded for them.
    let approve = ["access", "approve", &name];
    cluster.check_as(
        "alice",
        &[&approve[..], &["--yes"]].concat(),
        3,
        &[
            "alice may not approve for work-42",
            "fluxaccesstargets.tenure.dev/work-42",
        ],
    );
    cluster.check_as(
        "oscar",
        &["access", "approve", name_of(&other), "--yes"],
        3,
        &["oscar may not approve for work-43"],
    );
    cluster.check_as(
        "oscar",
        &approve,
        2,
        &[
            "asked by     alice",
            "there is no terminal for the confirmation",
            "--yes",
        ],
    );
    cluster.check_as(
        "oscar",
        &[&approve[..], &["--max-rotate", "7d", "--yes"]].concat(),
        1,
        &["allows 7d between replacements, and the request asks for 30d"],
    );
    cluster.check_as(
        "oscar",
        &[&approve[..], &["--not-after", "2020-01-01", "--yes"]].concat(),
        1,
        &["it ended at 2020-01-01"],
    );
    assert_eq!(state_of(&cluster, &asked).0, "Pending");
    cluster.check_as(
        "oscar",
        &[
            &approve[..],
            &["--reason", "ours", "--not-after", "2099-01-01", "--yes"],
        ]
        .concat(),
        0,
        &[
            "Approves FluxAccessRequest",
            "asked by     alice",
            "FluxAccessGrant ",
            ": approved",
        ],
    );
    assert_eq!(state_of(&cluster, &asked).0, "Approved");
    cluster.check_as(
        "petra",
        &[&approve[..], &["--yes"]].concat(),
        0,
        &["oscar approves it already"],
    );
    cluster.check(
        &["access", "why", &name],
        1,
        &["… grant", "oscar approves it", "they haven't seen it yet"],
    );

    // Delivered, as the controllers would record it: the command shows everything except the value.
    deliver(&cluster, &asked).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "git", "namespace": "access-a", "labels": {"tenure.dev/access-request": name}},
        "stringData": {"username": "x", "password": CANARY}});
    cluster.admin.apply(secret).await;
    let shown = cluster.check(
        &["access", "show", &name],
        0,
        &[
            "credential   access-a: InUse; number 17",
            "fingerprint f1f2",
            "history      2026-01-01T00:00:00Z tenure Minted in access-a, number 17",
        ],
    );
    let why = cluster.check(
        &["access", "why", "access-a/git"],
        1,
        &[
            "✓ receiver",
            "access-a may have it",
            "✓ ledger",
            "number 17 at the host",
            "✓ secret",
            "✓ proof",
            "lacks in namespace access-a: create secrets",
        ],
    );
    let data = cluster.check(
        &["access", "show", &name, "-o", "json"],
        0,
        &["\"fingerprint\": \"f1f2\""],
    );
    assert!(![shown, why, data].concat().contains(CANARY));
    cluster.check(&["access", "why", "access-a/none"], 1, &["no request names it"]);
    cluster.check(&["access", "why", "a/b/c"], 2, &["write NAMESPACE/SECRET"]);

    // The credential is replaced.
    let rotate = ["access", "rotate", &name, "--cause", "a laptop was stolen"];
    cluster.check_as("alice", &rotate, 3, &["alice may not approve for work-42"]);
    cluster.check_as(
        "oscar",
        &[&rotate[..], &["-n", "elsewhere"]].concat(),
        2,
        &["namespace elsewhere has no credential", "these have: access-a"],
    );
    cluster.check_as(
        "oscar",
        &[&rotate[..], &["--leak", "-n", "access-a"]].concat(),
        0,
        &["ordered", "the old one ends as soon as the new one is proven"],
    );
    let stored = cluster.admin.find(&asked).await.unwrap();
    let order = stored["metadata"]["annotations"]["rotate.access.tenure.dev/access-a"]
        .as_str()
        .unwrap();
    assert!(
        order.starts_with("leak/by: oscar\nat: ") && order.ends_with("cause: a laptop was stolen\n"),
        "{order}"
    );
    cluster.check(
        &["access", "show", &name],
        0,
        &["oscar ordered it: a laptop was stolen"],
    );
    // A leak stays recorded as a leak.
    cluster.check_as(
        "petra",
        &[&rotate[..], &["-n", "access-a"]].concat(),
        0,
        &["as soon as the new one is proven"],
    );

    // The credential is revoked, and the request is denied.
    let revoke = ["access", "revoke", &name, "--yes"];
    cluster.check_as(
        "oscar",
        &revoke,
        0,
        &["deleted", "Secret access-a/git is deleted", "at the host end 17"],
    );
    assert_eq!(state_of(&cluster, &asked).0, "Revoked");
    cluster.check_as("oscar", &revoke, 1, &["nothing to revoke"]);
    cluster.check_as(
        "oscar",
        &["access", "deny", &name, "--reason", "not ours", "--yes"],
        0,
        &["denied"],
    );
    cluster.check_as(
        "oscar",
        &[&approve[..], &["--yes"]].concat(),
        1,
        &["oscar denied it", "a denial wins over every approval"],
    );
    cluster.check(
        &["access", "why", &name],
        1,
        &["✗ grant", "oscar denied it", "not ours"],
    );

    // A request that a standing grant approves is denied by a Denied grant, since the standing grant serves others, too.
    let spec = json!({"targets": ["work-43"], "roles": ["read_repository"], "namespaces": ["access-a", "new-*"], "maxRotate": "90d", "approvedBy": "kubernetes-admin"});
    let mut standing_grant = object("FluxAccessStandingGrant", "everybody", spec);
    let me = whoami(&cluster).await;
    standing_grant["spec"]["approvedBy"] = json!(me);
    cluster.admin.apply(standing_grant).await;
    let mut of_platform = request(43, "bob");
    of_platform["spec"]["askedIn"] = json!({"kind": "Agent", "name": "prod"});
    let mut spec: FluxAccessRequestSpec = serde_json::from_value(of_platform["spec"].clone()).unwrap();
    spec.spec_hash = hash_spec(&spec);
    let of_platform = store(&cluster, object("FluxAccessRequest", &name_request(&spec), json!(spec))).await;
    assert_eq!(state_of(&cluster, &of_platform).0, "Approved");
    let words = ["denied, as FluxAccessStandingGrant everybody approves it"];
    cluster.check(&["access", "revoke", name_of(&of_platform), "--yes"], 0, &words);
    assert_eq!(state_of(&cluster, &of_platform).0, "Denied");
    cluster.admin.delete(&object("AccessProvider", "work", json!({}))).await;
    clear(cluster).await;
}

/// Returns the administrator's name.
async fn whoami(cluster: &Cluster) -> String {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("content-type", "application/json")
        .body(review.to_string().into_bytes())
        .unwrap();
    let answer: Value = cluster.admin.0.request(request).await.unwrap();
    answer["status"]["userInfo"]["username"].as_str().unwrap().to_owned()
}
