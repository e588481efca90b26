//! What is counted and measured of the controllers' work, for who watches over them: under Flux's and controller-runtime's names, so that the
//! dashboards and alerts that exist go on working, and under our own where there is none.
//!
//! Owns the numbers. What objects are like is looked up when it is asked for (`state`), what their attempts took is kept here (`durations`);
//! of both, how much one tenant can make of it is bounded (`share`), and what is beyond is counted without names. The process of a lane keeps
//! nothing: it tells the hub (`report`), which believes of it what it may say. No label holds what a user wrote but names, a revision, and an
//! address without what is secret in it.

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

use crate::key::Key;
use durations::Durations;
pub(crate) use report::{Attempt, Report};
use report::{Gauges, Outbox};
pub(crate) use state::{Described, Seen, StateView};
pub(crate) use work::Outcome;
use work::WorkTable;

/// Who knows what there is of access to hosts of repositories.
pub(crate) trait AccessView: std::fmt::Debug + Send + Sync {
    /// Writes its families.
    fn write(&self, out: &mut String);
}

/// What the controllers count. Cheap to clone; all clones tell the same, before the controllers run and after they end, too.
#[derive(Clone, Debug, Default)]
pub struct Figures(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    durations: Mutex<Durations>,
    work: Mutex<WorkTable>,
    /// In the process of a lane: what is to be told.
    outbox: Mutex<Option<Outbox>>,
    /// What the processes of lanes have told last, by lane.
    lanes: Mutex<BTreeMap<String, Gauges>>,
    /// Who knows what there is; nobody, while another process leads.
    view: RwLock<Option<Weak<dyn StateView>>>,
    requests: RwLock<Option<RequestCounts>>,
    access: RwLock<Option<Weak<dyn AccessView>>>,
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Figures {
    /// Sets who knows what there is.
    pub(crate) fn set_view(&self, view: Weak<dyn StateView>) {
        *self.0.view.write().unwrap_or_else(PoisonError::into_inner) = Some(view);
    }

    /// Sets who knows what there is of access.
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

    /// Sets where requests to the API server are counted.
    pub(crate) fn set_requests(&self, requests: RequestCounts) {
        *self.0.requests.write().unwrap_or_else(PoisonError::into_inner) = Some(requests);
    }

    fn requests(&self) -> Option<RequestCounts> {
        let requests = self.0.requests.read().unwrap_or_else(PoisonError::into_inner);
        requests.clone()
    }

    /// Keeps nothing from now on, but what is to be told the hub.
    pub(crate) fn keep_for_hub(&self) {
        *lock(&self.0.outbox) = Some(Outbox::default());
    }

    /// An object waits for room in its lane, until what is returned is dropped or begins.
    pub(crate) fn wait(&self, key: &Key) -> Waiting {
        lock(&self.0.work).of(key.kind.name).waiting += 1;
        Waiting {
            figures: self.clone(),
            kind: key.kind.name,
            since: Instant::now(),
        }
    }

    /// An attempt is over. `exists` says whether its object is there still.
    pub(crate) fn take_attempt(&self, key: &Key, took: Duration, outcome: Outcome, exists: impl FnOnce() -> bool) {
        if let Some(outbox) = lock(&self.0.outbox).as_mut() {
            outbox.take_attempt(key, took, outcome);
            return;
        }
        lock(&self.0.work).of(key.kind.name).take_attempt(took, outcome);
        let view = self.view();
        let mut durations = lock(&self.0.durations);
        // Asked under the lock under which it is forgotten: what is gone gets no series any more.
        let owner = view.filter(|_| exists()).map(|view| view.find_owner(&key.namespace));
        durations.take(key, owner, took);
    }

    /// An object is gone.
    pub(crate) fn forget(&self, key: &Key) {
        lock(&self.0.durations).forget(key);
    }

    /// What the process of a lane has to tell; nothing when there is no news.
    pub(crate) fn take_report(&self) -> Option<Report> {
        let counts = self.requests().map(|requests| requests.take_all());
        let gauges = lock(&self.0.work).read_gauges(Instant::now());
        lock(&self.0.outbox)
            .as_mut()?
            .take_report(gauges, counts.unwrap_or_default())
    }

    /// Takes what the process of a lane tells of these kinds. `find` finds an object of its, if it is there.
    pub(crate) fn take_from_lane(
        &self,
        (lane, kinds): (&str, &[&'static str]),
        report: Report,
        find: impl Fn(&Attempt) -> Option<Key>,
    ) -> Result<(), String> {
        report.check()?;
        for attempt in &report.attempts {
            if let Some(key) = find(attempt) {
                self.take_attempt(&key, attempt.took(), attempt.outcome, || true);
            }
        }
        let mut work = lock(&self.0.work);
        for turn in &report.turns {
            if let Some(kind) = kinds.iter().find(|kind| **kind == turn.kind) {
                work.of(kind).take_turn(turn.waited(), turn.worked());
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

    /// The process of a lane has ended.
    pub(crate) fn forget_lane(&self, lane: &str) {
        lock(&self.0.lanes).remove(lane);
    }
}

/// Who waits for room.
#[derive(Debug)]
pub(crate) struct Waiting {
    figures: Figures,
    kind: &'static str,
    since: Instant,
}

impl Waiting {
    /// There is room, until what is returned is dropped.
    pub(crate) fn begin(self) -> Working {
        let (waited, now) = (self.since.elapsed(), Instant::now());
        let number = lock(&self.figures.0.work).begin(self.kind, now);
        Working {
            figures: self.figures.clone(),
            kind: self.kind,
            number,
            waited,
            since: now,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        lock(&self.figures.0.work).of(self.kind).waiting -= 1;
    }
}

/// Who has room, and works.
#[derive(Debug)]
pub(crate) struct Working {
    figures: Figures,
    kind: &'static str,
    number: u64,
    waited: Duration,
    since: Instant,
}

impl Drop for Working {
    fn drop(&mut self) {
        let worked = self.since.elapsed();
        let mut work = lock(&self.figures.0.work);
        work.end(self.number);
        if let Some(outbox) = lock(&self.figures.0.outbox).as_mut() {
            outbox.take_turn(self.kind, self.waited, worked);
        } else {
            work.of(self.kind).take_turn(self.waited, worked);
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_api::Kustomization;

    use super::*;
    use crate::reconciled::Reconciled as _;

    /// What a lane may say of another's objects, of kinds that there are not, and how long, makes no series.
    #[test]
    fn a_lane_speaks_for_itself_alone() {
        let (hub, lane) = (Figures::default(), Figures::default());
        lane.keep_for_hub();
        let key = |namespace: &str| Key::new(Kustomization::KIND, namespace, "apps");
        for namespace in ["own", "foreign"] {
            drop(lane.wait(&key(namespace)).begin());
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
