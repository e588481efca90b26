//! The group `autoscaling`: controllers that change the number of Pods. One file or folder for each kind; code for several groups is
//! elsewhere.

mod horizontal_pod_autoscaler;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&horizontal_pod_autoscaler::HORIZONTAL_POD_AUTOSCALER];
