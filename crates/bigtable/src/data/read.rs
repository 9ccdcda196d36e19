//! ReadRows: an engine scan, filtered and encoded into chunks as the client
//! consumes them.

use std::sync::Arc;
use std::time::Instant;

use prost::Message;
use stele_engine::world::{Miss, Random};
use stele_engine::{BatchEnd, BatchLimits, Flow, NotLoaded, ScanSpec};
use stele_grpc::offload::in_place;
use stele_grpc::{Messages, Next, Wait};
use stele_tables::{Local, Placement, Scan};
use tonic::Status;

use super::chunks::MESSAGE_BYTES;
use super::pace::{Pace, RowClock};
use super::read_plan::ReadPlan;
use super::read_sink::ReadSink;
use super::request_filter::charged_bytes;
use super::response_memory::ResponseMemory;
use crate::error::{Error, Result};
use crate::proto::v2;
use crate::table::{Table, Tables};

/// Memory for longer values is reserved before they are read.
const VALUE_BYTES_FREE: usize = MESSAGE_BYTES;
/// After a long value, memory for values up to this size is reserved for every
/// batch.
const VALUE_BYTES_COMMON: usize = 1 << 20;
/// Copying a longer value, or a longer row that a condition holds, takes long.
const QUICK_BYTES_MAX: usize = 4 << 20;

/// The message stream of a ReadRows call.
pub struct RowMessages {
    /// `None` if everything was read at once.
    scan: Option<Scan>,
    /// Opens the batches of the scan, and waits for tablets.
    tables: stele_tables::Tables,
    sink: ReadSink,
    table: Arc<Table>,
    last_scanned: bool,
    deadline: Option<Instant>,
    pace: Pace,
    memory: ResponseMemory,
    filter_bytes: usize,
    /// The longest value that the next batch may read.
    value_bytes: usize,
    /// What the last batch missed.
    miss: Option<Miss>,
    ended: bool,
}

impl Messages for RowMessages {
    type Error = Error;

    fn next(&mut self) -> Result<Next> {
        if self.sink.chunks().is_ready() {
            return self.ready();
        }
        if let Some(wait) = self.wait_for_miss() {
            return Ok(Next::Wait(wait));
        }
        if let Some(wait) = self.reserve() {
            return Ok(Next::Wait(wait));
        }
        if !self.ended
            && let Err(error) = self.check_deadline().and_then(|()| self.batch())
        {
            match self.wait_for_load(&error) {
                Some(wait) => return Ok(Next::Wait(wait)),
                None => self.fail(error),
            }
        }
        self.ready()
    }
}

impl RowMessages {
    /// Starts a read. The deadline is the client's; `memory` is already charged
    /// for the filter.
    pub fn begin(
        plan: ReadPlan,
        tables: &Tables,
        random: &Arc<dyn Random>,
        deadline: Option<Instant>,
        memory: ResponseMemory,
    ) -> Result<RowMessages> {
        let (mut spec, residual) = plan.scan();
        let pace = match residual.passes_all() {
            true => Pace::fast(),
            false => Pace::of_filter(&plan.filter),
        };
        let sink = ReadSink::new(&plan, residual.evaluator(random.clone()));
        let mut messages = RowMessages {
            scan: None,
            tables: tables.served().clone(),
            sink,
            table: plan.table.clone(),
            last_scanned: plan.last_scanned,
            deadline,
            pace,
            memory,
            filter_bytes: charged_bytes(&plan.filter),
            value_bytes: VALUE_BYTES_FREE,
            miss: None,
            ended: false,
        };
        if let [range] = &spec.rows[..]
            && let Some(row) = range.single_row()
        {
            let local = tables.local(plan.table.id, row);
            match messages.read_row(local, row, &spec) {
                Ok(true) => return Ok(messages),
                Ok(false) => {}
                // The scan waits for it.
                Err(error) if loading(&error).is_some() => {}
                Err(error) => return Err(error),
            }
            // Start over from the request: a residual filter serves a single
            // evaluation.
            let (again, residual) = plan.scan();
            spec = again;
            messages.sink.restart(&plan, residual.evaluator(random.clone()));
        }
        let first = spec.rows.first().map_or(&[][..], |rows| &rows.start);
        let scan = tables.local(plan.table.id, first).scan(spec);
        messages.scan = Some(tables.tenure().open(scan)?);
        Ok(messages)
    }

    /// Returns what can be sent now.
    fn ready(&mut self) -> Result<Next> {
        match self.sink.chunks().take() {
            Some(message) => {
                self.memory.set(self.held_bytes());
                Ok(Next::Message(message))
            }
            None if self.ended => self.sink.check().map(|()| Next::End),
            None => Ok(Next::Yield),
        }
    }

