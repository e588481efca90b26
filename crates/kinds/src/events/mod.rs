//! What happened, as the group of its own has it. One file or folder a kind; refuses everything that several groups need.

mod event;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&event::EVENT];
