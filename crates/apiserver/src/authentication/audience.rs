//! Owns the comparison of audiences: who a token is for, and who asks.

/// The audiences of `held` that are among `wanted`, in `held`'s order.
pub(super) fn intersect(held: &[String], wanted: &[String]) -> Vec<String> {
    held.iter()
        .filter(|audience| wanted.contains(audience))
        .cloned()
        .collect()
}
