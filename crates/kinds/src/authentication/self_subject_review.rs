//! SelfSubjectReviews: who asks.

use crate::kind::{Kind, Review};

/// SelfSubjectReviews: who asks.
pub(super) static SELF_SUBJECT_REVIEW: Kind = Kind {
    review: Some(Review::SelfSubject),
    ..Kind::named("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews")
};
