//! The group `node.k8s.io`: runtimes of containers. One file or folder for each kind; code for several groups is elsewhere.

mod runtime_class;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&runtime_class::RUNTIME_CLASS];
