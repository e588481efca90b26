//! What changes how many Pods run. One file or folder a kind; refuses everything that several groups need.

mod horizontal_pod_autoscaler;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&horizontal_pod_autoscaler::HORIZONTAL_POD_AUTOSCALER];
