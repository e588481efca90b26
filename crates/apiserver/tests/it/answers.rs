//! Answers that their clients don't read: the held bytes are limited, other requests continue, and the bytes are
//! released. Also lists that are made while they are sent.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tenure_apiserver::{ApiService, Body, Config, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use crate::serving::Listening;

/// A longer time than any step here takes on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(180);
/// A duration that never passes in these tests.
const FOREVER: Duration = Duration::from_secs(24 * 60 * 60);

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn call(service: &ApiService, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> Response<Body> {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    service
        .handle(request.body(Full::new(Bytes::from(body))).unwrap())
        .await
}

async fn read_text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn request_json(service: &ApiService, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> Value {
    let response = call(service, method, path, headers, body).await;
    assert!(response.status().is_success(), "{path}: {}", response.status());
    serde_json::from_str(&read_text(response).await).unwrap()
}

async fn create_configmaps(service: &ApiService, count: usize, size: usize) {
    for number in 0..count {
        let labels = json!({"parity": if number % 2 == 0 { "even" } else { "odd" }});
        let map =
            json!({"metadata": {"name": format!("m{number:04}"), "labels": labels}, "data": {"x": "y".repeat(size)}});
        assert_eq!(call(service, "POST", MAPS, &[], map).await.status(), 201);
    }
}

/// Returns the charged bytes: of limited users, and of others.
async fn read_held_bytes(server: &Server) -> (usize, usize) {
    let metrics = read_text(call(&server.admin_service(), "GET", "/metrics", &[], Value::Null).await).await;
    let value = |bounded: bool| {
        let name = format!("tenure_answer_bytes{{bounded=\"{bounded}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap();
        line.parse().unwrap()
    };
    (value(true), value(false))
}

async fn until_held(server: &Server, what: &str, mut enough: impl FnMut(usize) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (held, _) = read_held_bytes(server).await;
        if enough(held) {
            return;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}: {held}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the token of a user with all rights, in a namespace of its own.
async fn user(server: &Server, name: &str) -> String {
    let service = server.admin_service();
    let namespace = json!({"metadata": {"name": name}});
    request_json(&service, "POST", "/api/v1/namespaces", &[], namespace).await;
    let account = json!({"metadata": {"name": name}});
    request_json(
        &service,
        "POST",
        &format!("/api/v1/namespaces/{name}/serviceaccounts"),
        &[],
        account,
    )
    .await;
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": name}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    request_json(&service, "POST", bindings, &[], binding).await;
    server.service_account_token(name, name, 3600).unwrap()
}

fn get(path: &str, token: &str) -> Request<Full<Bytes>> {
    Request::get(format!("https://localhost{path}"))
        .header("authorization", format!("Bearer {token}"))
        .body(Full::new(Bytes::new()))
        .unwrap()
}

/// Returns a server with tight limits for answers, and 8 MB of objects.
async fn full_server(patience: Duration) -> Listening {
    let listening = Listening::with(|config| {
        config.answers.user_bytes = 8 << 20;
        config.answers.total_bytes = 16 << 20;
        config.answers.patience = patience;
    })
    .await;
    create_configmaps(&listening.server.admin_service(), 256, 32 * 1024).await;
    listening
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_lists_hold_no_more_than_their_user_may() {
    let listening = full_server(FOREVER).await;
    let (greedy, modest) = (
        user(&listening.server, "greedy").await,
        user(&listening.server, "modest").await,
    );
    let mut connection = listening.http2(false).await;
    let mut unread = Vec::new();
    for path in [MAPS, "/api/v1/configmaps?labelSelector=parity"] {
        for _ in 0..15 {
            let response = connection.send_request(get(path, &greedy)).await.unwrap();
            assert_eq!(response.status(), 200);
            unread.push(response);
        }
    }
    until_held(&listening.server, "something is held", |held| held > 0).await;
    // Other requests continue within the limit.
    let mut another = listening.http2(false).await;
    for _ in 0..3 {
        let response = another.send_request(get(MAPS, &modest)).await.unwrap();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let list: Value = serde_json::from_slice(&bytes).unwrap();
        assert!(list["items"].as_array().unwrap().len() >= 256);
        let (held, _) = read_held_bytes(&listening.server).await;
        assert!(held <= (8 << 20) + (1 << 20), "{held}");
    }
    drop((connection, unread));
    until_held(&listening.server, "everything is given back", |held| held == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_stream_is_reset_and_its_connection_stays_open() {
    let listening = full_server(Duration::from_millis(400)).await;
    let token = user(&listening.server, "slow").await;
    let mut connection = listening.http2(false).await;
    let list = connection.send_request(get(MAPS, &token)).await.unwrap();
    let watch = connection
        .send_request(get(&format!("{MAPS}?watch=true"), &token))
        .await
        .unwrap();
    until_held(&listening.server, "something is held", |held| held > 0).await;
    until_held(&listening.server, "it is given back", |held| held == 0).await;
    for answer in [list, watch] {
        let error = answer
            .into_body()
            .collect()
            .await
            .expect_err("no end that looks like one");
        assert!(!error.is_timeout(), "{error}");
    }
    let response = connection
        .send_request(get("/api/v1/namespaces/default", &token))
        .await
        .unwrap();
    assert_eq!(response.status(), 200, "the connection is of use still");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_not_read_is_cut() {
    let listening = full_server(Duration::from_millis(400)).await;
    let token = user(&listening.server, "slow").await;
    let request =
        format!("GET {MAPS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut stream = listening.connect("http/1.1", false).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        until_held(&listening.server, "something is held", |held| held > 0).await;
        until_held(&listening.server, "it is given back", |held| held == 0).await;
        let mut got = Vec::new();
        let _cut = stream.read_to_end(&mut got).await;
        assert!(got.starts_with(b"HTTP/1.1 200"));
        // No bytes are held between two pieces, either. If the read came too early, the whole answer had arrived.
        if got.ends_with(b"0\r\n\r\n") && Instant::now() < deadline {
            continue;
        }
        assert!(got.len() < 8 << 20, "{}", got.len());
        assert!(!got.ends_with(b"0\r\n\r\n"), "it doesn't look complete");
        return;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_watches_are_bounded_in_sum() {
    let listening = full_server(FOREVER).await;
    let token = user(&listening.server, "watcher").await;
    let mut connection = listening.http2(false).await;
    let mut unread = Vec::new();
    for number in 0..40 {
        let from = if number % 2 == 0 { "" } else { "&resourceVersion=1" };
        let path = format!("{MAPS}?watch=true{from}");
        unread.push(connection.send_request(get(&path, &token)).await.unwrap());
    }
    until_held(&listening.server, "something is held", |held| held > 0).await;
    let admin = listening.server.admin_service();
    for round in 0..8 {
        let patch = json!({"data": {"x": round.to_string().repeat(512 * 1024)}});
        let headers = [("content-type", "application/merge-patch+json")];
        request_json(&admin, "PATCH", &format!("{MAPS}/m0000"), &headers, patch).await;
        let (held, _) = read_held_bytes(&listening.server).await;
        assert!(held <= (8 << 20) + (3 << 20), "{held}");
    }
    drop((connection, unread));
    until_held(&listening.server, "everything is given back", |held| held == 0).await;
}

async fn open(configure: impl FnOnce(&mut Config)) -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let mut config = Config::new(directory.path());
    config.controllers = false;
    configure(&mut config);
    let server = Server::open(config).await.unwrap();
    (directory, server)
}

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

#[tokio::test]
async fn a_list_in_pieces_is_the_list() {
    let (_directory, server) = open(|_| {}).await;
    let service = server.admin_service();
    create_configmaps(&service, 300, 1000).await;
    let names = |list: &Value, items: &str, name: &str| -> Vec<String> {
        let items = list[items].as_array().unwrap().iter();
        items
            .map(|item| item.pointer(name).unwrap().as_str().unwrap().to_owned())
            .collect()
    };
    let all: Vec<String> = (0..300).map(|number| format!("m{number:04}")).collect();
    let even: Vec<String> = all.iter().step_by(2).cloned().collect();
    for (query, accept, items, name) in [
        ("", "application/json", "items", "/metadata/name"),
        ("", METADATA, "items", "/metadata/name"),
        ("", TABLE, "rows", "/object/metadata/name"),
        ("&includeObject=Object", TABLE, "rows", "/object/metadata/name"),
    ] {
        for (selector, wanted) in [("", &all), ("labelSelector=parity%3Deven", &even)] {
            let path = format!("{MAPS}?{selector}{query}");
            let response = call(&service, "GET", &path, &[("accept", accept)], Value::Null).await;
            assert_eq!(response.headers()["content-type"], "application/json");
            let body = read_text(response).await;
            assert!(
                body.len() > 64 * 1024 || query.is_empty(),
                "it comes in pieces: {}",
                body.len()
            );
            let list: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(&names(&list, items, name), wanted, "{path} as {accept}");
            assert!(list["metadata"]["resourceVersion"].is_string());
            // The same list in pages.
            let (mut paged, mut next) = (Vec::new(), String::new());
            loop {
                let path = format!("{path}&limit=130&continue={next}");
                let page = request_json(&service, "GET", &path, &[("accept", accept)], Value::Null).await;
                paged.extend(names(&page, items, name));
                match page["metadata"]["continue"].as_str() {
                    Some(more) if !more.is_empty() => more.clone_into(&mut next),
                    _ => break,
                }
            }
            assert_eq!(&paged, wanted, "{path} as {accept}, in pages");
        }
    }
    let deleted = request_json(
        &service,
        "DELETE",
        &format!("{MAPS}?labelSelector=parity%3Dodd"),
        &[],
        Value::Null,
    )
    .await;
    assert_eq!(deleted["items"].as_array().unwrap().len(), 150);
    assert_eq!(deleted["items"][0]["data"]["x"].as_str().unwrap().len(), 1000);
    let left = request_json(&service, "GET", MAPS, &[], Value::Null).await;
    assert_eq!(names(&left, "items", "/metadata/name"), even);
}

#[tokio::test]
async fn slowly_read_list_shows_one_revision() {
    let (_directory, server) = open(|_| {}).await;
    let service = server.admin_service();
    create_configmaps(&service, 300, 1000).await;
    let response = call(&service, "GET", MAPS, &[], Value::Null).await;
    let mut body = response.into_body();
    let mut got = body.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
    request_json(&service, "DELETE", MAPS, &[], Value::Null).await;
    got.extend_from_slice(&body.collect().await.unwrap().to_bytes());
    let list: Value = serde_json::from_slice(&got).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 300);
}

#[tokio::test]
async fn a_list_that_keeps_too_much_alive_breaks_off() {
    let (_directory, server) = open(|config| config.answers.old_bytes = 1 << 20).await;
    let service = server.admin_service();
    create_configmaps(&service, 300, 1000).await;
    let mut slow = call(&service, "GET", MAPS, &[], Value::Null).await.into_body();
    slow.frame().await.unwrap().unwrap();
    for round in 0..10 {
        let patch = json!({"data": {"x": round.to_string().repeat(256 * 1024)}});
        let headers = [("content-type", "application/merge-patch+json")];
        request_json(&service, "PATCH", &format!("{MAPS}/m0000"), &headers, patch).await;
    }
    let error = slow
        .collect()
        .await
        .expect_err("an error, and no end that looks like one");
    assert!(error.to_string().contains("too slowly"), "{error}");
    // A client that starts again gets the list.
    let list = request_json(&service, "GET", MAPS, &[], Value::Null).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 300);
}

#[tokio::test]
async fn bodiless_responses_have_no_body() {
    let listening = Listening::with(|_| {}).await;
    let mut http2 = listening.http2(true).await;
    let mut ask = |method: &str, path: &str, tag: Option<&str>| {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://localhost{path}"));
        if let Some(tag) = tag {
            request = request.header("if-none-match", tag);
        }
        http2.send_request(request.body(Full::new(Bytes::new())).unwrap())
    };
    for path in [
        "/version",
        "/healthz",
        "/openapi/v2",
        "/apis",
        "/nowhere",
        "/api/v1/namespaces/default",
    ] {
        let response = ask("HEAD", path, None).await.unwrap();
        let promised = response.headers().get("content-length").cloned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body.is_empty(), "{path}: {body:?}");
        assert_ne!(promised.expect(path), "0", "{path}: it says how long it would be");
    }
    let whole = ask("GET", "/apis", None).await.unwrap();
    let tag = whole.headers()["etag"].to_str().unwrap().to_owned();
    let response = ask("GET", "/apis", Some(&tag)).await.unwrap();
    assert_eq!(response.status(), 304);
    assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
    // The next answer on the same HTTP/1 connection is at the right position.
    let mut http1 = listening.connect("http/1.1", true).await;
    http1
        .write_all(b"HEAD /version HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut got = String::new();
    http1.read_to_string(&mut got).await.unwrap();
    let (head, rest) = got.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200") && head.contains("content-length: "),
        "{head}"
    );
    assert!(
        rest.starts_with("HTTP/1.1 200") && rest.ends_with("\r\n\r\nok"),
        "{rest}"
    );
}
