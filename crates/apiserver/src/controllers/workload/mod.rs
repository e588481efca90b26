//! Owns the *workload status* behaviour: workloads are stored here, never run, and this reports them as rolled out,
//! without which nothing that waits for health would ever end. Pure; off unless the server is told to. Refuses to
//! contradict anyone: it speaks once for each generation of an object, and what others write to a status afterwards
//! stays.
//!
//! What it says, plainly: a Deployment, ReplicaSet, ReplicationController and StatefulSet have all replicas that
//! they ask for, updated, ready and available; a DaemonSet runs on none of the zero nodes; a Pod runs and is ready, or
//! has succeeded if it is not to be restarted; a Job has completed; a PersistentVolumeClaim is bound to what it asks
//! for; a Service of type LoadBalancer has its cluster's address. A Deployment has a ReplicaSet for each template that it had
//! (`rollout`). No Pods are made, no volume for a claim, and no container is started. Times are those at which the object was
//! created.

mod controllers;
mod once;
mod rollout;

use serde_json::Value;

use super::object_name::{ObjectName, is_deleting};

pub(crate) use controllers::with_refusal;
pub(crate) use rollout::{Rollout, deployment_of, roll_out};

/// The field manager under which the statuses are written.
pub(crate) const FIELD_MANAGER: &str = "tenure-workload-status";

type StatusOf = fn(&Value) -> Option<Value>;

/// The kinds that it speaks for.
const KINDS: [(&str, &str, StatusOf); 9] = [
    ("apps", "deployments", controllers::deployment),
    ("apps", "replicasets", controllers::replica_set),
    ("apps", "statefulsets", controllers::stateful_set),
    ("apps", "daemonsets", controllers::daemon_set),
    ("", "replicationcontrollers", controllers::replica_set),
    ("batch", "jobs", once::job),
    ("", "pods", once::pod),
    ("", "persistentvolumeclaims", once::claim),
    ("", "services", once::service),
];

/// Whether it speaks for objects of this resource.
#[must_use]
pub(crate) fn covers(object: &ObjectName) -> bool {
    KINDS.iter().any(|(group, plural, _)| object.is(group, plural))
}

/// The object with the status that it should have, for the `status` subresource; `None` if it has been spoken for.
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
