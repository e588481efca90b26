//! Conversion webhooks: their requests, the accepted parts of their answers, and the behaviour while they are
//! unreachable.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tenure_apiserver::{ApiService, Body, Config, Server};
use tenure_testkit::Webhook;

use crate::webhooks::check;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_converted_as_by_a_real_server() {
    check("conversion", "conversion_answers").await;
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const LINKS: &str = "/apis/example.com/v1/namespaces/default/links";
const LINKS_V2: &str = "/apis/example.com/v2/namespaces/default/links";

/// A longer time than any step here takes on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until a condition holds. A timeout is a failure.
async fn wait_until(what: &str, holds: impl AsyncFn() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "in vain: {what}");
}

/// A server with a kind whose versions a webhook converts. It is stored as v1.
struct Place {
    server: Server,
    service: ApiService,
    webhook: Webhook,
    _directory: tempfile::TempDir,
}

fn definition(webhook: &Webhook, path: &str, storage: &str) -> Value {
    let version = |name: &str, fields: Value| {
        json!({
            "name": name, "served": true, "storage": name == storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}},
        })
    };
    let text = json!({"type": "string"});
    json!({
        "metadata": {"name": "links.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "links", "singular": "link", "kind": "Link", "listKind": "LinkList"},
            "versions": [version("v1", json!({"hostPort": text})), version("v2", json!({"host": text, "port": text}))],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": webhook.client_config(path),
            }},
        },
    })
}

fn link(name: &str, address: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Link", "metadata": {"name": name}, "spec": {"hostPort": address}})
}

impl Place {
    async fn set() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::open(Config::new(directory.path())).await.unwrap();
        let failed =
            json!({"convert": {"review": {"response": {"result": {"status": "Failed", "message": "out of order"}}}}});
        let answers = json!({"/convert": {"convert": {}}, "/failed": failed});
        let place = Self {
            service: server.admin_service(),
            server,
            webhook: Webhook::start(answers).await.unwrap(),
            _directory: directory,
        };
        let (status, answer) = place
            .ask("POST", DEFINITIONS, definition(&place.webhook, "/convert", "v1"))
            .await;
        assert_eq!(status, 201, "{answer}");
        let namespace = json!({"metadata": {"name": "default"}});
        place.ask("POST", "/api/v1/namespaces", namespace).await;
        place
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        ask(&self.service, method, path, body).await
    }

    /// Sends a request that has to succeed.
    async fn request_successfully(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.ask(method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {answer}");
        answer
    }

    async fn get(&self, path: &str) -> Value {
        self.request_successfully("GET", path, Value::Null).await
    }

    /// Waits until the webhook has received this many conversion requests.
    async fn until_asked(&self, times: usize) {
        wait_until("the webhook is asked", async || {
            self.webhook.conversions().len() >= times
        })
        .await;
    }

    async fn until_gone(&self, path: &str) {
        wait_until(path, async || self.ask("GET", path, Value::Null).await.0 == 404).await;
    }

    async fn close(self) {
        self.server.close().await;
    }
}

