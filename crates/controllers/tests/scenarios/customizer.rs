//! The customizer: a repository that has parts of Packages, beside administrators who set others by hand.

use serde_json::{Value, json};
use tenure_api::customizer::{Customizer, OWNED_NAMESPACE, Profile, list_objects};
use tenure_testkit::{SOON, eventually};

use crate::stage::{KUSTOMIZATION, Stage, commit};
use crate::tenants::surface_ready;

const PACKAGE: (&str, &str) = ("cozystack.io/v1alpha1", "Package");
const PLATFORM: &str = "cozystack.customizer-platform";
const BOOTSTRAPPED: &str = "cozystack.customizer-bootstrapped";

fn write_package(name: &str, values: &str) -> String {
    format!(
        "apiVersion: cozystack.io/v1alpha1\nkind: Package\nmetadata: {{ name: {name} }}\n\
         spec: {{ variant: default, components: {{ platform: {{ values: {values} }} }} }}\n"
    )
}

/// Creates a Package as `kubectl apply` does without `--server-side`: with the annotation of the applied text, and by a manager that updates.
async fn apply_client_side(stage: &Stage, mut package: Value) {
    let name = package["metadata"]["name"].as_str().unwrap().to_owned();
    package["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!(package.to_string());
    let created = stage.admin.create(package).await.unwrap();
    let mut entries = created["metadata"]["managedFields"].clone();
    for entry in entries.as_array_mut().unwrap() {
        assert_eq!(entry["operation"], "Update");
        entry["manager"] = json!("kubectl-client-side-apply");
    }
    let patch = json!({ "metadata": { "managedFields": entries } });
    stage.admin.patch(PACKAGE, ("", &name), patch).await.unwrap();
}

/// A Package that leaves the repository stays in the cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partial_package_keeps_values_set_by_others() {
    let stage = Stage::set("customizer").await;
    let by_hand = json!({
        "apiVersion": PACKAGE.0, "kind": PACKAGE.1, "metadata": { "name": PLATFORM },
        "spec": { "variant": "default", "components": { "platform": { "values": {
            "publishing": { "host": "example.org" }, "bundles": { "iaas": { "enabled": true } },
        } } } },
    });
    let mut client_side = by_hand.clone();
    client_side["metadata"]["name"] = json!(BOOTSTRAPPED);
    apply_client_side(&stage, client_side).await;
    stage.admin.apply_as("kubectl", by_hand).await.unwrap();
    let edit = json!({ "spec": { "components": { "platform": { "values": { "publishing": { "externalIPs": ["192.0.2.1"] } } } } } });
    stage.admin.patch(PACKAGE, ("", PLATFORM), edit).await.unwrap();

    let repository = stage.git.create("customizer").await.unwrap();
    let partial = write_package(PLATFORM, "{ bundles: { disabledPackages: [cozystack.other] } }");
    let bootstrapped = write_package(BOOTSTRAPPED, "{ bundles: { disabledPackages: [cozystack.other] } }");
    let own = write_package("cozystack.customizer-own", "{ size: 1 }");
    let files = [
        ("platform.yaml", partial.as_str()),
        ("bootstrapped.yaml", bootstrapped.as_str()),
        ("own.yaml", own.as_str()),
    ];
    repository.commit(files, "first").await.unwrap();
    let customizer = Customizer {
        profile: Profile::Admin,
        url: stage.git.http_url("customizer"),
        branch: "main".to_owned(),
        path: "./".to_owned(),
        interval: "1s".to_owned(),
        secret: None,
        owned_namespaces: vec![OWNED_NAMESPACE.to_owned()],
    };
    for object in list_objects(&customizer).unwrap() {
        stage.admin.apply(object).await.unwrap();
    }
    let is_applied = |package: Option<&Value>| {
        let values = package.map(|package| &package["spec"]["components"]["platform"]["values"]);
        values.is_some_and(|values| values["bundles"]["disabledPackages"] == json!(["cozystack.other"]))
    };
    let package = stage.wait_for(PACKAGE, ("", PLATFORM), is_applied).await.unwrap();
    let values = &package["spec"]["components"]["platform"]["values"];
    assert_eq!(
        values["publishing"],
        json!({ "host": "example.org", "externalIPs": ["192.0.2.1"] })
    );
    assert_eq!(values["bundles"]["iaas"]["enabled"], true);
    let package = stage.wait_for(PACKAGE, ("", BOOTSTRAPPED), is_applied).await.unwrap();
    let values = &package["spec"]["components"]["platform"]["values"];
    assert_eq!(values["publishing"], json!({ "host": "example.org" }));
    assert_eq!(values["bundles"]["iaas"]["enabled"], true);
    surface_ready(&stage, ("tenure-system", "customizer")).await;

    // The account may not delete Packages.
    let other = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: other, namespace: {OWNED_NAMESPACE} }}\n");
    let revision = commit(&repository, &[("own.yaml", &other)]).await;
    let is_done = |object: Option<&Value>| {
        let applied = object.and_then(|object| object["status"]["lastAppliedRevision"].as_str());
        applied.is_some_and(|applied| applied.ends_with(&revision))
    };
    stage
        .wait_for(KUSTOMIZATION, ("tenure-system", "customizer-config"), is_done)
        .await;
    surface_ready(&stage, ("tenure-system", "customizer")).await;
    let own = stage.get(PACKAGE, ("", "cozystack.customizer-own")).await;
    assert!(own.is_some());
    let reported = eventually(SOON, || async {
        let events = stage.admin.list(("v1", "Event"), "tenure-system").await.unwrap();
        let is_prune_skipped = |event: &Value| {
            let message = event["message"].as_str().unwrap_or_default();
            event["reason"] == "PruneSkipped" && message.contains("Package/cozystack.customizer-own")
        };
        events.iter().any(is_prune_skipped).then_some(()).ok_or("not reported")
    });
    reported.await.unwrap();
    stage.shut_down().await;
}
