//! Where Services are reached. One file or folder a kind; refuses everything that several groups need.

mod endpoint_slice;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&endpoint_slice::ENDPOINT_SLICE];
