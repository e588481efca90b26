//! Which Pods go first. One file or folder a kind; refuses everything that several groups need.

mod priority_class;

use crate::kind::Kind;

pub(crate) use priority_class::{GROUP, PLURAL, find_default_class};

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&priority_class::PRIORITY_CLASS];
