//! Writes of an owner in a namespace that is seconds old, while the controllers still write its facts and only policies check writes.

use http::Request;
use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use crate::stage::Stage;
use crate::tenants::TENANT;

const TENANT_NAME: &str = "fresh-blue";
const OWNER: &str = "fresh-blue-owner";
const SERVICE: (&str, &str) = ("v1", "Service");
const CLAIM: (&str, &str) = ("v1", "PersistentVolumeClaim");
const INGRESS: (&str, &str) = ("networking.k8s.io/v1", "Ingress");
const POD: (&str, &str) = ("v1", "Pod");
/// How many namespaces the owner makes, one after the other.
const ROUNDS: usize = 6;
/// How often each refused object is tried after an allowed one was stored.
const AFTERWARDS: usize = 10;

/// Sends an object as the owner. True if the server stored it.
async fn create(stage: &Stage, path: &str, object: &Value) -> bool {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .header("impersonate-user", OWNER)
        .body(object.to_string().into_bytes())
        .unwrap();
    match stage.admin.client().request::<Value>(request).await {
        Ok(_) => true,
        Err(kube::Error::Api(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

/// The objects that the Tenant's bounds refuse, each with its path.
fn list_refused(namespace: &str, number: usize) -> Vec<(String, Value)> {
    let core = format!("/api/v1/namespaces/{namespace}");
    let metadata = json!({ "name": format!("refused-{number}") });
    vec![
        (
            format!("{core}/services"),
            json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": { "type": "NodePort", "ports": [{ "port": 80 }] } }),
        ),
        (
            format!("{core}/persistentvolumeclaims"),
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
                "spec": { "volumeName": "of-a-neighbour", "storageClassName": "", "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } }
            }),
        ),
        (
            format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses"),
            json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata,
                "spec": { "rules": [{ "host": "shop.of-a-neighbour.example" }], "defaultBackend": { "service": { "name": "x", "port": { "number": 80 } } } }
            }),
        ),
        (
            format!("{core}/pods"),
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                "spec": { "automountServiceAccountToken": false, "containers": [{ "name": "x", "image": "banned.example/x:1" }] }
            }),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_namespace_stores_nothing_that_policies_refuse() {
    let stage = Stage::set_policed("fresh").await;
    let tenant = json!({
        "apiVersion": TENANT.0, "kind": TENANT.1, "metadata": { "name": TENANT_NAME },
        "spec": {
            "owners": [{ "kind": "User", "name": OWNER }],
            "containerRegistries": { "allowed": ["allowed.example"] },
            "serviceOptions": { "allowedServices": { "nodePort": false } },
            "ingressOptions": { "allowedHostnames": { "allowed": ["shop.own.example"] } }
        }
    });
    stage.admin.apply(tenant).await.unwrap();
    for round in 0..ROUNDS {
        let name = format!("{TENANT_NAME}-{round}");
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": { "capsule.clastix.io/tenant": TENANT_NAME } } });
        eventually(SOON, || async {
            create(&stage, "/api/v1/namespaces", &namespace)
                .await
                .then_some(())
                .ok_or("refused")
        })
        .await
        .unwrap();
        let allowed = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "own" }, "spec": { "ports": [{ "port": 80 }] } });
        let services = format!("/api/v1/namespaces/{name}/services");
        let begun = std::time::Instant::now();
        let (mut number, mut after) = (0, 0);
        // Until the owner has rights there, and a while longer: the attack uses the moments in between.
        while after < AFTERWARDS {
            for (path, object) in list_refused(&name, number) {
                assert!(
                    !create(&stage, &path, &object).await,
                    "round {round}, attempt {number}: {path} was stored"
                );
            }
            number += 1;
            if after > 0 || create(&stage, &services, &allowed).await {
                after += 1;
            }
            assert!(begun.elapsed() < SOON, "the owner of {name} gets no rights");
        }
        for kind in [SERVICE, CLAIM, INGRESS, POD] {
            let stored = stage.admin.list(kind, &name).await.unwrap();
            let names = stored.iter().filter_map(|object| object["metadata"]["name"].as_str());
            let refused: Vec<&str> = names.filter(|name| name.starts_with("refused-")).collect();
            assert!(refused.is_empty(), "{name} has {refused:?}");
        }
    }
    stage.shut_down().await;
}
