//! The *workload status* option: workloads are stored here and never run, and this module reports them as rolled out.
//! Without these reports, every wait for health would never end. The module is pure, and off by default. It writes
//! one status for each generation of an object, and never overwrites later statuses of other writers.
//!
//! The reported statuses: a Deployment, ReplicaSet, ReplicationController and StatefulSet have all desired replicas,
//! updated, ready and available. A DaemonSet runs on none of the zero nodes. A Pod runs and is ready, or has
//! succeeded if it is not to be restarted. A Job has completed. A PersistentVolumeClaim is bound with its requested
//! size. A Service of type LoadBalancer has its cluster IP as its address. A Deployment has a ReplicaSet for each
//! template that it had (`rollout`). No Pods, volumes or containers are created. Times are the object's creation
//! time.

mod controllers;
mod once;
mod rollout;

use serde_json::Value;

use super::object_name::{ObjectName, is_deleting};

pub(crate) use controllers::with_refusal;
pub(crate) use rollout::{Rollout, deployment_of, roll_out};

/// The field manager under which the statuses are written.
pub(crate) const FIELD_MANAGER: &str = "tenure-workload-status";

/// Returns the status to report for an object; `None` if it has its status already.
type StatusOf = fn(&Value) -> Option<Value>;

/// The kinds with a reported status.
const KINDS: [(&str, &str, StatusOf); 9] = [
    ("apps", "deployments", controllers::report_deployment),
    ("apps", "replicasets", controllers::replica_set),
    ("apps", "statefulsets", controllers::stateful_set),
    ("apps", "daemonsets", controllers::daemon_set),
    ("", "replicationcontrollers", controllers::replica_set),
    ("batch", "jobs", once::report_job),
    ("", "pods", once::report_pod),
    ("", "persistentvolumeclaims", once::report_claim),
    ("", "services", once::report_service),
];

/// Checks whether objects of this resource get a status.
#[must_use]
pub(crate) fn is_workload(object: &ObjectName) -> bool {
    KINDS.iter().any(|(group, plural, _)| object.is(group, plural))
}

/// Returns the object with its reported status, for the `status` subresource; `None` if the generation has one
/// already.
#[must_use]
pub(crate) fn rolled_out(name: &ObjectName, object: &Value) -> Option<Value> {
    if is_deleting(object) {
        return None;
    }
    let (_, _, status_of) = KINDS.iter().find(|(group, plural, _)| name.is(group, plural))?;
    let status = status_of(object)?;
    let mut object = object.clone();
    object.as_object_mut()?.insert("status".to_owned(), status);
    Some(object)
}
