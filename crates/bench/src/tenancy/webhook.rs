//! The time of the webhook for a review, inside its handler: from the body to the answer, with its requests to the API server. Reviews with a reservation are reported
//! separately. Connections are not included, because an API server keeps them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures::future::try_join_all;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tenure_admission::webhook::{KnownFacts, Phase, ReviewDecider, WebhookServer};
use tenure_api::metadata::{CONTROLLER_SERVICE_ACCOUNT, PLATFORM_NAMESPACE};
use tenure_cluster::{ClientPool, Connection, Token};
use tenure_tenancy::Settings;

use super::stage::{CLIENTS, LARGE, Stage, list_namespaces, name_owner, name_tenant, write_namespace};
use crate::report::{Report, find_percentile, format_time};

/// Bytes of the objects with which one tenant disturbs the others, and how many of these are sent at once.
const HUGE: usize = 3 << 20;
const HUGE_AT_ONCE: usize = 4;
/// The validity of the token for requests to the API server.
const TOKEN_SECONDS: i64 = 3600;

/// Measures with this many stored Tenants, and this many reviews of each client.
pub(super) async fn measure(tenants: usize, asked: usize, report: &mut Report) -> anyhow::Result<()> {
    let stage = Stage::set(None, tenants).await?;
    let token = stage
        .server
        .service_account_token(PLATFORM_NAMESPACE, CONTROLLER_SERVICE_ACCOUNT, TOKEN_SECONDS);
    let token = token.map_err(|error| anyhow::anyhow!("{error:?}"))?;
    let connection = Connection::in_process(stage.server.service(), Token::new(token, None));
    let client = ClientPool::new(connection).controller();
    let known = KnownFacts::new(Settings::default());
    let webhook = Arc::new(WebhookServer::new(
        ReviewDecider::new(known.clone(), client.clone()),
        None,
    ));
    let following = tokio::spawn({
        let known = known.clone();
        async move { known.follow(client).await }
    });
    for _ in 0..6_000 {
        if known.check_start().is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    known.check_start()?;
    let uids = read_uids(&stage, tenants).await?;
    let many = format!("webhook, {tenants} Tenants stored, {CLIENTS} clients, 4 KB");

    // Rights are requested once, and cached for seconds.
    ask_all(&webhook, tenants, asked.min(50)).await?;
    let mut plain = ask_all(&webhook, tenants, asked).await?;
    add_row(
        report,
        &format!("{many}: a review of which nothing is reserved"),
        &mut plain,
        "p99 2 ms",
    );

    let mut reserved = reserve_all(&webhook, &uids, asked).await?;
    add_row(
        report,
        &format!("{many}: a namespace, whose place is reserved"),
        &mut reserved,
        "p99 20 ms",
    );

    let is_over = Arc::new(AtomicBool::new(false));
    let sending = (0..HUGE_AT_ONCE).map(|number| {
        let (webhook, is_over) = (Arc::clone(&webhook), Arc::clone(&is_over));
        tokio::spawn(async move {
            let review = write_config_map(0, &format!("huge-{number}"), HUGE).to_string();
            let mut count = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                review_once(&webhook, review.as_bytes(), true).await?;
                count += 1;
            }
            Ok::<_, anyhow::Error>(count)
        })
    });
    let sending: Vec<_> = sending.collect();
    let beside = ask_all(&webhook, tenants, asked).await;
    is_over.store(true, Ordering::Relaxed);
    let mut sent = 0;
    for sender in sending {
        sent += sender.await??;
    }
    add_row(
        report,
        &format!("{many}: the same beside one tenant that sends objects of 3 MiB ({sent} answered)"),
        &mut beside?,
        "p99 10 ms",
    );
    following.abort();
    Ok(())
}

fn add_row(report: &mut Report, what: &str, took: &mut [Duration], bar: &'static str) {
    let count = took.len();
    report.add(
        format!("{what} (p50, p99 of {count})"),
        format!(
            "{}, {}",
            format_time(find_percentile(took, 0.5)),
            format_time(find_percentile(took, 0.99))
        ),
        None,
        bar,
    );
}

async fn read_uids(stage: &Stage, tenants: usize) -> anyhow::Result<Vec<String>> {
    let mut uids = Vec::new();
    for index in 0..tenants {
        let path = format!("/apis/capsule.clastix.io/v1beta2/tenants/{}", name_tenant(index));
        let tenant = stage.send("GET", &path, "", &Value::Null).await?;
        let uid = tenant.pointer("/metadata/uid").and_then(Value::as_str);
        uids.push(uid.context("a Tenant without a uid")?.to_owned());
    }
    Ok(uids)
}