async fn ask(service: &ApiService, method: &str, path: &str, body: Value) -> (u16, Value) {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let response = service
        .handle(request.body(Full::new(Bytes::from(body))).unwrap())
        .await;
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

/// A request that waits for a webhook blocks no other request, not even one from the webhook itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_waits_holds_up_nobody_else() {
    let place = Place::set().await;
    place.request_successfully("POST", LINKS, link("a", "one:1")).await;
    place.webhook.answer("/convert", json!({"convert": {}, "held": true}));
    let one = format!("{LINKS}/a");
    let waiting: Vec<_> = [
        ("GET", format!("{LINKS_V2}/a"), Value::Null),
        ("GET", LINKS_V2.to_owned(), Value::Null),
        (
            "POST",
            LINKS_V2.to_owned(),
            json!({"apiVersion": "example.com/v2", "kind": "Link", "metadata": {"name": "c"}, "spec": {"host": "x"}}),
        ),
    ]
    .map(|(method, path, body)| {
        let service = place.service.clone();
        tokio::spawn(async move { ask(&service, method, &path, body).await })
    })
    .into();
    place.until_asked(3).await;
    assert_eq!(place.get(&one).await["spec"]["hostPort"], "one:1");
    place
        .request_successfully("PATCH", &one, json!({"spec": {"hostPort": "two:2"}}))
        .await;
    place.request_successfully("POST", LINKS, link("b", "b:1")).await;
    assert_eq!(place.get(LINKS).await["items"].as_array().unwrap().len(), 2);
    let map = json!({"metadata": {"name": "a"}});
    place
        .request_successfully("POST", "/api/v1/namespaces/default/configmaps", map)
        .await;
    place
        .request_successfully("DELETE", &format!("{LINKS}/b"), Value::Null)
        .await;
    let mut definition = definition(&place.webhook, "/convert", "v1");
    definition["metadata"]["labels"] = json!({"a": "b"});
    place
        .request_successfully("PATCH", &format!("{DEFINITIONS}/links.example.com"), definition)
        .await;
    assert!(waiting.iter().all(|request| !request.is_finished()));
    place.webhook.release();
    for request in waiting {
        let (status, answer) = request.await.unwrap();
        assert!((200..300).contains(&status), "{answer}");
    }
    // The server closes although a request waits.
    place.webhook.answer("/convert", json!({"hang": true}));
    let (asked, service) = (place.webhook.conversions().len(), place.service.clone());
    let hanging = tokio::spawn(async move { ask(&service, "GET", &format!("{LINKS_V2}/a"), Value::Null).await });
    place.until_asked(asked + 1).await;
    place.close().await;
    hanging.abort();
}

/// Reads the lines of a watch.
struct Lines {
    body: Body,
    rest: Vec<u8>,
}

impl Lines {
    async fn open(place: &Place, path: &str) -> Self {
        let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
        let response = place.service.handle(request).await;
        assert_eq!(response.status(), 200);
        Self {
            body: response.into_body(),
            rest: Vec::new(),
        }
    }

