//! Reading one row in one go: the short way, without what a scan needs to
//! stop and go on.

use crate::cell::key;
use crate::cell::rows::RowRange;
use crate::error::Result;
use crate::merge::{Merge, ReadBudget, ReadState, Reader, Sink};
use crate::scan::{ScanSpec, View};
use crate::source::Sources;
use crate::store::Shared;
use crate::table::Table;
use crate::txn::Txn;

impl Shared {
    /// Gives the wanted cells of `row` to `sink`. Returns the txn that the row
    /// was read at.
    pub fn read_row(
        &self,
        table: &Table,
        row: &[u8],
        spec: &ScanSpec,
        sink: &mut Sink<'_>,
    ) -> Result<Txn> {
        // The version is kept until the row is read, so no snapshot need be
        // held; it only has to have everything up to the txn.
        let (version, snapshot) = match &spec.view {
            View::Durable => table.capture(|| self.durable()),
            View::Latest => table.capture(|| self.latest()),
            View::At(held) => {
                let version = table.pinned_version();
                held.check()?;
                (version, held.txn())
            }
        };
        let rows = RowRange::row(row);
        let tablet = version.tablets.partition_point(|tablet| tablet.ends_by(row));
        let options = spec.cursor_options(&version.schema, true);
        let groups = spec.groups(&version);
        let sources = Sources::of_tablet(&version, tablet, &groups, &rows, &options)?;
        let now_micros = self.tables.world.clock.now_micros();
        let rules = spec.rules(snapshot, now_micros, &version.schema, &self.tables.folds);

        let mut merge = Merge::new(sources.cursors);
        let mut bound = key::row_start(row);
        merge.seek(&bound)?;
        key::push_past(&mut bound);
        let mut budget = ReadBudget {
            cells: spec.cells_max.unwrap_or(usize::MAX),
            rows: spec.rows_max.unwrap_or(usize::MAX),
            ..ReadBudget::UNLIMITED
        };
        let mut reader = Reader {
            merge: &mut merge,
            state: &mut ReadState::default(),
            rules: &rules,
            spans: &sources.spans,
        };
        reader.read(Some(&bound), &mut budget, sink)?;
        Ok(snapshot)
    }
}
