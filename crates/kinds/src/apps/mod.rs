//! The group `apps`: controllers that keep Pods running. One file or folder for each kind; code for several groups is elsewhere.

mod controller_revision;
mod daemon_set;
mod deployment;
mod replica_set;
mod stateful_set;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[
    &controller_revision::CONTROLLER_REVISION,
    &daemon_set::DAEMON_SET,
    &deployment::DEPLOYMENT,
    &replica_set::REPLICA_SET,
    &stateful_set::STATEFUL_SET,
];
