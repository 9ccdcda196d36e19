//! The set-up of a read of one row, common to point reads and reads of a row's
//! first cell: the version and txn to read at, a merge positioned at the row,
//! and reused buffers.

use std::cell::Cell;
use std::sync::Arc;

use super::scan::{ScanSpec, View};
use super::source::{Source, Sources};
use crate::cell::key;
use crate::cell::range_tombstone::RangeTombstoneLookup;
use crate::error::Result;
use crate::merge::{Merge, ReadBudget, ReadRules, ReadState, Reader, Sink};
use crate::store::Engine;
use crate::tablet::{Table, TableVersion};
use crate::txn::Txn;

thread_local! {
    /// The buffers of the last read, for reuse by the next one on this thread.
    /// A read from within a sink finds none and allocates its own.
    static SPARE: Cell<ReadState> = Cell::default();
}

impl Engine {
    /// Returns the version and the txn at which to read one row. The version is
    /// kept until the row is read, so no snapshot is needed; the version only
    /// has to contain everything up to the txn.
    pub(super) fn version_for(
        &self,
        table: &Table,
        view: &View,
    ) -> Result<(Arc<TableVersion>, Txn)> {
        Ok(match view {
            View::Durable => table.capture(|| self.durable()),
            View::Latest => table.capture(|| self.latest()),
            View::At(held) => {
                let version = table.pinned_version();
                held.check()?;
                (version, held.txn())
            }
        })
    }
}

/// A read of one row.
pub struct RowRead<'a> {
    pub merge: Merge<Source>,
    range_tombstones: Vec<Arc<dyn RangeTombstoneLookup>>,
    rules: ReadRules<'a>,
    /// The key before which the read ends. Initially the first possible key of
    /// the row; the caller extends it before it calls `run`.
    pub bound: Vec<u8>,
}

impl<'a> RowRead<'a> {
    /// Merges the fragments that may hold the requested cells of `row`, and
    /// moves to its start.
    #[inline]
    pub fn new(
        engine: &'a Engine,
        table: &Table,
        version: &'a TableVersion,
        snapshot: Txn,
        row: &[u8],
        spec: &'a ScanSpec,
    ) -> Result<RowRead<'a>> {
        let schema = &*version.schema;
        let options = spec.cursor_options(schema, true, None);
        let groups = 0..version.memory.len();
        let groups = groups.filter(|&group| spec.wants_group(schema, group));
        let tablet = version.tablets.of(row);
        tablet.check_read(table, row)?;
        tablet.check_snapshot(snapshot)?;
        let sources = Sources::of_row(version, tablet, groups, row, &options)?;
        // Most policies do not depend on the time.
        let ages = spec.reads_hidden(schema)? || schema.ages();
        let now_micros = if ages { engine.tables.world.clock.now_micros() } else { 0 };
        let rules = spec.rules(snapshot, now_micros, schema, &engine.tables.folds);
        let mut merge = Merge::new(sources.cursors);
        let bound = key::row_start(row);
        merge.seek(&bound)?;
        Ok(RowRead { merge, range_tombstones: sources.range_tombstones, rules, bound })
    }

    /// Passes cells to `sink` until the bound, the end of the budget, or until
    /// the sink stops the read.
    #[inline]
    pub fn run(&mut self, budget: &mut ReadBudget, sink: &mut Sink<'_>) -> Result<()> {
        let mut state = SPARE.take();
        let mut reader = Reader {
            merge: &mut self.merge,
            state: &mut state,
            rules: &self.rules,
            range_tombstones: &self.range_tombstones,
            places: None,
            once: true,
        };
        let outcome = reader.read(Some(&self.bound), budget, sink);
        state.clear();
        SPARE.set(state);
        outcome.map(drop)
    }
}
