//! Questions about who somebody is. One file or folder a kind; refuses to answer them.

mod self_subject_review;
mod token_review;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&self_subject_review::SELF_SUBJECT_REVIEW, &token_review::TOKEN_REVIEW];
