//! The group `authentication.k8s.io`: reviews of identities. One file or folder for each kind. The API server answers the reviews.

mod self_subject_review;
mod token_review;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&self_subject_review::SELF_SUBJECT_REVIEW, &token_review::TOKEN_REVIEW];
