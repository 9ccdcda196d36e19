//! How much one step of a read does before other tasks of its thread get their
//! turn. What a read returns says little about that: absent keys and deleted
//! records take work and return next to nothing.

use std::time::{Duration, Instant};

/// A step ends when it has taken this long, as soon as that is noticed.
const TIME_MAX: Duration = Duration::from_millis(2);
/// Lookups of one step, at most.
const LOOKUPS_MAX: usize = 512;
/// Lookups between two readings of the clock.
const CLOCK_LOOKUPS: usize = 16;
/// Batches of scans in one step that did not come to their end, at most.
const BATCHES_MAX: usize = 4;

/// What one step has done so far.
#[derive(Default)]
pub struct Effort {
    lookups: usize,
    batches: usize,
    /// Read for the first time after some lookups: most steps have fewer.
    since: Option<Instant>,
}

impl Effort {
    /// Entries that one batch of a scan may examine.
    pub const BATCH_WORK: usize = 8 << 10;

    /// Counts a key that was looked up. Returns whether the step is to end.
    pub fn is_spent_by_lookup(&mut self) -> bool {
        self.lookups += 1;
        self.lookups >= LOOKUPS_MAX || self.lookups.is_multiple_of(CLOCK_LOOKUPS) && self.is_late()
    }

    /// Counts a batch of a scan, or the last one from some start. Returns
    /// whether the step is to end.
    pub fn is_spent_by_batch(&mut self, is_last: bool) -> bool {
        self.lookups += usize::from(is_last);
        self.batches += usize::from(!is_last);
        self.lookups >= LOOKUPS_MAX || self.batches >= BATCHES_MAX || self.is_late()
    }

    fn is_late(&mut self) -> bool {
        self.since.get_or_insert_with(Instant::now).elapsed() > TIME_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_ends_after_its_lookups_however_fast_they_are() {
        let mut effort = Effort::default();
        let before = (0..10 * LOOKUPS_MAX).take_while(|_| !effort.is_spent_by_lookup()).count();
        assert!(before < LOOKUPS_MAX && (before + 1).is_multiple_of(CLOCK_LOOKUPS), "{before}");
    }

    #[test]
    fn a_step_ends_after_its_batches_and_sooner_if_they_take_long() {
        let mut effort = Effort::default();
        assert!((0..BATCHES_MAX).any(|_| effort.is_spent_by_batch(false)));
        let mut effort = Effort { since: Instant::now().checked_sub(2 * TIME_MAX), ..effort };
        assert!(effort.is_spent_by_batch(true));
    }
}
