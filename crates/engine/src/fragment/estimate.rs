//! Estimates of how many bytes of a fragment belong to which rows, from its index.

use std::sync::Arc;

use crate::cell::key::{self, row_start};
use crate::cell::rows::{RowRange, successor};
use crate::fragment::index::IndexPartition;
use crate::fragment::reader::Fragment;

/// The number of stretches per index partition for estimates.
const STRETCHES_PER_PARTITION: usize = 4;

impl Fragment {
    /// Estimates the stored bytes of the rows in `range`. The estimate of a subrange is
    /// never larger.
    pub fn estimate_bytes(&self, range: &RowRange) -> u64 {
        let Some((first, last)) = &self.meta().row_bounds else { return 0 };
        let before = range.end.as_ref().is_some_and(|end| end <= first);
        if range.is_empty() || before || range.start > *last {
            return 0;
        }
        let start = self.offset_in(self.partition_of(&row_start(&range.start)), |partition| {
            let number = partition.separators.count_to(&row_start(&range.start)).saturating_sub(1);
            partition.handles[number].offset
        });
        let end = range.end.as_ref().map(|end| row_start(end));
        let end = end.map_or(self.meta().data_bytes, |end| {
            let number = self.partition_before(&end);
            self.offset_in(number, |partition| {
                let number = partition.separators.count_before(&end).saturating_sub(1);
                partition.handles[number].end()
            })
        });
        end.saturating_sub(start)
    }

    /// Calls `with` for stretches of the file in row order, with the approximate rows
    /// and stored bytes of each. Reads nothing: the stretches are as short as the part
    /// of the index in memory allows.
    pub fn for_each_stretch(&self, with: impl FnMut(RowRange, u64)) {
        self.stretches(|number| self.loaded_partition(number), with);
    }

    /// Like `for_each_stretch`, but reads the parts of the index that are not in memory.
    pub fn for_each_read_stretch(&self, with: impl FnMut(RowRange, u64)) {
        self.stretches(|number| self.partition(number).ok(), with);
    }

    fn stretches(
        &self,
        partition: impl Fn(usize) -> Option<Arc<IndexPartition>>,
        mut with: impl FnMut(RowRange, u64),
    ) {
        let Some((first, last)) = &self.meta().row_bounds else { return };
        let (mut start, mut offset) = (first.clone(), 0);
        let mut cut = |separator: &[u8], at: u64| {
            let row = row_near(separator);
            if row > start && row <= *last {
                let rows = RowRange::new(std::mem::replace(&mut start, row.clone()), row);
                with(rows, at - std::mem::replace(&mut offset, at));
            }
        };
        for (number, section) in self.index.iter().enumerate() {
            if number > 0 {
                cut(&section.first_separator, section.data_offset);
            }
            let Some(partition) = partition(number) else { continue };
            let blocks = partition.handles.len();
            let inner =
                (1..STRETCHES_PER_PARTITION).map(|at| blocks * at / STRETCHES_PER_PARTITION);
            for block in inner.filter(|&block| block > 0) {
                cut(partition.separators.get(block), partition.handles[block].offset);
            }
        }
        with(RowRange { start, end: Some(successor(last)) }, self.meta().data_bytes - offset);
    }

    /// Returns an offset within a partition; its start if the partition is unreadable.
    fn offset_in(&self, number: usize, offset: impl FnOnce(&IndexPartition) -> u64) -> u64 {
        match self.partition(number) {
            Ok(partition) => offset(&partition),
            Err(_) => self.index[number].data_offset,
        }
    }
}

/// Returns the row of a separator, which may be truncated.
fn row_near(separator: &[u8]) -> Vec<u8> {
    key::row_of(separator).unwrap_or_else(|| {
        let mut row = Vec::new();
        key::unescape_into(separator, &mut row);
        row
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fragment::testing::{OneFile, entries, options};

    proptest! {
        #[test]
        fn a_wider_range_is_never_estimated_smaller(
            entries in entries(1..80),
            options in options(),
            mut cuts in prop::collection::vec(prop::collection::vec(0u8..3, 0..3), 4),
        ) {
            let file = OneFile::default();
            let meta = file.write(options, &entries).unwrap();
            let fragment = file.open().unwrap();
            cuts.sort();
            let [a, b, c, d] = <[Vec<u8>; 4]>::try_from(cuts).unwrap();
            let inner = fragment.estimate_bytes(&RowRange::new(b.clone(), c));
            prop_assert!(inner <= fragment.estimate_bytes(&RowRange::new(a, d)));
            prop_assert!(inner <= fragment.estimate_bytes(&RowRange::from(b)));
            prop_assert_eq!(fragment.estimate_bytes(&RowRange::all()), meta.data_bytes);
        }
    }
}
