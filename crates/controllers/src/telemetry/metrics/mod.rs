//! Metrics of the controllers' work. They have the names of Flux and controller-runtime, so that existing dashboards and alerts keep working, and
//! names of our own where those have no metric.
//!
//! States of objects are read at each scrape (`state`). Durations of attempts are stored here (`durations`). For both, each tenant has a bounded
//! share of series (`share`), and the excess is counted without names. The process of a lane stores nothing: it reports to the hub (`report`), and
//! the hub accepts only what the lane may report. No label holds user-written text except names, a revision, and an address without its secret parts.

mod durations;
mod histogram;
mod report;
mod share;
mod state;
mod work;
mod write;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use tenure_cluster::RequestCounts;

use crate::cluster_view::key::Key;
use durations::Durations;
pub(crate) use report::{Attempt, Report};
use report::{Gauges, Outbox};
pub(crate) use state::{Described, ObjectSample, StateView};
pub(crate) use work::Outcome;
use work::WorkTable;

/// The source of the metrics about access to Git hosts. The access hub implements it.
pub(crate) trait AccessView: std::fmt::Debug + Send + Sync {
    /// Writes the metric families about access, in the text form of Prometheus.
    fn write(&self, out: &mut String);
}

/// The metrics of the controllers. Cheap to clone; all clones share one state, also before the controllers run and after they end.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    durations: Mutex<Durations>,
    work: Mutex<WorkTable>,
    /// In the process of a lane: metrics that wait to be sent.
    outbox: Mutex<Option<Outbox>>,
    /// The last report of each lane's process.
    lanes: Mutex<BTreeMap<String, Gauges>>,
    /// Knows the state of objects; `None` while another process leads.
    view: RwLock<Option<Weak<dyn StateView>>>,
    requests: RwLock<Option<RequestCounts>>,
    access: RwLock<Option<Weak<dyn AccessView>>>,
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Metrics {
    /// Sets the source of the objects' state.
    pub(crate) fn set_view(&self, view: Weak<dyn StateView>) {
        *self.0.view.write().unwrap_or_else(PoisonError::into_inner) = Some(view);
    }

    /// Sets the source of the state of access.
    pub(crate) fn set_access(&self, view: Weak<dyn AccessView>) {
        *self.0.access.write().unwrap_or_else(PoisonError::into_inner) = Some(view);
    }

    fn access(&self) -> Option<Arc<dyn AccessView>> {
        let view = self.0.access.read().unwrap_or_else(PoisonError::into_inner);
        view.as_ref()?.upgrade()
    }

    fn view(&self) -> Option<Arc<dyn StateView>> {
        let view = self.0.view.read().unwrap_or_else(PoisonError::into_inner);
        view.as_ref()?.upgrade()
    }

    /// Sets the counters of requests to the API server.
    pub(crate) fn set_requests(&self, requests: RequestCounts) {
        *self.0.requests.write().unwrap_or_else(PoisonError::into_inner) = Some(requests);
    }

    fn requests(&self) -> Option<RequestCounts> {
        let requests = self.0.requests.read().unwrap_or_else(PoisonError::into_inner);
        requests.clone()
    }

    /// Stores nothing from now on, except what has to be sent to the hub.
    pub(crate) fn keep_for_hub(&self) {
        *lock(&self.0.outbox) = Some(Outbox::default());
    }

    /// Counts an object as waiting for capacity in its lane, until the returned value is dropped or [`WaitingGuard::start_work`] is called.
    pub(crate) fn wait(&self, key: &Key) -> WaitingGuard {
        lock(&self.0.work).kind_metrics(key.kind.name).waiting += 1;
        WaitingGuard {
            metrics: self.clone(),
            kind: key.kind.name,
            since: Instant::now(),
        }
    }

    /// Counts an attempt that has ended. `exists` says whether its object still exists.
    pub(crate) fn take_attempt(&self, key: &Key, took: Duration, outcome: Outcome, exists: impl FnOnce() -> bool) {
        if let Some(outbox) = lock(&self.0.outbox).as_mut() {
            outbox.take_attempt(key, took, outcome);
            return;
        }
        lock(&self.0.work)
            .kind_metrics(key.kind.name)
            .take_attempt(took, outcome);
        let view = self.view();
        let mut durations = lock(&self.0.durations);
        // Asked under the lock of `forget`, so that a deleted object gets no series any more.
        let owner = view.filter(|_| exists()).map(|view| view.find_owner(&key.namespace));
        durations.record_attempt(key, owner, took);
    }

    /// Removes the series of a deleted object.
    pub(crate) fn forget(&self, key: &Key) {
        lock(&self.0.durations).forget(key);
    }

    /// Takes the report of a lane's process; `None` if nothing changed.
    pub(crate) fn take_report(&self) -> Option<Report> {
        let counts = self.requests().map(|requests| requests.take_all());
        let gauges = lock(&self.0.work).read_gauges(Instant::now());
        lock(&self.0.outbox)
            .as_mut()?
            .take_report(gauges, counts.unwrap_or_default())
    }

    /// Adds a report of a lane's process about these kinds. `find` finds one of the lane's objects, if it exists.
    pub(crate) fn take_from_lane(
        &self,
        (lane, kinds): (&str, &[&'static str]),
        report: Report,
        find: impl Fn(&Attempt) -> Option<Key>,
    ) -> Result<(), String> {
        report.check()?;
        for attempt in &report.attempts {
            if let Some(key) = find(attempt) {
                self.take_attempt(&key, attempt.duration(), attempt.outcome, || true);
            }
        }
        let mut work = lock(&self.0.work);
        for turn in &report.turns {
            if let Some(kind) = kinds.iter().find(|kind| **kind == turn.kind) {
                work.kind_metrics(kind)
                    .take_turn(turn.wait_duration(), turn.work_duration());
            }
        }
        work.lost = work.lost.saturating_add(report.lost);
        drop(work);
        if let Some(requests) = self.requests() {
            requests.add(&report.requests);
        }
        let mut gauges = report.gauges;
        gauges.retain(|kind, _| kinds.contains(&kind.as_str()));
        lock(&self.0.lanes).insert(lane.to_owned(), gauges);
        Ok(())
    }

    /// Removes the gauges of a lane whose process has ended.
    pub(crate) fn forget_lane(&self, lane: &str) {
        lock(&self.0.lanes).remove(lane);
    }
}

/// Counts an object as waiting for capacity, until this value is dropped.
#[derive(Debug)]
pub(crate) struct WaitingGuard {
    metrics: Metrics,
    kind: &'static str,
    since: Instant,
}

impl WaitingGuard {
    /// Counts the object as running, until the returned value is dropped.
    pub(crate) fn start_work(self) -> WorkingGuard {
        let (waited, now) = (self.since.elapsed(), Instant::now());
        let number = lock(&self.metrics.0.work).add_running(self.kind, now);
        WorkingGuard {
            metrics: self.metrics.clone(),
            kind: self.kind,
            number,
            waited,
            since: now,
        }
    }
}

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        lock(&self.metrics.0.work).kind_metrics(self.kind).waiting -= 1;
    }
}

