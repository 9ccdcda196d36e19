//! ReadRows: a scan of the engine, filtered, and written into chunks as the
//! client takes them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;
use stele_engine::world::Random;
use stele_engine::{BatchLimits, CellView, Scan, ScanSpec, Store};
use stele_grpc::Messages;

use super::chunks::Chunks;
use super::emit::Emit;
use super::stats::ReadStats;
use super::{request, rows, target};
use crate::error::{Error, Result};
use crate::filter::{self, Evaluator, Filter};
use crate::proto::v2;
use crate::proto::v2::read_rows_request::RequestStatsView;
use crate::table::{Table, Tables};

/// A message is sent when it has reached this size. Larger ones fall out of
/// the processor's cache before they are sent.
const MESSAGE_BYTES: usize = 256 << 10;

/// A request that has been checked.
pub struct Plan {
    table: Arc<Table>,
    /// The rows and their order, before the filter narrows them.
    wanted: ScanSpec,
    filter: Filter,
    rows_limit: u64,
    stats: bool,
    last_scanned: bool,
}

impl Plan {
    pub fn new(
        tables: &Tables,
        request: &request::ReadRows,
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
        let filter = compile(request.filter.as_deref())?;
        let last_scanned = features.last_scanned_row_responses;
        Ok(Plan { table, wanted, filter, rows_limit, stats, last_scanned })
    }

    /// The scan, and what it leaves of the filter to be done.
    fn scan(&self) -> (ScanSpec, filter::Plan) {
        let mut spec = self.wanted.clone();
        // Whoever asks for statistics wants to know what the filter dropped.
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

    /// Begins to read. The deadline is the client's.
    pub fn read(
        self,
        store: &Store,
        random: &Arc<dyn Random>,
        deadline: Option<Instant>,
    ) -> Result<RowMessages> {
        let (mut spec, rest) = self.scan();
        let sink = Sink {
            emit: Emit::new(self.rows_limit),
            stats: self.stats.then(ReadStats::new),
            evaluator: rest.evaluator(random.clone()),
            error: None,
        };
        let mut messages = RowMessages {
            scan: None,
            sink,
            table: self.table.clone(),
            last_scanned: self.last_scanned,
            deadline,
            ended: false,
        };
        if let [range] = &spec.rows[..]
            && let Some(row) = range.single_row()
        {
            if messages.read_row(store, row, &spec)? {
                return Ok(messages);
            }
            // Begun again from the request: a plan is made for one evaluation.
            let (again, rest) = self.scan();
            spec = again;
            messages.sink.restart(self.rows_limit, rest.evaluator(random.clone()));
        }
        messages.scan = Some(store.scan(messages.table.id, spec)?);
        Ok(messages)
    }
}

/// The filter of a request, from its bytes.
pub fn compile(filter: Option<&[u8]>) -> Result<Filter> {
    match filter {
        Some(bytes) => Filter::decode(bytes),
        None => Filter::compile(None),
    }
}

/// Has the scan leave out what the filter drops.
pub fn narrow(filter: &Filter, table: &Table, spec: &mut ScanSpec) -> filter::Plan {
    filter.narrow(table.definition.families.keys().map(String::as_str), spec)
}

/// The messages of one ReadRows call.
pub struct RowMessages {
    /// Not there when all was read at once.
    scan: Option<Scan>,
    sink: Sink,
    table: Arc<Table>,
    last_scanned: bool,
    deadline: Option<Instant>,
    ended: bool,
}

/// Where the cells of the scan go.
struct Sink {
    emit: Emit,
    stats: Option<ReadStats>,
    evaluator: Evaluator,
    error: Option<Error>,
}

impl Messages for RowMessages {
    type Error = Error;

    fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(message) = self.sink.chunks().take() {
                return Ok(Some(message));
            }
            if self.ended {
                return Ok(None);
            }
            self.check_deadline()?;
            self.batch()?;
        }
    }
}

impl RowMessages {
    /// Reads a small row in one go. Tells whether it was small.
    fn read_row(&mut self, store: &Store, row: &[u8], spec: &ScanSpec) -> Result<bool> {
        // A slow reader must not make the server hold a large row for it.
        let mut large = false;
        let sink = &mut self.sink;
        store.read_row(self.table.id, row, spec, |cell| {
            large = large || sink.chunks().len() > MESSAGE_BYTES;
            if !large {
                sink.take(cell, &self.table);
            }
        })?;
        if large {
            return Ok(false);
        }
        self.sink.end_row(&self.table);
        self.end()?;
        Ok(true)
    }

    fn batch(&mut self) -> Result<()> {
        let Some(scan) = &mut self.scan else { return self.end() };
        let limits = BatchLimits { bytes: MESSAGE_BYTES, ..BatchLimits::default() };
        let end = scan.next_batch(limits, &mut |cell| self.sink.take(cell, &self.table))?;
        if end.done || !scan.mid_row() {
            self.sink.end_row(&self.table);
        }
        self.sink.check()?;
        if end.done || self.sink.emit.is_full() {
            return self.end();
        }
        // Nothing to send for all that work: at least say how far it is.
        if self.last_scanned
            && !scan.mid_row()
            && self.sink.chunks().is_empty()
            && let Some(row) = scan.passed_row()
        {
            let last_scanned_row_key = row.to_vec().into();
            let message = v2::ReadRowsResponse { last_scanned_row_key, ..Default::default() };
            self.sink.chunks().message(&message.encode_to_vec());
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.ended = true;
        self.scan = None;
        self.sink.check()?;
        if let Some(stats) = &self.sink.stats {
            let request_stats = Some(stats.message(self.sink.emit.chunks.counts()));
            let message = v2::ReadRowsResponse { request_stats, ..Default::default() };
            self.sink.chunks().message(&message.encode_to_vec());
        }
        Ok(())
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

impl Sink {
    fn chunks(&mut self) -> &mut Chunks {
        &mut self.emit.chunks
    }

    fn restart(&mut self, rows_limit: u64, evaluator: Evaluator) {
        self.emit = Emit::new(rows_limit);
        self.evaluator = evaluator;
        self.error = None;
        if let Some(stats) = &mut self.stats {
            stats.restart();
        }
    }

    fn take(&mut self, cell: &CellView<'_>, table: &Table) {
        if let Some(stats) = &mut self.stats {
            stats.see(cell);
        }
        if let Err(large) = self.evaluator.cell(cell, &mut self.emit) {
            self.error.get_or_insert_with(|| large.error(&table.name));
        }
    }

    fn end_row(&mut self, table: &Table) {
        if let Err(large) = self.evaluator.end_row(&mut self.emit) {
            self.error.get_or_insert_with(|| large.error(&table.name));
        }
        self.emit.end_row();
        if let Some(large) = self.emit.large_row() {
            self.error.get_or_insert_with(|| large.error(&table.name));
        }
    }

    fn check(&mut self) -> Result<()> {
        self.error.take().map_or(Ok(()), Err)
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
