//! Volumes that one tenant keeps, and that Kubernetes' volume binder would give to another tenant's claim, while policies alone judge.

use http::Request;
use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use crate::stage::Stage;
use crate::tenants::TENANT;

const BINDER: &str = "system:serviceaccount:kube-system:persistent-volume-binder";
const VOLUME: (&str, &str) = ("v1", "PersistentVolume");

/// Creates a Tenant with one namespace, and returns that namespace's name.
async fn make_tenant(stage: &Stage, name: &str) -> String {
    let tenant = json!({
        "apiVersion": TENANT.0, "kind": TENANT.1, "metadata": { "name": name },
        "spec": { "owners": [{ "kind": "User", "name": format!("{name}-owner") }] }
    });
    stage.admin.apply(tenant).await.unwrap();
    let has_home = |namespace: Option<&Value>| namespace.is_some();
    stage.wait_for(("v1", "Namespace"), ("", name), has_home).await;
    name.to_owned()
}

/// Gives a volume to a claim, as the volume binder does. The error is the message of the refusal.
async fn give(stage: &Stage, volume: &str, namespace: &str) -> Result<(), String> {
    let mut object = stage.get(VOLUME, ("", volume)).await.unwrap();
    object["spec"]["claimRef"] =
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": "data" });
    let request = Request::put(format!("/api/v1/persistentvolumes/{volume}"))
        .header("content-type", "application/json")
        .header("impersonate-user", BINDER)
        .body(object.to_string().into_bytes())
        .unwrap();
    match stage.admin.client().request::<Value>(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labelled_volume_binds_only_to_claims_of_its_tenant() {
    let stage = Stage::set_policed("volumes").await;
    let victim = make_tenant(&stage, "volumes-victim").await;
    let evil = make_tenant(&stage, "volumes-evil").await;
    stage.namespace("volumes-nobody").await;
    for name in ["volumes-kept", "volumes-plain"] {
        let labels = match name {
            "volumes-kept" => json!({ "capsule.clastix.io/tenant": victim }),
            _ => json!({}),
        };
        let volume = json!({
            "apiVersion": VOLUME.0, "kind": VOLUME.1, "metadata": { "name": name, "labels": labels },
            "spec": {
                "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "shared", "hostPath": { "path": "/tmp/volumes" }
            }
        });
        stage.admin.apply(volume).await.unwrap();
    }
    // Before the policies are in force and see both namespaces, a server may allow it.
    let refused = |namespace: String| {
        let stage = &stage;
        async move {
            let answer = give(stage, "volumes-kept", &namespace).await;
            match answer {
                Err(message) if message.contains("the volume belongs to Tenant volumes-victim") => Ok(()),
                Ok(()) => {
                    let taken = json!([{ "op": "remove", "path": "/spec/claimRef" }]);
                    let request = Request::patch("/api/v1/persistentvolumes/volumes-kept")
                        .header("content-type", "application/json-patch+json")
                        .body(taken.to_string().into_bytes())
                        .unwrap();
                    stage.admin.client().request::<Value>(request).await.unwrap();
                    Err("it was given".to_owned())
                }
                Err(message) => Err(message),
            }
        }
    };
    for namespace in [evil.as_str(), "volumes-nobody"] {
        if let Err(message) = eventually(SOON, || refused(namespace.to_owned())).await {
            let enforcement = stage.get(("tenure.dev/v1alpha1", "Enforcement"), ("", "tenure")).await;
            panic!("{namespace}: {message}; {enforcement:#?}");
        }
    }
    for namespace in [evil.as_str(), "volumes-nobody"] {
        let message = give(&stage, "volumes-kept", namespace).await.unwrap_err();
        assert!(message.contains("(persistent-volumes)"), "{message}");
    }
    // The binder gives the victim's volume to the victim, and an unlabelled volume to any claim.
    assert_eq!(give(&stage, "volumes-kept", &victim).await, Ok(()));
    assert_eq!(give(&stage, "volumes-plain", &evil).await, Ok(()));
    stage.shut_down().await;
}
