//! Requests for certificates. One file or folder a kind; refuses everything that several groups need.

mod certificate_signing_request;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&certificate_signing_request::CERTIFICATE_SIGNING_REQUEST];
