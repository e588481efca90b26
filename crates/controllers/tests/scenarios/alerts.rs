//! Events go to the receivers that Alerts name, in their form, and a misbehaving receiver blocks no other.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure_testkit::{Manner, NoticeServer, SOON, eventually};

use crate::stage::{ALERT, CONFIG_MAP, PROVIDER, Stage, commit, config_map};

const EVENT: (&str, &str) = ("v1", "Event");

/// Returns a Secret with these texts.
pub(crate) fn secret(namespace: &str, name: &str, entries: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": namespace }, "stringData": entries })
}

pub(crate) fn provider(namespace: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": PROVIDER.0, "kind": PROVIDER.1, "metadata": { "name": name, "namespace": namespace }, "spec": spec
    })
}

/// Returns an Alert for a Provider of the same name; `spec` is merged over the defaults.
pub(crate) fn alert(namespace: &str, name: &str, spec: &Value) -> Value {
    let mut usual = json!({
        "providerRef": { "name": name },
        "eventSources": [{ "kind": "Kustomization", "name": "*" }, { "kind": "GitRepository", "name": "*" }],
    });
    for (key, value) in spec.as_object().unwrap() {
        usual[key] = value.clone();
    }
    json!({
        "apiVersion": ALERT.0, "kind": ALERT.1, "metadata": { "name": name, "namespace": namespace }, "spec": usual
    })
}

/// Returns the messages of events about an Alert.
pub(crate) async fn list_complaints(stage: &Stage, namespace: &str, name: &str) -> Vec<String> {
    let events = stage.admin.list(EVENT, namespace).await.unwrap();
    let about = events
        .iter()
        .filter(|event| event["involvedObject"]["kind"] == "Alert" && event["involvedObject"]["name"] == name);
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    about
        .map(|event| format!("{}: {}", text(event, "reason"), text(event, "message")))
        .collect()
}

/// Waits until an event about an Alert has this text, and returns all messages about it.
pub(crate) async fn complains(stage: &Stage, (namespace, name): (&str, &str), part: &str) -> Vec<String> {
    let look = async || {
        let complaints = list_complaints(stage, namespace, name).await;
        match complaints.iter().any(|complaint| complaint.contains(part)) {
            true => Ok(complaints),
            false => Err(format!("{name} should say {part:?}, and says {complaints:?}")),
        }
    };
    eventually(SOON, look).await.unwrap()
}

