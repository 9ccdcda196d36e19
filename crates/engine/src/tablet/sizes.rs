//! Sizes of tables and parts of them, computed from the config and the
//! fragments' indexes without reading data. Hidden families do not count.

use std::sync::Arc;

use super::table::{GroupMemory, TableVersion};
use crate::cell::rows::RowRange;

/// The sizes of a table at one point in time.
pub struct TableSizes {
    version: Arc<TableVersion>,
}

impl TableSizes {
    pub(crate) fn new(version: Arc<TableVersion>) -> TableSizes {
        TableSizes { version }
    }

    /// Returns the approximate size on disk of a range of rows.
    pub fn disk_bytes(&self, range: &RowRange) -> u64 {
        self.version.disk_bytes(range)
    }

    /// Returns the number of bytes that are only in memory.
    pub fn memory_bytes(&self) -> u64 {
        self.version.visible_memory().iter().map(GroupMemory::bytes).sum::<usize>() as u64
    }

    /// Returns the rows inside a range at which tablets begin, in order.
    pub fn tablet_starts(&self, range: &RowRange) -> Vec<Vec<u8>> {
        let starts = self.version.tablets.overlapping(range).map(|tablet| &tablet.rows.start);
        starts.filter(|start| **start > range.start).cloned().collect()
    }

    /// Returns rows, in order, that divide a range into parts of about
    /// `part_bytes` on disk each. The last part may be larger by up to half of
    /// that.
    pub fn boundaries(&self, range: &RowRange, part_bytes: u64) -> Vec<Vec<u8>> {
        let mut points = self.points(range, part_bytes);
        points.sort_unstable();
        let total: u64 = points.iter().map(|(_, bytes)| bytes).sum();
        let (mut passed, mut part) = (0, 0);
        let mut boundaries: Vec<Vec<u8>> = Vec::new();
        for (row, bytes) in points {
            passed += bytes;
            part += bytes;
            let inside = row > range.start && range.contains(&row);
            let rest_is_a_part = total - passed >= part_bytes / 2;
            let is_new = boundaries.last() != Some(&row);
            if part >= part_bytes && inside && rest_is_a_part && is_new {
                boundaries.push(row);
                part = 0;
            }
        }
        boundaries
    }

    /// Returns rows, each with the approximate size of the stretch of some
    /// fragment that ends there.
    fn points(&self, range: &RowRange, part_bytes: u64) -> Vec<(Vec<u8>, u64)> {
        let visible = self.version.schema.visible_groups();
        let tablets = self.version.tablets.overlapping(range);
        let chains = tablets.flat_map(|tablet| &tablet.chains[..visible]);
        let links = chains.flat_map(|chain| &chain.runs).flat_map(|run| run.links_of(range));
        let mut points = Vec::new();
        for link in links {
            let part = range.intersection(&link.rows);
            link.for_each_stretch(part_bytes, |rows, bytes| {
                let part = part.intersection(&rows);
                if let (false, Some(end)) = (part.is_empty(), part.end) {
                    points.push((end, bytes));
                }
            });
        }
        points
    }
}
