//! A validated ReadRows request, and the compilation of request filters.

use std::sync::Arc;

use bytes::Bytes;
use stele_engine::ScanSpec;
use stele_grpc::offload::offload;

use super::response_memory::ResponseMemory;
use super::{request, rows, target};
use crate::error::{Error, Result};
use crate::filter::{self, Decoded, Filter, QUICK_FILTER_BYTES_MAX};
use crate::proto::v2;
use crate::proto::v2::read_rows_request::RequestStatsView;
use crate::table::{Table, Tables};

/// Compiled patterns up to this size are not charged.
const FILTER_BYTES_FREE: usize = 512 << 10;

/// A validated request.
pub struct Plan {
    pub table: Arc<Table>,
    /// The requested rows and their order, before the filter narrows them.
    wanted: ScanSpec,
    pub filter: Filter,
    pub rows_limit: u64,
    pub stats: bool,
    pub last_scanned: bool,
}

impl Plan {
    /// Validates a request. `filter` is its compiled filter, as returned by
    /// [`compile`]; errors in the rest of the request are reported first.
    pub fn new(
        tables: &Tables,
        request: &request::ReadRows,
        filter: Result<Filter>,
        features: &v2::FeatureFlags,
    ) -> Result<Plan> {
        let views = [&*request.authorized_view_name, &request.materialized_view_name];
        let table = target::table(tables, &request.table_name, &views)?;
        let rows_limit = match u64::try_from(request.rows_limit) {
            Ok(0) => u64::MAX,
            Ok(limit) => limit,
            Err(_) => return Err(Error::invalid("rows_limit must not be negative")),
        };
        let stats = match RequestStatsView::try_from(request.request_stats_view) {
            Ok(view) => view == RequestStatsView::RequestStatsFull,
            Err(_) => return Err(Error::invalid("Unknown request_stats_view")),
        };
        let rows = rows::ranges(request.rows.as_ref())?;
        let wanted = ScanSpec { rows, reverse: request.reversed, ..ScanSpec::default() };
        let filter = filter?;
        let last_scanned = features.last_scanned_row_responses;
        Ok(Plan { table, wanted, filter, rows_limit, stats, last_scanned })
    }

    /// Returns the scan, and the part of the filter that remains to be evaluated.
    pub fn scan(&self) -> (ScanSpec, filter::Plan) {
        let mut spec = self.wanted.clone();
        // Statistics include what the filter drops, so the scan is not narrowed.
        let rest = if self.stats {
            self.filter.plan()
        } else {
            narrow(&self.filter, &self.table, &mut spec)
        };
        if rest.passes_all() {
            spec.rows_max = usize::try_from(self.rows_limit).ok();
        }
        (spec, rest)
    }
}

/// Compiles the filter of a request from its bytes. Large patterns are compiled
/// on another thread, after their memory is charged.
pub async fn compile(filter: Option<&Bytes>, memory: &mut ResponseMemory) -> Result<Filter> {
    let Some(bytes) = filter else { return Filter::compile(None) };
    let decoded = match bytes.len() > QUICK_FILTER_BYTES_MAX {
        true => {
            let bytes = bytes.clone();
            offload(move || Filter::decode_quickly(&bytes)).await?
        }
        false => Filter::decode_quickly(bytes),
    };
    let filter = match decoded? {
        Decoded::Filter(filter) => filter,
        Decoded::Later(filter_bytes) => {
            memory.wait_for(filter_bytes).await?;
            let bytes = bytes.clone();
            offload(move || Filter::decode(&bytes)).await??
        }
    };
    memory.set(charged_bytes(&filter));
    Ok(filter)
}

/// Returns the bytes charged for a filter. Patterns of ordinary size are free.
pub fn charged_bytes(filter: &Filter) -> usize {
    match filter.memory_bytes() {
        ..=FILTER_BYTES_FREE => 0,
        bytes => bytes,
    }
}

/// Narrows the scan to skip what the filter drops.
pub fn narrow(filter: &Filter, table: &Table, spec: &mut ScanSpec) -> filter::Plan {
    filter.narrow(table.definition.families.keys().map(String::as_str), spec)
}
