//! LocalSubjectAccessReviews: whether a subject has a right in a namespace.

use crate::kind::{Kind, Review};

/// LocalSubjectAccessReviews: whether a subject has a right in a namespace.
pub(super) static LOCAL_SUBJECT_ACCESS_REVIEW: Kind = Kind {
    review: Some(Review::LocalSubjectAccess),
    ..Kind::new(
        "authorization.k8s.io",
        "LocalSubjectAccessReview",
        "localsubjectaccessreviews",
    )
};
