//! The waiting events of one lane, the rates of recent events, and the reports of failures. Everything here is bounded.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenure_api::Alert;
use tenure_cluster::EventHistory;
use tenure_planner::alert::RecentEvents;
use tenure_planner::alert_event::AlertEvent;
use tenure_planner::expression::EvaluationBudget;
use tenure_planner::provider::{NOTIFICATION_RATE, TENANT_NOTIFICATION_RATE};
use tenure_planner::receiver::{Rate, TokenBucket};

/// The rate of events about Alerts, for all Alerts of a lane.
const COMPLAINT_RATE: Rate = Rate {
    most: 20,
    each: Duration::from_secs(30),
};
/// The limit of Alerts whose event history is stored, to avoid repeated events.
const HISTORIES: usize = 256;

/// The limit of events that wait for the selection of their Alerts.
const NEWS: usize = 128;
/// The limit of Providers of one lane with waiting events.
const LINES: usize = 256;
/// The limit of events that wait for one Provider.
const LINE: usize = 64;

/// An event for one Provider. It holds nothing of the namespace's state, because the namespace may be deleted meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct QueuedNotification {
    pub(crate) namespace: String,
    pub(crate) alert: Arc<Alert>,
    pub(crate) news: Arc<AlertEvent>,
    pub(crate) metadata: BTreeMap<String, String>,
}

/// Namespace and name of a Provider or an Alert.
pub(crate) type NamespacedName = (String, String);

/// The events that wait for one Provider.
#[derive(Debug, Default)]
struct ProviderQueue {
    waiting: VecDeque<QueuedNotification>,
    is_running: bool,
    bucket: TokenBucket,
    purse: EvaluationBudget,
}

/// The events that wait for the selection of their Alerts, the queue of each Provider, and the rates of the lane.
#[derive(Debug, Default)]
struct QueueState {
    news: VecDeque<AlertEvent>,
    is_matching: bool,
    lost: u64,
    recent: RecentEvents,
    lines: HashMap<NamespacedName, ProviderQueue>,
    tenant: TokenBucket,
    complaints: TokenBucket,
    histories: HashMap<NamespacedName, Arc<tokio::sync::Mutex<EventHistory>>>,
}

/// The events of one lane that wait for Alerts and Providers, and the rates at which Providers are called.
#[derive(Debug)]
pub(crate) struct NotificationQueue {
    state: Mutex<QueueState>,
    began: Instant,
}

impl Default for NotificationQueue {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            began: Instant::now(),
        }
    }
}

impl NotificationQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an event, unless it was sent recently. Returns whether the caller has to start the processing of the queue.
    pub(crate) fn queue_news(&self, news: AlertEvent) -> bool {
        let now = self.began.elapsed();
        let mut state = self.state();
        if state.news.len() >= NEWS {
            state.lost += 1;
            if state.lost.is_power_of_two() {
                let (namespace, lost) = (news.object.namespace, state.lost);
                tracing::warn!(
                    namespace,
                    lost,
                    "events arrive faster than they can be matched with Alerts"
                );
            }
            return false;
        }
        if !state.recent.record_if_new(&news, now) {
            return false;
        }
        state.news.push_back(news);
        !std::mem::replace(&mut state.is_matching, true)
    }

    /// Takes the next event. After `None`, the caller of `queue_news` has to start the processing again.
    pub(crate) fn next_news(&self) -> Option<AlertEvent> {
        let mut state = self.state();
        let next = state.news.pop_front();
        state.is_matching = next.is_some();
        next
    }

    /// Queues an event for a Provider. Returns whether the caller has to start the processing of the Provider's queue.
    pub(crate) fn queue_notification(
        &self,
        provider: &NamespacedName,
        notification: QueuedNotification,
    ) -> Result<bool, String> {
        let now = self.began.elapsed();
        let mut state = self.state();
        if state.lines.len() >= LINES && !state.lines.contains_key(provider) {
            state
                .lines
                .retain(|_, line| line.is_running || !line.bucket.is_full(now));
            if state.lines.len() >= LINES {
                return Err(format!("more than {LINES} Providers receive events already"));
            }
        }
        let line = state.lines.entry(provider.clone()).or_default();
        if line.waiting.len() >= LINE {
            return Err(format!(
                "{LINE} events wait for Provider {} already: it is slow, or receives too many events",
                provider.1
            ));
        }
        line.waiting.push_back(notification);
        Ok(!std::mem::replace(&mut line.is_running, true))
    }

    /// Takes the next event for a Provider. After `None`, the caller of `queue_notification` has to start the processing again.
    pub(crate) fn next_notification(&self, provider: &NamespacedName) -> Option<QueuedNotification> {
        let mut state = self.state();
        let line = state.lines.get_mut(provider)?;
        let next = line.waiting.pop_front();
        line.is_running = next.is_some();
        next
    }

    /// Checks the rates, and returns whether a Provider may be called now.
    pub(crate) fn take_turn(&self, provider: &NamespacedName) -> bool {
        let now = self.began.elapsed();
        let mut state = self.state();
        let QueueState { lines, tenant, .. } = &mut *state;
        let Some(line) = lines.get_mut(provider) else {
            return true;
        };
        let mut own = line.bucket;
        // Take from both buckets, or from neither.
        let is_free = own.take_token(NOTIFICATION_RATE, now) && tenant.take_token(TENANT_NOTIFICATION_RATE, now);
        if is_free {
            line.bucket = own;
        }
        is_free
    }

    /// Returns the cost budget of a Provider's expression.
    pub(crate) fn read_budget(&self, provider: &NamespacedName) -> EvaluationBudget {
        let state = self.state();
        state
            .lines
            .get(provider)
            .map(|line| line.purse.clone())
            .unwrap_or_default()
    }

    /// Stores the cost budget of a Provider's expression.
    pub(crate) fn store_budget(&self, provider: &NamespacedName, purse: EvaluationBudget) {
        if let Some(line) = self.state().lines.get_mut(provider) {
            line.purse = purse;
        }
    }

    /// Returns the event history of an Alert, if the rate allows one more event now.
    pub(crate) fn open_history(&self, alert: &NamespacedName) -> Option<Arc<tokio::sync::Mutex<EventHistory>>> {
        let now = self.began.elapsed();
        let mut state = self.state();
        if !state.complaints.take_token(COMPLAINT_RATE, now) {
            return None;
        }
        if state.histories.len() >= HISTORIES && !state.histories.contains_key(alert) {
            state.histories.clear();
        }
        Some(Arc::clone(state.histories.entry(alert.clone()).or_default()))
    }

    /// Checks whether no event waits.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state();
        !state.is_matching && !state.lines.values().any(|line| line.is_running)
    }
}
