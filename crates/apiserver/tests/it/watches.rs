//! Watches: events and their order, with selectors, bookmarks, restarts and expired revisions.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tenure_apiserver::{ApiService, Body, Config, Server};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn send(service: &ApiService, method: &str, path: &str, body: &Value) -> Response<Body> {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let kind = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    service
        .handle(request.body(Full::new(Bytes::from(body))).unwrap())
        .await
}

async fn call(service: &ApiService, method: &str, path: &str, body: Value) -> Value {
    let response = send(service, method, path, &body).await;
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap()
}

fn map(name: &str, label: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"l": label}}})
}

/// An open watch.
struct Watch {
    body: Body,
    rest: Vec<u8>,
}

impl Watch {
    async fn open(service: &ApiService, query: &str) -> Self {
        let response = send(service, "GET", &format!("{MAPS}?watch=true&{query}"), &Value::Null).await;
        assert_eq!(response.status(), 200);
        Self {
            body: response.into_body(),
            rest: Vec::new(),
        }
    }

    /// Returns the next line; `None` at the end.
    async fn line(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.rest.extend_from_slice(&frame.into_data().unwrap());
        }
    }

    /// Returns the next line as type, name and resourceVersion.
    async fn next(&mut self) -> (String, String, u64) {
        let line = self.line().await.unwrap();
        let text = |pointer: &str| {
            line.pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        (
            text("/type"),
            text("/object/metadata/name"),
            text("/object/metadata/resourceVersion").parse().unwrap_or(0),
        )
    }
}

async fn server() -> (tempfile::TempDir, Server, ApiService) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::open(Config::new(directory.path())).await.unwrap();
    let service = server.admin_service();
    // A controller creates the namespace's own ConfigMap; wait for it, so that it can't appear later.
    loop {
        let list = call(&service, "GET", MAPS, Value::Null).await;
        if !list["items"].as_array().unwrap().is_empty() {
            break;
        }
        tokio::task::yield_now().await;
    }
    (directory, server, service)
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn initial_events_end_with_an_annotated_bookmark() {
    let (_directory, _server, service) = server().await;
    let made = call(&service, "POST", MAPS, map("a", "1")).await;
    let query = "labelSelector=l&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = Watch::open(&service, query).await;
    assert_eq!(
        watch.next().await,
        ("ADDED".to_owned(), "a".to_owned(), revision(&made))
    );
    let bookmark = watch.line().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "ConfigMap");
    assert_eq!(
        bookmark["object"]["metadata"]["annotations"],
        json!({"k8s.io/initial-events-end": "true"})
    );
    let later = call(&service, "POST", MAPS, map("b", "1")).await;
    assert_eq!(
        watch.next().await,
        ("ADDED".to_owned(), "b".to_owned(), revision(&later))
    );
}

#[tokio::test]
async fn selectors_make_objects_come_and_go() {
    let (_directory, _server, service) = server().await;
    let made = call(&service, "POST", MAPS, map("a", "1")).await;
    let mut watch = Watch::open(
        &service,
        &format!("labelSelector=l%3D2&resourceVersion={}", revision(&made)),
    )
    .await;
    let path = format!("{MAPS}/a");
    let mut want = Vec::new();
    for (label, kind) in [("2", "ADDED"), ("2", "MODIFIED"), ("3", "DELETED"), ("2", "ADDED")] {
        let patch = json!({"metadata": {"labels": {"l": label}}, "data": {"n": want.len().to_string()}});
        let changed = call(&service, "PATCH", &path, patch).await;
        want.push((kind.to_owned(), "a".to_owned(), revision(&changed)));
    }
    for want in want {
        assert_eq!(watch.next().await, want);
    }
    let last = revision(&call(&service, "GET", &path, Value::Null).await);
    call(&service, "DELETE", &path, Value::Null).await;
    // A deletion has a revision of its own.
    let (kind, _, revision) = watch.next().await;
    assert_eq!(kind, "DELETED");
    assert!(revision > last);
}

#[tokio::test]
async fn a_write_that_changes_nothing_is_no_event() {
    let (_directory, _server, service) = server().await;
    let made = call(&service, "POST", MAPS, map("a", "1")).await;
    let mut watch = Watch::open(&service, &format!("resourceVersion={}", revision(&made))).await;
    let same = call(
        &service,
        "PATCH",
        &format!("{MAPS}/a"),
        json!({"metadata": {"labels": {"l": "1"}}}),
    )
    .await;
    assert_eq!(revision(&same), revision(&made));
    let dry = call(
        &service,
        "PATCH",
        &format!("{MAPS}/a?dryRun=All"),
        json!({"data": {"x": "y"}}),
    )
    .await;
    assert_eq!(dry["data"], json!({"x": "y"}));
    let next = call(&service, "POST", MAPS, map("b", "1")).await;
    assert_eq!(
        watch.next().await,
        ("ADDED".to_owned(), "b".to_owned(), revision(&next))
    );
}

#[tokio::test]
async fn a_watch_goes_on_after_a_restart() {
    let (directory, server, service) = server().await;
    let made = call(&service, "POST", MAPS, map("a", "1")).await;
    let changed = call(&service, "PATCH", &format!("{MAPS}/a"), json!({"data": {"x": "y"}})).await;
    server.close().await;
    drop((server, service));
    let server = loop {
        // Requests that the last server still answers keep the directory locked for a moment.
        match Server::open(Config::new(directory.path())).await {
            Ok(server) => break server,
            Err(error) => assert!(error.to_string().contains("in use"), "{error}"),
        }
        tokio::task::yield_now().await;
    };
    let service = server.admin_service();
    let mut watch = Watch::open(
        &service,
        &format!("labelSelector=l&resourceVersion={}", revision(&made)),
    )
    .await;
    assert_eq!(
        watch.next().await,
        ("MODIFIED".to_owned(), "a".to_owned(), revision(&changed))
    );
    assert_eq!(
        call(&service, "GET", &format!("{MAPS}/a"), Value::Null).await["data"],
        json!({"x": "y"})
    );
}

#[tokio::test]
async fn shutting_down_ends_watches() {
    let (_directory, server, service) = server().await;
    let mut watch = Watch::open(&service, "resourceVersion=0&labelSelector=none").await;
    server.shutdown();
    assert_eq!(watch.line().await, None);
}
