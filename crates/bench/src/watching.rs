//! The latency of an event: from the moment its write is sent until a watcher has read the event's last byte.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::load::Target;

/// Events that are sent, one after the other.
const EVENTS: usize = 300;
/// Watches on one connection, as in a process with many informers.
const WATCHES_PER_CONNECTION: usize = 50;
/// The pause between two writes: far longer than a write, so that each is measured by itself.
const PAUSE: Duration = Duration::from_millis(25);
/// The bytes before an event's number in the watch's lines.
const MARK: &[u8] = b"\"name\":\"event-";

/// Measures the latency of every event at every one of `watchers`.
pub(crate) async fn measure_latencies(
    target: &Target,
    namespace: &str,
    watchers: usize,
) -> anyhow::Result<Vec<Duration>> {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let writer = target.connect().await?;
    let mut tasks = Vec::new();
    let mut connection = target.connect().await?;
    for number in 0..watchers {
        if number > 0 && number % WATCHES_PER_CONNECTION == 0 {
            connection = target.connect().await?;
        }
        let url = format!("{path}?watch=true&resourceVersion=0&timeoutSeconds=600");
        let body = connection.send("GET", &url, "", Bytes::new()).await?;
        tasks.push(tokio::spawn(read_events(body)));
    }
    // Long enough for the existing objects to arrive.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut sent = Vec::with_capacity(EVENTS);
    for number in 0..EVENTS {
        let object = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("event-{watchers}-{number}")},
            "data": {"text": "x".repeat(400)},
        });
        let body = Bytes::from(object.to_string());
        sent.push(Instant::now());
        writer.call("POST", &path, "application/json", body).await?;
        tokio::time::sleep(PAUSE).await;
    }
    let sent = Arc::new(sent);
    let mut latencies = Vec::with_capacity(EVENTS * watchers);
    for task in tasks {
        let arrived = tokio::time::timeout(Duration::from_secs(60), task)
            .await
            .context("a watcher did not see every event within a minute")???;
        latencies.extend(
            sent.iter()
                .zip(arrived)
                .map(|(sent, arrived)| arrived.saturating_duration_since(*sent)),
        );
    }
    Ok(latencies)
}

/// Returns the arrival time of each event of this measurement.
async fn read_events(mut body: Incoming) -> anyhow::Result<Vec<Instant>> {
    let mut arrived = Vec::with_capacity(EVENTS);
    let mut line = Vec::new();
    while arrived.len() < EVENTS {
        let frame = body.frame().await.context("a watch ended")??;
        let Ok(data) = frame.into_data() else { continue };
        let now = Instant::now();
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if line.ends_with(b"\n") {
                if memchr::memmem::find(&line, MARK).is_some() {
                    arrived.push(now);
                }
                line.clear();
            }
        }
    }
    Ok(arrived)
}
