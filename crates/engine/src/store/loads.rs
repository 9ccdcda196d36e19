//! Loading and unloading of tablets. The rows of an unloaded tablet are neither read
//! nor written, everything in it is in files, and nothing of it has to be replayed.
//! Other tablets of the table are served meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::engine::Engine;
use super::handle::Store;
use super::waiters::Stage;
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::config::{ConfigEdit, RowChange, RowEdit, RowKey, TabletId};
use crate::error::{Error, Result};
use crate::tablet::{Chain, GroupMemory, Publishing, Table, TableVersion, Tablet, TabletState};
use crate::txn::Txn;
use crate::workers::flush::FlushTarget;

impl Store {
    /// Loads all unloaded tablets of a table that have rows in one of the ranges,
    /// durably, in one change of the config. Returns how many; other tablets are not
    /// touched. Requests to these rows wait meanwhile. Whatever was read before a load
    /// counts as changed for later commits.
    pub fn load(&self, table: TableId, rows: &[RowRange]) -> Result<usize> {
        // Others may have changed the rows of unloaded tablets: see `Store::load_rows`.
        self.check_alone("load tablets")?;
        self.check_loads()?;
        let table = self.engine.tables.map.get(table)?;
        self.engine.load_tablets(&table, rows)
    }

    /// Unloads all loaded tablets of a table that have rows in one of the ranges,
    /// durably, with one flush and one change of the config. Returns how many. Their
    /// rows can be read and written until most of the memory is flushed, then only
    /// read, and finally fail with `TabletNotLoaded`. The tablets stay unloaded across
    /// restarts. If unloading fails, they are served as before.
    pub fn unload(&self, table: TableId, rows: &[RowRange]) -> Result<usize> {
        self.check_loads()?;
        let table = self.engine.tables.map.get(table)?;
        self.engine.unload_tablets(&table, rows)
    }

    fn check_loads(&self) -> Result<()> {
        self.check_open()?;
        // Commits of an external log cannot be refused.
        if self.engine.log.external().is_some() { Err(Error::HasExternalLog) } else { Ok(()) }
    }
}

impl Engine {
    fn load_tablets(&self, table: &Arc<Table>, ranges: &[RowRange]) -> Result<usize> {
        let _turn = table.lock_loads();
        let publishing = table.publish();
        let chosen = Chosen::of(&publishing, ranges, TabletState::Unloaded);
        if chosen.tablets.is_empty() {
            return Ok(0);
        }
        self.loading.fetch_add(chosen.tablets.len(), Ordering::AcqRel);
        chosen.show(&publishing, |tablet| tablet.state = TabletState::Reading);
        drop(publishing);
        let claimed =
            self.flush_up_to(table, chosen.loaded_at).and_then(|()| self.claim(table, &chosen));
        if claimed.is_err() {
            chosen.show(&table.publish(), |tablet| tablet.state = TabletState::Unloaded);
        }
        self.loading.fetch_sub(chosen.tablets.len(), Ordering::AcqRel);
        // Requests that waited go on, or learn that the load failed.
        self.waiters.wake(Stage::Load);
        self.claims.raise();
        claimed.map(|()| chosen.tablets.len())
    }

    /// Records that the tablets are loaded, then serves them.
    fn claim(&self, table: &Table, chosen: &Chosen) -> Result<()> {
        let publishing = table.publish();
        publishing.check_exists()?;
        chosen.show(&publishing, |tablet| tablet.state = TabletState::Claiming);
        let recorded = self.record(&publishing, table, chosen, true, None)?;
        let since = self.tables.world.clock.elapsed();
        let no_writers = self.sequencer.lock();
        let latest = self.latest();
        chosen.show(&publishing, |tablet| {
            tablet.state = TabletState::Writable;
            tablet.load = recorded[&tablet.id];
            (tablet.loaded_at, tablet.since) = (latest, since);
        });
        table.loaded(latest);
        table.raise_fence();
        drop(no_writers);
        // Their files are opened when they are read.
        chosen.show(&publishing, |tablet| tablet.state = TabletState::Active);
        Ok(())
    }

    fn unload_tablets(&self, table: &Arc<Table>, ranges: &[RowRange]) -> Result<usize> {
        let _turn = table.lock_loads();
        if Chosen::of(&table.publish(), ranges, TabletState::Active).tablets.is_empty() {
            return Ok(0);
        }
        // Most memory is flushed before writes stop, so that they stop briefly.
        self.flush_up_to(table, self.latest())?;
        let (chosen, stopped_at) = self.stop_writes(table, ranges);
        let closed = self
            .flush_up_to(table, stopped_at)
            .and_then(|()| self.close_tablets(table, &chosen, stopped_at));
        if let Err(error) = closed {
            chosen.show(&table.publish(), |tablet| tablet.state = TabletState::Active);
            return Err(error);
        }
        for (id, _) in &chosen.tablets {
            self.failures.forget_tablet(*id);
        }
        // Nobody has to wait for the chains of these tablets any longer.
        self.waiters.wake(Stage::Chains);
        Ok(chosen.tablets.len())
    }

    /// Stops writes to the tablets. Returns a txn after which none of them was written.
    fn stop_writes(&self, table: &Table, ranges: &[RowRange]) -> (Chosen, Txn) {
        let publishing = table.publish();
        let chosen = Chosen::of(&publishing, ranges, TabletState::Active);
        let _no_writers = self.sequencer.lock();
        chosen.show(&publishing, |tablet| tablet.state = TabletState::ReadOnly);
        table.raise_fence();
        (chosen, self.latest())
    }