    /// Reserves memory for the next batch. Returns what to wait for if none is
    /// available.
    fn reserve(&mut self) -> Option<Wait> {
        match self.scan {
            Some(_) => self.memory.reserve(self.held_bytes() + self.value_bytes),
            None => None,
        }
    }

    /// Returns the bytes that the stream holds: its filter, and what was read but
    /// not sent.
    fn held_bytes(&self) -> usize {
        self.filter_bytes + self.sink.held_bytes()
    }

    /// Reads a small row in a single batch. Returns whether the row was small; a
    /// larger one, counting deleted cells, must be read in batches from its
    /// start.
    fn read_row(&mut self, local: Local<'_>, row: &[u8], spec: &ScanSpec) -> Result<bool> {
        let mut clock = RowClock::default();
        let mut large = false;
        let sink = &mut self.sink;
        let read = local.try_read_row(row, spec, Pace::ROW_WORK_MAX, |cell| {
            large = sink.held_bytes() + cell.value.len() > MESSAGE_BYTES || clock.is_late();
            if large { Flow::Stop } else { sink.cell(cell, &self.table) }
        });
        if self.tables.tenure().open(read)?.is_none() || large {
            return Ok(false);
        }
        self.sink.end_row(&self.table);
        self.end()?;
        Ok(true)
    }

    /// Continues reading for about a millisecond.
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
        let (sink, table, tenure) = (&mut self.sink, &*self.table, self.tables.tenure());
        let mut read = || -> Result<BatchEnd> {
            let batch = scan.next_batch(limits, &mut |cell| sink.cell(cell, table));
            let end = tenure.open(batch)?;
            if end.done || !scan.mid_row() {
                sink.end_row(table);
            }
            Ok(end)
        };
        let end = if bytes_max > QUICK_BYTES_MAX { in_place(read) } else { read() }?;
        self.miss = if end.missed { scan.miss().cloned() } else { None };
        // Long values often occur together.
        self.value_bytes = end.long_value.unwrap_or(self.value_bytes.min(VALUE_BYTES_COMMON));
        self.pace.note(begun.elapsed());
        self.memory.set(self.filter_bytes + self.sink.held_bytes());
        self.sink.check_row(&self.table);
        self.sink.check()?;
        if end.done || self.sink.output.is_full() {
            return self.end();
        }
        // The batch produced nothing to send: report at least how far the scan
        // got.
        if self.last_scanned
            && !scan.mid_row()
            && self.sink.chunks().is_empty()
            && let Some(row) = scan.completed_row()
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
            let request_stats = Some(stats.message(self.sink.output.chunks.counts()));
            let message = v2::ReadRowsResponse { request_stats, ..Default::default() };
            self.sink.chunks().message(&message.encode_to_vec());
        }
        Ok(())
    }

    /// Returns what to wait for if the last batch missed bytes of a file.
    fn wait_for_miss(&mut self) -> Option<Wait> {
        let miss = self.miss.take()?;
        Some(Box::pin(async move {
            miss.fetched().await.map_err(|error| Status::from(Error::Engine(error)))
        }))
    }

    /// Returns what to wait for if a batch failed because a tablet is being loaded. Such
    /// a batch has no rows, and the scan continues when it is loaded.
    fn wait_for_load(&self, error: &Error) -> Option<Wait> {
        let row = loading(error)?.row.0.clone();
        let (tables, table) = (self.tables.clone(), self.table.id);
        Some(Box::pin(async move {
            let Placement::Here(local) = tables.place(table, &row);
            local.loaded(&row).await.map_err(|error| Status::from(Error::Engine(error)))
        }))
    }

    /// Ends the stream with an error, after the rows that are complete.
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

/// Returns the tablet if an error is that it is being loaded.
fn loading(error: &Error) -> Option<&NotLoaded> {
    match error {
        Error::Engine(stele_engine::Error::TabletNotLoaded(tablet)) => {
            Some(&**tablet).filter(|tablet| tablet.state.is_loading())
        }
        _ => None,
    }
}

