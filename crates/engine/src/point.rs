//! Point reads: read one row in one call, without the state that a scan needs
//! to stop and resume.

use std::cell::Cell;
use std::sync::Arc;

use crate::cell::key;
use crate::error::Result;
use crate::merge::{Columns, Merge, ReadBudget, ReadState, Reader, Sink};
use crate::scan::{ScanSpec, View};
use crate::source::Sources;
use crate::store::Shared;
use crate::table::{Table, TableVersion};
use crate::txn::Txn;

impl Shared {
    /// Passes the requested cells of `row` to `sink` until it stops the read.
    /// Returns the txn at which the row was read; `None` if the read reached
    /// `work_max`, counted like `BatchLimits::work`.
    pub fn read_row(
        &self,
        table: &Table,
        row: &[u8],
        spec: &ScanSpec,
        work_max: usize,
        sink: &mut Sink<'_>,
    ) -> Result<Option<Txn>> {
        let (version, snapshot) = self.version_for(table, &spec.view)?;
        let schema = &*version.schema;
        let tablet = version.tablets.partition_point(|tablet| tablet.ends_by(row));
        let options = spec.cursor_options(schema, true);
        let groups = 0..version.memory.len();
        let groups = groups.filter(|&group| spec.wants_group(schema, group));
        let sources = Sources::of_row(&version, tablet, groups, row, &options)?;
        // Most policies do not depend on the time.
        let now_micros = if schema.ages() { self.tables.world.clock.now_micros() } else { 0 };
        let rules = spec.rules(snapshot, now_micros, schema, &self.tables.folds);

        let mut merge = Merge::new(sources.cursors);
        let mut bound = key::row_start(row);
        merge.seek(&bound)?;
        end_of_wanted(row, &spec.columns, &mut bound);
        let mut budget = ReadBudget {
            cells: spec.cells_max.unwrap_or(usize::MAX),
            rows: spec.rows_max.unwrap_or(usize::MAX),
            work: work_max,
            ..ReadBudget::UNLIMITED
        };
        let mut state = SPARE.take();
        let mut reader = Reader {
            merge: &mut merge,
            state: &mut state,
            rules: &rules,
            spans: &sources.spans,
            places: None,
            once: true,
        };
        let outcome = reader.read(Some(&bound), &mut budget, sink);
        state.clear();
        SPARE.set(state);
        outcome?;
        // The sink, too, ends a read by using up its work.
        let is_whole = budget.work > 0 || budget.stopped || budget.cells == 0;
        Ok(is_whole.then_some(snapshot))
    }

    /// Returns the version and the txn at which to read one row. The version is
    /// kept until the row is read, so no snapshot is needed; the version only
    /// has to contain everything up to the txn.
    pub fn version_for(&self, table: &Table, view: &View) -> Result<(Arc<TableVersion>, Txn)> {
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

/// Extends the start of a row to a key after all requested cells. Deletes sort
/// before what they delete, so none is left out.
fn end_of_wanted(row: &[u8], columns: &Columns, bound: &mut Vec<u8>) {
    match columns.last_wanted() {
        None => key::push_past(bound),
        Some((family, qualifier)) => {
            bound.clear();
            key::push_family(bound, row, family);
            match qualifier {
                None => key::push_past(bound),
                Some(end) => key::push_qualifier(bound, end),
            }
        }
    }
}

thread_local! {
    /// The buffers of the last read, for reuse by the next one on this thread.
    /// A read from within a sink finds none and allocates its own.
    pub static SPARE: Cell<ReadState> = Cell::default();
}
