//! Histograms of durations. Their bucket bounds are those of Flux and of controller-runtime, because dashboards compute with them.

use std::time::Duration;

/// Bounds for an object's attempts (Flux's: ten bounds from 10 ms to half an hour, each the same multiple of the previous one).
pub(super) const OF_OBJECTS: &[f64] = &[
    0.01,
    0.038_363_583_488_692_544,
    0.147_176_453_809_388_3,
    0.564_621_617_328_616_9,
    2.166_090_855_590_700_6,
    8.309_900_738_254_731,
    31.879_757_075_478_31,
    122.302_172_216_434_9,
    469.194_959_467_365_3,
    1800.0,
];
/// Bounds for a kind's attempts (controller-runtime's).
pub(super) const OF_KINDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];
/// Bounds for a queue (controller-runtime's).
pub(super) const OF_QUEUES: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0];

/// How observations are distributed among buckets.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    pub(super) ends: &'static [f64],
    /// Observations that are in no earlier bucket.
    pub(super) counts: Box<[u64]>,
    /// In microseconds.
    sum: u64,
    pub(super) count: u64,
}

impl Histogram {
    pub(super) fn new(ends: &'static [f64]) -> Self {
        Self {
            ends,
            counts: vec![0; ends.len()].into(),
            sum: 0,
            count: 0,
        }
    }

    pub(super) fn observe(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum = self.sum.saturating_add(micros);
        self.count = self.count.saturating_add(1);
        let seconds = took.as_secs_f64();
        let bucket = self.ends.iter().position(|end| seconds <= *end);
        if let Some(bucket) = bucket.and_then(|index| self.counts.get_mut(index)) {
            *bucket = bucket.saturating_add(1);
        }
    }

    /// Returns the sum of all observations in seconds.
    pub(super) fn sum(&self) -> f64 {
        self.sum as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observation_counts_in_first_bucket_above_it() {
        let mut histogram = Histogram::new(OF_OBJECTS);
        for seconds in [0.0, 0.01, 0.011, 3600.0] {
            histogram.observe(Duration::from_secs_f64(seconds));
        }
        assert_eq!(histogram.counts.get(..3), Some(&[2, 1, 0][..]));
        assert_eq!((histogram.count, histogram.counts.iter().sum::<u64>()), (4, 3));
        assert!((histogram.sum() - 3600.021).abs() < 1e-6);
    }

    #[test]
    fn bucket_bounds_grow_by_same_factor() {
        let factor = (1800.0_f64 / 0.01).powf(1.0 / 9.0);
        for pair in OF_OBJECTS.windows(2) {
            assert!((pair[1] / pair[0] - factor).abs() < 1e-6, "{pair:?}");
        }
    }
}
