//! Holds the Lease of the controllers, so that they don't work during an uninstallation. `tenure_planner::election` decides whether the Lease is free. A Lease that its
//! holder renews is never taken.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::metadata::{CONTROLLER_LEASE, LET_GO, PLATFORM_NAMESPACE};
use tenure_planner::election::{ElectionAction, LeaseRecord, RETRY, WatchedLease, decide_action, write_spec};
use tenure_tenancy::Instance;
use tokio::time::Instant;

use super::Uninstallation;
use crate::failure::Failure;

/// The duration of the Lease, longer than the work between two renewals should take. If another holder has taken the Lease meanwhile, the next renewal fails, and no
/// more is written.
const HOLDS_SECONDS: u64 = 120;

/// The uninstallation as a candidate for the controllers' Lease: waits for the Lease, holds it, and releases it.
pub(crate) struct Leadership {
    candidate: String,
    began: Instant,
    watched: WatchedLease,
    held: bool,
}

impl Leadership {
    pub(crate) fn new() -> Self {
        Self {
            candidate: format!(
                "tenure-uninstall_{}_{}",
                std::process::id(),
                Timestamp::now().as_microsecond()
            ),
            began: Instant::now(),
            watched: WatchedLease::default(),
            held: false,
        }
    }

    /// Waits until no leader exists, and takes the Lease. Without the Lease's namespace, no leader can exist.
    pub(crate) async fn win(&mut self, cluster: &Uninstallation, patience: Duration) -> Result<(), Failure> {
        loop {
            let Some(namespace) = cluster.find(&write_namespace_path()).await? else {
                return Ok(());
            };
            match self.try_once(cluster).await {
                Ok(None) => return Ok(()),
                Ok(Some(holder)) if self.began.elapsed() >= patience => {
                    return Err(Failure::environment(format!(
                        "{holder} still leads, and works with the objects to delete: only the Deployment was deleted"
                    ))
                    .hint("end that `tenure run`, and try again; --wait SECONDS waits longer"));
                }
                Ok(Some(_)) => {}
                // Another candidate was faster, and the next read shows it.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                // A terminating namespace accepts no new Lease, so no controllers can begin to lead.
                Err(kube::Error::Api(status))
                    if status.code == 403 && namespace.pointer("/metadata/deletionTimestamp").is_some() =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(RETRY.min(Duration::from_secs(1))).await;
        }
    }

    /// Waits until no shard has a leader. New leaders of shards do nothing while the holder of the main Lease reports no shards.
    pub(crate) async fn win_shards(&self, cluster: &Uninstallation, patience: Duration) -> Result<(), Failure> {
        for lease in cluster.list_shard_leases().await? {
            while let Some(holder) = cluster.find_live_holder(PLATFORM_NAMESPACE, &lease).await? {
                if self.began.elapsed() >= patience {
                    return Err(Failure::environment(format!(
                        "{holder} still, and works with the objects to delete: only the Deployments were deleted"
                    ))
                    .hint("end that `tenure run`, and try again; --wait SECONDS waits longer"));
                }
                tokio::time::sleep(RETRY.min(Duration::from_secs(1))).await;
            }
        }
        Ok(())
    }

    /// Renews the Lease, if it is held.
    pub(crate) async fn hold(&mut self, cluster: &Uninstallation) -> Result<(), Failure> {
        if !self.held {
            return Ok(());
        }
        let Some(lease) = cluster
            .find(&write_lease_path(PLATFORM_NAMESPACE, CONTROLLER_LEASE))
            .await?
        else {
            return Ok(());
        };
        self.watched
            .take_lease(Some(LeaseRecord::read(&lease)), self.began.elapsed());
        match decide_action(&self.watched, &self.candidate, self.began.elapsed()) {
            next @ ElectionAction::Take { renewal: true, .. } => match self.write(cluster, &next).await {
                // The Lease has just been deleted with its namespace.
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                written => Ok(written?),
            },
            _ => Err(
                Failure::environment("another process has taken the Lease: nothing more is deleted")
                    .hint("end that `tenure run`, and try again"),
            ),
        }
    }

    /// Releases the Lease, so controllers may start again after an unfinished uninstallation.
    pub(crate) async fn give_back(self, cluster: &Uninstallation) {
        if !self.held {
            return;
        }
        let patch = json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
        if let Err(error) = cluster
            .patch(&write_lease_path(PLATFORM_NAMESPACE, CONTROLLER_LEASE), &patch)
            .await
        {
            tracing::debug!(%error, "the Lease could not be given back; it ends by itself");
        }
    }

    /// Takes the Lease, or returns its holder.
    async fn try_once(&mut self, cluster: &Uninstallation) -> Result<Option<String>, kube::Error> {
        let lease = cluster.find_lease(PLATFORM_NAMESPACE, CONTROLLER_LEASE).await?;
        self.watched
            .take_lease(lease.as_ref().map(LeaseRecord::read), self.began.elapsed());
        match decide_action(&self.watched, &self.candidate, self.began.elapsed()) {
            ElectionAction::Wait { holder } => Ok(Some(holder)),
            next => {
                self.write(cluster, &next).await?;
                self.held = true;
                Ok(None)
            }
        }
    }

    async fn write(&self, cluster: &Uninstallation, next: &ElectionAction) -> Result<(), kube::Error> {
        let write_spec = |transitions, renewal| {
            let mut spec = write_spec(&self.candidate, transitions, Timestamp::now(), renewal);
            if let Some(spec) = spec.as_object_mut() {
                spec.insert("leaseDurationSeconds".to_owned(), json!(HOLDS_SECONDS));
            }
            spec
        };
        match next {
            ElectionAction::Wait { .. } => Ok(()),
            ElectionAction::Create => {
                let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"namespace": PLATFORM_NAMESPACE, "name": CONTROLLER_LEASE}, "spec": write_spec(0, false)});
                cluster
                    .create(&write_leases_path(PLATFORM_NAMESPACE), &lease)
                    .await
                    .map(drop)
            }
            ElectionAction::Take {
                version,
                transitions,
                renewal,
            } => {
                // The annotation of the previous holder about shards must not stay.
                let metadata = json!({"resourceVersion": version, "annotations": {LET_GO: null}});
                let patch = json!({"metadata": metadata, "spec": write_spec(*transitions, *renewal)});
                let path = write_lease_path(PLATFORM_NAMESPACE, CONTROLLER_LEASE);
                cluster.patch(&path, &patch).await.map(drop)
            }
        }
    }
}

