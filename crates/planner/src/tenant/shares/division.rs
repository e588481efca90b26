//! The arithmetic of shares: the allowed amount of one resource for each namespace, in thousandths.
//!
//! Invariant: the namespaces together are never allowed more than the limit, for any use meanwhile and any order of the writes. Capacity that one namespace may
//! still use is given to no other. The module knows no names, objects or clocks.

/// The known amounts of one namespace, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NamespaceAmounts {
    /// True if the namespace gets a share. A namespace that is being deleted gets none, and keeps its amount until it is gone.
    pub(super) is_open: bool,
    /// The allowed amount, if one is written.
    pub(super) allowed: Option<i128>,
    /// The upper bound for the namespace's use, as far as is known: from the written amount, the enforced amount and the use.
    pub(super) held: i128,
    /// The counted use.
    pub(super) used: i128,
    /// True if the amount must stay for now, since the last write has not been observed yet.
    pub(super) is_settled: bool,
}

impl NamespaceAmounts {
    fn allowed_or_zero(&self) -> i128 {
        self.allowed.unwrap_or(0)
    }

    /// Returns the unused part of the allowed amount.
    fn find_unused(&self) -> i128 {
        self.allowed_or_zero().saturating_sub(self.used)
    }
}

/// Returns the allowed amount for each namespace (`places`). The free amount is divided into equal parts of whole `grain`s. A namespace whose unused capacity is at
/// least half of its part gets no more. A namespace with more than its part gives some of it only if another one needs it. So amounts change only after a namespace
/// has used half of its part.
///
/// `is_sure` says that all use is known. Otherwise no namespace is allowed more than before.
pub(super) fn divide_limit(limit: i128, grain: i128, places: &[NamespaceAmounts], is_sure: bool) -> Vec<i128> {
    let grain = grain.max(1);
    let parts = find_parts(limit, grain, places);
    let held = places.iter().fold(0_i128, |sum, place| sum.saturating_add(place.held));
    let unclaimed = limit.saturating_sub(held);
    let mut spare = if is_sure { unclaimed } else { unclaimed.min(0) };
    let can_change = |place: &NamespaceAmounts| place.is_open && !place.is_settled;
    let needs = |place: &NamespaceAmounts, part: i128| {
        can_change(place) && part > 0 && place.find_unused().saturating_mul(2) < part
    };

    let mut missing = spare.saturating_neg();
    for (place, part) in places.iter().zip(&parts) {
        if needs(place, *part) {
            let more = place.used.saturating_add(*part).saturating_sub(place.held);
            missing = missing.saturating_add(more.max(0));
        }
    }
    let mut allowed: Vec<i128> = places.iter().map(NamespaceAmounts::allowed_or_zero).collect();
    let excess = |index: usize| {
        let (place, part) = (places.get(index)?, parts.get(index)?);
        let excess = place.find_unused().saturating_sub(*part);
        (can_change(place) && !needs(place, *part) && excess > 0).then_some(excess)
    };
    let mut givers: Vec<(i128, usize)> = (0..places.len())
        .filter_map(|index| Some((excess(index)?, index)))
        .collect();
    givers.sort_by_key(|(excess, index)| (std::cmp::Reverse(*excess), *index));
    for (excess, index) in givers {
        if missing <= 0 {
            break;
        }
        if let Some(allowed) = allowed.get_mut(index) {
            *allowed = allowed.saturating_sub(excess);
        }
        missing = missing.saturating_sub(excess);
    }
    for ((place, part), allowed) in places.iter().zip(&parts).zip(&mut allowed) {
        if !needs(place, *part) {
            continue;
        }
        let most = place.held.saturating_add(spare.max(0));
        *allowed = place.used.saturating_add(*part).min(most).max(place.allowed_or_zero());
        spare = spare.saturating_sub(allowed.saturating_sub(place.held).max(0));
    }
    allowed
}

