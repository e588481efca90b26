//! SelfSubjectAccessReviews: whether the requester has a right.

use crate::kind::{Kind, Review};

/// SelfSubjectAccessReviews: whether the requester has a right.
pub(super) static SELF_SUBJECT_ACCESS_REVIEW: Kind = Kind {
    review: Some(Review::SelfSubjectAccess),
    ..Kind::new(
        "authorization.k8s.io",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
    )
};