    async fn next(&mut self) -> Value {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return serde_json::from_slice(&line).unwrap();
            }
            let frame = self.body.frame().await.unwrap().unwrap();
            self.rest.extend_from_slice(&frame.into_data().unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_conversion_serves_all_who_watch_or_list() {
    let place = Place::set().await;
    for name in ["a", "b", "c"] {
        place.request_successfully("POST", LINKS, link(name, "one:1")).await;
    }
    let list = place.get(LINKS_V2).await;
    assert_eq!(list["items"][2]["spec"], json!({"host": "one", "port": "1"}));
    // All objects of a list are converted with one request, and cached.
    assert_eq!(place.webhook.conversions().len(), 1);
    assert_eq!(
        place.webhook.conversions()[0]["request"]["objects"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    place.get(LINKS_V2).await;
    place.get(&format!("{LINKS_V2}?limit=2")).await;
    assert_eq!(place.webhook.conversions().len(), 1);
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(Lines::open(&place, &format!("{LINKS_V2}?watch=true&resourceVersion={revision}")).await);
    }
    place
        .request_successfully("PATCH", &format!("{LINKS}/a"), json!({"spec": {"hostPort": "two:2"}}))
        .await;
    for watch in &mut watches {
        let line = watch.next().await;
        assert_eq!(
            (line["type"].as_str(), &line["object"]["spec"]["host"]),
            (Some("MODIFIED"), &json!("two"))
        );
    }
    assert_eq!(place.webhook.conversions().len(), 2);
    // A get always asks the webhook for the current conversion.
    place.get(&format!("{LINKS_V2}/a")).await;
    assert_eq!(place.webhook.conversions().len(), 3);
    drop(watches);
    place.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_outlives_a_webhook_that_is_away() {
    let place = Place::set().await;
    let a = place.request_successfully("POST", LINKS, link("a", "one:1")).await;
    let revision = a["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = Lines::open(&place, &format!("{LINKS_V2}?watch=true&resourceVersion={revision}")).await;
    place.webhook.answer("/convert", json!({"status": 503}));
    place
        .request_successfully("PATCH", &format!("{LINKS}/a"), json!({"spec": {"hostPort": "two:2"}}))
        .await;
    place
        .request_successfully("DELETE", &format!("{LINKS}/a"), Value::Null)
        .await;
    let read = tokio::spawn(async move { [watch.next().await, watch.next().await] });
    place.until_asked(1).await;
    let (status, list) = place.ask("GET", LINKS_V2, Value::Null).await;
    assert_eq!(
        (status, list["items"].as_array().map(Vec::len)),
        (200, Some(0)),
        "nothing is left to convert"
    );
    place.webhook.answer("/convert", json!({"convert": {}}));
    let [changed, deleted] = read.await.unwrap();
    assert_eq!(
        (&changed["type"], &changed["object"]["spec"]["host"]),
        (&json!("MODIFIED"), &json!("two"))
    );
    assert_eq!(
        (&deleted["type"], &deleted["object"]["spec"]["host"]),
        (&json!("DELETED"), &json!("two"))
    );
    place.close().await;
}

/// A renewed certificate or a new webhook address is a change of the definition, and watches follow it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_follows_the_definition() {
    let place = Place::set().await;
    let a = place.request_successfully("POST", LINKS, link("a", "one:1")).await;
    let revision = a["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = Lines::open(&place, &format!("{LINKS_V2}?watch=true&resourceVersion={revision}")).await;
    let path = format!("{DEFINITIONS}/links.example.com");
    place
        .request_successfully("PATCH", &path, definition(&place.webhook, "/failed", "v1"))
        .await;
    let change = json!({"spec": {"hostPort": "two:2"}});
    place.request_successfully("PATCH", &format!("{LINKS}/a"), change).await;
    let read = tokio::spawn(async move { watch.next().await });
    place.until_asked(1).await;
    place
        .request_successfully("PATCH", &path, definition(&place.webhook, "/convert", "v1"))
        .await;
    assert_eq!(read.await.unwrap()["object"]["spec"]["host"], "two");
    place.close().await;
}

/// A webhook chooses neither the server's connections nor the number of bytes that the server reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_answers_are_failures() {
    let place = Place::set().await;
    place.request_successfully("POST", LINKS, link("a", "one:1")).await;
    let elsewhere = Webhook::start(json!({"/convert": {"convert": {}}})).await.unwrap();
    let target = format!("https://127.0.0.1:{}/convert", elsewhere.port);
    let message = async || {
        let (status, answer) = place.ask("GET", &format!("{LINKS_V2}/a"), Value::Null).await;
        assert_eq!(status, 500, "{answer}");
        answer["message"].as_str().unwrap().to_owned()
    };
    let begin = "conversion webhook for example.com/v1, Kind=Link failed: ";
    for code in [301, 302, 303, 307, 308] {
        place
            .webhook
            .answer("/convert", json!({"status": code, "headers": {"location": target}}));
        let error_message = message().await;
        assert!(
            error_message.starts_with(begin) && error_message.contains(&code.to_string()),
            "{error_message}"
        );
    }
    assert!(elsewhere.conversions().is_empty());
    place
        .webhook
        .answer("/convert", json!({"body": " ".repeat(17 * 1024 * 1024)}));
    assert!(message().await.starts_with(begin));
    // The failures harm neither the server nor the object.
    place.webhook.answer("/convert", json!({"convert": {}}));
    assert_eq!(place.get(&format!("{LINKS_V2}/a")).await["spec"]["port"], "1");
    place.close().await;
}

/// As in Kubernetes, an object stored in the storage version can be deleted without the webhook.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_in_storage_version_are_deleted_without_webhook() {
    let place = Place::set().await;
    place.webhook.answer("/convert", json!({"status": 500}));
    let namespace = json!({"metadata": {"name": "shop"}});
    place
        .request_successfully("POST", "/api/v1/namespaces", namespace)
        .await;
    place
        .request_successfully("POST", &LINKS.replace("default", "shop"), link("a", "one:1"))
        .await;
    place.request_successfully("POST", LINKS, link("b", "one:1")).await;
    assert_eq!(place.ask("DELETE", &format!("{LINKS_V2}/b"), Value::Null).await.0, 500);
    place
        .request_successfully("DELETE", "/api/v1/namespaces/shop", Value::Null)
        .await;
    place.until_gone("/api/v1/namespaces/shop").await;
    let definition = format!("{DEFINITIONS}/links.example.com");
    place.request_successfully("DELETE", &definition, Value::Null).await;
    place.until_gone(&definition).await;
    place.close().await;
}

/// A terminating definition reports why it still exists, and is removed once the webhook is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_definition_waits_for_its_conversion_webhook() {
    let place = Place::set().await;
    place.request_successfully("POST", LINKS, link("a", "one:1")).await;
    let path = format!("{DEFINITIONS}/links.example.com");
    place
        .request_successfully("PATCH", &path, definition(&place.webhook, "/failed", "v2"))
        .await;
    place.request_successfully("DELETE", &path, Value::Null).await;
    let want = "could not list instances: conversion webhook for example.com/v1, Kind=Link failed: out of order";
    wait_until("the deletion fails", async || {
        let definition = place.get(&path).await;
        let conditions = definition["status"]["conditions"].as_array().unwrap();
        let last = conditions.iter().find(|one| one["type"] == "Terminating").unwrap();
        let failed = last["reason"] == "InstanceDeletionFailed";
        if failed {
            assert_eq!(last["message"], want);
        }
        failed
    })
    .await;
    place.webhook.answer("/failed", json!({"convert": {}}));
    place.until_gone(&path).await;
    place.close().await;
}

/// A webhook is reached behind a Service, as installers configure it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_is_reached_behind_a_service() {
    let place = Place::set().await;
    place.request_successfully("POST", LINKS, link("a", "one:1")).await;
    let mut definition = definition(&place.webhook, "/convert", "v1");
    let service = json!({"namespace": "default", "name": "webhook", "path": "/convert", "port": place.webhook.port});
    definition["spec"]["conversion"]["webhook"]["clientConfig"] =
        json!({"url": null, "service": service, "caBundle": place.webhook.ca});
    let path = format!("{DEFINITIONS}/links.example.com");
    place.request_successfully("PATCH", &path, definition).await;
    let one = format!("{LINKS_V2}/a");
    let (status, answer) = place.ask("GET", &one, Value::Null).await;
    assert_eq!(status, 500);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .ends_with("service \"webhook\" not found"),
        "{answer}"
    );
    let service =
        json!({"metadata": {"name": "webhook"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    place
        .request_successfully("POST", "/api/v1/namespaces/default/services", service)
        .await;
    assert_eq!(place.get(&one).await["spec"]["host"], "one");
    place.close().await;
}

/// A mutating webhook changes the object in its requested version, and the change is stored in the request's version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutating_webhooks_see_and_change_converted_objects() {
    let place = Place::set().await;
    // [{"op": "test", "path": "/spec/port", "value": "1"}, {"op": "replace", "path": "/spec/host", "value": "changed"}]
    let patch = "W3sib3AiOiAidGVzdCIsICJwYXRoIjogIi9zcGVjL3BvcnQiLCAidmFsdWUiOiAiMSJ9LCB7Im9wIjogInJlcGxhY2UiLCAicGF0aCI6ICIvc3BlYy9ob3N0IiwgInZhbHVlIjogImNoYW5nZWQifV0=";
    let response = json!({"uid": "@UID", "allowed": true, "patchType": "JSONPatch", "patch": patch});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    place.webhook.answer("/change", json!({"body": review}));
    let configuration = json!({"metadata": {"name": "changes"}, "webhooks": [{
        "name": "changes.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": place.webhook.client_config("/change"),
        "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v2"], "operations": ["CREATE"], "resources": ["links"]}],
    }]});
    let configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    place.request_successfully("POST", configurations, configuration).await;
    let made = place.request_successfully("POST", LINKS, link("a", "one:1")).await;
    assert_eq!(
        (&made["apiVersion"], &made["spec"]["hostPort"]),
        (&json!("example.com/v1"), &json!("changed:1"))
    );
    place.close().await;
}

