//! Large requests, and small ones that expand: each is answered, or refused for its cost, and the server continues. A
//! comparison of all items with each other would take minutes here, and an unlimited copy would end the server.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tenure_apiserver::ApiService;

use crate::cluster::Cluster;

const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const MERGE: &str = "application/merge-patch+json";
const PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

async fn call(service: &ApiService, method: &str, path: &str, form: &str, body: &str) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", form)
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap();
    let response = service.handle(request).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn create(service: &ApiService, path: &str, object: &Value) -> (u16, Value) {
    call(service, "POST", path, "application/json", &object.to_string()).await
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"0": "x"}})
}

#[tokio::test]
async fn copies_of_a_patch_end_with_it() {
    let cluster = Cluster::with_namespace(false).await;
    let service = cluster.server.admin_service();
    assert_eq!(create(&service, MAPS, &map("bomb")).await.0, 201);
    let path = format!("{MAPS}/bomb");
    let doubling: Value = (0..60)
        .map(|place| json!({"op": "copy", "from": "/data", "path": format!("/data/{place}")}))
        .collect();
    let (code, answer) = call(&service, "PATCH", &path, PATCH, &doubling.to_string()).await;
    assert_eq!(code, 422, "{answer}");
    assert_eq!(answer["reason"], "Invalid");
    assert_eq!(
        answer["message"],
        "the server rejected our request due to an error in our request"
    );
    let many: Value = (0..10_001)
        .map(|_| json!({"op": "remove", "path": "/data/0"}))
        .collect();
    let (code, answer) = call(&service, "PATCH", &path, PATCH, &many.to_string()).await;
    assert_eq!(code, 413, "{answer}");
    assert_eq!(
        answer["message"],
        "The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
    let (code, answer) = call(&service, "GET", &path, "", "").await;
    assert_eq!((code, &answer["data"]), (200, &json!({"0": "x"})));
}

#[tokio::test]
async fn patches_cannot_grow_object_beyond_body_limit() {
    let cluster = Cluster::with_namespace(false).await;
    let service = cluster.server.admin_service();
    let set = |replicas: i64| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "grows"}, "spec": {"replicas": replicas,
            "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "a", "image": "a"}]}}}})
    };
    let path = "/apis/apps/v1/namespaces/shop/deployments";
    assert_eq!(create(&service, path, &set(0)).await.0, 201);
    let text = "x".repeat(1024 * 1024);
    let arguments = |count: usize| vec![text.as_str(); count];
    let path = format!("{path}/grows");
    let patch = |count: usize| {
        let add = json!({"op": "add", "path": "/spec/template/spec/containers/0/args", "value": arguments(count)});
        json!([add]).to_string()
    };
    assert_eq!(call(&service, "PATCH", &path, PATCH, &patch(2)).await.0, 200);
    let command = json!([{"op": "add", "path": "/spec/template/spec/containers/0/command", "value": arguments(1)}]);
    let (code, answer) = call(&service, "PATCH", &path, PATCH, &command.to_string()).await;
    assert_eq!(
        (code, &answer["reason"]),
        (413, &json!("RequestEntityTooLarge")),
        "{}",
        answer["message"]
    );
    // The same change by merge patches and by an apply.
    let container = json!({"name": "a", "command": arguments(1)});
    let spec = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    let strategic = "application/strategic-merge-patch+json";
    assert_eq!(
        call(&service, "PATCH", &path, strategic, &spec.to_string()).await.0,
        413
    );
    let annotations = json!({"spec": {"template": {"spec": {"initContainers": [{"name": "b", "image": "b", "command": arguments(1)}]}}}});
    assert_eq!(
        call(&service, "PATCH", &path, MERGE, &annotations.to_string()).await.0,
        413
    );
    let mut config = set(0);
    config["spec"]["template"]["spec"]["containers"][0]["command"] = json!(arguments(1));
    let applied = format!("{path}?fieldManager=other&force=true");
    assert_eq!(
        call(&service, "PATCH", &applied, APPLY, &config.to_string()).await.0,
        413
    );
    assert_eq!(
        call(&service, "PATCH", &path, PATCH, &patch(1)).await.0,
        200,
        "and it can become smaller"
    );
}

#[tokio::test]
async fn many_owners_of_one_object() {
    let cluster = Cluster::with_namespace(false).await;
    let service = cluster.server.admin_service();
    let owner =
        |index: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": format!("u{index}")});
    let mut object = map("owned");
    object["metadata"]["ownerReferences"] = (0..20_000).chain(0..2).map(owner).collect();
    let (code, answer) = create(&service, &format!("{MAPS}?dryRun=All"), &object).await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(answer["metadata"]["ownerReferences"].as_array().unwrap().len(), 20_000);
}

#[tokio::test]
async fn many_finalizers_of_an_object_that_is_deleted() {
    let cluster = Cluster::with_namespace(false).await;
    let service = cluster.server.admin_service();
    let finalizers = |domain: &str| -> Value { (0..60_000).map(|index| format!("{domain}/{index}")).collect() };
    let mut object = map("finalized");
    object["metadata"]["finalizers"] = finalizers("a");
    assert_eq!(create(&service, MAPS, &object).await.0, 201);
    let path = format!("{MAPS}/finalized");
    assert_eq!(call(&service, "DELETE", &path, "application/json", "").await.0, 200);
    let patch = json!({"metadata": {"finalizers": finalizers("b")}}).to_string();
    let (code, answer) = call(&service, "PATCH", &path, MERGE, &patch).await;
    assert_eq!(code, 422);
    let message = answer["message"].as_str().unwrap();
    assert!(
        message.contains("no new finalizers can be added"),
        "{}",
        &message[..200]
    );
}

#[tokio::test]
async fn many_variables_of_one_pod() {
    let cluster = Cluster::with_namespace(false).await;
    let service = cluster.server.admin_service();
    let env: Vec<Value> = (0..20_000)
        .map(|index| json!({"name": format!("E{index}"), "value": "x"}))
        .collect();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "many"},
        "spec": {"containers": [{"name": "a", "image": "a", "env": env}]}});
    let path = format!("{PODS}/many?fieldManager=me&dryRun=All");
    let (code, answer) = call(&service, "PATCH", &path, APPLY, &pod.to_string()).await;
    assert_eq!(code, 201, "{}", answer["message"]);
    assert_eq!(answer["spec"]["containers"][0]["env"].as_array().unwrap().len(), 20_000);
}

#[tokio::test]
async fn a_long_key_before_many_faults() {
    let cluster = Cluster::with_namespace(false).await;
    let service = cluster.server.admin_service();
    // A path of a megabyte before each of a hundred thousand fields would be a hundred gigabytes of errors.
    let twice: Vec<String> = (0..50_000)
        .map(|index| format!("\"a{index}\":1,\"a{index}\":1"))
        .collect();
    let body = format!(
        "{{\"metadata\":{{\"name\":\"long\"}},\"{}\":{{{}}}}}",
        "k".repeat(1024 * 1024),
        twice.join(",")
    );
    let path = format!("{MAPS}?fieldValidation=Strict");
    let (code, answer) = call(&service, "POST", &path, "application/json", &body).await;
    assert_eq!(code, 400);
    assert!(answer["message"].as_str().unwrap().len() < 4 * 1024 * 1024);
}
