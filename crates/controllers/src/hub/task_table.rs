//! The tasks of each Tenant and each namespace without a tenant that this instance works on, so that they can be ended and waited for. A single
//! instance works on everything.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_api::metadata::PLATFORM_NAMESPACE;
use tenure_api::{Package, PackageSource, PackageValues, Tenant};
use tenure_tenancy::ShardUnit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cluster_view::key::Key;
use crate::reconcile_loop::reconciled::Reconciled as _;

/// The time limit for running rounds to finish. Their requests to an API server time out earlier.
const LEAVING: Duration = Duration::from_secs(60);

/// The tasks of one shard unit: a Tenant, or a namespace without a tenant.
#[derive(Clone, Debug)]
struct UnitTasks {
    tasks: TaskTracker,
    /// Cancelled to let running work finish.
    end: CancellationToken,
    /// Cancelled to stop running work immediately.
    abort: CancellationToken,
}

/// The tasks that this instance runs, by Tenant and by namespace without a tenant.
#[derive(Debug)]
pub(crate) struct TaskTable {
    /// The tasks for all objects, if this is the only instance.
    all: Option<UnitTasks>,
    begun: Mutex<HashMap<ShardUnit, UnitTasks>>,
    everything: TaskTracker,
    end: CancellationToken,
}

impl TaskTable {
    /// Creates the table. All work ends with `end`, and its tasks are among `everything`.
    pub(crate) fn new(is_only: bool, everything: &TaskTracker, end: &CancellationToken) -> Self {
        Self {
            all: is_only.then(|| UnitTasks {
                tasks: everything.clone(),
                end: end.clone(),
                abort: CancellationToken::new(),
            }),
            begun: Mutex::default(),
            everything: everything.clone(),
            end: end.clone(),
        }
    }

    fn lock_begun(&self) -> MutexGuard<'_, HashMap<ShardUnit, UnitTasks>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether this instance works on everything.
    pub(crate) fn is_all(&self) -> bool {
        self.all.is_some()
    }

    /// Checks whether this instance works on a namespace.
    pub(crate) fn has_namespace(&self, namespace: &str) -> bool {
        self.is_all()
            || self
                .lock_begun()
                .contains_key(&ShardUnit::Namespace(namespace.to_owned()))
    }

    /// Starts a task for an object, if this instance works on it. The shard unit can't be released while `make` runs.
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
        let begun = self.lock_begun();
        let Some(unit) = begun.get(&find_shard_unit(key)) else {
            return;
        };
        if let Some(task) = make(unit.end.clone()) {
            let abort = unit.abort.clone();
            let task = async move {
                abort.run_until_cancelled(task).await;
            };
            self.everything.spawn(unit.tasks.track_future(task));
        }
    }

    /// Begins to work on a shard unit.
    pub(crate) fn add_unit(&self, unit: &ShardUnit) {
        self.lock_begun().entry(unit.clone()).or_insert_with(|| UnitTasks {
            tasks: TaskTracker::new(),
            end: self.end.child_token(),
            abort: CancellationToken::new(),
        });
    }

    /// Ends the running work of a shard unit, and waits for it: rounds finish, or are cut off after the time limit.
    pub(crate) async fn leave(&self, unit: &ShardUnit) {
        let Some(left) = self.lock_begun().remove(unit) else {
            return;
        };
        left.tasks.close();
        left.end.cancel();
        if tokio::time::timeout(LEAVING, left.tasks.wait()).await.is_err() {
            tracing::warn!(shard_unit = %unit, "an attempt doesn't end, and is aborted: another instance reconciles the object now");
            left.abort.cancel();
            left.tasks.wait().await;
        }
    }
}

/// Checks whether a cluster-scoped object belongs to the platform, so that the instance of the platform namespace reconciles it.
pub(crate) fn is_platforms(key: &Key) -> bool {
    [Package::KIND, PackageSource::KIND, PackageValues::KIND].contains(&key.kind)
}

/// Returns the shard unit of an object.
fn find_shard_unit(key: &Key) -> ShardUnit {
    if key.kind == Tenant::KIND {
        ShardUnit::Tenant(key.name.clone())
    } else if is_platforms(key) {
        ShardUnit::Namespace(PLATFORM_NAMESPACE.to_owned())
    } else if key.namespace.is_empty() {
        // The key of a lane's rights has the namespace as its name.
        ShardUnit::Namespace(key.name.clone())
    } else {
        ShardUnit::Namespace(key.namespace.clone())
    }
}