/// A list that is too long for one conversion request is split into several, and keeps its order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_list_is_asked_about_in_batches() {
    let place = Place::set().await;
    for number in 0..501 {
        place
            .request_successfully("POST", LINKS, link(&format!("n{number:03}"), &format!("h{number}:1")))
            .await;
    }
    let list = place.get(LINKS_V2).await;
    let hosts: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["spec"]["host"].as_str().unwrap())
        .collect();
    assert_eq!((hosts.len(), hosts[0], hosts[500]), (501, "h0", "h500"));
    let sizes: Vec<usize> = place
        .webhook
        .conversions()
        .iter()
        .map(|review| review["request"]["objects"].as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [500, 1]);
    place.close().await;
}

/// Controllers convert objects that are stored in an older version before they write them, under the same name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controllers_write_what_they_have_converted() {
    let place = Place::set().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let owner = place
        .request_successfully("POST", maps, json!({"metadata": {"name": "owner"}}))
        .await;
    let mut owned = link("a", "one:1");
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    place.request_successfully("POST", LINKS, owned).await;
    let stored = definition(&place.webhook, "/convert", "v2");
    place
        .request_successfully("PATCH", &format!("{DEFINITIONS}/links.example.com"), stored)
        .await;
    let options = json!({"propagationPolicy": "Orphan"});
    place
        .request_successfully("DELETE", &format!("{maps}/owner"), options)
        .await;
    let one = format!("{LINKS_V2}/a");
    wait_until("the object is orphaned", async || {
        place.get(&one).await["metadata"]["ownerReferences"].is_null()
    })
    .await;
    assert_eq!(place.get(&one).await["spec"], json!({"host": "one", "port": "1"}));
    let definition = place.get(&format!("{DEFINITIONS}/links.example.com")).await;
    assert_eq!(definition["status"]["storedVersions"], json!(["v1", "v2"]));
    place.close().await;
}