/// Returns each place's part of the free amount: equal parts, and the remaining grains for the places with the most unused capacity, so that the grains don't move
/// around.
fn find_parts(limit: i128, grain: i128, places: &[NamespaceAmounts]) -> Vec<i128> {
    let used = places.iter().fold(0_i128, |sum, place| sum.saturating_add(place.used));
    let grains = limit.saturating_sub(used).max(0) / grain;
    let mut open: Vec<usize> = (0..places.len())
        .filter(|index| places.get(*index).is_some_and(|place| place.is_open))
        .collect();
    let count = i128::try_from(open.len()).unwrap_or(i128::MAX).max(1);
    let (each, more) = (grains / count, usize::try_from(grains % count).unwrap_or(usize::MAX));
    open.sort_by_key(|index| {
        (
            std::cmp::Reverse(places.get(*index).map(NamespaceAmounts::find_unused)),
            *index,
        )
    });
    let mut parts = vec![0; places.len()];
    for (position, index) in open.into_iter().enumerate() {
        let extra = i128::from(position < more);
        if let Some(part) = parts.get_mut(index) {
            *part = each.saturating_add(extra).saturating_mul(grain);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_amounts(allowed: i128, used: i128) -> NamespaceAmounts {
        NamespaceAmounts {
            is_open: true,
            allowed: Some(allowed),
            held: allowed.max(used),
            used,
            is_settled: false,
        }
    }

    const NEW: NamespaceAmounts = NamespaceAmounts {
        is_open: true,
        allowed: None,
        held: 0,
        used: 0,
        is_settled: false,
    };

    #[test]
    fn new_namespaces_share_the_limit() {
        assert_eq!(divide_limit(10, 1, &[NEW, NEW, NEW], true), [4, 3, 3]);
        assert_eq!(divide_limit(2, 1, &[NEW, NEW, NEW], true), [1, 1, 0]);
        assert_eq!(divide_limit(0, 1, &[NEW], true), [0]);
        assert_eq!(
            divide_limit(3000, 1000, &[NEW, NEW], true),
            [2000, 1000],
            "no half Pods"
        );
        assert_eq!(divide_limit(5, 1, &[], true), [0_i128; 0]);
        assert_eq!(divide_limit(-5, 0, &[NEW], true), [0]);
    }

    #[test]
    fn namespace_with_half_of_free_part_keeps_share() {
        assert_eq!(
            divide_limit(10, 1, &[make_amounts(5, 3), make_amounts(5, 0)], true),
            [5, 5]
        );
        // Six are free, three for each place. The first place has one.
        assert_eq!(
            divide_limit(10, 1, &[make_amounts(5, 4), make_amounts(5, 0)], true),
            [5, 3],
            "first somebody gives"
        );
        let lowered = NamespaceAmounts {
            held: 3,
            ..make_amounts(3, 0)
        };
        assert_eq!(
            divide_limit(10, 1, &[make_amounts(5, 4), lowered], true),
            [7, 3],
            "and then somebody gets"
        );
    }

    #[test]
    fn amount_still_usable_elsewhere_is_not_granted() {
        // The lower amount is written, but not enforced yet.
        let lowered = NamespaceAmounts {
            held: 5,
            ..make_amounts(3, 0)
        };
        assert_eq!(divide_limit(10, 1, &[make_amounts(5, 4), lowered], true), [5, 3]);
        // The use exceeds the amount that was written since.
        let beyond = make_amounts(3, 5);
        assert_eq!(divide_limit(10, 1, &[make_amounts(5, 4), beyond], true), [5, 3]);
        // The namespace is being deleted, and still full.
        let ending = NamespaceAmounts {
            is_open: false,
            ..make_amounts(6, 6)
        };
        assert_eq!(divide_limit(10, 1, &[make_amounts(2, 2), ending, NEW], true), [3, 6, 1]);
        // The use of one namespace is unknown.
        assert_eq!(divide_limit(10, 1, &[make_amounts(2, 2), NEW], false), [2, 0]);
    }

    #[test]
    fn a_smaller_limit_takes_from_those_that_have_room() {
        assert_eq!(
            divide_limit(4, 1, &[make_amounts(5, 1), make_amounts(5, 0)], true),
            [2, 2]
        );
        assert_eq!(
            divide_limit(0, 1, &[make_amounts(5, 1), make_amounts(5, 0)], true),
            [1, 0]
        );
        // Each place was allowed the full limit, when admission checked the sum.
        assert_eq!(
            divide_limit(
                10,
                1,
                &[make_amounts(10, 2), make_amounts(10, 2), make_amounts(10, 0)],
                true
            ),
            [4, 4, 2]
        );
    }

    #[test]
    fn unobserved_share_is_not_written_again() {
        let settled = NamespaceAmounts {
            is_settled: true,
            ..make_amounts(9, 0)
        };
        assert_eq!(divide_limit(10, 1, &[settled, make_amounts(1, 1)], true), [9, 1]);
        assert_eq!(
            divide_limit(10, 1, &[make_amounts(9, 0), make_amounts(1, 1)], true),
            [5, 1]
        );
    }

    #[test]
    fn extreme_numbers_cause_no_panic() {
        let vast = NamespaceAmounts {
            held: i128::MAX,
            ..make_amounts(i128::MAX, i128::MIN)
        };
        for limit in [i128::MIN, 0, i128::MAX] {
            let _ = divide_limit(limit, i128::MAX, &[vast, vast, NEW], true);
            let _ = divide_limit(limit, 1, &[vast, vast, NEW], true);
        }
    }
}
