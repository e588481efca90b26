//! The group `events.k8s.io`. One file or folder for each kind; code for several groups is elsewhere.

mod event;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&event::EVENT];
