//! Samples of the time that operations on a table take, with their rows: which tablets
//! are busy, and where to split one that is. One operation in 64 is measured, so that
//! the others pay for a counter of their thread alone.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

use crate::sync::Mutex;

/// One in this many operations of a thread is measured.
const SAMPLE_EVERY: u32 = 64;
/// Samples are collected for intervals of this length.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// Number of intervals that are kept, with the current one.
const INTERVALS_MAX: usize = 8;
/// Maximum number of rows that are kept of an interval.
const ROWS_MAX: usize = 64;
/// Maximum length of a kept row. A longer row is truncated.
const ROW_BYTES_MAX: usize = 256;

thread_local! {
    static UNTIL_SAMPLE: Cell<u32> = const { Cell::new(SAMPLE_EVERY) };
}

/// Whether to measure the next operation of this thread. Never if a test schedules the
/// threads, whose schedules must not depend on earlier ones.
#[inline]
pub fn is_sampled() -> bool {
    if cfg!(feature = "shuttle") {
        return false;
    }
    UNTIL_SAMPLE.with(|until| {
        let left = until.get() - 1;
        until.set(if left == 0 { SAMPLE_EVERY } else { left });
        left == 0
    })
}

/// The samples of one table.
#[derive(Default)]
pub struct LoadSamples {
    intervals: Mutex<VecDeque<LoadInterval>>,
}

/// What was measured during one interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadInterval {
    /// The intervals before it, since the start of the clock.
    pub(crate) number: u64,
    /// The approximate time that all operations took.
    pub busy: Duration,
    /// Number of samples.
    pub(crate) samples: u64,
    /// Rows chosen at random from the samples, with the time that each took.
    pub rows: Vec<(Vec<u8>, Duration)>,
}

impl LoadSamples {
    /// Adds a sampled operation that ended at `now`.
    pub fn add(&self, row: &[u8], took: Duration, now: Duration) {
        let number = number_of(now);
        // An operation too short for the clock still counts.
        let took = took.max(Duration::from_nanos(1));
        let mut intervals = self.intervals.lock();
        if intervals.back().is_none_or(|last| last.number < number) {
            if intervals.len() == INTERVALS_MAX {
                intervals.pop_front();
            }
            intervals.push_back(LoadInterval { number, ..LoadInterval::default() });
        }
        let interval = intervals.back_mut().expect("it was just added");
        interval.busy += took * SAMPLE_EVERY;
        interval.samples += 1;
        let sample = || (row[..row.len().min(ROW_BYTES_MAX)].to_vec(), took);
        if interval.rows.len() < ROWS_MAX {
            interval.rows.push(sample());
            return;
        }
        // Every sample is kept with the same probability.
        let at = mixed(interval.samples) % interval.samples;
        if let Some(replaced) = usize::try_from(at).ok().and_then(|at| interval.rows.get_mut(at)) {
            *replaced = sample();
        }
    }

    /// Returns the last `count` complete intervals before `now`, oldest first; those
    /// without operations are empty.
    pub fn last(&self, count: usize, now: Duration) -> Vec<LoadInterval> {
        let intervals = self.intervals.lock();
        let current = number_of(now);
        let numbers = (1..=count as u64).rev().map(|back| current.checked_sub(back));
        let find = |number: Option<u64>| {
            let found = intervals.iter().find(|interval| Some(interval.number) == number);
            found.cloned().unwrap_or_default()
        };
        numbers.map(find).collect()
    }
}

fn number_of(now: Duration) -> u64 {
    now.as_secs() / INTERVAL.as_secs()
}

/// Returns a number that looks random.
fn mixed(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);

    #[test]
    fn one_operation_in_sixty_four_is_measured() {
        let sampled = (0..64 * 10).filter(|_| is_sampled()).count();
        assert_eq!(sampled, if cfg!(feature = "shuttle") { 0 } else { 10 });
    }

    #[test]
    fn samples_are_kept_for_a_few_intervals_with_a_limited_number_of_rows() {
        let samples = LoadSamples::default();
        for interval in 0..20u64 {
            for number in 0..1000u64 {
                let now = INTERVAL * interval as u32 + Duration::from_millis(number);
                samples.add(&[b'r'; 1000], MICRO, now);
            }
        }
        let now = INTERVAL * 20;
        let last = samples.last(6, now);
        assert_eq!(last.len(), 6);
        for interval in &last {
            assert_eq!(interval.busy, MICRO * 64 * 1000);
            assert_eq!((interval.rows.len(), interval.rows[0].0.len()), (ROWS_MAX, ROW_BYTES_MAX));
        }
        assert_eq!(
            samples.last(1, now + 2 * INTERVAL),
            [LoadInterval::default()],
            "nothing happened"
        );
        assert!(samples.intervals.lock().len() <= INTERVALS_MAX);
    }

    #[test]
    fn the_kept_rows_are_spread_over_the_interval() {
        let samples = LoadSamples::default();
        for number in 0..10_000u32 {
            samples.add(&number.to_be_bytes(), MICRO, Duration::ZERO);
        }
        let rows = samples.last(1, INTERVAL).remove(0).rows;
        let early = rows.iter().filter(|(row, _)| row[..] < 5000u32.to_be_bytes()[..]).count();
        assert!((ROWS_MAX / 4..ROWS_MAX * 3 / 4).contains(&early), "{early} of {}", rows.len());
    }
}
