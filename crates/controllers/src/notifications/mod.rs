//! Sends the events of one lane to the receivers that Alerts name.
//!
//! ```text
//! write_events ──▶ events (bounded, each once in a while) ──[select_alerts]──▶ a queue for each Provider (bounded, at its rate) ──▶ attempts
//! ```
//!
//! No reconciliation waits for this module. An event goes into a queue, and an event that does not fit is lost and reported as lost. Providers do not
//! block each other, except by the limits of their lane, and no lane sees another's events. Waiting events are lost when the process ends. Events
//! about Alerts themselves are not sent: a failure here becomes an event on the Alert, and that event never comes back here.
//!
//! - `failure_event`: reports a failed notification as an event on its Alert.
//! - `release_events`: events of HelmReleases, which helm-controller writes.
//! - `sender`: sends one event to one Provider.

mod failure_event;
pub(crate) mod release_events;
mod sender;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::Timestamp;
use tenure_api::{Alert, ObjectMeta, reason};
use tenure_planner::Event;
use tenure_planner::alert::{
    Candidate, CombinedMetadata, SelectedAlerts, estimate_glance, estimate_work, is_about, may_name, select_alerts,
};
use tenure_planner::alert_event::AlertEvent;
use tenure_planner::list_limits::{ALERTS_LOOKED_AT, ALERTS_SELECTED};
use tenure_tenancy::Placement;

use crate::lane::notification_queue::QueuedNotification;
use crate::lane::{Lane, Shard};
use crate::reconcile_loop::reconciled::Reconciled;
pub(crate) use sender::read_secrets;

use failure_event::{NotificationFailure, write_failure_event};

/// The pause until a Provider may be called again.
const TURN: Duration = Duration::from_millis(100);

/// Queues an event about an object for the receivers of Alerts. The caller does not wait for them.
pub(crate) async fn queue_event<R: Reconciled<Home = Shard>>(shard: &Shard, metadata: &ObjectMeta, event: &Event) {
    if !shard.context.enabled_kinds.is_on(Alert::KIND.name) {
        return;
    }
    let kind = R::KIND;
    let of = (kind.api_version, kind.name, kind.reporter);
    let Some(news) = AlertEvent::new(of, metadata, event, Timestamp::now()) else {
        return;
    };
    queue_news(&shard.lane().await, news);
}

/// Queues an event of a lane for its Alerts, and starts the task that selects them.
fn queue_news(lane: &Arc<Lane>, news: AlertEvent) {
    if !lane.list_shards().iter().any(|shard| has_alerts(shard)) || !lane.notification_queue.queue_news(news) {
        return;
    }
    let lane = Arc::clone(lane);
    tokio::spawn(async move {
        while let Some(news) = lane.notification_queue.next_news() {
            let matched = AssertUnwindSafe(find_wanted(&lane, news)).catch_unwind();
            if matched.await.is_err() {
                tracing::error!("matching an event with Alerts panicked");
            }
        }
    });
}

/// Queues an event for its Provider.
fn hand_on(lane: &Arc<Lane>, notification: QueuedNotification) -> Result<(), String> {
    let name = (
        notification.namespace.clone(),
        notification.alert.spec.provider_ref.name.clone(),
    );
    if !lane.notification_queue.queue_notification(&name, notification)? {
        return Ok(());
    }
    let lane = Arc::clone(lane);
    tokio::spawn(async move {
        while let Some(notification) = lane.notification_queue.next_notification(&name) {
            while !lane.notification_queue.take_turn(&name) {
                tokio::time::sleep(TURN).await;
            }
            let sending = AssertUnwindSafe(send_one(&lane, &notification)).catch_unwind();
            if sending.await.is_err() {
                tracing::error!(namespace = name.0, provider = name.1, "sending to a Provider panicked");
            }
        }
    });
    Ok(())
}

fn has_alerts(shard: &Shard) -> bool {
    !shard.caches.get::<Alert>().is_empty()
}

