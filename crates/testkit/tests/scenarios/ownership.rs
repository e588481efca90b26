//! Field ownership: conflicts, force, sharing, giving up, and the effect of an update.

use serde_json::{Value, json};

use crate::place::{Place, owners};

fn settings(data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" }, "data": data })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_managers_meet_in_one_field() {
    let place = Place::set("ownership-a").await;
    let path = place.path("api/v1", "configmaps/settings");
    let first = place
        .apply(&path, "alpha", false, &settings(json!({ "a": "1", "b": "1" })))
        .await
        .unwrap();
    assert_eq!(owners(&first, &["f:data", "f:a"]), ["alpha"]);

    // An equal value is shared; another value is a conflict that names the field and its owner.
    let shared = place
        .apply(&path, "beta", false, &settings(json!({ "a": "1", "c": "1" })))
        .await
        .unwrap();
    assert_eq!(owners(&shared, &["f:data", "f:a"]), ["alpha", "beta"]);
    let refused = place
        .apply(&path, "beta", false, &settings(json!({ "a": "1", "b": "2" })))
        .await
        .unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    assert_eq!(
        refused.message,
        "Apply failed with 1 conflict: conflict with \"alpha\": .data.b"
    );
    let causes = refused.details.unwrap().causes;
    assert_eq!(
        (causes[0].reason.as_str(), causes[0].field.as_str()),
        ("FieldManagerConflict", ".data.b")
    );

    // Force takes over the field. A field that beta no longer applies and that has no other owner is removed.
    let forced = place
        .apply(&path, "beta", true, &settings(json!({ "b": "2" })))
        .await
        .unwrap();
    assert_eq!(forced["data"], json!({ "a": "1", "b": "2" }));
    assert_eq!(owners(&forced, &["f:data", "f:a"]), ["alpha"]);
    assert_eq!(owners(&forced, &["f:data", "f:b"]), ["beta"]);

    // alpha gives up the fields that it shares: beta's fields stay.
    let given_up = place.apply(&path, "alpha", false, &settings(json!({}))).await.unwrap();
    assert_eq!(given_up["data"], json!({ "b": "2" }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_identical_apply_writes_nothing() {
    let place = Place::set("ownership-b").await;
    let path = place.path("api/v1", "configmaps/settings");
    let wanted = settings(json!({ "a": "1" }));
    let first = place.apply(&path, "alpha", false, &wanted).await.unwrap();
    let again = place.apply(&path, "alpha", false, &wanted).await.unwrap();
    assert_eq!(first, again);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_takes_the_fields_that_it_changes() {
    let place = Place::set("ownership-c").await;
    let path = place.path("api/v1", "configmaps/settings");
    place
        .apply(&path, "alpha", false, &settings(json!({ "a": "1", "b": "1" })))
        .await
        .unwrap();
    let edited = place
        .merge(
            &format!("{path}?fieldManager=by-hand"),
            &json!({ "data": { "b": "2" } }),
        )
        .await
        .unwrap();
    assert_eq!(owners(&edited, &["f:data", "f:a"]), ["alpha"]);
    assert_eq!(owners(&edited, &["f:data", "f:b"]), ["by-hand"]);
    let refused = place
        .apply(&path, "alpha", false, &settings(json!({ "a": "1", "b": "1" })))
        .await
        .unwrap_err();
    assert_eq!(
        refused.message,
        "Apply failed with 1 conflict: conflict with \"by-hand\" using v1: .data.b"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_of_a_list_have_owners_of_their_own() {
    let place = Place::set("ownership-d").await;
    let path = place.path("api/v1", "services/web");
    let service = |ports: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
            "spec": { "selector": { "app": "web" }, "ports": ports }
        })
    };
    place
        .apply(&path, "alpha", false, &service(json!([{ "name": "http", "port": 80 }])))
        .await
        .unwrap();
    let both = place
        .apply(
            &path,
            "beta",
            false,
            &service(json!([{ "name": "https", "port": 443 }])),
        )
        .await
        .unwrap();
    assert_eq!(both["spec"]["ports"].as_array().unwrap().len(), 2);
    // The key contains the default of a field that neither manager wrote.
    let http = r#"k:{"port":80,"protocol":"TCP"}"#;
    assert_eq!(owners(&both, &["f:spec", "f:ports", http]), ["alpha"]);
    let left = place.apply(&path, "alpha", false, &service(json!([]))).await.unwrap();
    let ports = left["spec"]["ports"].as_array().unwrap();
    assert_eq!((ports.len(), &ports[0]["port"]), (1, &json!(443)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_is_written_beside_the_spec() {
    let place = Place::set("ownership-e").await;
    let path = place.path("apis/tenure.dev/v1alpha1", "surfaces/apps");
    let surface = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": { "name": "apps" },
        "spec": { "suspend": true, "sources": [{ "name": "app", "url": "https://git.example/app", "interval": "1m" }] }
    });
    place.apply(&path, "alpha", false, &surface).await.unwrap();
    let status = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": { "name": "apps" },
        "spec": { "suspend": false }, "status": { "observedGeneration": 1 }
    });
    let written = place
        .apply(&format!("{path}/status"), "controller", false, &status)
        .await
        .unwrap();
    assert_eq!(written["spec"]["suspend"], true, "the status endpoint writes no spec");
    assert_eq!(written["metadata"]["generation"], 1);
    assert_eq!(owners(&written, &["f:status", "f:observedGeneration"]), ["controller"]);
    assert_eq!(owners(&written, &["f:spec", "f:suspend"]), ["alpha"]);
    let changed = place
        .merge(
            &path,
            &json!({ "spec": { "suspend": false }, "status": { "observedGeneration": 9 } }),
        )
        .await
        .unwrap();
    assert_eq!(
        changed["status"]["observedGeneration"], 1,
        "the object's endpoint writes no status"
    );
    assert_eq!(changed["metadata"]["generation"], 2);
}
