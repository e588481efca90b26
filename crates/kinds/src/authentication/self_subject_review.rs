//! SelfSubjectReviews: the identity of the requester.

use crate::kind::{Kind, Review};

/// SelfSubjectReviews: the identity of the requester.
pub(super) static SELF_SUBJECT_REVIEW: Kind = Kind {
    review: Some(Review::SelfSubject),
    ..Kind::new("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews")
};
