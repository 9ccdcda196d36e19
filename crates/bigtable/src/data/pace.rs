//! Determines how much a read does before it yields to other tasks. A filter may
//! take nanoseconds or milliseconds per cell, so the size of a batch is derived
//! from how long the previous one took.

use std::time::{Duration, Instant};

use crate::filter::Filter;

/// Batches that take longer than this are made smaller.
const BATCH_TIME_MAX: Duration = Duration::from_millis(2);
/// Batches that take less than this are made larger.
const BATCH_TIME_MIN: Duration = Duration::from_micros(500);
/// The number of cells of one row between two clock readings.
const CLOCK_CELLS: usize = 64;

/// The batch size of a read.
pub struct Pace {
    work: usize,
    /// The minimum batch size. A slow disk must not make the batches of a fast
    /// filter tiny: each batch has to seek to its position again.
    work_min: usize,
}

impl Pace {
    /// The largest batch, in examined entries.
    pub const WORK_MAX: usize = 8 << 10;
    /// The maximum number of entries examined in a row that is read in a single
    /// batch. Entries count whether they are returned, filtered out, deleted or
    /// purged.
    pub const ROW_WORK_MAX: usize = Pace::WORK_MAX / 2;
    /// The minimum batch size if the patterns of the filter have no more than
    /// `FAST_STATES` states.
    const FAST_WORK_MIN: usize = 1 << 10;
    const FAST_STATES: usize = 64;

    /// Creates the pace of a read that returns all cells.
    pub fn fast() -> Pace {
        Pace { work: Pace::WORK_MAX, work_min: Pace::WORK_MAX }
    }

    /// Creates the pace of a read through a filter.
    pub fn of_filter(filter: &Filter) -> Pace {
        let states = (filter.states() as usize).max(Pace::FAST_STATES);
        let work_min = (Pace::FAST_WORK_MIN * Pace::FAST_STATES / states).max(1);
        Pace { work: work_min, work_min }
    }

    /// Returns the number of entries that the next batch may examine.
    pub fn work(&self) -> usize {
        self.work
    }

    /// Adjusts the batch size to the duration of the last batch.
    pub fn note(&mut self, took: Duration) {
        if took > BATCH_TIME_MAX {
            self.work = (self.work / 2).max(self.work_min);
        } else if took < BATCH_TIME_MIN {
            self.work = (self.work * 2).min(Pace::WORK_MAX);
        }
    }
}

/// Limits the time for reading one row in a single batch: a filter may be slow.
#[derive(Default)]
pub struct RowClock {
    cells: usize,
    since: Option<Instant>,
}

impl RowClock {
    /// Returns whether the read has to pause before the next cell.
    #[inline]
    pub fn is_late(&mut self) -> bool {
        self.cells += 1;
        self.cells.is_multiple_of(CLOCK_CELLS) && self.has_passed()
    }

    #[cold]
    fn has_passed(&mut self) -> bool {
        self.since.get_or_insert_with(Instant::now).elapsed() > BATCH_TIME_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::v2;

    #[test]
    fn batches_shrink_while_they_are_slow_and_grow_while_they_are_fast() {
        let filter = |pattern: String| {
            let kind = v2::row_filter::Filter::ValueRegexFilter(pattern.into());
            Filter::compile(Some(&v2::RowFilter { filter: Some(kind) })).unwrap()
        };
        let mut pace = Pace::of_filter(&filter(r"\w{1000}".repeat(32)));
        assert_eq!(pace.work(), 2);
        (0..20).for_each(|_| pace.note(Duration::from_micros(10)));
        assert_eq!(pace.work(), Pace::WORK_MAX);
        pace.note(Duration::from_millis(1));
        assert_eq!(pace.work(), Pace::WORK_MAX);
        pace.note(Duration::from_millis(3));
        assert_eq!(pace.work(), Pace::WORK_MAX / 2);
        (0..20).for_each(|_| pace.note(Duration::from_secs(1)));
        assert_eq!(pace.work(), 2);
        let mut pace = Pace::of_filter(&filter("simple.+".into()));
        (0..20).for_each(|_| pace.note(Duration::from_secs(1)));
        assert_eq!(pace.work(), Pace::FAST_WORK_MIN, "a slow disk, not a slow filter");
        let mut pace = Pace::fast();
        pace.note(Duration::from_secs(1));
        assert_eq!(pace.work(), Pace::WORK_MAX);
    }
}