/// Returns the client's deadline, from the timeout of its call.
pub fn deadline(headers: &http::HeaderMap) -> Option<Instant> {
    Instant::now().checked_add(stele_grpc::timeout(headers)?)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use stele_engine::world::sim::SimObjects;
    use stele_engine::world::{SeededRandom, World};
    use stele_engine::{Commit, CommitBuilder, Options};

    use super::*;
    use crate::Api;
    use crate::data::request;
    use crate::filter::Filter;
    use crate::table::{Definition, Family};

    const TABLE: &str = "projects/p/instances/i/tables/t";

    /// Creates a table whose rows `a`, `b` and `c` have this many cells of 1 KiB.
    fn table_with(cells: [i64; 3]) -> (tempfile::TempDir, Api) {
        let (dir, api, _) = table_of(Options::default(), cells);
        (dir, api)
    }

    fn table_of(
        options: Options,
        cells: [i64; 3],
    ) -> (tempfile::TempDir, Api, stele_tables::Tables) {
        let dir = tempfile::tempdir().unwrap();
        let tables = stele_tables::Tables::open(dir.path(), options, World::real()).unwrap();
        let api = Api::new(tables.clone()).unwrap();
        let families = [("f".to_string(), Family::default())].into();
        let table =
            api.tables().create(TABLE, Definition { families, ..Definition::default() }).unwrap();
        let mut commit = CommitBuilder::new();
        commit.table(table.id);
        for (row, cells) in [b"a", b"b", b"c"].into_iter().zip(cells) {
            let row = commit.row(row);
            (0..cells).for_each(|at| _ = row.set(b"f", b"q", at * 1000, &[b'v'; 1024]));
        }
        apply(&api, &commit.finish());
        (dir, api, tables)
    }

    #[test]
    fn scale_4_3_rows_are_read_although_every_read_of_a_file_misses() {
        let mut options = Options::default();
        options.objects.store = Some(Arc::new(SimObjects::new(1)));
        options.memory.cache_bytes = 0;
        let (_dir, api, tables) = table_of(options, [3, 200, 3]);
        let table = api.tables().get(TABLE).unwrap();
        tables.flush(table.id).unwrap();
        for reversed in [false, true] {
            let (mut rows, end) =
                rows_of(open(&api, request::ReadRows { reversed, ..Default::default() }));
            end.unwrap();
            if reversed {
                rows.reverse();
            }
            assert_eq!(rows, ["a", "b", "c"]);
        }
        let one = Some(v2::RowSet { row_keys: vec!["b".into()], row_ranges: Vec::new() });
        let (rows, end) =
            rows_of(open(&api, request::ReadRows { rows: one, ..Default::default() }));
        end.unwrap();
        assert_eq!(rows, ["b"]);
    }

    fn apply(api: &Api, commit: &Commit) {
        let table = api.tables().get(TABLE).unwrap();
        let applied = api.tables().local(table.id, b"").apply_blocking(commit);
        api.tables().tenure().open(applied).unwrap();
    }

    fn open(api: &Api, request: request::ReadRows) -> RowMessages {
        let request = request::ReadRows { table_name: TABLE.into(), ..request };
        let filter = match &request.filter {
            Some(bytes) => Filter::decode(bytes),
            None => Filter::compile(None),
        };
        let features = v2::FeatureFlags::default();
        let plan = ReadPlan::new(api.tables(), &request, filter, &features).unwrap();
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(7));
        RowMessages::begin(plan, api.tables(), &random, None, ResponseMemory::of_call()).unwrap()
    }

    /// Returns the keys of the rows that are sent whole, and the result of the
    /// stream.
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
            messages.sink.output.row_bytes_max = 4 << 20;
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

    /// Returns how often a stream without messages yields.
    fn yields_of_empty(mut messages: RowMessages) -> usize {
        let mut yields = 0;
        loop {
            match messages.next().unwrap() {
                Next::Yield => yields += 1,
                Next::End => return yields,
                Next::Message(_) | Next::Wait(_) => panic!("there is no cell to send"),
            }
        }
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
            let messages = open(&api, request::ReadRows { rows, filter, ..Default::default() });
            let yields = yields_of_empty(messages);
            assert!(yields >= 20_000 / Pace::WORK_MAX, "{yields} yields");
        }
    }

    #[test]
    fn a_point_read_of_deleted_cells_yields_between_small_batches() {
        let (_dir, api) = table_with([3, 20_000, 3]);
        let table = api.tables().get(TABLE).unwrap();
        let mut commit = CommitBuilder::new();
        commit.table(table.id).row(b"b").delete_column(b"f", b"q");
        apply(&api, &commit.finish());
        let rows = Some(v2::RowSet { row_keys: vec!["b".into()], row_ranges: vec![] });
        let yields = yields_of_empty(open(&api, request::ReadRows { rows, ..Default::default() }));
        assert!(yields >= 20_000 / Pace::WORK_MAX, "{yields} yields");
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
