//! ReadRows: a scan of the engine, filtered, and written into chunks as the
//! client takes them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message;
use stele_engine::world::Random;
use stele_engine::{BatchEnd, BatchLimits, CellView, Flow, Scan, ScanSpec, Store};
use stele_grpc::offload::in_place;
use stele_grpc::{Messages, Next, Wait};

use super::chunks::{Chunks, MESSAGE_BYTES};
use super::emit::Emit;
use super::pace::Pace;
use super::response_memory::ResponseMemory;
use super::stats::ReadStats;
use super::{request, rows, target};
use crate::error::{Error, Result};
use crate::filter::{self, Evaluator, Filter};
use crate::proto::v2;
use crate::proto::v2::read_rows_request::RequestStatsView;
use crate::table::{Table, Tables};

/// Memory for longer values is reserved before they are read.
const VALUE_BYTES_FREE: usize = MESSAGE_BYTES;
/// Once a value was long, memory for values of up to this size is reserved for
/// every batch.
const VALUE_BYTES_COMMON: usize = 1 << 20;
/// Copying a longer value, or a longer row that a condition waits for, takes
/// long.
const QUICK_BYTES_MAX: usize = 4 << 20;

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
        let pace = if rest.passes_all() { Pace::fast() } else { Pace::of_filter(&self.filter) };
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
            pace,
            memory: ResponseMemory::of_call(),
            value_bytes: VALUE_BYTES_FREE,
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
    pace: Pace,
    memory: ResponseMemory,
    /// The longest value that the next batch may read.
    value_bytes: usize,
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

    fn next(&mut self) -> Result<Next> {
        if self.sink.chunks().is_ready() {
            return self.ready();
        }
        if let Some(wait) = self.reserve() {
            return Ok(Next::Wait(wait));
        }
        if !self.ended
            && let Err(error) = self.check_deadline().and_then(|()| self.batch())
        {
            self.fail(error);
        }
        self.ready()
    }
}

impl RowMessages {
    /// What there is to send now.
    fn ready(&mut self) -> Result<Next> {
        match self.sink.chunks().take() {
            Some(message) => {
                self.memory.set(self.sink.held_bytes());
                Ok(Next::Message(message))
            }
            None if self.ended => self.sink.check().map(|()| Next::End),
            None => Ok(Next::Yield),
        }
    }

    /// Reserves memory for the next batch. Returns what to wait for if there is
    /// none.
    fn reserve(&mut self) -> Option<Wait> {
        match self.scan {
            Some(_) => self.memory.reserve(self.sink.held_bytes() + self.value_bytes),
            None => None,
        }
    }

    /// Reads a small row in one go. Returns whether it was small; a larger one
    /// is to be read in batches from its start.
    fn read_row(&mut self, store: &Store, row: &[u8], spec: &ScanSpec) -> Result<bool> {
        let mut effort = self.pace.begin_row();
        let mut large = false;
        let sink = &mut self.sink;
        store.read_row(self.table.id, row, spec, |cell| {
            large = large
                || sink.held_bytes() + cell.value.len() > MESSAGE_BYTES
                || effort.is_spent(cell);
            if large { Flow::Stop } else { sink.take(cell, &self.table) }
        })?;
        if large {
            return Ok(false);
        }
        self.sink.end_row(&self.table);
        self.end()?;
        Ok(true)
    }

    /// Reads on for about a millisecond.
    fn batch(&mut self) -> Result<()> {
        let Some(scan) = &mut self.scan else { return self.end() };
        let limits = BatchLimits {
            bytes: MESSAGE_BYTES,
            work: self.pace.work(),
            value_bytes: self.value_bytes,
            ..BatchLimits::default()
        };
        let begun = Instant::now();
        let bytes_max = self.value_bytes.max(self.sink.evaluator.held_bytes());
        let (sink, table) = (&mut self.sink, &*self.table);
        let mut read = || -> Result<BatchEnd> {
            let end = scan.next_batch(limits, &mut |cell| sink.take(cell, table))?;
            if end.done || !scan.mid_row() {
                sink.end_row(table);
            }
            Ok(end)
        };
        let end = if bytes_max > QUICK_BYTES_MAX { in_place(read) } else { read() }?;
        // Where one value is long, others often are.
        self.value_bytes = end.long_value.unwrap_or(self.value_bytes.min(VALUE_BYTES_COMMON));
        self.pace.note(begun.elapsed());
        self.memory.set(self.sink.held_bytes());
        self.sink.check_row(&self.table);
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

    /// Ends the stream with an error, behind the rows that are complete.
    fn fail(&mut self, error: Error) {
        self.ended = true;
        self.scan = None;
        self.sink.chunks().abandon_row();
        self.sink.error = Some(error);
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

    /// Bytes that have been read and not sent.
    fn held_bytes(&self) -> usize {
        self.emit.chunks.len() + self.evaluator.held_bytes()
    }

    fn restart(&mut self, rows_limit: u64, evaluator: Evaluator) {
        self.emit = Emit::new(rows_limit);
        self.evaluator = evaluator;
        self.error = None;
        if let Some(stats) = &mut self.stats {
            stats.restart();
        }
    }

    /// Takes a cell, and decides how the read goes on behind it.
    fn take(&mut self, cell: &CellView<'_>, table: &Table) -> Flow {
        if let Some(stats) = &mut self.stats {
            stats.see(cell);
        }
        match self.evaluator.cell(cell, &mut self.emit) {
            Err(large) => {
                self.error.get_or_insert_with(|| large.error(&table.name));
                Flow::Stop
            }
            Ok(_) if self.emit.is_full() => Flow::Stop,
            // Statistics count the cells that the filter drops.
            Ok(_) if self.stats.is_some() => Flow::Continue,
            Ok(flow) => flow,
        }
    }

    fn end_row(&mut self, table: &Table) {
        if let Err(large) = self.evaluator.end_row(&mut self.emit) {
            self.error.get_or_insert_with(|| large.error(&table.name));
        }
        self.emit.end_row();
        self.check_row(table);
    }

    /// Notes that the row at hand, which may not be over yet, is too large.
    fn check_row(&mut self, table: &Table) {
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use stele_engine::world::{SeededRandom, World};
    use stele_engine::{CommitBuilder, Options, Txn, Wait};

    use super::*;
    use crate::Api;
    use crate::table::{Definition, Family};

    const TABLE: &str = "projects/p/instances/i/tables/t";

    /// A table whose rows `a`, `b` and `c` have this many cells of 1 KiB.
    fn table_with(cells: [i64; 3]) -> (tempfile::TempDir, Api) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options::default(), World::real()).unwrap();
        let api = Api::new(Arc::new(store)).unwrap();
        let families = [("f".to_string(), Family::default())].into();
        let table =
            api.tables().create(TABLE, Definition { families, ..Definition::default() }).unwrap();
        let mut commit = CommitBuilder::new();
        commit.table(table.id);
        for (row, cells) in [b"a", b"b", b"c"].into_iter().zip(cells) {
            let row = commit.row(row);
            (0..cells).for_each(|at| _ = row.set(b"f", b"q", at * 1000, &[b'v'; 1024]));
        }
        let store = api.tables().store();
        store.apply(&commit.finish(), Txn::MAX, Wait::Durable).unwrap();
        (dir, api)
    }

    fn open(api: &Api, request: request::ReadRows) -> RowMessages {
        let request = request::ReadRows { table_name: TABLE.into(), ..request };
        let plan = Plan::new(api.tables(), &request, &v2::FeatureFlags::default()).unwrap();
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(7));
        plan.read(api.tables().store(), &random, None).unwrap()
    }