/// Counts an object as running, and measures for how long, until this value is dropped.
#[derive(Debug)]
pub(crate) struct WorkingGuard {
    metrics: Metrics,
    kind: &'static str,
    number: u64,
    waited: Duration,
    since: Instant,
}

impl Drop for WorkingGuard {
    fn drop(&mut self) {
        let worked = self.since.elapsed();
        let mut work = lock(&self.metrics.0.work);
        work.remove_running(self.number);
        if let Some(outbox) = lock(&self.metrics.0.outbox).as_mut() {
            outbox.take_turn(self.kind, self.waited, worked);
        } else {
            work.kind_metrics(self.kind).take_turn(self.waited, worked);
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_api::Kustomization;

    use super::*;
    use crate::reconcile_loop::reconciled::Reconciled as _;

    /// A lane's reports about another lane's objects, about unknown kinds, or with absurd durations, create no series.
    #[test]
    fn reports_about_other_lanes_objects_create_no_series() {
        let (hub, lane) = (Metrics::default(), Metrics::default());
        lane.keep_for_hub();
        let key = |namespace: &str| Key::new(Kustomization::KIND, namespace, "apps");
        for namespace in ["own", "foreign"] {
            drop(lane.wait(&key(namespace)).start_work());
            lane.take_attempt(&key(namespace), Duration::from_millis(5), Outcome::Success, || true);
        }
        let mut report = lane.take_report().unwrap();
        let made_up = report.gauges.get("Kustomization").cloned().unwrap_or_default();
        report.gauges.insert("MadeUp".to_owned(), made_up);
        let find = |attempt: &Attempt| (attempt.namespace == "own").then(|| key(&attempt.namespace));
        let of = ("tenant/own", &["Kustomization"][..]);
        assert_eq!(hub.take_from_lane(of, report, find), Ok(()));
        let mut out = String::new();
        hub.write(&mut out);
        let total = "controller_runtime_reconcile_total{controller=\"kustomization\",result=\"success\"} 1\n";
        assert!(out.contains(total), "{out}");
        assert!(out.contains(
            "workqueue_work_duration_seconds_count{controller=\"kustomization\",name=\"kustomization\"} 2\n"
        ));
        assert!(
            !out.contains("foreign") && !out.to_lowercase().contains("madeup"),
            "{out}"
        );
    }
}
