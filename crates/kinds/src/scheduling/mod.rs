//! The group `scheduling.k8s.io`: priorities of Pods. One file or folder for each kind; code for several groups is elsewhere.

mod priority_class;

use crate::kind::Kind;

pub(crate) use priority_class::{GROUP, PLURAL, find_default_class};

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&priority_class::PRIORITY_CLASS];
