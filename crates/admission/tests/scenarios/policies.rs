//! Every case of tenancy's table, checked by the policies alone.

use http::Method;
use serde_json::{Value, json};
use tenure_testkit::{Cluster, SOON, eventually};

use crate::stage::{Answer, Stage};
use crate::stand_ins;
use crate::table::{ByPolicy, Case};

/// Checks whether the policies answered as the table says.
fn compare(case: &Case, answer: &Answer) -> Result<(), String> {
    if let (Some(ByPolicy::Server(_)), Answer::Refused(..)) = (&case.policy, answer) {
        return Ok(());
    }
    let part = match (&case.policy, &case.deny) {
        (Some(ByPolicy::Refuses(_)), _) => Some(String::new()),
        (Some(ByPolicy::Says(part)), _) => Some(part.clone()),
        (None, Some(_)) => Some(case.saying.clone()),
        (Some(ByPolicy::Leaves(_) | ByPolicy::Server(_)), _) | (None, None) => None,
    };
    let rule = case.deny.as_deref().filter(|_| case.policy.is_none());
    let is_right = match (answer, part) {
        (Answer::Allowed(..), None) => true,
        (Answer::Refused(403, reason, message), Some(part)) => {
            let is_ours = message.contains("ValidatingAdmissionPolicy 'tenure-");
            let is_explained =
                message.contains(&part) && rule.is_none_or(|rule| message.ends_with(&format!("({rule})")));
            reason == "Forbidden" && is_ours && is_explained
        }
        _ => false,
    };
    if is_right {
        Ok(())
    } else {
        Err(format!("{} ({:?})\n    gives {answer:?}", case.name(0), case.policy))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policies_answer_as_the_table_says() {
    let stage = Stage::set().await;
    stage.hand_over_to_policies().await;
    let (mut asked, mut wrong) = (0, Vec::new());
    for (index, case) in stage.cases() {
        if !case.pure_only.is_empty() {
            continue;
        }
        asked += 1;
        // A server follows roles and namespaces a moment later.
        let answered = eventually(SOON, || async { compare(case, &stage.ask(case).await) }).await;
        if let Err(why) = answered {
            wrong.push(format!("case {}: {why}", index + 1));
        }
    }
    assert!(wrong.is_empty(), "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(asked >= 300, "only {asked} cases were asked");
    check_facts(&stage).await;
    check_unwritten(&stage).await;
    check_minting(&stage).await;
    check_managers(&stage).await;
    stage.cluster.remove_policies().await.unwrap();
    stand_ins::take_away(&stage.cluster.admin).await;
}

/// Returns the answer to a request that the table has no case of.
async fn ask(stage: &Stage, by: &str, method: Method, target: &str, body: &Value) -> Answer {
    stage
        .send(stage.actor(by), method, &format!("{target}?dryRun=All"), body)
        .await
}

/// Expects a denial whose message has this part. `None`: expects that the request is allowed.
async fn expect(stage: &Stage, (by, method, target): (&str, Method, &str), body: &Value, part: Option<&str>) {
    let answered = eventually(SOON, || async {
        let answer = ask(stage, by, method.clone(), target, body).await;
        let is_right = match (&answer, part) {
            (Answer::Allowed(..), None) => true,
            (Answer::Refused(403, _, message), Some(part)) => message.contains(part),
            _ => false,
        };
        if is_right {
            Ok(())
        } else {
            Err(format!("{by} {method} {target}: {answer:?}, not {part:?}"))
        }
    });
    if let Err(why) = answered.await {
        panic!("{why}");
    }
}

/// The facts that policies read may be written only by users that may adopt every Tenant. This holds at creation and for each part
/// of a namespace.
async fn check_facts(stage: &Stage) {
    let admin = &stage.cluster.admin;
    let forged = |mut namespace: Value, value: &str| {
        namespace["metadata"]["annotations"]["facts.tenure.dev/account"] = json!(value);
        namespace
    };
    let new = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "blue-forged", "labels": { "capsule.clastix.io/tenant": "blue" } } });
    for by in ["dev", "admin"] {
        let why = "can't be created with annotations facts.tenure.dev/*";
        expect(
            stage,
            (by, Method::POST, "/api/v1/namespaces"),
            &forged(new.clone(), "x"),
            Some(why),
        )
        .await;
    }
    let stored = admin.get(("v1", "Namespace"), ("", "blue-dev")).await.unwrap().unwrap();
    let target = "/api/v1/namespaces/blue-dev";
    for part in ["", "/status"] {
        let target = format!("{target}{part}");
        let why = "may not change the annotations facts.tenure.dev/*";
        expect(
            stage,
            ("alice", Method::PUT, &target),
            &forged(stored.clone(), "mine"),
            Some(why),
        )
        .await;
        let mut taken = stored.clone();
        let annotations = taken["metadata"]["annotations"].as_object_mut().unwrap();
        annotations.remove("facts.tenure.dev/tenant");
        expect(stage, ("alice", Method::PUT, &target), &taken, Some(why)).await;
    }
    expect(
        stage,
        ("controller", Method::PUT, target),
        &forged(stored.clone(), "its"),
        None,
    )
    .await;
    if Cluster::is_shared() {
        // In this cluster, it can write metadata too.
        let mut given_away = stored.clone();
        given_away["metadata"]["labels"]
            .as_object_mut()
            .unwrap()
            .remove("capsule.clastix.io/tenant");
        let target = "/api/v1/namespaces/blue-dev/finalize";
        expect(
            stage,
            ("alice", Method::PUT, target),
            &given_away,
            Some("may not change the tenant of namespace"),
        )
        .await;
    }
}

