//! Numbers by chance that are the same for the same seed, on every machine. Owns the generator's state; refuses any other
//! source of chance.

/// A stream of numbers made from one seed, by the splitmix64 method.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// The stream of a seed and a number in it.
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

    /// A number below `end`, which is 0 for an `end` of 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        let number = self.next().checked_rem(end).unwrap_or(0);
        usize::try_from(number).unwrap_or(0)
    }

    /// A number from `first` to `last`, both included.
    pub(super) fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last.saturating_sub(first) + 1)
    }

    /// True in so many of a hundred.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of a list; the default of an empty one.
    pub(super) fn pick<T: Clone + Default>(&mut self, list: &[T]) -> T {
        let index = self.below(list.len());
        list.get(index).cloned().unwrap_or_default()
    }

    /// A few of a list, each at most once, in the list's order.
    pub(super) fn some<T: Clone + Default>(&mut self, list: &[T], percent: usize) -> Vec<T> {
        list.iter().filter(|_| self.chance(percent)).cloned().collect()
    }
}
