//! ReadRows: a scan of the engine, written into chunks as the client takes
//! them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;
use stele_engine::{BatchLimits, CellView, Scan, ScanSpec, Store, Txn, View};

use super::body::Messages;
use super::chunks::{Cell, Chunks};
use super::{rows, target};
use crate::error::{Error, Result};
use crate::proto::v2;
use crate::proto::v2::read_rows_request::RequestStatsView;
use crate::table::{Table, Tables};

/// A message is sent when it has reached this size. Larger ones fall out of
/// the processor's cache before they are sent.
const MESSAGE_BYTES: usize = 256 << 10;

/// A request that has been checked.
pub struct Plan {
    table: Arc<Table>,
    spec: ScanSpec,
    rows_limit: Option<u64>,
    stats: bool,
    last_scanned: bool,
}

impl Plan {
    pub fn new(
        tables: &Tables,
        request: &v2::ReadRowsRequest,
        features: &v2::FeatureFlags,
    ) -> Result<Plan> {
        let views = [&*request.authorized_view_name, &request.materialized_view_name];
        let table = target::table(tables, &request.table_name, &views)?;
        let rows_limit = match u64::try_from(request.rows_limit) {
            Ok(0) => None,
            Ok(limit) => Some(limit),
            Err(_) => return Err(Error::invalid("rows_limit must not be negative")),
        };
        let stats = match RequestStatsView::try_from(request.request_stats_view) {
            Ok(view) => view == RequestStatsView::RequestStatsFull,
            Err(_) => return Err(Error::invalid("Unknown request_stats_view")),
        };
        let spec = ScanSpec {
            rows: rows::ranges(request.rows.as_ref())?,
            reverse: request.reversed,
            ..ScanSpec::default()
        };
        let last_scanned = features.last_scanned_row_responses;
        Ok(Plan { table, spec, rows_limit, stats, last_scanned })
    }

    /// Begins to read. The deadline is the client's.
    pub fn read(self, store: &Store, deadline: Option<Instant>) -> Result<RowMessages> {
        let scan = store.scan(self.table.id, self.spec)?;
        Ok(RowMessages {
            scan,
            chunks: Chunks::default(),
            rows_limit: self.rows_limit,
            stats: self.stats.then(Stats::new),
            last_scanned: self.last_scanned,
            deadline,
            ended: false,
        })
    }
}

/// What a client asked to be told about its read.
struct Stats {
    begun: Instant,
    rows_seen: u64,
    cells_seen: u64,
    row: Vec<u8>,
}

impl Stats {
    fn new() -> Stats {
        Stats { begun: Instant::now(), rows_seen: 0, cells_seen: 0, row: Vec::new() }
    }

    fn see(&mut self, cell: &CellView<'_>) {
        self.cells_seen += 1;
        if self.rows_seen == 0 || self.row != cell.row {
            self.rows_seen += 1;
            self.row.clear();
            self.row.extend_from_slice(cell.row);
        }
    }

    fn message(&self, (rows, cells): (u64, u64)) -> v2::RequestStats {
        let iteration = v2::ReadIterationStats {
            rows_seen_count: self.rows_seen as i64,
            rows_returned_count: rows as i64,
            cells_seen_count: self.cells_seen as i64,
            cells_returned_count: cells as i64,
        };
        let latency = prost_types::Duration::try_from(self.begun.elapsed()).unwrap_or_default();
        let view = v2::FullReadStatsView {
            read_iteration_stats: Some(iteration),
            request_latency_stats: Some(v2::RequestLatencyStats {
                frontend_server_latency: Some(latency),
            }),
        };
        v2::RequestStats {
            stats_view: Some(v2::request_stats::StatsView::FullReadStatsView(view)),
        }
    }
}

/// The messages of one ReadRows call.
pub struct RowMessages {
    scan: Scan,
    chunks: Chunks,
    rows_limit: Option<u64>,
    stats: Option<Stats>,
    last_scanned: bool,
    deadline: Option<Instant>,
    ended: bool,
}

impl Messages for RowMessages {
    fn next(&mut self) -> Result<Option<Bytes>> {
        while !self.ended && self.chunks.len() < MESSAGE_BYTES {
            self.check_deadline()?;
            self.batch()?;
        }
        Ok(self.chunks.take())
    }
}

impl RowMessages {
    fn batch(&mut self) -> Result<()> {
        let limits = BatchLimits { bytes: MESSAGE_BYTES, ..BatchLimits::default() };
        let RowMessages { chunks, stats, .. } = self;
        let end = self.scan.next_batch(limits, &mut |cell| {
            if let Some(stats) = stats {
                stats.see(cell);
            }
            chunks.cell(&Cell {
                row: cell.row,
                family: cell.family,
                qualifier: cell.qualifier,
                timestamp: cell.timestamp,
                labels: &[],
                value: cell.value,
            });
        })?;
        if end.done || !self.scan.mid_row() {
            self.chunks.end_row();
        }
        if end.done {
            self.end();
        }
        Ok(())
    }

    fn end(&mut self) {
        self.ended = true;
        if let Some(stats) = &self.stats {
            let request_stats = Some(stats.message(self.chunks.counts()));
            let message = v2::ReadRowsResponse { request_stats, ..Default::default() };
            self.chunks.fields(&message.encode_to_vec());
        }
    }

    fn check_deadline(&self) -> Result<()> {
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => {
                Err(Error::Deadline("The deadline passed while rows were being read".into()))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a row has any cell that a filter lets through.
pub struct RowTest {
    table: Arc<Table>,
    spec: ScanSpec,
}

impl RowTest {
    pub fn new(table: &Arc<Table>, _filter: Option<&v2::RowFilter>) -> Result<RowTest> {
        let spec = ScanSpec { view: View::Latest, cells_max: Some(1), ..ScanSpec::default() };
        Ok(RowTest { table: table.clone(), spec })
    }

    /// The answer, and the txn it is true at.
    pub fn run(&self, store: &Store, row: &[u8]) -> Result<(bool, Txn)> {
        let mut found = false;
        let txn = store.read_row(self.table.id, row, &self.spec, |_| found = true)?;
        Ok((found, txn))
    }
}

/// The client's deadline, of the header `grpc-timeout`.
pub fn deadline(headers: &http::HeaderMap) -> Option<Instant> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let amount: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    let timeout = match unit {
        "H" => Duration::from_secs(amount * 3600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    };
    Instant::now().checked_add(timeout)
}
