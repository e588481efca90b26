//! Definitions of kinds. One file or folder a kind; refuses everything that several groups need.

mod custom_resource_definition;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&custom_resource_definition::CUSTOM_RESOURCE_DEFINITION];
