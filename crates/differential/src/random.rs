//! Random numbers from a seed: the same on every machine and in every release, because a sequence is named by its seed.

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self { state: seed };
        // Neighbouring seeds begin far apart.
        random.state = random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub(crate) fn draw_below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or_default()
    }

    /// Returns true in `percent` of all cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.draw_below(100) < percent
    }

    /// Returns one of the values.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let index = self.draw_below(items.len());
        items.get(index)
    }

    /// Returns one of the values, with a probability by weight.
    pub(crate) fn pick_weighted<T: Copy>(&mut self, choices: &[(usize, T)]) -> Option<T> {
        let mut left = self.draw_below(choices.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in choices {
            if left < *weight {
                return Some(*value);
            }
            left -= weight;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_its_numbers() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [
                random.draw_below(1000),
                random.draw_below(1000),
                random.draw_below(1000),
            ]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert_eq!(Random::new(1).pick_weighted(&[(0, 'a'), (3, 'b')]), Some('b'));
    }
}
