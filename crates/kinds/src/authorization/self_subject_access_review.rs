//! SelfSubjectAccessReviews: whether who asks may do something.

use crate::kind::{Kind, Review};

/// SelfSubjectAccessReviews: whether who asks may do something.
pub(super) static SELF_SUBJECT_ACCESS_REVIEW: Kind = Kind {
    review: Some(Review::SelfSubjectAccess),
    ..Kind::named(
        "authorization.k8s.io",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
    )
};
