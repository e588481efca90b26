//! The group `apiregistration.k8s.io`: servers of other groups. One file or folder for each kind; code for several groups is elsewhere.

mod api_service;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&api_service::API_SERVICE];
