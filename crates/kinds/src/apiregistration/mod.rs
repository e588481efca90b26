//! Servers of other groups. One file or folder a kind; refuses everything that several groups need.

mod api_service;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&api_service::API_SERVICE];
