//! How much a read does before other tasks get their turn. A filter may take
//! nanoseconds or milliseconds for a cell, so the size of a batch follows from
//! how long the batch before it took.

use std::time::{Duration, Instant};

use crate::filter::Filter;

/// Batches that take longer than this are made smaller.
const BATCH_TIME_MAX: Duration = Duration::from_millis(2);
/// Batches that take less than this are made larger.
const BATCH_TIME_MIN: Duration = Duration::from_micros(500);
/// Cells of one row between two looks at the clock.
const CLOCK_CELLS: usize = 64;

/// The size of a read's batches.
pub struct Pace {
    work: usize,
    /// A slow disk must not make the batches of a fast filter tiny: each batch
    /// has to find its place again.
    work_min: usize,
}

impl Pace {
    /// The largest batch, in entries examined.
    pub const WORK_MAX: usize = 8 << 10;
    /// What may be examined of a row that is read in one go. Entries count
    /// whether they are returned, filtered out, deleted or purged.
    pub const ROW_WORK_MAX: usize = Pace::WORK_MAX / 2;
    /// What a batch may examine at least if the patterns of its filter have no
    /// more than `FAST_STATES` states.
    const FAST_WORK_MIN: usize = 1 << 10;
    const FAST_STATES: usize = 64;

    /// For reads that take all cells.
    pub fn fast() -> Pace {
        Pace { work: Pace::WORK_MAX, work_min: Pace::WORK_MAX }
    }

    /// For reads through a filter.
    pub fn of_filter(filter: &Filter) -> Pace {
        let states = (filter.states() as usize).max(Pace::FAST_STATES);
        let work_min = (Pace::FAST_WORK_MIN * Pace::FAST_STATES / states).max(1);
        Pace { work: work_min, work_min }
    }

    /// Entries that the next batch may examine.
    pub fn work(&self) -> usize {
        self.work
    }

    /// A batch took this long.
    pub fn note(&mut self, took: Duration) {
        if took > BATCH_TIME_MAX {
            self.work = (self.work / 2).max(self.work_min);
        } else if took < BATCH_TIME_MIN {
            self.work = (self.work * 2).min(Pace::WORK_MAX);
        }
    }
}

/// Limits the time of reading one row in one go: a filter may be slow.
#[derive(Default)]
pub struct RowClock {
    cells: usize,
    since: Option<Instant>,
}

impl RowClock {
    /// Whether the read has to pause before the next cell.
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
