//! `tenure audit`, and `tenure who` with an audit log: fields from Git that other managers have, and the users behind these managers.

use serde_json::{Value, json};

use crate::inspect::{CANARY, eventually, grant, impersonate, set_with};
use crate::process::tenure;

const MAP: &str = "/api/v1/namespaces/shop/configmaps/map";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/shop/deployments/web";
const SURFACE: &str = "/apis/tenure.dev/v1alpha1/namespaces/shop/surfaces/web";

/// Writes as the kubeconfig's user.
async fn write(kubeconfig: &std::path::Path, path: &str, content_type: &str, body: &Value) {
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let request = http::Request::patch(path)
        .header("content-type", content_type)
        .body(body.to_string().into_bytes())
        .unwrap();
    client.request::<Value>(request).await.unwrap();
}

#[tokio::test]
async fn audit_names_field_owners_and_their_users() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.yaml");
    std::fs::write(
        &policy,
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n",
    )
    .unwrap();
    let (policy, log) = (policy.display().to_string(), folder.path().join("audit.log"));
    let log = log.display().to_string();
    let place = set_with(folder, &["--audit-policy-file", &policy, "--audit-log-path", &log]).await;
    let data = place.folder.path().join("data");
    place.check(
        &["audit", "-n", "shop"],
        0,
        &["3 objects: nothing is contested, stolen or abandoned"],
        &[],
    );

    // Nothing restores the fields meanwhile.
    let admin = place.kubeconfig();
    let merge = "application/merge-patch+json";
    write(
        &admin,
        &format!("{SURFACE}?fieldManager=test"),
        merge,
        &json!({"spec": {"suspend": true}}),
    )
    .await;
    eventually(
        &place,
        &["get", "ks", "web-web", "-n", "shop", "-o", "json"],
        "\"suspend\": true",
    )
    .await;
    grant(&data, "alice", "edit").await;
    let alice = impersonate(&place, "alice");
    write(
        &alice,
        &format!("{MAP}?fieldManager=kubectl-edit"),
        merge,
        &json!({"data": {"a": "mine"}}),
    )
    .await;
    let scale =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 1}});
    let apply = "application/apply-patch+yaml";
    write(&alice, &format!("{DEPLOYMENT}?fieldManager=scaler"), apply, &scale).await;
    let labels = json!({"kustomize.toolkit.fluxcd.io/name": "old", "kustomize.toolkit.fluxcd.io/namespace": "shop"});
    let left = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "left", "labels": labels}, "data": {"a": "b"}});
    // A writer chooses the manager's name.
    write(
        &alice,
        "/api/v1/namespaces/shop/configmaps/left?fieldManager=kustomize-controller",
        apply,
        &left,
    )
    .await;

    let audit = ["audit", "-n", "shop", "--audit-log", &log];
    let expected = [
        "ConfigMap/shop/left\n  abandoned the whole object: kustomize-controller since ",
        "Kustomization shop/old, which applied it, is gone: delete it",
        "stolen .data.a: kubectl-edit since ",
        "(alice, impersonated by ",
        "contested .spec.replicas: kustomize-controller since ",
        "scaler (alice, impersonated by ",
        "3 findings in 3 of 4 objects",
    ];
    place.check(&audit, 1, &expected, &[]);
    let output = place.run(&[&audit[..], &["-o", "json"]].concat());
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let faults: Vec<&str> = findings
        .iter()
        .filter_map(|finding| finding["fault"].as_str())
        .collect();
    assert_eq!(faults.len(), 3, "{findings:#?}");
    let contested = findings.iter().find(|finding| finding["fault"] == "contested").unwrap();
    let writers = contested["holders"][0]["writers"].as_str().unwrap();
    assert!(writers.contains("system:serviceaccount:shop:shop-gitops"), "{writers}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains(CANARY));

    // Without the artifacts, the content of Git is unknown, and the output says so.
    let elsewhere = place.folder.path().display().to_string();
    let noted = ["of Kustomization shop/web-web the state in Git isn't known, so stolen fields aren't found"];
    place.check(
        &["audit", "-n", "shop", "--artifacts", &elsewhere],
        1,
        &["2 findings in 2 of 4"],
        &noted,
    );

    let who = ["who", "configmap/map", "-n", "shop", "--audit-log", &log];
    place.check(&who, 0, &["WRITTEN BY", "alice, impersonated by "], &[]);

    // A user without rights learns nothing, and gets an error.
    let mallory = impersonate(&place, "mallory");
    let output = tenure(&["audit", "-n", "shop"])
        .env("KUBECONFIG", &mallory)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("mallory"),
        "{output:?}"
    );
    place.check(
        &["audit", "-n", "shop", "--audit-log", "none.log"],
        3,
        &[],
        &["none.log"],
    );
}
