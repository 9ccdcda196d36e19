//! A validated ReadRows request.

use std::sync::Arc;

use stele_engine::ScanSpec;

use super::request::Target;
use super::request_filter::narrow;
use super::{request, row_set};
use crate::error::{Error, Result};
use crate::filter::{Filter, ResidualFilter};
use crate::proto::v2;
use crate::proto::v2::read_rows_request::RequestStatsView;
use crate::table::{Table, Tables};

/// The maximum size of a read request in bytes. Google's service accepts about 1
/// MiB.
pub const READ_REQUEST_BYTES_MAX: usize = 4 << 20;

/// A validated ReadRows request.
pub struct ReadPlan {
    pub table: Arc<Table>,
    /// The requested rows and their order, before the filter narrows them.
    requested: ScanSpec,
    pub filter: Filter,
    pub rows_limit: u64,
    pub stats: bool,
    pub last_scanned: bool,
}

impl ReadPlan {
    /// Validates a request. `filter` is its compiled filter, as returned by
    /// `request_filter::compile`; errors in the rest of the request are reported first.
    pub fn new(
        tables: &Tables,
        request: &request::ReadRows,
        filter: Result<Filter>,
        features: &v2::FeatureFlags,
    ) -> Result<ReadPlan> {
        let Target { table, view } = Target::find(
            tables,
            &request.table_name,
            &request.authorized_view_name,
            &request.materialized_view_name,
        )?;
        let rows_limit = match u64::try_from(request.rows_limit) {
            Ok(0) => u64::MAX,
            Ok(limit) => limit,
            Err(_) => return Err(Error::invalid("rows_limit must not be negative")),
        };
        let stats = match RequestStatsView::try_from(request.request_stats_view) {
            Ok(view) => view == RequestStatsView::RequestStatsFull,
            Err(_) => return Err(Error::invalid("Unknown request_stats_view")),
        };
        let rows = row_set::to_ranges(request.rows.as_ref())?;
        let mut requested = ScanSpec { rows, reverse: request.reversed, ..ScanSpec::default() };
        if let Some(view) = view {
            view.subset.narrow(&table, &mut requested);
        }
        let filter = filter?;
        let last_scanned = features.last_scanned_row_responses;
        Ok(ReadPlan { table, requested, filter, rows_limit, stats, last_scanned })
    }

    /// Returns the scan, and the residual filter to evaluate on its cells.
    pub fn scan(&self) -> (ScanSpec, ResidualFilter) {
        let mut spec = self.requested.clone();
        // Statistics include what the filter drops, so the scan is not narrowed.
        let residual = if self.stats {
            self.filter.whole()
        } else {
            narrow(&self.filter, &self.table, &mut spec)
        };
        if residual.passes_all() {
            spec.rows_max = usize::try_from(self.rows_limit).ok();
        }
        (spec, residual)
    }
}
