//! Reproducible choices for tests with random input: equal seeds give equal choices.

/// A linear congruential generator (Knuth's MMIX constants). Not for secrets.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Returns a generator whose draws depend only on the seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut chance = Self(seed ^ 0x9e37_79b9_7f4a_7c15);
        // The first draws of neighbouring seeds are similar.
        for _ in 0..4 {
            chance.draw_below(2);
        }
        chance
    }

    /// Draws a number from 0 up to, not including, `bound`. Returns 0 if the bound is 0.
    pub fn draw_below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33).checked_rem(bound).unwrap_or_default()
    }

    /// Draws true once in `times` draws on average.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.draw_below(times) == 0
    }

    /// Draws one of the items; `None` from an empty list.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let index = usize::try_from(self.draw_below(items.len() as u64)).unwrap_or_default();
        items.get(index)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

    use super::*;

    #[test]
    fn same_seed_draws_the_same() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            (0..50).map(|_| chance.draw_below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn each_item_is_drawn() {
        let mut chance = Chance::new(1);
        let mut drawn: Vec<u8> = (0..200).map(|_| *chance.pick(&[1, 2, 3]).unwrap()).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn, [1, 2, 3]);
        assert_eq!(chance.pick::<u8>(&[]), None);
    }
}
