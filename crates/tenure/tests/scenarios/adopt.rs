//! `tenure adopt` on a cluster without admission for namespaces: its writes and its refusals.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::world::{Admin, Cluster, Controllers, name_object};

const TENANT: &str = "capsule.clastix.io/v1beta2";

async fn make_tenant(admin: &Admin, name: &str) -> Value {
    let mut tenant = name_object(TENANT, "Tenant", "", name);
    tenant["spec"] = json!({"owners": [{"kind": "User", "name": "olive"}]});
    admin.apply(tenant.clone()).await;
    tenant
}

/// Returns the condition about the record.
fn record(tenant: &Value) -> Option<&Value> {
    let conditions = tenant["status"]["conditions"].as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == "NamespacesRecorded")
}

fn has_recorded(tenant: &Value, namespace: &Value) -> bool {
    let spaces = tenant["status"]["spaces"].as_array().into_iter().flatten();
    let mut found = spaces.filter(|space| space["name"] == namespace["metadata"]["name"]);
    found.any(|space| space["uid"] == namespace["metadata"]["uid"])
}

#[tokio::test]
async fn an_administrator_says_which_namespaces_are_a_tenants() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    let (red, blue) = (
        make_tenant(admin, "adopt-red").await,
        make_tenant(admin, "adopt-blue").await,
    );
    let _controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &[]);
    for tenant in [&red, &blue] {
        admin.wait_for(tenant.clone(), |found| record(found).is_some()).await;
    }
    // A namespace with all claims that its metadata can make, and one without any.
    let blue_uid = admin.find(&blue).await.unwrap()["metadata"]["uid"].clone();
    let mut claiming = name_object("v1", "Namespace", "", "adopt-claiming");
    claiming["metadata"]["labels"] = json!({"capsule.clastix.io/tenant": "adopt-blue"});
    claiming["metadata"]["ownerReferences"] =
        json!([{"apiVersion": TENANT, "kind": "Tenant", "name": "adopt-blue", "uid": blue_uid}]);
    let plain = name_object("v1", "Namespace", "", "adopt-plain");
    for namespace in [&claiming, &plain] {
        admin.apply(namespace.clone()).await;
    }
    admin
        .wait_for(blue.clone(), |found| {
            record(found).is_some_and(|record| record["status"] == "False")
        })
        .await;
    let object = admin.find(&blue).await.unwrap();
    let message = record(&object).unwrap()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("not taken: adopt-claiming"), "{message}");

    // A dry run changes nothing.
    let both = ["adopt", "adopt-blue", "adopt-claiming", "adopt-plain"];
    let dry = [both.as_slice(), &["--dry-run"]].concat();
    let words = [
        "namespace/adopt-claiming: recorded (dry run)",
        "namespace/adopt-plain: labelled for it, recorded (dry run)",
    ];
    cluster.check(&dry, 0, &words);
    assert!(admin.find(&plain).await.unwrap()["metadata"]["ownerReferences"].is_null());
    assert!(!has_recorded(
        &admin.find(&blue).await.unwrap(),
        &admin.find(&claiming).await.unwrap()
    ));
    // One refused namespace prevents the writes of the others, too.
    for (name, words) in [
        ("kube-system", "can't belong to a tenant"),
        ("default", "can't belong to a tenant"),
        ("tenure-system", "can't belong to a tenant"),
        ("adopt-red", "it is the home namespace of tenant adopt-red"),
    ] {
        cluster.check(&["adopt", "adopt-blue", "adopt-plain", name], 1, &[words]);
    }
    cluster.check(
        &["adopt", "adopt-nobody", "adopt-plain"],
        1,
        &["there is no Tenant adopt-nobody"],
    );
    cluster.check(&["adopt", "adopt-blue", "adopt-nowhere"], 1, &["not found"]);
    assert!(admin.find(&plain).await.unwrap()["metadata"]["ownerReferences"].is_null());

    cluster.check(&both, 0, &["namespace/adopt-plain: labelled for it, recorded"]);
    let settled = |found: &Value| {
        record(found).is_some_and(|record| record["status"] == "True")
            && found["status"]["namespaces"] == json!(["adopt-blue", "adopt-claiming", "adopt-plain"])
    };
    admin.wait_for(blue.clone(), settled).await;
    let mut binding = name_object("rbac.authorization.k8s.io/v1", "RoleBinding", "", "tenure:gitops");
    binding["metadata"]["namespace"] = json!("adopt-plain");
    admin.wait_for(binding, |_| true).await;
    cluster.check(&both, 0, &["namespace/adopt-plain: is tenant adopt-blue's already"]);
    cluster.check(
        &["adopt", "adopt-red", "adopt-plain"],
        1,
        &["it names tenant adopt-blue"],
    );

    // The status is lost, and the record with it: an administrator adopts all namespaces again, with the home namespace.
    let lost = Patch::Merge(json!({"status": null}));
    let api = admin.api(&blue);
    api.patch_status("adopt-blue", &PatchParams::default(), &lost)
        .await
        .unwrap();
    let begun_again = |found: &Value| {
        record(found).is_some_and(|record| {
            let message = record["message"].as_str().unwrap_or_default();
            message.contains("not taken: adopt-blue, adopt-claiming, adopt-plain")
        })
    };
    admin.wait_for(blue.clone(), begun_again).await;
    let all = [both.as_slice(), &["adopt-blue"]].concat();
    let words = ["namespace/adopt-blue: recorded", "namespace/adopt-plain: recorded"];
    cluster.check(&all, 0, &words);
    admin.wait_for(blue.clone(), settled).await;
}