    /// Stops reads of the tablets and records that they are unloaded. All memory up to
    /// `stopped_at` is in files.
    fn close_tablets(&self, table: &Table, chosen: &Chosen, stopped_at: Txn) -> Result<()> {
        let publishing = table.publish();
        publishing.check_exists()?;
        chosen.show(&publishing, |tablet| tablet.state = TabletState::Closing);
        self.record(&publishing, table, chosen, false, Some(stopped_at))?;
        // Another server may change the files from now on.
        let forgets = self.log.is_of_cluster();
        let unload = |tablet: &mut Tablet| {
            tablet.state = TabletState::Unloaded;
            tablet.loaded_at = stopped_at;
            if forgets {
                tablet.chains.fill_with(Chain::default);
            }
        };
        chosen.show_with(&publishing, unload, |version| {
            for memory in &mut version.memory {
                memory.flushed = memory.flushed.max(stopped_at);
            }
        });
        Ok(())
    }

    /// Records in the config whether the tablets are loaded, and up to which txn the
    /// table is flushed. Returns the `load` of each tablet.
    fn record(
        &self,
        publishing: &Publishing<'_>,
        table: &Table,
        chosen: &Chosen,
        loaded: bool,
        flushed: Option<Txn>,
    ) -> Result<BTreeMap<TabletId, u64>> {
        let tablets = publishing.tablets();
        let change = |(id, start): &(TabletId, Vec<u8>)| {
            let tablet = tablets.of(start);
            let start = start.clone();
            RowChange {
                key: tablet.row_key(table.id),
                tablet: (*id, tablet.load),
                lower: None,
                edit: RowEdit::SetLoaded { table: table.id, tablet: *id, start, loaded, flushed },
            }
        };
        let riders = (0..table.version().memory.len()).filter_map(|group| {
            flushed.map(|txn| ConfigEdit::SetFlushed { table: table.id, group, txn })
        });
        let changes: Vec<RowChange> = chosen.tablets.iter().map(change).collect();
        let keys: Vec<RowKey> = changes.iter().map(|change| change.key.clone()).collect();
        self.tables.settler.settle(changes, riders.collect())?;
        let rows = self.tables.settler.read(&keys)?;
        Ok(rows.iter().map(|row| (row.id, row.load)).collect())
    }

    /// Flushes until no commit up to `txn` is only in memory.
    pub(super) fn flush_up_to(&self, table: &Arc<Table>, txn: Txn) -> Result<()> {
        self.log.wait_durable(txn.raw())?;
        for group in 0..table.version().memory.len() {
            let is_due = || {
                let oldest = table.version().memory.get(group).and_then(GroupMemory::txn_min);
                oldest.is_some_and(|oldest| oldest <= txn)
            };
            while is_due() {
                // The memory of a dropped table is not flushed.
                self.tables.map.get(table.id)?;
                self.flush_group(&FlushTarget { table: table.clone(), group })?;
            }
        }
        Ok(())
    }
}

/// Tablets that change their state together. From the first change on they cannot be
/// split or joined.
pub(super) struct Chosen {
    /// The id and first row of each, in row order.
    pub(super) tablets: Vec<(TabletId, Vec<u8>)>,
    /// The newest txn at which one of them was loaded or unloaded.
    pub(super) loaded_at: Txn,
}

impl Chosen {
    /// Chooses the tablets in a state that have rows in one of the ranges.
    fn of(publishing: &Publishing<'_>, ranges: &[RowRange], state: TabletState) -> Chosen {
        let tablets = publishing.tablets();
        let in_ranges = ranges.iter().flat_map(|rows| tablets.overlapping(rows));
        let mut chosen: Vec<&Arc<Tablet>> =
            in_ranges.filter(|tablet| tablet.state == state).collect();
        chosen.sort_by(|a, b| a.rows.start.cmp(&b.rows.start));
        chosen.dedup_by_key(|tablet| tablet.id);
        let loaded_at = chosen.iter().map(|tablet| tablet.loaded_at).max().unwrap_or(Txn::ZERO);
        let name = |tablet: &Arc<Tablet>| (tablet.id, tablet.rows.start.clone());
        Chosen { tablets: chosen.into_iter().map(name).collect(), loaded_at }
    }

    /// Shows changed tablets to readers and writers.
    pub(super) fn show(&self, publishing: &Publishing<'_>, change: impl Fn(&mut Tablet)) {
        self.show_with(publishing, change, |_| ());
    }

    /// Like `show`, and makes another change in the same step.
    fn show_with(
        &self,
        publishing: &Publishing<'_>,
        change: impl Fn(&mut Tablet),
        also: impl Fn(&mut TableVersion),
    ) {
        let tablets = publishing.tablets();
        let changed = self.tablets.iter().map(|(id, start)| {
            let mut tablet = Tablet::clone(tablets.of(start));
            assert_eq!(tablet.id, *id, "a tablet is not split while it is loaded or unloaded");
            change(&mut tablet);
            Arc::new(tablet)
        });
        publishing.replace(changed.collect(), also);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::store::test_store::{create_table, open, write};

    #[test]
    fn scale_3_6_a_tablet_is_not_loaded_beside_memory_from_before_its_unload() {
        let store = open(Options::default());
        let id = create_table(&store, "t");
        write(&store, id, b"r", 10);
        // No unload leaves such memory; this one did not flush.
        let engine = &store.engine;
        let table = engine.tables.map.get(id).unwrap();
        let (chosen, stopped_at) = engine.stop_writes(&table, &[RowRange::all()]);
        chosen.show(&table.publish(), |tablet| {
            (tablet.state, tablet.loaded_at) = (TabletState::Unloaded, stopped_at);
        });
        assert_eq!(table.version().memory[0].txn_min(), Some(stopped_at));
        assert_eq!(store.load(id, &[RowRange::all()]).unwrap(), 1);
        assert_eq!((table.version().memory[0].txn_min(), store.stats().flushes), (None, 1));
    }
}
