//! The group `coordination.k8s.io`: leader election. One file or folder for each kind; code for several groups is elsewhere.

mod lease;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&lease::LEASE];
