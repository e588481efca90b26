//! What keeps Pods running. One file or folder a kind; refuses everything that several groups need.

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