/// Returns the time of one review.
async fn review_once(webhook: &WebhookServer, body: &[u8], is_allowed: bool) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let answer = webhook.judge(Phase::Validating, body, true).await;
    let took = began.elapsed();
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    if answer.pointer("/response/allowed").and_then(Value::as_bool) != Some(is_allowed) {
        bail!("a review was answered so: {status} {}", String::from_utf8_lossy(&body));
    }
    Ok(took)
}

/// Runs clients at the same time, each with repeated reviews.
async fn ask_all(webhook: &Arc<WebhookServer>, tenants: usize, asked: usize) -> anyhow::Result<Vec<Duration>> {
    let clients = (0..CLIENTS).map(|client| {
        let webhook = Arc::clone(webhook);
        // Tenant 0 disturbs the others.
        let index = if tenants > 1 { 1 + client % (tenants - 1) } else { 0 };
        let reviews = [
            (write_config_map(index, "text", LARGE).to_string(), true),
            (write_pod(index, "registry.example/app:1").to_string(), true),
            (write_pod(index, "elsewhere.example/app:1").to_string(), false),
        ];
        async move {
            let asking = tokio::spawn(async move {
                let mut took = Vec::with_capacity(asked);
                for (review, is_allowed) in reviews.iter().cycle().take(asked) {
                    took.push(review_once(&webhook, review.as_bytes(), *is_allowed).await?);
                }
                Ok::<_, anyhow::Error>(took)
            });
            asking.await?
        }
    });
    Ok(try_join_all(clients).await?.concat())
}

/// Runs clients that create namespaces, each in other Tenants: a reservation lasts half a minute, and a Tenant has only a limited number.
async fn reserve_all(webhook: &Arc<WebhookServer>, uids: &[String], asked: usize) -> anyhow::Result<Vec<Duration>> {
    // The capacity of one Tenant within half a minute.
    let most = uids.len().saturating_mul(100) / CLIENTS;
    let each = asked.min(most).max(1);
    let clients = (0..CLIENTS).map(|client| {
        let webhook = Arc::clone(webhook);
        let namespaces: Vec<String> = (0..each)
            .filter_map(|number| {
                let index = (client + number * CLIENTS) % uids.len().max(1);
                let name = format!("tenant-{index}-more-{client}-{number}");
                Some(write_new_namespace(index, &name, uids.get(index)?).to_string())
            })
            .collect();
        async move {
            let asking = tokio::spawn(async move {
                let mut took = Vec::with_capacity(namespaces.len());
                for review in &namespaces {
                    took.push(review_once(&webhook, review.as_bytes(), true).await?);
                }
                Ok::<_, anyhow::Error>(took)
            });
            asking.await?
        }
    });
    Ok(try_join_all(clients).await?.concat())
}

fn write_review(index: usize, resource: Value, (namespace, name): (&str, &str), object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "a-uid", "operation": "CREATE", "resource": resource, "namespace": namespace, "name": name,
            "userInfo": { "username": name_owner(index), "groups": ["system:authenticated"] },
            "object": object
        }
    })
}

/// Returns the namespace in which a Tenant's owner writes.
fn choose_namespace(index: usize) -> String {
    list_namespaces(index).pop().unwrap_or_default()
}

fn write_config_map(index: usize, name: &str, bytes: usize) -> Value {
    let namespace = choose_namespace(index);
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": namespace },
        "data": { "text": "x".repeat(bytes) }
    });
    let resource = json!({ "group": "", "version": "v1", "resource": "configmaps" });
    write_review(index, resource, (&namespace, name), &object)
}

fn write_pod(index: usize, image: &str) -> Value {
    let namespace = choose_namespace(index);
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "pod", "namespace": namespace, "annotations": { "text": "x".repeat(LARGE) } },
        "spec": { "containers": [{ "name": "app", "image": image, "imagePullPolicy": "Always" }] }
    });
    let resource = json!({ "group": "", "version": "v1", "resource": "pods" });
    write_review(index, resource, (&namespace, "pod"), &object)
}

fn write_new_namespace(index: usize, name: &str, tenant_uid: &str) -> Value {
    let mut object = write_namespace(name, index, tenant_uid);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("annotations".to_owned(), json!({ "text": "x".repeat(LARGE) }));
    }
    let resource = json!({ "group": "", "version": "v1", "resource": "namespaces" });
    write_review(index, resource, (name, name), &object)
}
