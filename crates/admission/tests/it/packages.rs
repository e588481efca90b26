//! Packages before a case: the table names the manager of each field.

use http::Request;
use serde_json::{Map, Value, json};
use tenure_testkit::Admin;

use crate::table::Object;

/// Creates an object at a collection's path, with the writes of its managers.
pub(crate) async fn furnish(admin: &Admin, mut object: Value, written: &Object, collection: &str) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.remove("managedFields");
    metadata.retain(|_, value| !value.is_null());
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let namespaced = match object["metadata"]["namespace"].as_str() {
        Some(_) => object["metadata"]["namespace"].clone(),
        None => Value::Null,
    };
    let status = object.as_object_mut().unwrap().remove("status");
    let mut made = Value::Null;
    for (manager, fields) in written.held.iter().flatten() {
        let mut part = json!({
            "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": { "name": name, "namespace": namespaced }
        });
        part["metadata"]
            .as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
        for field in fields {
            copy(&object, &mut part, field);
        }
        let (target, method, content_type) = if written.by_update {
            (
                format!("{collection}?fieldManager={manager}"),
                "POST",
                "application/json",
            )
        } else {
            let target = format!("{collection}/{name}?fieldManager={manager}&force=true");
            (target, "PATCH", "application/apply-patch+yaml")
        };
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header("content-type", content_type);
        let request = request.body(part.to_string().into_bytes()).unwrap();
        made = admin.client().request(request).await.unwrap();
    }
    // The fields that none of these managers has.
    let target = format!("{collection}/{name}");
    let request = if made.is_null() {
        Request::post(format!("{collection}?fieldManager=kubectl-create"))
    } else {
        object["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
        Request::put(format!("{target}?fieldManager=kubectl-edit"))
    };
    let request = request.header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes()).unwrap();
    made = admin.client().request(request).await.unwrap();
    if let Some(status) = status {
        let request = Request::patch(format!("{target}/status")).header("content-type", "application/merge-patch+json");
        let patch = json!({ "status": status }).to_string();
        made = admin
            .client()
            .request(request.body(patch.into_bytes()).unwrap())
            .await
            .unwrap();
    }
    made
}

/// Copies the value at a JSON pointer.
fn copy(from: &Value, to: &mut Value, pointer: &str) {
    let value = from.pointer(pointer).unwrap().clone();
    let mut at = to;
    for step in pointer.split('/').skip(1) {
        let map = at.as_object_mut().unwrap();
        at = map
            .entry(step.replace("~1", "/"))
            .or_insert_with(|| Value::Object(Map::new()));
    }
    *at = value;
}
