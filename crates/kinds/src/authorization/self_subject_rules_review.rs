//! SelfSubjectRulesReviews: what who asks may do.

use crate::kind::{Kind, Review};

/// SelfSubjectRulesReviews: what who asks may do.
pub(super) static SELF_SUBJECT_RULES_REVIEW: Kind = Kind {
    review: Some(Review::SelfSubjectRules),
    ..Kind::named(
        "authorization.k8s.io",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
    )
};
