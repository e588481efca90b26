//! The group `discovery.k8s.io`: the endpoints of Services. One file or folder for each kind; code for several groups is elsewhere.

mod endpoint_slice;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&endpoint_slice::ENDPOINT_SLICE];
