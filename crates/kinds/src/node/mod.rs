//! How containers are run. One file or folder a kind; refuses everything that several groups need.

mod runtime_class;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&runtime_class::RUNTIME_CLASS];