    /// The keys of the rows that are sent whole, and how the stream ends.
    fn rows_of(mut messages: RowMessages) -> (Vec<Bytes>, Result<()>) {
        let mut rows = Vec::new();
        let mut key = Bytes::new();
        loop {
            let message = match messages.next() {
                Ok(Next::Message(message)) => message,
                Ok(Next::Yield | Next::Wait(_)) => continue,
                Ok(Next::End) => return (rows, Ok(())),
                Err(error) => return (rows, Err(error)),
            };
            for chunk in v2::ReadRowsResponse::decode(message.slice(5..)).unwrap().chunks {
                if !chunk.row_key.is_empty() {
                    key = chunk.row_key;
                }
                if chunk.row_status.is_some() {
                    rows.push(key.clone());
                }
            }
        }
    }

    #[test]
    fn a_row_too_large_to_be_read_ends_the_stream_with_its_key() {
        let (_dir, api) = table_with([3, 5000, 3]);
        for reversed in [false, true] {
            let mut messages = open(&api, request::ReadRows { reversed, ..Default::default() });
            messages.sink.emit.row_bytes_max = 4 << 20;
            let (rows, end) = rows_of(messages);
            assert_eq!(rows, [if reversed { "c" } else { "a" }], "rows before it are sent");
            assert!(matches!(end, Err(Error::LargeRow { row, .. }) if row == b"b"), "{rows:?}");
        }
        let after = v2::RowRange {
            start_key: Some(v2::row_range::StartKey::StartKeyOpen("b".into())),
            end_key: None,
        };
        let rows = Some(v2::RowSet { row_keys: Vec::new(), row_ranges: vec![after] });
        let messages = open(&api, request::ReadRows { rows, ..Default::default() });
        let (rows, end) = rows_of(messages);
        assert!(end.is_ok());
        assert_eq!(rows, ["c"]);
    }

    fn value_filter(regex: &'static str) -> Option<Bytes> {
        let filter = v2::row_filter::Filter::ValueRegexFilter(regex.into());
        Some(v2::RowFilter { filter: Some(filter) }.encode_to_vec().into())
    }

    fn row_limit_filter() -> Option<Bytes> {
        let filter = v2::row_filter::Filter::CellsPerRowLimitFilter(1);
        Some(v2::RowFilter { filter: Some(filter) }.encode_to_vec().into())
    }

    #[test]
    fn a_scan_without_matches_yields_between_small_batches() {
        let (_dir, api) = table_with([3, 20_000, 3]);
        for rows in [None, Some(v2::RowSet { row_keys: vec!["b".into()], row_ranges: vec![] })] {
            let filter = value_filter("nothing+");
            let mut messages = open(&api, request::ReadRows { rows, filter, ..Default::default() });
            let mut yields = 0;
            loop {
                match messages.next().unwrap() {
                    Next::Yield => yields += 1,
                    Next::End => break,
                    Next::Message(_) | Next::Wait(_) => panic!("nothing matches"),
                }
            }
            assert!(yields >= 20_000 / Pace::WORK_MAX, "{yields} yields");
        }
    }

    #[test]
    fn a_row_of_which_nothing_more_is_wanted_is_not_read_to_its_end() {
        let (_dir, api) = table_with([3, 20_000, 3]);
        let mut messages =
            open(&api, request::ReadRows { filter: row_limit_filter(), ..Default::default() });
        let (mut rows, mut yields) = (0, 0);
        loop {
            match messages.next().unwrap() {
                Next::Yield => yields += 1,
                Next::Message(message) => {
                    let sent = v2::ReadRowsResponse::decode(message.slice(5..)).unwrap().chunks;
                    rows += sent.iter().filter(|chunk| chunk.row_status.is_some()).count();
                }
                Next::End => break,
                Next::Wait(_) => panic!("there is memory"),
            }
        }
        assert_eq!((rows, yields), (3, 0));
    }
}
