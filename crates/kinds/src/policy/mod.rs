//! How many Pods may be away. One file or folder a kind; refuses everything that several groups need.

mod pod_disruption_budget;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&pod_disruption_budget::POD_DISRUPTION_BUDGET];
