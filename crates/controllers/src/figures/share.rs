//! How many objects of one tenant are told of by name. Whatever one makes, what is told of it stays within its share; the others are counted
//! without their names. Pure: by the numbers alone.

/// Objects of one tenant that have series of their own, at most.
pub(super) const MOST_OF_ONE: usize = 1_000;
/// Objects of all tenants that have series of their own, where everybody has as many as may be.
pub(super) const MOST: usize = 10_000;

/// How many objects each of so many tenants may have by name: with many, each has fewer, and none has to make room for one that makes many.
pub(super) fn decide_share(tenants: usize) -> usize {
    (MOST / tenants.max(1)).clamp(1, MOST_OF_ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_the_same_for_all_and_never_nothing() {
        for (tenants, share) in [(0, 1_000), (1, 1_000), (10, 1_000), (20, 500), (3_000, 3), (50_000, 1)] {
            assert_eq!(decide_share(tenants), share, "{tenants}");
        }
    }
}
