//! What a scan is asked for.

use std::sync::Arc;

use crate::cell::commit::TimeRange;
use crate::cell::fold::Folds;
use crate::cell::rows::RowRange;
use crate::fragment::CursorOptions;
use crate::merge::{Columns, ReadRules};
use crate::schema::Schema;
use crate::snapshot::Snapshot;
use crate::table::TableVersion;
use crate::txn::Txn;

/// Which commits a scan sees.
#[derive(Clone, Default)]
pub enum View {
    /// Those that no crash can take back.
    #[default]
    Durable,
    /// All that have been accepted. What such a scan returned may be lost in a
    /// crash; a commit that depends on it is lost with it.
    Latest,
    /// Those up to a snapshot.
    At(Arc<Snapshot>),
}

/// What happens to a row that is written while it is being read in batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowMode {
    /// The row is read as it was when its reading began.
    #[default]
    Isolated,
    /// The scan fails with `ScanConflict`.
    Unchanged,
}

/// What to scan.
#[derive(Clone, Default)]
pub struct ScanSpec {
    /// Ranges of rows; empty means all. They may overlap and come in any order.
    pub rows: Vec<RowRange>,
    pub columns: Columns,
    /// Timestamps to return; `None` means all.
    pub times: Option<TimeRange>,
    /// Newest versions of each column to return.
    pub versions: Option<u32>,
    /// Whether to return markers too.
    pub markers: bool,
    /// Rows descend; the cells of a row keep their order.
    pub reverse: bool,
    pub rows_max: Option<usize>,
    pub cells_max: Option<usize>,
    pub view: View,
    pub row_mode: RowMode,
}

impl ScanSpec {
    /// Scans one row.
    pub fn row(row: &[u8]) -> ScanSpec {
        ScanSpec { rows: vec![RowRange::row(row)], ..ScanSpec::default() }
    }

    pub fn range(range: RowRange) -> ScanSpec {
        ScanSpec { rows: vec![range], ..ScanSpec::default() }
    }

    pub(crate) fn rules<'a>(
        &'a self,
        snapshot: Txn,
        now_micros: i64,
        schema: &'a Schema,
        folds: &'a Folds,
    ) -> ReadRules<'a> {
        ReadRules {
            snapshot,
            now_micros,
            schema,
            folds,
            columns: &self.columns,
            times: self.times.unwrap_or(TimeRange::ALL),
            versions: self.versions,
            markers: self.markers,
        }
    }

    /// The groups that hold any wanted family.
    pub(crate) fn groups(&self, version: &TableVersion) -> Vec<usize> {
        let all = 0..version.memory.len();
        all.filter(|&group| self.wants_group(&version.schema, group)).collect()
    }

    /// Whether a group holds any wanted family.
    pub(crate) fn wants_group(&self, schema: &Schema, group: usize) -> bool {
        let Columns::Families(list) = &self.columns else { return true };
        let found = list.iter().filter_map(|wanted| schema.find(&wanted.family));
        found.into_iter().any(|family| family.group == group)
    }

    /// Which blocks of a fragment the scan can do without.
    pub(crate) fn cursor_options(&self, schema: &Schema, fill_cache: bool) -> CursorOptions {
        let families = match &self.columns {
            Columns::All => None,
            Columns::Families(list) => {
                Some(list.iter().map(|wanted| wanted.family.clone()).collect())
            }
        };
        // Passing over newer versions would rank the older ones too high.
        let times = self.times.filter(|_| !schema.ranks_versions());
        let timestamps = times.map(|times| times.min..=times.max);
        CursorOptions { fill_cache, heat: None, timestamps, families }
    }
}

/// How much a batch may hold and do. A batch makes progress whatever the
/// limits, except for `value_bytes`.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    pub cells: usize,
    pub bytes: usize,
    /// Work to do, whatever is returned: an entry examined counts as one, a
    /// long value as one for each 4 KiB, and the start of a range as 16.
    pub work: usize,
    /// The batch ends before a cell whose value is longer, so that a reader can
    /// provide for it.
    pub value_bytes: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        BatchLimits { cells: usize::MAX, bytes: 1 << 20, work: 1 << 16, value_bytes: usize::MAX }
    }
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchEnd {
    /// The oldest snapshot used for any row of the batch; valid as a
    /// `commit_max_txn` even when no row was found.
    pub txn: Txn,
    /// There is nothing more.
    pub done: bool,
    /// The length of the value that the batch ended before, because its limits
    /// do not allow for one so long.
    pub long_value: Option<usize>,
}