impl Uninstallation {
    /// Returns the Leases of shards.
    async fn list_shard_leases(&self) -> Result<Vec<String>, Failure> {
        let request = http::Request::get(write_leases_path(PLATFORM_NAMESPACE))
            .body(Vec::new())
            .map_err(|error| Failure::internal(error.to_string()))?;
        let leases: Value = match self.administrator.request(request).await {
            Ok(leases) => leases,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut names = Vec::new();
        for lease in ObjectView::new(&leases).list_views("/items") {
            let name = lease.read_text("/metadata/name");
            if matches!(Instance::find_key_of_lease(name), Some(Some(_))) {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Returns the holder that renews a Lease. A Lease that stays unchanged for its whole duration has no live holder.
    pub(super) async fn find_live_holder(&self, namespace: &str, name: &str) -> Result<Option<String>, Failure> {
        let began = Instant::now();
        let mut watched = WatchedLease::default();
        let mut first: Option<LeaseRecord> = None;
        loop {
            let record = self.find_lease(namespace, name).await?.as_ref().map(LeaseRecord::read);
            let path = write_lease_path(namespace, name);
            if record.is_some() && self.ended.lock().get(&path) == record.as_ref() {
                return Ok(None);
            }
            watched.take_lease(record.clone(), began.elapsed());
            let Some(holder) = watched.find_holder(began.elapsed()) else {
                self.ended.lock().extend(record.map(|record| (path, record)));
                return Ok(None);
            };
            let renewed = |first: &LeaseRecord| record.as_ref().is_some_and(|record| record.renewed != first.renewed);
            if first.as_ref().is_some_and(renewed) || began.elapsed() >= Duration::from_secs(HOLDS_SECONDS) {
                return Ok(Some(format!("{holder} has the Lease {namespace}/{name}")));
            }
            first = first.or(record);
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn find_lease(&self, namespace: &str, name: &str) -> Result<Option<Value>, kube::Error> {
        let request = http::Request::get(write_lease_path(namespace, name))
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        match self.administrator.request(request).await {
            Ok(lease) => Ok(Some(lease)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn write_namespace_path() -> String {
    format!("/api/v1/namespaces/{PLATFORM_NAMESPACE}")
}

fn write_leases_path(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

fn write_lease_path(namespace: &str, name: &str) -> String {
    format!("{}/{name}", write_leases_path(namespace))
}
