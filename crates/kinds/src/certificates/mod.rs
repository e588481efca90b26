//! The group `certificates.k8s.io`: requests for certificates. One file or folder for each kind; code for several groups is elsewhere.

mod certificate_signing_request;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&certificate_signing_request::CERTIFICATE_SIGNING_REQUEST];
