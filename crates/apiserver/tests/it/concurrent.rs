//! Many clients that write to the same objects at the same time. The final state and every intermediate state match
//! some serial order of the acknowledged writes.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tenure_apiserver::ApiService;

use crate::cluster::Cluster;

const CLIENTS: usize = 24;
const ROUNDS: usize = 5;
const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

async fn call(service: &ApiService, method: &str, path: &str, form: &str, body: &Value) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", form)
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap();
    let response = service.handle(request).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap())
}

async fn read(service: &ApiService, path: &str) -> Value {
    call(service, "GET", path, "", &Value::Null).await.1
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Adds one to the counter, by one of the ways in which clients do that. Returns the revision of the acknowledged
/// write.
async fn add_one(service: &ApiService, client: usize) -> u64 {
    let path = format!("{MAPS}/counter");
    loop {
        let mut object = read(service, &path).await;
        let before: u64 = object["data"]["n"].as_str().unwrap().parse().unwrap();
        let next = json!((before + 1).to_string());
        let (code, answer) = match client % 3 {
            0 => {
                object["data"]["n"] = next;
                call(service, "PUT", &path, "application/json", &object).await
            }
            1 => {
                let patch = json!([{"op": "test", "path": "/data/n", "value": before.to_string()},
                    {"op": "replace", "path": "/data/n", "value": next}]);
                call(service, "PATCH", &path, "application/json-patch+json", &patch).await
            }
            _ => {
                let patch = json!({"metadata": {"resourceVersion": object["metadata"]["resourceVersion"]}, "data": {"n": next}});
                call(service, "PATCH", &path, "application/merge-patch+json", &patch).await
            }
        };
        match code {
            200 => return revision(&answer),
            // Another client was faster: the version or the test of the patch failed.
            409 | 422 => {}
            other => panic!("{other}: {answer}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflicting_writes_have_a_serial_order() {
    let cluster = Cluster::with_namespace(false).await;
    let service = cluster.server.admin_service();
    for (name, data) in [("counter", json!({"n": "0"})), ("shared", json!({}))] {
        let object = json!({"metadata": {"name": name}, "data": data});
        assert_eq!(call(&service, "POST", MAPS, "", &object).await.0, 201);
    }
    let start = cluster.server.registry().store().revision();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let service = service.clone();
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                for round in 0..ROUNDS {
                    acknowledged.push(add_one(&service, client).await);
                    // Each client also applies its own field of a shared object.
                    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"},
                        "data": {format!("c{client}"): round.to_string()}});
                    let url = format!("{MAPS}/shared?fieldManager=c{client}");
                    let (code, answer) = call(&service, "PATCH", &url, "application/apply-patch+yaml", &config).await;
                    assert_eq!(code, 200, "{answer}");
                    // All clients also create the same object, and one of them succeeds.
                    let object =
                        json!({"metadata": {"name": format!("won-{round}")}, "data": {"by": client.to_string()}});
                    let (code, answer) = call(&service, "POST", MAPS, "", &object).await;
                    assert!(code == 201 || code == 409, "{answer}");
                    if code == 201 {
                        let won = read(&service, &format!("{MAPS}/won-{round}")).await;
                        assert_eq!(
                            won["data"]["by"],
                            client.to_string(),
                            "a create was acknowledged and is another's"
                        );
                    }
                }
                acknowledged
            })
        })
        .collect();
    let mut acknowledged = Vec::new();
    for client in clients {
        acknowledged.extend(client.await.unwrap());
    }
    acknowledged.sort_unstable();

    let counter = read(&service, &format!("{MAPS}/counter")).await;
    assert_eq!(counter["data"]["n"], (CLIENTS * ROUNDS).to_string());
    let shared = read(&service, &format!("{MAPS}/shared")).await;
    let expected: BTreeMap<String, String> = (0..CLIENTS)
        .map(|client| (format!("c{client}"), (ROUNDS - 1).to_string()))
        .collect();
    assert_eq!(shared["data"], json!(expected));

    // The order of revisions is the serial order: each write of the counter adds one to the previous value, and the
    // acknowledged writes are exactly these.
    let (_, events) = cluster
        .server
        .registry()
        .store()
        .events_after("//configmaps/shop/counter", start, usize::MAX)
        .unwrap();
    let mut steps = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let object: Value = serde_json::from_slice(&event.entry.bytes).unwrap();
        assert_eq!(object["data"]["n"], (index + 1).to_string());
        steps.push(event.revision);
    }
    assert_eq!(steps, acknowledged);
}
