//! The group `apiextensions.k8s.io`: definitions of kinds. One file or folder for each kind; code for several groups is elsewhere.

mod custom_resource_definition;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&custom_resource_definition::CUSTOM_RESOURCE_DEFINITION];
