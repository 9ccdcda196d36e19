//! A histogram of durations with bounds at powers of two, as the dashboards for
//! etcd expect. Recording a duration costs a few relaxed atomic operations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The first bound; each bound doubles the one before, from 1 ms to 8.192 s.
const FIRST_MICROS: u64 = 1000;
/// The first bound of a fine histogram, which ends at 524 ms.
const FIRST_FINE_MICROS: u64 = 64;
const BOUNDS: usize = 14;

/// Durations recorded since the process started.
#[derive(Debug)]
pub struct Histogram {
    first_micros: u64,
    /// The number of durations in each bucket; the last bucket has no upper
    /// bound.
    counts: [AtomicU64; BOUNDS + 1],
    micros: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::starting_at(FIRST_MICROS)
    }
}

impl Histogram {
    /// Creates a histogram for durations that are mostly below 1 ms.
    pub fn fine() -> Histogram {
        Histogram::starting_at(FIRST_FINE_MICROS)
    }

    fn starting_at(first_micros: u64) -> Histogram {
        Histogram { first_micros, counts: Default::default(), micros: AtomicU64::new(0) }
    }

    pub fn add(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let powers = micros.div_ceil(self.first_micros).max(1).next_power_of_two().trailing_zeros();
        self.counts[(powers as usize).min(BOUNDS)].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns each bound in seconds with the number of durations up to it.
    pub fn bounds(&self) -> Vec<(f64, u64)> {
        let mut below = 0;
        let bound = |at: usize| (self.first_micros << at) as f64 / 1e6;
        let counts = self.counts[..BOUNDS].iter().enumerate();
        counts
            .map(|(at, count)| {
                below += count.load(Ordering::Relaxed);
                (bound(at), below)
            })
            .collect()
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns the sum of all durations.
    pub fn seconds(&self) -> f64 {
        self.micros.load(Ordering::Relaxed) as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_below_every_bound_that_it_does_not_pass() {
        let times = Histogram::default();
        for micros in [0, 1000, 1001, 2000, 8_192_000, 8_192_001] {
            times.add(Duration::from_micros(micros));
        }
        let bounds = times.bounds();
        assert_eq!(bounds[..2], [(0.001, 2), (0.002, 4)]);
        assert_eq!(bounds.last(), Some(&(8.192, 5)));
        assert_eq!((times.count(), times.seconds()), (6, 16.388_002));
        times.add(Duration::MAX);
        assert_eq!(times.count(), 7, "however long it is");
    }
}