async fn send_one(lane: &Arc<Lane>, notification: &QueuedNotification) {
    if let Err(problem) = sender::send(lane, notification).await {
        let object = notification.news.object.describe();
        let message = format!("failed to send notification for {object}: {problem}");
        let failure = NotificationFailure::new(reason::NOTIFICATION_DISPATCH_FAILED, message);
        write_failure_event(lane, (&notification.namespace, &notification.alert), failure).await;
    }
}

/// An Alert, with its shard and its placement.
struct SelectedAlert {
    shard: Arc<Shard>,
    alert: Arc<Alert>,
    placement: Arc<Placement>,
}

impl SelectedAlert {
    fn candidate(&self) -> Candidate<'_> {
        Candidate {
            alert: &self.alert,
            placement: &self.placement,
        }
    }
}

/// Returns the Alerts of the lane that select an event and may do so, up to a limit. Those of the event's namespace come first.
async fn list_about(lane: &Lane, news: &AlertEvent) -> Vec<SelectedAlert> {
    let mut found: Vec<SelectedAlert> = Vec::new();
    let mut shards = lane.list_shards();
    shards.sort_by_key(|shard| shard.namespace != news.object.namespace);
    for shard in shards {
        let alerts = shard.caches.get::<Alert>().all();
        let look = || {
            let about = alerts.iter().filter(|alert| is_about(alert, news));
            about.take(ALERTS_LOOKED_AT).cloned().collect::<Vec<_>>()
        };
        let work = alerts.iter().map(|alert| estimate_glance(alert, news)).sum();
        let about = lane.limits.turns.run(work, look).await;
        if about.is_empty() {
            continue;
        }
        let placement = Arc::new(shard.read_placement().await);
        let room = ALERTS_LOOKED_AT.saturating_sub(found.len());
        let seen = about.into_iter().map(|alert| SelectedAlert {
            shard: Arc::clone(&shard),
            alert,
            placement: Arc::clone(&placement),
        });
        found.extend(seen.filter(|seen| may_name(&seen.candidate(), news)).take(room));
    }
    found
}

/// Selects the Alerts for an event, and queues the event for their Providers.
async fn find_wanted(lane: &Arc<Lane>, news: AlertEvent) {
    let about = list_about(lane, &news).await;
    if about.is_empty() {
        return;
    }
    let candidates: Vec<Candidate<'_>> = about.iter().map(SelectedAlert::candidate).collect();
    let work = estimate_work(&candidates, &news);
    let chosen = lane.limits.turns.run(work, || select_alerts(&candidates, &news)).await;
    drop(candidates);
    queue_for_alerts(lane, &about, chosen, Arc::new(news)).await;
}

/// Queues an event for the Providers of the chosen Alerts. A problem becomes an event on the Alert.
async fn queue_for_alerts(lane: &Arc<Lane>, about: &[SelectedAlert], chosen: SelectedAlerts, news: Arc<AlertEvent>) {
    let failed = |problem: &str| {
        let message = format!(
            "failed to dispatch notification for {}: {problem}",
            news.object.describe()
        );
        NotificationFailure::new(reason::NOTIFICATION_DISPATCH_FAILED, message)
    };
    for (index, combined) in chosen.chosen {
        let Some(SelectedAlert { shard, alert, .. }) = about.get(index) else {
            continue;
        };
        let CombinedMetadata { metadata, conflicts } = combined;
        if !conflicts.is_empty() {
            write_failure_event(
                lane,
                (&shard.namespace, alert),
                NotificationFailure::of_conflicts(conflicts),
            )
            .await;
        }
        let notification = QueuedNotification {
            namespace: shard.namespace.clone(),
            alert: Arc::clone(alert),
            news: Arc::clone(&news),
            metadata,
        };
        if let Err(problem) = hand_on(lane, notification) {
            write_failure_event(lane, (&shard.namespace, alert), failed(&problem)).await;
        }
    }
    if let Some(SelectedAlert { shard, alert, .. }) = chosen.too_many.and_then(|index| about.get(index)) {
        let problem = format!(
            "this Alert and others are skipped: at most {ALERTS_SELECTED} Alerts of a tenant send one event, and their lists are compared with a bound: name fewer objects, or use fewer Alerts"
        );
        write_failure_event(lane, (&shard.namespace, alert), failed(&problem)).await;
    }
}