async fn make(stage: &Stage, namespace: &str, name: &str, spec: Value, of_alert: &Value) {
    stage.admin.apply(provider(namespace, name, spec)).await.unwrap();
    // Two watches have no common order: an Alert that is seen first reports a missing Provider.
    stage.ready(PROVIDER, (namespace, name), "True", "Succeeded").await;
    stage.admin.apply(alert(namespace, name, of_alert)).await.unwrap();
    stage.ready(ALERT, (namespace, name), "True", "Succeeded").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_sent_in_every_form() {
    let server = NoticeServer::start().await.unwrap();
    let stage = Stage::set_allowing("alerts", &[server.url()]).await;
    let namespace = "alerts";
    let at = |path: &str| format!("{}{path}", server.url());
    let of_secret = json!({ "token": "sesame", "headers": "x-extra: open\n", "address": at("/hidden") });
    stage
        .admin
        .apply(secret(namespace, "token", json!({ "token": "sesame" })))
        .await
        .unwrap();
    stage.admin.apply(secret(namespace, "all", of_secret)).await.unwrap();
    let none = json!({});
    let with_token =
        |type_: &str, path: &str| json!({ "type": type_, "address": at(path), "secretRef": { "name": "token" } });
    let of_all = json!({ "type": "generic-hmac", "secretRef": { "name": "all" } });
    make(
        &stage,
        namespace,
        "hmac",
        of_all,
        &json!({ "eventMetadata": { "cluster": "one" } }),
    )
    .await;
    let slack = json!({ "type": "slack", "address": at("/slack"), "channel": "general" });
    make(&stage, namespace, "slack", slack, &none).await;
    make(
        &stage,
        namespace,
        "teams",
        json!({ "type": "msteams", "address": at("/teams") }),
        &none,
    )
    .await;
    make(
        &stage,
        namespace,
        "discord",
        json!({ "type": "discord", "address": at("/discord") }),
        &none,
    )
    .await;
    let errors = json!({ "eventSeverity": "error" });
    make(
        &stage,
        namespace,
        "alertmanager",
        with_token("alertmanager", "/am"),
        &errors,
    )
    .await;
    for host in ["github", "gitlab", "gitea"] {
        make(&stage, namespace, host, with_token(host, "/owner/app"), &none).await;
    }
    let excluding = json!({ "exclusionList": ["."] });
    make(
        &stage,
        namespace,
        "excluded",
        json!({ "type": "generic", "address": at("/excluded") }),
        &excluding,
    )
    .await;

    let repository = stage
        .repository(namespace, "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    stage.kustomization(namespace, "app", "app", json!({})).await;
    stage
        .wait_for(CONFIG_MAP, (namespace, "a"), |found| found.is_some())
        .await;

    let is_new = |notice: &tenure_testkit::Notice| notice.json()["reason"] == "NewArtifact";
    let artifact = server.wait_for("/hidden", is_new).await.unwrap();
    assert_eq!(artifact.json()["involvedObject"]["kind"], "GitRepository");
    let is_success = |notice: &tenure_testkit::Notice| notice.json()["reason"] == "ReconciliationSucceeded";
    let notice = server.wait_for("/hidden", is_success).await.unwrap();
    let event = notice.json();
    assert_eq!(event["involvedObject"]["name"], "app");
    assert_eq!(
        (&event["severity"], &event["metadata"]["cluster"]),
        (&json!("info"), &json!("one"))
    );
    assert_eq!(event["metadata"]["commit_status"], "update");
    let revision = event["metadata"]["revision"].as_str().unwrap().to_owned();
    assert!(revision.starts_with("main@sha1:"), "{revision}");
    assert_eq!(notice.headers["x-extra"], "open");
    assert_eq!(notice.headers["gotk-component"], "kustomize-controller");
    assert!(notice.headers["x-signature"].starts_with("sha256=") && notice.headers["x-signature"].len() == 71);

    let commit_of = revision.rsplit(':').next().unwrap();
    for (path, state) in [
        (format!("/api/v3/repos/owner/app/statuses/{commit_of}"), "success"),
        (format!("/api/v4/projects/owner%2Fapp/statuses/{commit_of}"), "success"),
        (format!("/api/v1/repos/owner/app/statuses/{commit_of}"), "success"),
    ] {
        let status = server.wait_for(&path, |_| true).await.unwrap().json();
        assert_eq!(status["state"], state, "{status}");
    }
    let is_about = |part: &'static str| move |notice: &tenure_testkit::Notice| notice.json().to_string().contains(part);
    let created = server
        .wait_for("/slack", is_about("ConfigMap/alerts/a created"))
        .await
        .unwrap();
    assert_eq!(created.json()["channel"], "general");
    server.wait_for("/teams", is_about("AdaptiveCard")).await.unwrap();
    server
        .wait_for("/discord/slack", is_about("kustomization/app.alerts"))
        .await
        .unwrap();
    assert_eq!(server.list("/am").len(), 0, "nothing was wrong yet");

    // A commit that can't be built.
    let broken = commit(&repository, &[("kustomization.yaml", "resources: [none.yaml]\n")]).await;
    let firing = server
        .wait_for("/am", is_about("FluxKustomizationBuildfailed"))
        .await
        .unwrap();
    assert_eq!(firing.headers["authorization"], "Bearer sesame");
    let path = format!("/api/v4/projects/owner%2Fapp/statuses/{broken}");
    let status = server.wait_for(&path, |_| true).await.unwrap().json();
    assert_eq!(
        (&status["state"], &status["description"]),
        (&json!("failed"), &json!("build failed"))
    );
    assert_eq!(server.list("/excluded").len(), 0);
    for name in [
        "hmac",
        "slack",
        "teams",
        "discord",
        "alertmanager",
        "github",
        "gitlab",
        "gitea",
        "excluded",
    ] {
        assert_eq!(
            list_complaints(&stage, namespace, name).await,
            Vec::<String>::new(),
            "{name}"
        );
    }

    // A problem of a Provider is reported on the Provider and on the Alert.
    stage
        .admin
        .apply(provider(
            namespace,
            "slack",
            json!({ "type": "telegram", "address": at("/slack") }),
        ))
        .await
        .unwrap();
    let message = stage
        .ready(PROVIDER, (namespace, "slack"), "False", "UnsupportedField")
        .await;
    assert!(
        message.contains("spec.type: telegram is not supported yet"),
        "{message}"
    );
    let message = stage
        .ready(ALERT, (namespace, "slack"), "False", "ProviderNotReady")
        .await;
    assert!(
        message.contains("Provider alerts/slack: spec.type: telegram"),
        "{message}"
    );

    // A Secret that is missing is reported before anything is sent.
    let named = |timeout: &str| json!({ "type": "slack", "secretRef": { "name": "later" }, "timeout": timeout });
    let late = provider(namespace, "late", named("14s"));
    stage.admin.apply(late).await.unwrap();
    let message = stage
        .ready(PROVIDER, (namespace, "late"), "False", "AuthenticationFailed")
        .await;
    assert!(
        message.starts_with("Secret alerts/later can't be read as "),
        "{message}"
    );
    let address = json!({ "address": at("/late") });
    stage.admin.apply(secret(namespace, "later", address)).await.unwrap();
    stage
        .admin
        .apply(provider(namespace, "late", named("13s")))
        .await
        .unwrap();
    stage.ready(PROVIDER, (namespace, "late"), "True", "Succeeded").await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_receiver_is_retried_and_blocks_no_other() {
    let server = NoticeServer::start().await.unwrap();
    let other = NoticeServer::start().await.unwrap();
    let stage = Stage::set_allowing("misbehaving", &[server.url(), other.url()]).await;
    let namespace = "misbehaving";
    let full = |status: u16, name: &str, value: &str| {
        Manner::Full(status, vec![(name.to_owned(), value.to_owned())], String::new())
    };
    server.behave("/failing", [Manner::Status(500), Manner::HangUp, Manner::Status(200)]);
    server.behave("/busy", [full(429, "retry-after", "1"), Manner::Status(200)]);
    server.behave("/silent", [Manner::Silent]);
    server.behave("/flood", [Manner::Flood]);
    server.behave("/quoting", [Manner::Quote(400)]);
    server.behave(
        "/elsewhere",
        [full(307, "location", &format!("{}/inside", other.url()))],
    );
    server.behave("/down", [Manner::Status(500)]);
    for path in ["failing", "busy", "silent", "flood", "quoting", "elsewhere", "fine"] {
        let entries = json!({ "address": format!("{}/{path}", server.url()), "token": "sesame" });
        stage.admin.apply(secret(namespace, path, entries)).await.unwrap();
        let spec = json!({ "type": "slack", "secretRef": { "name": path }, "timeout": "2s" });
        make(
            &stage,
            namespace,
            path,
            spec,
            &json!({ "eventSources": [{ "kind": "Kustomization", "name": "app" }] }),
        )
        .await;
    }
    stage
        .repository(namespace, "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    stage.kustomization(namespace, "app", "app", json!({})).await;
    stage
        .wait_for(CONFIG_MAP, (namespace, "a"), |found| found.is_some())
        .await;
    let begun = Instant::now();
    server.wait_for("/fine", |_| true).await.unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "nobody waits for those that are silent: {:?}",
        begun.elapsed()
    );

    // Sent again, until it is accepted.
    let count_first = |path: &str| {
        let came = server.list(path);
        came.iter().filter(|notice| notice.body == came[0].body).count()
    };
    server.wait_for("/failing", |_| true).await.unwrap();
    server.wait_for("/busy", |_| true).await.unwrap();
    let look = || {
        let counts = (count_first("/failing"), count_first("/busy"));
        std::future::ready(if counts == (3, 2) { Ok(()) } else { Err(counts) })
    };
    eventually(SOON, look).await.unwrap();

    // A permanent failure is reported, without anything that was sent.
    let complaints = complains(&stage, (namespace, "quoting"), "it answers HTTP 400").await;
    assert!(complaints[0].starts_with("NotificationDispatchFailed: failed to send notification for Kustomization/misbehaving/app: the address in Secret misbehaving/quoting:"), "{complaints:?}");
    let complaints = complains(&stage, (namespace, "elsewhere"), "a redirect is not followed").await;
    assert_eq!(
        other.list_all().len(),
        0,
        "what is shown went nowhere else: {complaints:?}"
    );
    complains(
        &stage,
        (namespace, "silent"),
        "no answer within 2 s (spec.timeout of the Provider): check the server, or set a longer timeout; it was tried 5 times",
    )
    .await;
    assert_eq!(count_first("/silent"), 5);
    assert_eq!(count_first("/quoting"), 1, "what isn't to be tried again isn't");
    // An endless body is not read if its content does not matter.
    assert_eq!(list_complaints(&stage, namespace, "flood").await, Vec::<String>::new());
    let everything = serde_json::to_string(&stage.admin.list(EVENT, namespace).await.unwrap()).unwrap();
    for hidden in ["sesame", "/quoting\"", &server.url()] {
        assert!(!everything.contains(hidden), "{hidden}: {everything}");
    }
    stage.shut_down().await;
}

/// Writes an Event as helm-controller does. Each call makes another one.
pub(crate) async fn report_release(stage: &Stage, namespace: &str, name: &str, message: &str) {
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "generateName": "release-", "namespace": namespace },
        "involvedObject": { "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": name, "namespace": namespace, "uid": "r" },
        "type": "Warning", "reason": "InstallFailed", "message": message, "source": { "component": "helm-controller" },
        "reportingComponent": "helm-controller", "action": "Reconcile", "reportingInstance": "helm-controller-0",
        "eventTime": "2026-01-01T00:00:00.000000Z"
    });
    stage.admin.create(event).await.unwrap();
}

