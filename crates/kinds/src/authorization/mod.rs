//! The group `authorization.k8s.io`: reviews of rights. One file or folder for each kind. The API server answers the reviews.

mod local_subject_access_review;
mod self_subject_access_review;
mod self_subject_rules_review;
mod subject_access_review;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[
    &local_subject_access_review::LOCAL_SUBJECT_ACCESS_REVIEW,
    &self_subject_access_review::SELF_SUBJECT_ACCESS_REVIEW,
    &self_subject_rules_review::SELF_SUBJECT_RULES_REVIEW,
    &subject_access_review::SUBJECT_ACCESS_REVIEW,
];
