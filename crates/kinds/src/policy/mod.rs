//! The group `policy`: the number of Pods that may be unavailable. One file or folder for each kind; code for several groups is elsewhere.

mod pod_disruption_budget;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&pod_disruption_budget::POD_DISRUPTION_BUDGET];
