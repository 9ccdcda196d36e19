//! Compactions of a store, on the thread of the caller or of a worker.

use std::sync::atomic::Ordering;

use super::engine::Engine;
use super::pool::{Compaction, Task};
use super::waiters::Stage;
use crate::error::Result;
use crate::tablet::{Table, TabletKey};
use crate::txn::Txn;
use crate::workers::choose;
use crate::workers::claims::Work;
use crate::workers::compact::{CompactionHost, compact};

impl Engine {
    /// Compacts the longest chain that is due.
    pub fn compact_due(&self) -> Result<bool> {
        let Some(job) = self.claim_compaction(|_| true, |_| None) else { return Ok(false) };
        let Task::Compact(Compaction { table, choice, .. }) = job.task else { return Ok(false) };
        compact(&self.tables, &table, choice, self)
    }

    /// Compacts each chain of a table into one run, except in tablets that are not
    /// loaded. Waits for running compactions.
    pub fn compact_table(&self, table: &Table) -> Result<()> {
        let mut row = Some(Vec::new());
        while let Some(start) = row {
            row = self.compact_tablet(table, &start)?;
        }
        Ok(())
    }

    /// Compacts each chain of the tablet with `row` into one run, if it is loaded. Returns
    /// where to continue: at the end of the tablet, or at `row` if the tablet was split or
    /// joined meanwhile; `None` after the last tablet.
    pub fn compact_tablet(&self, table: &Table, row: &[u8]) -> Result<Option<Vec<u8>>> {
        let tablet = table.version().tablets.of(row).clone();
        if !tablet.state.can_read() {
            return Ok(tablet.rows.end.clone());
        }
        let tablet = tablet.key();
        // Holding the version during the loop would pin its memory.
        let groups = table.version().memory.len();
        for group in 0..groups {
            self.compact_chain(table, &tablet, group)?;
        }
        let version = table.version();
        Ok(match tablet.find(&version.tablets) {
            Some(tablet) => tablet.rows.end.clone(),
            None if self.proceed(table) => Some(row.to_vec()),
            None => None,
        })
    }

    fn compact_chain(&self, table: &Table, tablet: &TabletKey, group: usize) -> Result<()> {
        let work = Work::Compact { table: table.id, tablet: tablet.id, group };
        let _claim = self.claims.take(work);
        let choice =
            tablet.find(&table.version().tablets).map(|tablet| choose::whole_chain(tablet, group));
        if let Some(choice) = choice.flatten() {
            // The compaction may have found damage, in which case nobody has to wait
            // for the chain any longer.
            compact(&self.tables, table, choice, self).inspect_err(|_| self.waiters.wake_all())?;
            self.failures.succeeded(work);
        }
        Ok(())
    }
}

impl CompactionHost for Engine {
    fn durable(&self) -> Txn {
        Engine::durable(self)
    }

    fn proceed(&self, table: &Table) -> bool {
        !self.is_stopping() && !table.is_dropped()
    }

    fn step_done(&self, last: bool) {
        self.counters.compaction_parts.fetch_add(1, Ordering::Relaxed);
        self.counters.compactions.fetch_add(last.into(), Ordering::Relaxed);
        self.waiters.wake(Stage::Chains);
    }

    fn runs_joined(&self) {
        self.counters.joins.fetch_add(1, Ordering::Relaxed);
        self.waiters.wake(Stage::Chains);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cell::commit::TableId;
    use crate::cell::key::{self, Kind};
    use crate::cell::rows::RowRange;
    use crate::config::{ConfigEdit, Reference, Splice};
    use crate::error::Error;
    use crate::fragment::FragmentOptions;
    use crate::options::Options;
    use crate::store::Store;
    use crate::store::test_store::{create_table, open, write};
    use crate::tablet::{Run, Tablet, file_facts};

    /// Adds a file to the chain whose cells are out of order.
    fn add_disordered_file(store: &Store, table: TableId) -> Reference {
        let tables = &store.engine.tables;
        let (name, path) = tables.fragments.mint();
        let mut writer = tables.fragments.create(name, &path, FragmentOptions::default()).unwrap();
        writer.accept_any_order();
        let txn = Txn::from_raw(1).unwrap();
        for row in [b"a", b"c", b"b", b"d"] {
            let mut cell = Vec::new();
            key::push_column(&mut cell, row, b"f", b"q");
            key::push_cell_tail(&mut cell, 0, txn, Kind::Put);
            writer.add(&cell, b"v").unwrap();
        }
        let meta = writer.finish().unwrap();
        let held = RowRange::new("a", "e");
        let file = Reference {
            name,
            bytes: meta.stored_bytes,
            cells: meta.cells,
            txn_min: txn,
            txn_max: txn,
            rows: None,
            families: None,
            facts: Some(file_facts(&meta, held.clone())),
            share: meta.stored_bytes,
            unit: 0,
            joins: false,
        };
        tables.fragments.sync_names().unwrap();
        let table = tables.map.get(table).unwrap();
        let publishing = table.publish();
        let mut tablet = Tablet::clone(publishing.tablets().first());
        let TabletKey { id, load, start } = tablet.key();
        let splice = Splice {
            table: table.id,
            tablet: id,
            load,
            start,
            group: 0,
            remove: Vec::new(),
            add: vec![file.clone()],
            flushed: None,
        };
        tables.config.edit(&[ConfigEdit::Splice(splice)]).unwrap();
        let run = Run::new(vec![tables.fragments.link(&file, held)]);
        tablet.chains[0].runs.extend(run);
        publishing.replace(vec![Arc::new(tablet)], |_| ());
        file
    }

    #[test]
    fn a_file_whose_cells_are_out_of_order_is_set_aside_and_the_others_are_compacted() {
        let mut options = Options::default();
        options.compact.chain_min = 2;
        let store = open(options);
        let table = create_table(&store, "t");
        let bad = add_disordered_file(&store, table);
        for row in [b"b", b"c"] {
            write(&store, table, row, 10);
            store.flush(table).unwrap();
        }
        assert_eq!(store.stats().fragments_damaged, 0);
        let error = store.compact(table).unwrap_err();
        let path = store.engine.tables.fragments.path_of(bad.name);
        assert!(matches!(&error, Error::DataLoss { path: of, .. } if *of == path), "{error}");
        assert_eq!((store.stats().fragments_damaged, store.stats().chain_longest), (1, 3));
        // The file stays, and newer runs are merged after it.
        while store.step().unwrap() {}
        assert_eq!((store.stats().fragments_damaged, store.stats().chain_longest), (1, 2));
    }
}
