//! SelfSubjectRulesReviews: the rights of the requester.

use crate::kind::{Kind, Review};

/// SelfSubjectRulesReviews: the rights of the requester.
pub(super) static SELF_SUBJECT_RULES_REVIEW: Kind = Kind {
    review: Some(Review::SelfSubjectRules),
    ..Kind::new(
        "authorization.k8s.io",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
    )
};
