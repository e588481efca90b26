//! SubjectAccessReviews: whether somebody may do something.

use crate::kind::{Kind, Review};

/// SubjectAccessReviews: whether somebody may do something.
pub(super) static SUBJECT_ACCESS_REVIEW: Kind = Kind {
    review: Some(Review::SubjectAccess),
    ..Kind::named("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews")
};
