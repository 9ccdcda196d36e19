//! The tablets of a store: list, check, compact, split and join them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::handle::Store;
use super::waiters::Stage;
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::config::{FileName, TabletId};
use crate::error::{Error, Result};
use crate::tablet::{Chain, Link, Table, TabletState};
use crate::verify::TableCheck;

/// A tablet as callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TabletInfo {
    pub id: TabletId,
    /// Increases with each change of the rows, and with each load.
    pub load: u64,
    pub rows: RowRange,
    /// Whether its rows are served.
    pub state: TabletState,
    /// Approximate size on disk.
    pub disk_bytes: u64,
    /// One per group of the schema.
    pub chains: Vec<ChainInfo>,
}

/// The files of one tablet and group, as callers see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainInfo {
    pub group: String,
    pub runs: usize,
    /// Several tablets may share a file, so each counts it.
    pub files: usize,
    /// Approximate size on disk of the tablet's rows.
    pub disk_bytes: u64,
    /// Files that cannot be read, as far as is known.
    pub damaged: usize,
}

impl ChainInfo {
    fn new(group: &str, chain: &Chain) -> ChainInfo {
        ChainInfo {
            group: group.to_string(),
            runs: chain.runs.len(),
            files: chain.links().count(),
            disk_bytes: chain.links().map(|link| link.share()).sum(),
            damaged: chain.links().filter(|link| !link.is_readable()).count(),
        }
    }
}

/// How a table is divided into tablets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TabletSummary {
    pub table: String,
    pub tablets: usize,
    /// Approximate size on disk, of all tablets and of the largest.
    pub disk_bytes: u64,
    pub largest_bytes: u64,
}

impl Store {
    /// Returns the tablets of a table, in row order.
    pub fn tablets(&self, table: TableId) -> Result<Vec<TabletInfo>> {
        let version = self.engine.tables.map.get(table)?.pinned_version();
        let groups = version.schema.groups();
        let tablets = version.tablets.iter().map(|tablet| TabletInfo {
            id: tablet.id,
            load: tablet.load,
            rows: tablet.rows.clone(),
            state: tablet.state,
            disk_bytes: tablet.disk_bytes(),
            chains: groups
                .iter()
                .zip(&tablet.chains)
                .map(|(group, chain)| ChainInfo::new(&group.name, chain))
                .collect(),
        });
        Ok(tablets.collect())
    }

    /// Returns the number of tablets of a table.
    pub fn tablet_count(&self, table: TableId) -> Result<usize> {
        Ok(self.engine.tables.map.get(table)?.version().tablets.len())
    }

    /// Returns how each table is divided into tablets, ordered by table id.
    pub fn tablet_summaries(&self) -> Vec<TabletSummary> {
        let summary = |table: &Arc<Table>| {
            let version = table.pinned_version();
            let sizes = version.tablets.iter().map(|tablet| tablet.disk_bytes());
            let (total, largest) =
                sizes.fold((0, 0), |(total, largest), size| (total + size, size.max(largest)));
            TabletSummary {
                table: table.name.clone(),
                tablets: version.tablets.len(),
                disk_bytes: total,
                largest_bytes: largest,
            }
        };
        self.engine.tables.map.all().values().map(summary).collect()
    }

    /// Compacts each chain of the tablet with `row` into one run. Returns the row at
    /// which to continue with the next tablet; `None` after the last one.
    pub fn compact_tablet(&self, table: TableId, row: &[u8]) -> Result<Option<Vec<u8>>> {
        self.check_open()?;
        let table = self.engine.tables.map.get(table)?;
        self.engine.compact_tablet(&table, row)
    }

    /// Starts a check of the files that the tablets of a table refer to now. They are
    /// kept until the check is dropped.
    pub fn check_table(&self, table: TableId) -> Result<TableCheck> {
        self.check_open()?;
        let tables = &self.engine.tables;
        let table = tables.map.get(table)?;
        let version = table.pinned_version();
        let held: BTreeMap<FileName, Arc<Link>> = version
            .tablets
            .iter()
            .flat_map(|tablet| tablet.links())
            .map(|link| (link.file.name, link.clone()))
            .collect();
        let config = version.config(table.id, &table.name);
        // Read after the version, so that its counters are not behind.
        let configs = tables.config.read()?;
        let (files, dir) = (&tables.world.files, tables.fragments.store_dir());
        Ok(TableCheck::new(files, dir, tables.fragments.remote(), &config, &configs, held))
    }

    /// Splits the tablet with `row` before that row, durably. Returns whether it did:
    /// the row may already be the first of a tablet. No data is rewritten; readers and
    /// writers notice nothing. Only a compaction of the tablet starts again.
    pub fn split(&self, table: TableId, row: &[u8]) -> Result<bool> {
        self.check_alone("split tablets")?;
        self.check_split_row(row)?;
        let table = self.engine.tables.map.get(table)?;
        let split = self.engine.tables.split(&table, row)?;
        if split {
            self.engine.counters.tablet_splits.fetch_add(1, Ordering::Relaxed);
            self.engine.claims.raise();
        }
        Ok(split)
    }

    /// Joins the two tablets that meet at `row`, durably. No data is rewritten;
    /// readers and writers notice nothing. Memory is flushed first if the two have
    /// not been flushed up to the same commit.
    pub fn join(&self, table: TableId, row: &[u8]) -> Result<()> {
        self.check_alone("join tablets")?;
        let id = table;
        let table = self.engine.tables.map.get(table)?;
        loop {
            let gone = table.version().tablets.before(Some(row)).id;
            if self.engine.tables.join(&table, row)? {
                self.engine.counters.tablet_joins.fetch_add(1, Ordering::Relaxed);
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
