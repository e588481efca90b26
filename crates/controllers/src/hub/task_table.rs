//! The tasks of each Tenant and each namespace without a tenant that this instance works on, so that they can be ended and waited for. A single
//! instance works on everything.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_api::Tenant;
use tenure_tenancy::ShardUnit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cluster_view::key::Key;
use crate::reconcile_loop::reconciled::Reconciled as _;

/// The time limit for running rounds to finish. Their requests to an API server time out earlier.
const LEAVING: Duration = Duration::from_secs(60);

/// The tasks of one estate: a Tenant, or a namespace without a tenant.
#[derive(Clone, Debug)]
struct EstateTasks {
    tasks: TaskTracker,
    /// Cancelled to let running work finish.
    end: CancellationToken,
    /// Cancelled to stop running work immediately.
    abort: CancellationToken,
}

/// The part that this instance reconciles.
#[derive(Debug)]
pub(crate) struct TaskTable {
    /// For a single instance: the tasks of everything.
    all: Option<EstateTasks>,
    begun: Mutex<HashMap<ShardUnit, EstateTasks>>,
    everything: TaskTracker,
    end: CancellationToken,
}

impl TaskTable {
    /// Creates the table. All work ends with `end`, and its tasks are among `everything`.
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

    fn begun(&self) -> MutexGuard<'_, HashMap<ShardUnit, EstateTasks>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether this instance works on everything.
    pub(crate) fn is_all(&self) -> bool {
        self.all.is_some()
    }

    /// Checks whether this instance works on a namespace.
    pub(crate) fn has_namespace(&self, namespace: &str) -> bool {
        self.is_all() || self.begun().contains_key(&ShardUnit::Namespace(namespace.to_owned()))
    }

    /// Starts a task for an object, if this instance works on it. The estate can't be released while `make` runs.
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

    /// Begins to work on an estate.
    pub(crate) fn begin(&self, estate: &ShardUnit) {
        self.begun().entry(estate.clone()).or_insert_with(|| EstateTasks {
            tasks: TaskTracker::new(),
            end: self.end.child_token(),
            abort: CancellationToken::new(),
        });
    }

    /// Ends the running work of an estate, and waits for it: rounds finish, or are cut off after the time limit.
    pub(crate) async fn leave(&self, estate: &ShardUnit) {
        let Some(left) = self.begun().remove(estate) else {
            return;
        };
        left.tasks.close();
        left.end.cancel();
        if tokio::time::timeout(LEAVING, left.tasks.wait()).await.is_err() {
            tracing::warn!(%estate, "an attempt doesn't end, and is aborted: another instance reconciles the object now");
            left.abort.cancel();
            left.tasks.wait().await;
        }
    }
}

/// Returns the estate of an object.
fn find_estate(key: &Key) -> ShardUnit {
    if key.kind == Tenant::KIND {
        ShardUnit::Tenant(key.name.clone())
    } else if key.namespace.is_empty() {
        // The key of a lane's rights has the namespace as its name.
        ShardUnit::Namespace(key.name.clone())
    } else {
        ShardUnit::Namespace(key.namespace.clone())
    }
}
