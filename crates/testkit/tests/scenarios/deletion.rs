//! Deletion: finalizers, owners and dependents, namespaces with their content, preconditions.

use serde_json::{Value, json};

use crate::place::Place;

fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finalizer_keeps_an_object() {
    let place = Place::set("deletion-a").await;
    let path = place.path("api/v1", "configmaps/kept");
    let mut kept = config_map("kept");
    kept["metadata"]["finalizers"] = json!(["example.com/keep"]);
    place.create(&place.path("api/v1", "configmaps"), &kept).await.unwrap();
    let going = place.delete(&path, &Value::Null).await.unwrap();
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 0);
    let again = place.delete(&path, &Value::Null).await.unwrap();
    assert_eq!(
        going["metadata"]["deletionTimestamp"],
        again["metadata"]["deletionTimestamp"]
    );
    let refused = place
        .merge(
            &path,
            &json!({ "metadata": { "finalizers": ["example.com/keep", "example.com/more"] } }),
        )
        .await
        .unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    place
        .merge(&path, &json!({ "metadata": { "finalizers": null } }))
        .await
        .unwrap();
    assert_eq!(place.get(&path).await.unwrap_err().code, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owned_object_is_deleted_with_owner_unless_orphaned() {
    let place = Place::set("deletion-b").await;
    let maps = place.path("api/v1", "configmaps");
    for (policy, stays) in [("Background", false), ("Foreground", false), ("Orphan", true)] {
        let name = policy.to_lowercase();
        let owner = place
            .create(&maps, &config_map(&format!("{name}-owner")))
            .await
            .unwrap();
        let mut owned = config_map(&format!("{name}-owned"));
        owned["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "blockOwnerDeletion": true,
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]
        }]);
        place.create(&maps, &owned).await.unwrap();
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy });
        place.delete(&format!("{maps}/{name}-owner"), &options).await.unwrap();
        place
            .wait_until(&format!("{maps}/{name}-owner"), |owner| owner.is_none())
            .await;
        place
            .wait_until(&format!("{maps}/{name}-owned"), |owned| match owned {
                Some(owned) => stays && owned["metadata"]["ownerReferences"].is_null(),
                None => !stays,
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_takes_everything_with_it() {
    let place = Place::set("deletion-c").await;
    let maps = place.path("api/v1", "configmaps");
    let mut kept = config_map("kept");
    kept["metadata"]["finalizers"] = json!(["example.com/keep"]);
    place.create(&maps, &kept).await.unwrap();
    place.create(&maps, &config_map("plain")).await.unwrap();
    let namespace = "/api/v1/namespaces/deletion-c";
    place.delete(namespace, &Value::Null).await.unwrap();
    place
        .wait_until(&format!("{maps}/plain"), |plain| plain.is_none())
        .await;
    // A namespace stays as long as an object in it does, accepts nothing new, and reports why.
    let refused = place.create(&maps, &config_map("late")).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"));
    assert!(
        refused.message.ends_with("because it is being terminated"),
        "{}",
        refused.message
    );
    let causes = refused.details.unwrap().causes;
    assert_eq!(causes[0].reason, "NamespaceTerminating");
    place
        .merge(&format!("{maps}/kept"), &json!({ "metadata": { "finalizers": null } }))
        .await
        .unwrap();
    place.wait_until(namespace, |namespace| namespace.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_object_that_was_meant_is_deleted() {
    let place = Place::set("deletion-d").await;
    let maps = place.path("api/v1", "configmaps");
    let made = place.create(&maps, &config_map("meant")).await.unwrap();
    let path = format!("{maps}/meant");
    let options =
        |preconditions: Value| json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions });
    for wrong in [
        json!({ "uid": "11111111-2222-3333-4444-555555555555" }),
        json!({ "resourceVersion": "1" }),
    ] {
        let refused = place.delete(&path, &options(wrong)).await.unwrap_err();
        assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    }
    let right = json!({ "uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"] });
    place.delete(&path, &options(right)).await.unwrap();
    assert_eq!(place.get(&path).await.unwrap_err().code, 404);
}
