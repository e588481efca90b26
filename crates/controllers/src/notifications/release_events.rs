//! Follows the Kubernetes Events that helm-controller writes about HelmReleases, in the namespaces that Alerts of a lane name.
//!
//! The lane watches as itself, so it sees only namespaces in which it has its rights. One watch for a namespace is enough for all Alerts of the lane. A tenant can write
//! Events in its own namespace, and only its own Alerts get them. Events before the start of a watch are not sent.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tenure_api::Alert;
use tenure_cluster::{Client, Resource, WatchEvent, watch_new};
use tenure_planner::alert::{list_release_namespaces, needs_release_labels};
use tenure_planner::alert_event::{AlertEvent, RELEASE_EVENTS};
use tenure_tenancy::Placement;
use tokio::sync::mpsc;

use super::queue_news;
use crate::lane::{Lane, Shard};

/// The kinds that the lane reads here.
const EVENT: (&str, &str) = ("v1", "Event");
const HELM_RELEASE: (&str, &str) = ("helm.toolkit.fluxcd.io/v2", "HelmRelease");
/// The pause until a kind is looked up again that the API server doesn't serve.
const PAUSE: Duration = Duration::from_secs(30);
/// The limit of Events of one watch that wait for their Alerts. More are lost.
const WAITING: usize = 64;

/// Opens and closes watches after an Alert of a namespace changed.
pub(crate) async fn refresh_watches(lane: &Arc<Lane>, shard: &Shard, placement: &Placement) {
    let alerts = shard.caches.get::<Alert>().all();
    let list = || list_release_namespaces(&alerts, placement);
    let named = lane.limits.turns.run(0, list).await;
    let is_in_lane = |namespace: &str| lane.find_shard(namespace).is_some();
    let open = |namespace: &str| tokio::spawn(follow(Arc::downgrade(lane), lane.act_as_itself(), namespace.to_owned()));
    lane.release_watches.update(&shard.namespace, named, is_in_lane, open);
}

/// Follows the Events of a namespace, and queues each for the Alerts of the lane.
async fn follow(lane: Weak<Lane>, client: Client, namespace: String) {
    let events = loop {
        match client.resource(EVENT.0, EVENT.1).await {
            Ok(events) => break events,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    };
    let (sender, mut receiver) = mpsc::channel::<AlertEvent>(WAITING);
    let sink = |event: WatchEvent| match event {
        WatchEvent::Changed(object) => {
            let stored = object.read().unwrap_or_default();
            if let Some(news) = AlertEvent::from_stored(&stored, &namespace, Timestamp::now())
                && sender.try_send(news).is_err()
            {
                // A tenant writes any number of Events, so this is no warning in the log.
                tracing::debug!(
                    namespace,
                    "events of HelmReleases arrive faster than they can be matched with Alerts"
                );
            }
        }
        WatchEvent::Failed(error) => {
            tracing::debug!(namespace, %error, "events of HelmReleases can't be watched");
        }
        _ => {}
    };
    let watching = watch_new(&client, &events, &namespace, RELEASE_EVENTS, sink);
    let sending = async {
        while let Some(mut news) = receiver.recv().await {
            let Some(lane) = lane.upgrade() else { return };
            if needs_labels(&lane) {
                news.labels = read_labels(&client, &news).await;
            }
            queue_news(&lane, news);
        }
    };
    tokio::select! {
        never = watching => match never {},
        () = sending => {}
    }
}

/// Checks whether an Alert of the lane selects HelmReleases by labels.
fn needs_labels(lane: &Lane) -> bool {
    let mut shards = lane.list_shards().into_iter();
    shards.any(|shard| {
        let alerts = shard.caches.get::<Alert>().all();
        alerts.iter().any(|alert| needs_release_labels(alert))
    })
}

/// Reads the labels of the HelmRelease. An Event has none.
async fn read_labels(client: &Client, news: &AlertEvent) -> BTreeMap<String, String> {
    let read = async |resource: &Resource| client.get(resource, &news.object.namespace, &news.object.name).await;
    let found: Value = match client.resource(HELM_RELEASE.0, HELM_RELEASE.1).await {
        Ok(resource) => read(&resource).await.unwrap_or_default(),
        Err(_) => Value::Null,
    };
    let labels = found.pointer("/metadata/labels").cloned().unwrap_or_default();
    serde_json::from_value(labels).unwrap_or_default()
}