/// helm-controller writes Events, and Alerts of their namespace send them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_releases_are_sent() {
    let server = NoticeServer::start().await.unwrap();
    let stage = Stage::set_allowing("releases", &[server.url()]).await;
    let namespace = "releases";
    let sources = |name: &str| json!({ "eventSources": [{ "kind": "HelmRelease", "name": name }] });
    for (path, name) in [("all", "*"), ("other", "other")] {
        let spec = json!({ "type": "generic", "address": format!("{}/{path}", server.url()) });
        make(&stage, namespace, path, spec, &sources(name)).await;
    }
    // The watch begins a moment after the Alert is ready, and reports what is new. An equal event is sent once.
    let failed = |message: &str, number: u32| format!("{message} {number}");
    let mut number = 0;
    let arrive = eventually(SOON, || {
        number += 1;
        let message = failed("install failed", number);
        let (stage, server) = (&stage, &server);
        async move {
            report_release(stage, namespace, "app", &message).await;
            match server.list("/all").is_empty() {
                true => Err("no event has arrived"),
                false => Ok(()),
            }
        }
    });
    arrive.await.unwrap();
    report_release(&stage, namespace, "other", "the last one").await;
    server
        .wait_for("/other", |notice| notice.json()["message"] == "the last one")
        .await
        .unwrap();
    for notice in server.list("/all") {
        let sent = notice.json();
        assert_eq!(sent["involvedObject"]["kind"], "HelmRelease", "{sent}");
        assert_eq!(sent["severity"], "error", "{sent}");
        assert_eq!(sent["reportingController"], "helm-controller", "{sent}");
    }
    let others = server.list("/other");
    assert!(
        others
            .iter()
            .all(|notice| notice.json()["involvedObject"]["name"] == "other")
    );
    stage.shut_down().await;
}
