//! The tombstones that lie over the place a merge stands at.

use crate::cell::commit::TimeRange;
use crate::cell::key::Level;
use crate::cell::normal::decode_times;
use crate::txn::Txn;

/// Tombstones met on the way to the current column, level by level. A
/// tombstone covers what lies under it and has a smaller txn.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// Over the row: range tombstones and row tombstones.
    row: Vec<Txn>,
    family: Vec<Txn>,
    column: Vec<(TimeRange, Txn)>,
    /// The newest of `row` and `family`.
    floor: Txn,
}

impl Coverage {
    /// A new row begins, under these range tombstones.
    pub fn enter_row(&mut self, spans: impl Iterator<Item = Txn>) {
        self.row.clear();
        self.row.extend(spans);
        self.enter_family();
    }

    pub fn enter_family(&mut self) {
        self.family.clear();
        self.enter_column();
        self.floor = self.row.iter().copied().max().unwrap_or(Txn::ZERO);
    }

    pub fn enter_column(&mut self) {
        self.column.clear();
    }

    /// Cells of the current family up to `txn` are of an earlier life of it.
    pub fn begin_family_after(&mut self, txn: Txn) {
        if txn > Txn::ZERO {
            self.floor = self.floor.max(txn.next());
        }
    }

    /// Adds a tombstone of the current row, family or column.
    pub fn add(&mut self, level: Level, txn: Txn, value: &[u8]) {
        match level {
            Level::RowTombstone => self.row.push(txn),
            Level::FamilyTombstone => self.family.push(txn),
            Level::ColumnTombstone => {
                self.column.extend(decode_times(value).map(|times| (times, txn)));
                return;
            }
            Level::Cell => unreachable!("a cell is no tombstone"),
        }
        self.floor = self.floor.max(txn);
    }

    /// Whether a cell of the current column is deleted.
    pub fn covers(&self, timestamp: i64, txn: Txn) -> bool {
        txn < self.floor
            || self.column.iter().any(|(times, over)| txn < *over && times.contains(timestamp))
    }

    /// The oldest tombstone that deletes a cell of the current column.
    pub fn nearest_over_cell(&self, timestamp: i64, txn: Txn) -> Option<Txn> {
        let column = self.column.iter().filter(|(times, _)| times.contains(timestamp));
        self.over(Level::Cell).chain(column.map(|&(_, over)| over)).filter(|&over| over > txn).min()
    }

    /// The oldest tombstone of the same or a higher level that makes a
    /// tombstone needless.
    pub fn nearest_over_tombstone(&self, level: Level, txn: Txn) -> Option<Txn> {
        self.over(level).filter(|&over| over > txn).min()
    }

    fn over(&self, level: Level) -> impl Iterator<Item = Txn> {
        let family: &[Txn] = if level == Level::RowTombstone { &[] } else { &self.family };
        self.row.iter().chain(family).copied()
    }
}