/// A policy sees an object in the version of its rule, and parameters in the version that it names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_see_converted_objects() {
    let place = Place::set().await;
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    place
        .request_successfully("POST", LINKS, link("limits", "forbidden:1"))
        .await;
    let policy = json!({"metadata": {"name": "hosts"}, "spec": {
        "paramKind": {"apiVersion": "example.com/v2", "kind": "Link"},
        "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": [
            {"apiGroups": ["example.com"], "apiVersions": ["v2"], "operations": ["CREATE", "UPDATE"], "resources": ["links"]}]},
        "validations": [{"expression": "object.spec.host != params.spec.host", "message": "no such host"}],
    }});
    place.request_successfully("POST", policies, policy).await;
    let binding = json!({"metadata": {"name": "hosts"}, "spec": {
        "policyName": "hosts", "validationActions": ["Deny"],
        "paramRef": {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"},
    }});
    place
        .request_successfully("POST", &policies.replace("policies", "policybindings"), binding)
        .await;
    let (status, answer) = place.ask("POST", LINKS, link("a", "forbidden:2")).await;
    assert_eq!(status, 422, "{answer}");
    assert!(
        answer["message"].as_str().unwrap().ends_with("no such host"),
        "{answer}"
    );
    place.request_successfully("POST", LINKS, link("a", "allowed:2")).await;
    // A request is refused if its object can't be converted for the policy.
    place.webhook.answer("/convert", json!({"status": 500}));
    let (status, answer) = place.ask("POST", LINKS, link("b", "forbidden:2")).await;
    assert_ne!(status, 201, "{answer}");
    place.close().await;
}
