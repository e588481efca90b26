//! TokenReviews: the identity behind a token.

use crate::kind::{Kind, Review};

/// TokenReviews: the identity behind a token.
pub(super) static TOKEN_REVIEW: Kind = Kind {
    review: Some(Review::Token),
    ..Kind::new("authentication.k8s.io", "TokenReview", "tokenreviews")
};
