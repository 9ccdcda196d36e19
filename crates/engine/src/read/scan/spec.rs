//! The parameters of a scan.

use std::sync::Arc;

use crate::cell::commit::TimeRange;
use crate::cell::fold::Folds;
use crate::cell::rows::RowRange;
use crate::error::{Error, Result};
use crate::fragment::{CursorOptions, ReadAhead};
use crate::merge::{Columns, ReadRules};
use crate::read::snapshot::Snapshot;
use crate::schema::Schema;
use crate::tablet::TableVersion;
use crate::txn::Txn;

/// Which commits a scan sees.
#[derive(Clone, Default)]
pub enum View {
    /// Durable commits only.
    #[default]
    Durable,
    /// All accepted commits. A crash may lose what such a scan returned, along
    /// with any commit that depends on it.
    Latest,
    /// Commits up to a snapshot.
    At(Arc<Snapshot>),
}

/// How to treat a row that is written while it is read in batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowMode {
    /// Read the row at the snapshot at which its first cell was read.
    #[default]
    Isolated,
    /// Fail with `ScanConflict`.
    Unchanged,
}

/// The specification of a scan.
#[derive(Clone, Default)]
pub struct ScanSpec {
    /// Ranges of rows, in any order, possibly overlapping; empty means all
    /// rows.
    pub rows: Vec<RowRange>,
    pub columns: Columns,
    /// Timestamps to return; `None` means all.
    pub times: Option<TimeRange>,
    /// Maximum number of versions per column, newest first.
    pub versions: Option<u32>,
    /// Whether to return markers too.
    pub markers: bool,
    /// Return rows in descending order; the order of cells within a row is
    /// unchanged.
    pub reverse: bool,
    pub rows_max: Option<usize>,
    pub cells_max: Option<usize>,
    pub view: View,
    pub row_mode: RowMode,
}

impl ScanSpec {
    /// Returns the specification of a scan of one row.
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

    /// Returns the groups that hold any requested family.
    pub(crate) fn groups(&self, version: &TableVersion) -> Vec<usize> {
        let all = 0..version.memory.len();
        all.filter(|&group| self.wants_group(&version.schema, group)).collect()
    }

    /// Whether hidden families are requested. Fails if others are, too: a delete of a
    /// row covers only the latter.
    pub(crate) fn reads_hidden(&self, schema: &Schema) -> Result<bool> {
        let visible = schema.visible_groups();
        if visible == schema.groups().len() {
            return Ok(false);
        }
        let Columns::Families(list) = &self.columns else { return Ok(false) };
        let mut found = list.iter().filter_map(|wanted| schema.find(&wanted.family));
        let hidden = found.next().is_some_and(|first| first.group >= visible);
        if found.any(|other| (other.group >= visible) != hidden) {
            let what = "hidden families are read separately from others";
            return Err(Error::InvalidScan(what.into()));
        }
        Ok(hidden)
    }

    /// Whether a group holds any requested family. Hidden ones are requested by name.
    pub(crate) fn wants_group(&self, schema: &Schema, group: usize) -> bool {
        let Columns::Families(list) = &self.columns else {
            return group < schema.visible_groups();
        };
        let found = list.iter().filter_map(|wanted| schema.find(&wanted.family));
        found.into_iter().any(|family| family.group == group)
    }

    /// Returns the cursor options that skip unneeded blocks of a fragment.
    pub(crate) fn cursor_options(
        &self,
        schema: &Schema,
        fill_cache: bool,
        ahead: Option<&Arc<ReadAhead>>,
    ) -> CursorOptions {
        let families = match &self.columns {
            Columns::All => None,
            Columns::Families(list) => {
                Some(list.iter().map(|wanted| wanted.family.clone()).collect())
            }
        };
        // Skipping newer versions would give the older ones too high a rank.
        let times = self.times.filter(|_| !schema.ranks_versions());
        let timestamps = times.map(|times| times.min..=times.max);
        CursorOptions { fill_cache, heat: None, ahead: ahead.cloned(), timestamps, families }
    }
}

/// Limits of a batch. A batch makes progress whatever the limits, except for
/// `value_bytes`.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    pub cells: usize,
    pub bytes: usize,
    /// Work, independent of what is returned: each entry examined counts as 1,
    /// a long value as 1 per 4 KiB, and the start of a range as 16.
    pub work: usize,
    /// The batch ends before a cell with a longer value, so that the reader can
    /// prepare for it.
    pub value_bytes: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        BatchLimits { cells: usize::MAX, bytes: 1 << 20, work: 1 << 16, value_bytes: usize::MAX }
    }
}

/// The outcome of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchEnd {
    /// The oldest snapshot used for any row of the batch. A valid
    /// `commit_max_txn` even if no row was found.
    pub txn: Txn,
    /// Whether the scan is complete.
    pub done: bool,
    /// The length of the value before which the batch ended, because it exceeds
    /// `value_bytes`.
    pub long_value: Option<usize>,
    /// Whether the batch ended before bytes that are not on this machine: await
    /// [`Scan::miss`](super::Scan::miss) before the next one.
    pub missed: bool,
}
