//! The tablets of a store: list, split and join them.

use super::handle::Store;
use super::waiters::Stage;
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::config::TabletId;
use crate::error::{Error, Result};

/// A tablet as callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TabletInfo {
    pub id: TabletId,
    /// Increases with each change of the rows.
    pub load: u64,
    pub rows: RowRange,
    /// Approximate size on disk.
    pub disk_bytes: u64,
}

impl Store {
    /// Returns the tablets of a table, in row order.
    pub fn tablets(&self, table: TableId) -> Result<Vec<TabletInfo>> {
        let version = self.engine.tables.map.get(table)?.pinned_version();
        let tablets = version.tablets.iter().map(|tablet| TabletInfo {
            id: tablet.id,
            load: tablet.load,
            rows: tablet.rows.clone(),
            disk_bytes: tablet.links().map(|link| link.share()).sum(),
        });
        Ok(tablets.collect())
    }

    /// Splits the tablet with `row` before that row, durably. Returns whether it did:
    /// the row may already be the first of a tablet. No data is rewritten; readers and
    /// writers notice nothing. Only a compaction of the tablet starts again.
    pub fn split(&self, table: TableId, row: &[u8]) -> Result<bool> {
        self.check_open()?;
        self.check_split_row(row)?;
        let table = self.engine.tables.map.get(table)?;
        let split = self.engine.tables.split(&table, row)?;
        if split {
            self.engine.claims.raise();
        }
        Ok(split)
    }

    /// Joins the two tablets that meet at `row`, durably. No data is rewritten;
    /// readers and writers notice nothing. Memory is flushed first if the two have
    /// not been flushed up to the same commit.
    pub fn join(&self, table: TableId, row: &[u8]) -> Result<()> {
        self.check_open()?;
        let id = table;
        let table = self.engine.tables.map.get(table)?;
        loop {
            let gone = table.version().tablets.before(Some(row)).id;
            if self.engine.tables.join(&table, row)? {
                self.engine.failures.forget_tablet(gone);
                self.engine.waiters.wake(Stage::Chains);
                self.engine.claims.raise();
                return Ok(());
            }
            self.flush(id)?;
        }
    }

    pub(super) fn check_split_row(&self, row: &[u8]) -> Result<()> {
        let limit = self.engine.tables.options.limits.row_bytes_max;
        if row.len() > limit {
            return Err(Error::TooLarge { what: "a row key", size: row.len(), limit });
        }
        Ok(())
    }
}