/// In a namespace without facts, owners write nothing, and Tenure and Kubernetes do. Facts that are written later
/// take effect.
async fn check_unwritten(stage: &Stage) {
    let admin = &stage.cluster.admin;
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": "blue-unwritten", "labels": { "capsule.clastix.io/tenant": "blue" } }
    });
    admin.create(namespace).await.unwrap();
    let target = "/api/v1/namespaces/blue-unwritten/configmaps";
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x" } });
    expect(
        stage,
        ("dev", Method::POST, target),
        &map,
        Some("Tenure hasn't written on it to which tenant it belongs"),
    )
    .await;
    expect(stage, ("admin", Method::POST, target), &map, None).await;
    // The controller writes the objects that a new namespace needs before the namespace has facts.
    let accounts = "/api/v1/namespaces/blue-unwritten/serviceaccounts";
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "blue-gitops" } });
    expect(stage, ("controller", Method::POST, accounts), &account, None).await;
    let facts = |tenant: &str| json!({ "metadata": { "annotations": { "facts.tenure.dev/tenant": tenant } } });
    // Facts from a time when the namespace had another uid don't count.
    admin
        .patch(("v1", "Namespace"), ("", "blue-unwritten"), facts("red"))
        .await
        .unwrap();
    expect(
        stage,
        ("dev", Method::POST, target),
        &map,
        Some("Tenure hasn't written on it"),
    )
    .await;
    admin
        .patch(("v1", "Namespace"), ("", "blue-unwritten"), facts("blue"))
        .await
        .unwrap();
    expect(stage, ("dev", Method::POST, target), &map, None).await;
}

/// In Kubernetes' own namespaces no account of Tenure gets a token, whatever its rights are.
async fn check_minting(stage: &Stage) {
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    for (namespace, part) in [
        ("kube-system", Some("may not ask for tokens in namespace kube-system")),
        ("nobody", None),
    ] {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "deployer", "namespace": namespace }
        });
        stage.cluster.admin.apply(account).await.unwrap();
        let target = format!("/api/v1/namespaces/{namespace}/serviceaccounts/deployer/token");
        expect(stage, ("controller", Method::POST, &target), &request, part).await;
    }
}

/// A user that takes the name of Git's manager edits nothing that Git manages. Neither does one that
/// removes managedFields.
async fn check_managers(stage: &Stage) {
    let admin = &stage.cluster.admin;
    let map = |git: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "strict-too", "namespace": "blue", "labels": {
                "kustomize.toolkit.fluxcd.io/name": "strict", "kustomize.toolkit.fluxcd.io/namespace": "blue"
            } },
            "data": { "git": git }
        })
    };
    let stored = admin.apply_as("kustomize-controller", map("1")).await.unwrap();
    let refused = Some("the fields that Kustomization blue/strict applied here are managed by Git");
    let target = "/api/v1/namespaces/blue/configmaps/strict-too";
    for (what, part) in [
        ("/data/own", None),
        ("/metadata/annotations/own", None),
        ("/data/git", refused),
        ("/metadata/labels/kustomize.toolkit.fluxcd.io~1name", refused),
    ] {
        let mut edited = stored.clone();
        let (parent, key) = what.rsplit_once('/').unwrap();
        edited["metadata"]["annotations"] = json!({});
        edited.pointer_mut(parent).unwrap()[key.replace("~1", "/")] = json!("x");
        edited["metadata"].as_object_mut().unwrap().remove("managedFields");
        expect(stage, ("dev", Method::PUT, target), &edited, part).await;
        if part.is_some() {
            edited["metadata"]["managedFields"] = json!([{}]);
            expect(stage, ("dev", Method::PUT, target), &edited, part).await;
        }
    }
    for manager in ["kustomize-controller", "me"] {
        let request = http::Request::patch(format!("{target}?dryRun=All&force=true&fieldManager={manager}"))
            .header("content-type", "application/apply-patch+yaml")
            .header("impersonate-user", "dora")
            .header("impersonate-group", "blue-devs");
        let request = request.body(map("2").to_string().into_bytes()).unwrap();
        let answer = admin.client().request::<Value>(request).await.unwrap_err();
        assert!(answer.to_string().contains("are managed by Git"), "{manager}: {answer}");
    }
}
