//! SelfSubjectReviews: the identity of the requester.

use crate::kind::{Kind, Review};

/// SelfSubjectReviews: the identity of the requester.
pub(super) static SELF_SUBJECT_REVIEW: Kind = Kind {
    review: Some(Review::SelfSubject),
    ..Kind::named("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews")
};
