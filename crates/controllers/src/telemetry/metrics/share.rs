//! The number of objects of one tenant with series of their own. However many objects a tenant creates, its series stay within its share, and its
//! other objects are counted without names. Pure: by the numbers alone.

/// The limit of objects of one tenant with their own series.
pub(super) const MOST_OF_ONE: usize = 1_000;
/// The limit for the objects of all tenants together, if each tenant uses its share.
pub(super) const MOST: usize = 10_000;

/// Returns the number of named objects per tenant. With many tenants each has fewer, and no tenant loses its share to a tenant with many objects.
pub(super) fn decide_share(tenants: usize) -> usize {
    (MOST / tenants.max(1)).clamp(1, MOST_OF_ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_have_equal_shares_above_zero() {
        for (tenants, share) in [(0, 1_000), (1, 1_000), (10, 1_000), (20, 500), (3_000, 3), (50_000, 1)] {
            assert_eq!(decide_share(tenants), share, "{tenants}");
        }
    }
}
