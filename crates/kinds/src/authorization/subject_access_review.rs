//! SubjectAccessReviews: whether a subject has a right.

use crate::kind::{Kind, Review};

/// SubjectAccessReviews: whether a subject has a right.
pub(super) static SUBJECT_ACCESS_REVIEW: Kind = Kind {
    review: Some(Review::SubjectAccess),
    ..Kind::new("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews")
};
