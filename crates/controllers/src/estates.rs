//! The tasks of each Tenant and namespace that this instance works on, so that they can be ended and waited for. Where there is one instance
//! only, everything is worked on.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_api::Tenant;
use tenure_tenancy::Estate;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::key::Key;
use crate::reconciled::Reconciled as _;

/// How long rounds that are under way may take to their end. What they ask of an API server ends sooner.
const LEAVING: Duration = Duration::from_secs(60);

/// The tasks of one estate.
#[derive(Clone, Debug)]
struct EstateTasks {
    tasks: TaskTracker,
    /// What is under way comes to its end.
    end: CancellationToken,
    /// What is under way ends where it is.
    abort: CancellationToken,
}

/// What this instance works on.
#[derive(Debug)]
pub(crate) struct EstateTable {
    /// Where there is one instance only: the tasks of everything.
    all: Option<EstateTasks>,
    begun: Mutex<HashMap<Estate, EstateTasks>>,
    everything: TaskTracker,
    end: CancellationToken,
}

impl EstateTable {
    /// What is worked on ends with `end`; its tasks are among `everything`.
    pub(crate) fn new(is_only: bool, everything: &TaskTracker, end: &CancellationToken) -> Self {
        Self {
            all: is_only.then(|| EstateTasks {
                tasks: everything.clone(),
                end: end.clone(),
                abort: CancellationToken::new(),
            }),
            begun: Mutex::default(),
            everything: everything.clone(),
            end: end.clone(),
        }
    }

    fn begun(&self) -> MutexGuard<'_, HashMap<Estate, EstateTasks>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether everything is worked on.
    pub(crate) fn is_all(&self) -> bool {
        self.all.is_some()
    }

    /// Whether a namespace is worked on.
    pub(crate) fn has_namespace(&self, namespace: &str) -> bool {
        self.is_all() || self.begun().contains_key(&Estate::Namespace(namespace.to_owned()))
    }

    /// Starts a task for an object, if that is worked on; `make` is called while it can't be let go of.
    pub(crate) fn spawn<F>(&self, key: &Key, make: impl FnOnce(CancellationToken) -> Option<F>)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if let Some(all) = &self.all {
            if let Some(task) = make(all.end.clone()) {
                all.tasks.spawn(task);
            }
            return;
        }
        let begun = self.begun();
        let Some(estate) = begun.get(&find_estate(key)) else {
            return;
        };
        if let Some(task) = make(estate.end.clone()) {
            let abort = estate.abort.clone();
            let task = async move {
                abort.run_until_cancelled(task).await;
            };
            self.everything.spawn(estate.tasks.track_future(task));
        }
    }

    /// From here on something is worked on.
    pub(crate) fn begin(&self, estate: &Estate) {
        self.begun().entry(estate.clone()).or_insert_with(|| EstateTasks {
            tasks: TaskTracker::new(),
            end: self.end.child_token(),
            abort: CancellationToken::new(),
        });
    }

    /// Ends what is under way, and waits for it: rounds come to their end, and are cut off if they don't.
    pub(crate) async fn leave(&self, estate: &Estate) {
        let Some(left) = self.begun().remove(estate) else {
            return;
        };
        left.tasks.close();
        left.end.cancel();
        if tokio::time::timeout(LEAVING, left.tasks.wait()).await.is_err() {
            tracing::warn!(%estate, "what is under way comes to no end, and is cut off: another instance sees to it from here on");
            left.abort.cancel();
            left.tasks.wait().await;
        }
    }
}

/// What an object is let go of with.
fn find_estate(key: &Key) -> Estate {
    if key.kind == Tenant::KIND {
        Estate::Tenant(key.name.clone())
    } else if key.namespace.is_empty() {
        // Who keeps the rights of a lane in a namespace.
        Estate::Namespace(key.name.clone())
    } else {
        Estate::Namespace(key.namespace.clone())
    }
}
