//! Kubernetes' own controllers act on templates that tenants write. A real StatefulSet controller on a real API server gets only objects that the
//! template's author could create. This holds with webhooks, with policies alone, and with webhooks that don't answer.

use serde_json::{Value, json};
use tenure_testkit::{Admin, Cluster, Kubernetes, KubernetesBinaries, SOON, eventually};

use crate::door::Door;
use crate::stage::Stage;

/// The component that checks writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Judge {
    Webhooks,
    Policies,
    /// Webhooks that don't answer.
    DeadWebhooks,
}

const CLAIM: (&str, &str) = ("v1", "PersistentVolumeClaim");
const NOT_CALLED: &str = "failed calling webhook";

/// Returns a StatefulSet of one Pod. The fields of its template for claims, and the account, are parameters.
fn write_set((namespace, name): (&str, &str), claim: Option<Value>, account: &str) -> Value {
    let labels = json!({ "app": name });
    let claims: Vec<Value> = claim
        .into_iter()
        .map(|more| {
            let mut spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } }, "storageClassName": "" });
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({ "metadata": { "name": "data" }, "spec": spec })
        })
        .collect();
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "replicas": 1, "serviceName": name, "selector": { "matchLabels": labels }, "volumeClaimTemplates": claims,
            "template": {
                "metadata": { "labels": labels },
                "spec": { "serviceAccountName": account, "containers": [{ "name": "main", "image": "nginx" }] }
            }
        }
    })
}

/// Waits until the controller is denied with these words.
async fn wait_for_refusal(admin: &Admin, (namespace, name): (&str, &str), words: &str) {
    let refused = eventually(SOON, || async {
        let events = admin.list(("v1", "Event"), namespace).await.unwrap();
        let mut of_set = events.iter().filter(|event| event["involvedObject"]["name"] == name);
        match of_set.any(|event| event["message"].as_str().unwrap_or_default().contains(words)) {
            true => Ok(()),
            false => Err(events
                .iter()
                .map(|event| event["message"].to_string())
                .collect::<Vec<_>>()),
        }
    });
    if let Err(messages) = refused.await {
        panic!("{namespace}/{name} was not refused with {words:?}: {messages:#?}");
    }
}

async fn try_templates(judge: Judge) {
    let Some(binaries) = KubernetesBinaries::find().unwrap() else {
        eprintln!("skipped: TENURE_KUBERNETES_BIN names no real control plane");
        return;
    };
    let kubernetes = Kubernetes::start(&binaries, true).await.unwrap();
    let stage = Stage::set_on(Cluster::connect_to(&kubernetes).await.unwrap()).await;
    let admin = &stage.cluster.admin;
    admin
        .apply(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "red-gitops", "namespace": "red-home" } }))
        .await
        .unwrap();
    let mut door = None;
    if judge == Judge::Policies {
        stage.hand_over_to_policies().await;
    } else {
        let mut opened = Door::open(&stage.cluster, stage.settings(), None).await;
        opened.hang(&stage.cluster).await;
        if judge == Judge::DeadWebhooks {
            opened.close();
        }
        door = Some(opened);
    }

    // A claim that names or selects another tenant's volume is never created.
    for (name, claim) in [
        ("thief", json!({ "volumeName": "table-red" })),
        ("free", json!({ "volumeName": "table-free" })),
        (
            "chooser",
            json!({ "selector": { "matchLabels": { "capsule.clastix.io/tenant": "red" } } }),
        ),
    ] {
        admin
            .create(write_set(("blue", name), Some(claim), "default"))
            .await
            .unwrap();
        let words = if judge == Judge::DeadWebhooks {
            NOT_CALLED
        } else {
            "(persistent-volumes)"
        };
        wait_for_refusal(admin, ("blue", name), words).await;
        let made = admin.get(CLAIM, ("blue", &format!("data-{name}-0"))).await.unwrap();
        assert!(made.is_none(), "{name}: {made:?}");
    }
    // Neither is a Pod that runs as an account that a Tenant keeps exclusive.
    admin
        .create(write_set(("red-home", "account"), None, "red-gitops"))
        .await
        .unwrap();
    let words = if judge == Judge::DeadWebhooks {
        NOT_CALLED
    } else {
        "(gitops-account)"
    };
    wait_for_refusal(admin, ("red-home", "account"), words).await;
    let pods = admin.list(("v1", "Pod"), "red-home").await.unwrap();
    assert!(pods.is_empty(), "{pods:?}");
    // Neither is a Pod with an image of a registry that the Tenant doesn't allow.
    let mut foreign = write_set(("tight", "foreign"), None, "default");
    foreign["spec"]["template"]["spec"]["containers"][0]["image"] = json!("ghcr.io/a");
    admin.create(foreign).await.unwrap();
    let words = if judge == Judge::DeadWebhooks {
        NOT_CALLED
    } else {
        "(container-registries)"
    };
    wait_for_refusal(admin, ("tight", "foreign"), words).await;

    // A claim on the tenant's own volume is created, and the controller binds it by an update that
    // names the volume.
    let own = json!({ "selector": { "matchLabels": { "capsule.clastix.io/tenant": "blue" } } });
    if judge != Judge::DeadWebhooks {
        admin
            .create(write_set(("blue", "own"), Some(own), "default"))
            .await
            .unwrap();
        let bound = eventually(SOON, || async {
            let claim = admin.get(CLAIM, ("blue", "data-own-0")).await.unwrap();
            match claim {
                Some(claim) if claim["status"]["phase"] == "Bound" && claim["spec"]["volumeName"] == "table-blue" => {
                    Ok(())
                }
                other => Err(format!("{other:?}")),
            }
        });
        bound.await.unwrap();
    }
    // A claim that names no volume is created in each case.
    let plain = json!({ "storageClassName": "elsewhere" });
    admin
        .create(write_set(("blue", "plain"), Some(plain), "default"))
        .await
        .unwrap();
    let made = eventually(SOON, || async {
        let claim = admin.get(CLAIM, ("blue", "data-plain-0")).await.unwrap();
        let pod = admin.get(("v1", "Pod"), ("blue", "plain-0")).await.unwrap();
        if claim.is_some() && pod.is_some() {
            Ok(())
        } else {
            Err((claim, pod))
        }
    });
    made.await.unwrap();
    drop(door);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn templates_gain_nothing_with_webhooks_on_real_server() {
    try_templates(Judge::Webhooks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn templates_gain_nothing_with_policies_alone_on_real_server() {
    try_templates(Judge::Policies).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn templates_gain_nothing_with_dead_webhooks_on_real_server() {
    try_templates(Judge::DeadWebhooks).await;
}
