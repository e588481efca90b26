//! Which Pods go first. One file or folder a kind; refuses everything that several groups need.

mod priority_class;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&priority_class::PRIORITY_CLASS];
