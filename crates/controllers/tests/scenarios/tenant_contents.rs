//! The objects that bound a tenant's namespaces are in each of them as the Tenant defines them, are restored after a change, and are removed with
//! their definition.

use serde_json::{Value, json};

use crate::stage::Stage;
use crate::tenants::{TENANT, adopt, tenant};

const LIMIT_RANGE: (&str, &str) = ("v1", "LimitRange");
const NETWORK_POLICY: (&str, &str) = ("networking.k8s.io/v1", "NetworkPolicy");
const RESOURCE_QUOTA: (&str, &str) = ("v1", "ResourceQuota");
const NAMESPACE: (&str, &str) = ("v1", "Namespace");

async fn change_spec(stage: &Stage, name: &str, spec: Value) {
    let object = json!({ "apiVersion": TENANT.0, "kind": TENANT.1, "metadata": { "name": name }, "spec": spec });
    stage.admin.apply(object).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_namespaces_are_written_restored_and_removed() {
    let stage = Stage::set("bounded").await;
    tenant(&stage, "bound").await;
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "bound-dev", "labels": { "env": "dev" } }
    });
    stage.admin.apply(namespace).await.unwrap();
    adopt(&stage, "bound", "bound-dev").await;
    let owners = json!([{ "kind": "User", "name": "bound-owner" }]);
    let spec = json!({
        "owners": owners,
        "limitRanges": { "items": [{ "limits": [{ "type": "Container", "max": { "cpu": "2000m" }, "min": { "cpu": "10m" } }] }] },
        "networkPolicies": { "items": [{ "podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{ "from": [{ "podSelector": {} }], "ports": [{ "port": 80 }] }] }] },
        "resourceQuotas": { "scope": "Namespace", "items": [{ "hard": { "pods": 10, "limits.cpu": "8000m" } }, { "hard": { "services": "5" } }] },
        "nodeSelector": { "pool": "blue" },
        "namespaceOptions": {
            "additionalMetadata": { "labels": { "cost": "42" } },
            "additionalMetadataList": [{ "namespaceSelector": { "matchLabels": { "env": "dev" } }, "labels": { "of": "{{ tenant.name }}" } }]
        }
    });
    change_spec(&stage, "bound", spec.clone()).await;
    for namespace in ["bound", "bound-dev"] {
        for (kind, name) in [
            (LIMIT_RANGE, "capsule-bound-0"),
            (NETWORK_POLICY, "capsule-bound-0"),
            (RESOURCE_QUOTA, "capsule-bound-0"),
            (RESOURCE_QUOTA, "capsule-bound-1"),
        ] {
            stage.wait_for(kind, (namespace, name), |object| object.is_some()).await;
        }
        stage
            .wait_for(NAMESPACE, ("", namespace), |object| {
                let metadata = &object.unwrap()["metadata"];
                let node = &metadata["annotations"]["scheduler.alpha.kubernetes.io/node-selector"];
                metadata["labels"]["cost"] == "42" && node == "pool=blue"
            })
            .await;
    }
    let labels = |object: &Value| object["metadata"]["labels"].clone();
    let dev = stage.get(NAMESPACE, ("", "bound-dev")).await.unwrap();
    assert_eq!(labels(&dev)["of"], "bound");
    let home = stage.get(NAMESPACE, ("", "bound")).await.unwrap();
    assert_eq!(labels(&home)["of"], Value::Null);

    // An edit is reverted, and unchanged objects are not written: defaults of the server are no edits.
    let target = ("bound-dev", "capsule-bound-0");
    let before = stage.get(LIMIT_RANGE, target).await.unwrap();
    let edit = json!({ "spec": { "podSelector": { "matchLabels": { "none": "such" } } } });
    stage.admin.patch(NETWORK_POLICY, target, edit).await.unwrap();
    stage
        .wait_for(NETWORK_POLICY, target, |policy| {
            policy.is_some_and(|policy| policy["spec"]["podSelector"] == json!({}))
        })
        .await;
    stage.admin.delete(RESOURCE_QUOTA, target).await.unwrap();
    stage
        .wait_for(RESOURCE_QUOTA, target, |quota| {
            quota.is_some_and(|quota| quota["spec"]["hard"] == json!({ "limits.cpu": "8", "pods": "10" }))
        })
        .await;
    let after = stage.get(LIMIT_RANGE, target).await.unwrap();
    assert_eq!(
        after["metadata"]["resourceVersion"],
        before["metadata"]["resourceVersion"]
    );

    // Objects of others stay, whatever their name is.
    let own = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": { "name": "capsule-bound-9", "namespace": "bound-dev", "labels": { "capsule.clastix.io/tenant": "bound" } },
        "spec": { "hard": { "configmaps": "100" } }
    });
    stage.admin.apply(own).await.unwrap();
    change_spec(&stage, "bound", json!({ "owners": owners })).await;
    for (kind, name) in [
        (LIMIT_RANGE, "capsule-bound-0"),
        (NETWORK_POLICY, "capsule-bound-0"),
        (RESOURCE_QUOTA, "capsule-bound-0"),
        (RESOURCE_QUOTA, "capsule-bound-1"),
    ] {
        stage
            .wait_for(kind, ("bound-dev", name), |object| object.is_none())
            .await;
    }
    stage
        .wait_for(NAMESPACE, ("", "bound-dev"), |object| {
            let metadata = &object.unwrap()["metadata"];
            let annotations = &metadata["annotations"]["scheduler.alpha.kubernetes.io/node-selector"];
            metadata["labels"]["cost"].is_null() && metadata["labels"]["of"].is_null() && annotations.is_null()
        })
        .await;
    let dev = stage.get(NAMESPACE, ("", "bound-dev")).await.unwrap();
    assert_eq!(labels(&dev)["env"], "dev");
    assert_eq!(labels(&dev)["capsule.clastix.io/tenant"], "bound");
    let foreign = stage.get(RESOURCE_QUOTA, ("bound-dev", "capsule-bound-9")).await;
    assert!(foreign.is_some(), "it is an administrator's");
    stage.shut_down().await;
}
