//! Who leads. One file or folder a kind; refuses everything that several groups need.

mod lease;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&lease::LEASE];
