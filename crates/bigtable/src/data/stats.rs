//! Read statistics that a client can request.

use std::time::Instant;

use stele_engine::CellView;

use crate::proto::v2;

/// Counts what a read sees before the filter.
pub struct ReadStats {
    begun: Instant,
    rows_seen: u64,
    cells_seen: u64,
    row: Vec<u8>,
}

impl ReadStats {
    pub fn new() -> ReadStats {
        ReadStats { begun: Instant::now(), rows_seen: 0, cells_seen: 0, row: Vec::new() }
    }

    /// Counts a cell, and its row if it is the first of it.
    pub fn count(&mut self, cell: &CellView<'_>) {
        self.cells_seen += 1;
        if self.rows_seen == 0 || self.row != cell.row {
            self.rows_seen += 1;
            self.row.clear();
            self.row.extend_from_slice(cell.row);
        }
    }

    /// Resets the counts for a restarted read.
    pub fn restart(&mut self) {
        *self = ReadStats { begun: self.begun, ..ReadStats::new() };
    }

    /// Returns the statistics, including the rows and cells that were sent.
    pub fn message(&self, (rows, cells): (u64, u64)) -> v2::RequestStats {
        let count = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let iteration = v2::ReadIterationStats {
            rows_seen_count: count(self.rows_seen),
            rows_returned_count: count(rows),
            cells_seen_count: count(self.cells_seen),
            cells_returned_count: count(cells),
        };
        let latency = prost_types::Duration::try_from(self.begun.elapsed()).unwrap_or_default();
        let view = v2::FullReadStatsView {
            read_iteration_stats: Some(iteration),
            request_latency_stats: Some(v2::RequestLatencyStats {
                frontend_server_latency: Some(latency),
            }),
        };
        v2::RequestStats { stats_view: Some(v2::request_stats::StatsView::FullReadStatsView(view)) }
    }
}
