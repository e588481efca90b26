//! What waits to be told in one lane, how often something was told lately, and what was said of failures. Everything in it has a bound.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenure_api::Alert;
use tenure_cluster::EventHistory;
use tenure_planner::alert::Recent;
use tenure_planner::expression::Purse;
use tenure_planner::news::News;
use tenure_planner::provider::{LETTER_RATE, TENANT_LETTER_RATE};
use tenure_planner::receiver::{Bucket, Rate};

/// How often events about Alerts are written, of all of a lane's.
const COMPLAINT_RATE: Rate = Rate {
    most: 20,
    each: Duration::from_secs(30),
};
/// Alerts whose events are remembered, so that the same is not said again at once.
const HISTORIES: usize = 256;

/// Events that wait until it is known who wants them.
const NEWS: usize = 128;
/// Providers of one lane that something waits for.
const LINES: usize = 256;
/// Events that wait for one Provider.
const LINE: usize = 64;

/// What is to be told to one Provider. Holds nothing of the namespace: that may go meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) namespace: String,
    pub(crate) alert: Arc<Alert>,
    pub(crate) news: Arc<News>,
    pub(crate) metadata: BTreeMap<String, String>,
}

/// Which Provider, or Alert: its namespace and its name.
pub(crate) type Named = (String, String);

/// What waits for one Provider.
#[derive(Debug, Default)]
struct Line {
    parcels: VecDeque<Parcel>,
    is_running: bool,
    bucket: Bucket,
    purse: Purse,
}

#[derive(Debug, Default)]
struct Pages {
    news: VecDeque<News>,
    is_matching: bool,
    lost: u64,
    recent: Recent,
    lines: HashMap<Named, Line>,
    tenant: Bucket,
    complaints: Bucket,
    histories: HashMap<Named, Arc<tokio::sync::Mutex<EventHistory>>>,
}

/// What is kept for one lane.
#[derive(Debug)]
pub(crate) struct HeraldBooks {
    pages: Mutex<Pages>,
    began: Instant,
}

impl Default for HeraldBooks {
    fn default() -> Self {
        Self {
            pages: Mutex::default(),
            began: Instant::now(),
        }
    }
}

impl HeraldBooks {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an event, unless it was told lately; whether somebody has to begin with the list.
    pub(crate) fn take_news(&self, news: News) -> bool {
        let now = self.began.elapsed();
        let mut pages = self.pages();
        if pages.news.len() >= NEWS {
            pages.lost += 1;
            if pages.lost.is_power_of_two() {
                let (namespace, lost) = (news.object.namespace, pages.lost);
                tracing::warn!(
                    namespace,
                    lost,
                    "events come faster than it can be found out who wants them"
                );
            }
            return false;
        }
        if !pages.recent.take(&news, now) {
            return false;
        }
        pages.news.push_back(news);
        !std::mem::replace(&mut pages.is_matching, true)
    }

    /// The next event; when there is none, somebody has to begin again with the next.
    pub(crate) fn next_news(&self) -> Option<News> {
        let mut pages = self.pages();
        let next = pages.news.pop_front();
        pages.is_matching = next.is_some();
        next
    }

    /// Takes what is to be told to a Provider; whether somebody has to begin with its line.
    pub(crate) fn take_parcel(&self, provider: &Named, parcel: Parcel) -> Result<bool, String> {
        let now = self.began.elapsed();
        let mut pages = self.pages();
        if pages.lines.len() >= LINES && !pages.lines.contains_key(provider) {
            pages
                .lines
                .retain(|_, line| line.is_running || !line.bucket.is_full(now));
            if pages.lines.len() >= LINES {
                return Err(format!("more than {LINES} Providers are told something already"));
            }
        }
        let line = pages.lines.entry(provider.clone()).or_default();
        if line.parcels.len() >= LINE {
            return Err(format!(
                "{LINE} events wait for Provider {} already: it is slow, or told too much",
                provider.1
            ));
        }
        line.parcels.push_back(parcel);
        Ok(!std::mem::replace(&mut line.is_running, true))
    }

    /// The next that is to be told to a Provider; when there is nothing, somebody has to begin again with the next.
    pub(crate) fn next_parcel(&self, provider: &Named) -> Option<Parcel> {
        let mut pages = self.pages();
        let line = pages.lines.get_mut(provider)?;
        let next = line.parcels.pop_front();
        line.is_running = next.is_some();
        next
    }

    /// Whether a Provider may be told something now.
    pub(crate) fn take_turn(&self, provider: &Named) -> bool {
        let now = self.began.elapsed();
        let mut pages = self.pages();
        let Pages { lines, tenant, .. } = &mut *pages;
        let Some(line) = lines.get_mut(provider) else {
            return true;
        };
        let mut own = line.bucket;
        // Of both, or of none.
        let is_free = own.take(LETTER_RATE, now) && tenant.take(TENANT_LETTER_RATE, now);
        if is_free {
            line.bucket = own;
        }
        is_free
    }

    /// What the expression of a Provider has spent.
    pub(crate) fn read_purse(&self, provider: &Named) -> Purse {
        let pages = self.pages();
        pages
            .lines
            .get(provider)
            .map(|line| line.purse.clone())
            .unwrap_or_default()
    }

    /// Keeps what it has spent by now.
    pub(crate) fn keep_purse(&self, provider: &Named, purse: Purse) {
        if let Some(line) = self.pages().lines.get_mut(provider) {
            line.purse = purse;
        }
    }

    /// What was said about an Alert, if something more may be said now.
    pub(crate) fn open_history(&self, alert: &Named) -> Option<Arc<tokio::sync::Mutex<EventHistory>>> {
        let now = self.began.elapsed();
        let mut pages = self.pages();
        if !pages.complaints.take(COMPLAINT_RATE, now) {
            return None;
        }
        if pages.histories.len() >= HISTORIES && !pages.histories.contains_key(alert) {
            pages.histories.clear();
        }
        Some(Arc::clone(pages.histories.entry(alert.clone()).or_default()))
    }

    /// Whether nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        let pages = self.pages();
        !pages.is_matching && !pages.lines.values().any(|line| line.is_running)
    }
}
