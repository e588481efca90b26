//! TokenReviews: whose a token is.

use crate::kind::{Kind, Review};

/// TokenReviews: whose a token is.
pub(super) static TOKEN_REVIEW: Kind = Kind {
    review: Some(Review::Token),
    ..Kind::named("authentication.k8s.io", "TokenReview", "tokenreviews")
};
