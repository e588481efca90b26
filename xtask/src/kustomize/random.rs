//! Random numbers from a seed, the same on every machine. No other source of randomness is used.

/// A stream of numbers made from one seed, by the splitmix64 method.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// Creates the stream of a seed and a number.
    pub(super) fn new(seed: u64, number: u64) -> Self {
        let mut random = Self(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub(super) fn draw_below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        let number = self.next().checked_rem(end).unwrap_or(0);
        usize::try_from(number).unwrap_or(0)
    }

    /// Returns a number from `first` to `last`, both included.
    pub(super) fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.draw_below(last.saturating_sub(first) + 1)
    }

    /// Returns true in this many of a hundred cases.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.draw_below(100) < percent
    }

    /// Returns an item of a list, or the default for an empty list.
    pub(super) fn pick<T: Clone + Default>(&mut self, list: &[T]) -> T {
        let index = self.draw_below(list.len());
        list.get(index).cloned().unwrap_or_default()
    }

    /// Returns some items of a list, each at most once, in the list's order.
    pub(super) fn some<T: Clone + Default>(&mut self, list: &[T], percent: usize) -> Vec<T> {
        list.iter().filter(|_| self.chance(percent)).cloned().collect()
    }
}
