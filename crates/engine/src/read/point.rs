//! Point reads: read one row in one call, without the state that a scan needs
//! to stop and resume.

use super::row::RowRead;
use super::scan::ScanSpec;
use crate::cell::key;
use crate::error::Result;
use crate::merge::{Columns, ReadBudget, Sink};
use crate::store::Engine;
use crate::tablet::Table;
use crate::txn::Txn;

impl Engine {
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
        let sample = self.begin_sample();
        let (version, snapshot) = self.version_for(table, &spec.view)?;
        let mut read = RowRead::new(self, table, &version, snapshot, row, spec)?;
        extend_to_last_wanted(row, &spec.columns, &mut read.bound);
        let mut budget = ReadBudget {
            cells: spec.cells_max.unwrap_or(usize::MAX),
            rows: spec.rows_max.unwrap_or(usize::MAX),
            work: work_max,
            ..ReadBudget::UNLIMITED
        };
        read.run(&mut budget, sink)?;
        self.end_sample(sample, table, row);
        // The sink, too, ends a read by using up its work.
        let is_whole = budget.work > 0 || budget.stopped || budget.cells == 0;
        Ok(is_whole.then_some(snapshot))
    }
}

/// Extends the start of a row to a key after all requested cells. Deletes sort
/// before what they delete, so none is left out.
fn extend_to_last_wanted(row: &[u8], columns: &Columns, bound: &mut Vec<u8>) {
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
