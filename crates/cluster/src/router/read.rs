//! ReadRows. The rows are read from one owner after the other, in the order of the request.
//! If an owner is lost within a row, the client is told to drop its part of that row, and
//! the read continues after the last complete row, wherever that is served then.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use stele_bigtable_proto::v2;
use stele_bigtable_proto::v2::read_rows_response::CellChunk;
use stele_bigtable_proto::v2::read_rows_response::cell_chunk::RowStatus;
use stele_engine::{RowRange, TableId};
use stele_grpc::frame::{self, PREFIX_BYTES};
use tonic::body::Body;
use tonic::{Code, Status};

use super::call::Call;
use super::front::{Front, NoAnswer, lost, unreachable};
use super::patience::{Patience, nobody_serves};
use super::reply::{End, Reply, Stream, is_not_loaded, respond_with};
use super::row_ranges::RowRanges;
use super::row_tracker::{RowTracker, STATS};
use super::wire::{Fields, Malformed};
use crate::routes::{Route, Serving};

/// Fields of `ReadRowsRequest`.
const TABLE_NAME: u32 = 1;
const ROWS: u32 = 2;
const ROWS_LIMIT: u32 = 4;
const STATS_VIEW: u32 = 6;
const REVERSED: u32 = 7;
const FULL_STATS: u64 = 2;

pub async fn answer(
    front: Arc<Front>,
    call: Call,
    frame: Bytes,
) -> Result<http::Response<Body>, Status> {
    let request = match Request::of(&frame[PREFIX_BYTES..]) {
        Some(request) => request,
        None => return Ok(front.here(&call, frame).await),
    };
    let Some(table) = front.table(&call, &request.table_name).await? else {
        return Ok(front.here(&call, frame).await);
    };
    let patience = Patience::of(&call);
    Ok(respond_with(Reading {
        front,
        call,
        table,
        frame: Some(frame),
        left: request.rows.clone(),
        request,
        current: None,
        tracker: RowTracker::default(),
        stats: Stats::default(),
        patience,
        outdated: None,
        is_done: false,
    }))
}

/// What routing needs of a request.
struct Request {
    table_name: Vec<u8>,
    rows: RowRanges,
    limit: u64,
    has_stats: bool,
    is_reversed: bool,
    /// All other fields, as they came.
    others: Vec<u8>,
}

impl Request {
    /// Reads a request; `None` if it is not valid.
    fn of(message: &[u8]) -> Option<Request> {
        let (mut table_name, mut others) = (Vec::new(), Vec::new());
        let mut rows: Option<v2::RowSet> = None;
        let (mut limit, mut has_stats, mut is_reversed) = (0, false, false);
        for field in Fields::of(message) {
            let field = field.ok()?;
            match field.tag {
                // Parts of one message are merged.
                ROWS => rows.get_or_insert_default().merge(field.bytes()?).ok()?,
                ROWS_LIMIT => limit = i64::try_from(field.varint()?).ok()?,
                tag => {
                    match tag {
                        TABLE_NAME => table_name = field.bytes()?.to_vec(),
                        STATS_VIEW => has_stats = field.varint()? == FULL_STATS,
                        REVERSED => is_reversed = field.varint()? != 0,
                        _ => {}
                    }
                    others.extend_from_slice(&message[field.span()]);
                }
            }
        }
        let (rows, limit) = (RowRanges::of(rows.as_ref())?, limit.unsigned_abs());
        Some(Request { table_name, rows, limit, has_stats, is_reversed, others })
    }

    /// Returns the request for some of the rows, with its prefix.
    fn part(&self, rows: &RowRanges, limit: u64) -> Bytes {
        let rest = v2::ReadRowsRequest {
            rows: Some(rows.message()),
            rows_limit: i64::try_from(limit).unwrap_or(i64::MAX),
            ..Default::default()
        };
        let mut part = frame::begin(self.others.len() + rest.encoded_len());
        part.extend_from_slice(&self.others);
        rest.encode_raw(&mut part);
        frame::finish(part)
    }
}

/// A read that is being answered.
struct Reading {
    front: Arc<Front>,
    call: Call,
    table: TableId,
    /// The request as it came, until a part of it was answered.
    frame: Option<Bytes>,
    request: Request,
    /// The rows that the client does not have yet.
    left: RowRanges,
    current: Option<Current>,
    tracker: RowTracker,
    stats: Stats,
    patience: Patience,
    outdated: Option<u64>,
    is_done: bool,
}

/// The read of one owner.
struct Current {
    reply: Reply,
    owner: Arc<Serving>,
    rows: RowRange,
    version: u64,
}

impl Stream for Reading {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            let Some(current) = &mut self.current else {
                match self.begin().await? {
                    Begun::Part => continue,
                    Begun::Nothing => return Ok(self.last()),
                }
            };
            match current.reply.next().await {
                Ok(message) => {
                    if let Some(message) = self.pass(message)? {
                        return Ok(Some(message));
                    }
                }
                Err(End::Status(status)) if status.code() == Code::Ok => self.finish_part(),
                Err(end) => {
                    if let Some(reset) = self.interrupted(end).await? {
                        return Ok(Some(reset));
                    }
                }
            }
        }
    }
}

enum Begun {
    Part,
    /// There is nothing left to read.
    Nothing,
}

impl Reading {
    /// Begins to read the next rows from their owner.
    async fn begin(&mut self) -> Result<Begun, Status> {
        loop {
            if self.is_done || self.left.is_empty() {
                return Ok(Begun::Nothing);
            }
            let routes = self.front.routes().table(self.table, self.outdated).await;
            let routes = routes.map_err(|error| unreachable(&error))?;
            let route = match self.request.is_reversed {
                true => routes.route_before(self.left.end()),
                false => routes.route(self.left.first()),
            };
            let obstacle = match &route.owner {
                None => nobody_serves(),
                Some(owner) => {
                    let frame = self.part(&route);
                    match self.front.send(owner, &self.call, frame).await {
                        Ok(response) => {
                            let (owner, rows) = (owner.clone(), route.rows.clone());
                            let (reply, version) = (Reply::new(response), route.version);
                            self.current = Some(Current { reply, owner, rows, version });
                            return Ok(Begun::Part);
                        }
                        // Reading twice does no harm.
                        Err(NoAnswer::NotSent(status) | NoAnswer::Lost(status)) => status,
                    }
                }
            };
            self.patience.wait(obstacle).await?;
            self.outdated = Some(route.version);
        }
    }

    /// Returns the request for the rows of a route.
    fn part(&self, route: &Route) -> Bytes {
        // Most reads have one owner, who gets them as they are.
        if let Some(frame) = &self.frame
            && self.left.are_within(&route.rows)
        {
            return frame.clone();
        }
        let limit = self.request.limit.saturating_sub(self.tracker.rows());
        self.request.part(&self.left.within(&route.rows), limit)
    }

    /// Passes a message on to the client.
    fn pass(&mut self, message: Bytes) -> Result<Option<Bytes>, Status> {
        let malformed = |_: Malformed| Status::internal("a server sent a malformed message");
        let content = &message[PREFIX_BYTES..];
        self.tracker.add(content).map_err(malformed)?;
        self.patience.renew();
        if !self.request.has_stats {
            return Ok(Some(message));
        }
        let rest = self.stats.take(content).map_err(malformed)?;
        Ok(match rest {
            None => Some(message),
            Some(rest) if rest.is_empty() => None,
            Some(rest) => {
                let mut message = frame::begin(rest.len());
                message.extend_from_slice(&rest);
                Some(frame::finish(message))
            }
        })
    }

    /// Notes that all rows of a part were read.
    fn finish_part(&mut self) {
        let Some(current) = self.current.take() else { return };
        self.left.remove(&current.rows);
        self.frame = None;
        self.tracker.take_complete();
        let limit = self.request.limit;
        self.is_done = limit > 0 && self.tracker.rows() >= limit;
    }

    /// Goes on elsewhere after a part was interrupted, if that can help. Returns what the
    /// client must know.
    async fn interrupted(&mut self, end: End) -> Result<Option<Bytes>, Status> {
        let Some(current) = self.current.take() else { return Ok(None) };
        let obstacle = match end {
            End::Broken(why) => lost(&current.owner, &why),
            End::Status(status) if is_not_loaded(&status) => status,
            // Its lease has ended, it shuts down, or what it read is outdated.
            End::Status(status) if matches!(status.code(), Code::Unavailable | Code::Aborted) => {
                status
            }
            End::Status(status) => return Err(status),
        };
        if let Some(complete) = self.tracker.take_complete() {
            self.frame = None;
            match self.request.is_reversed {
                true => self.left.remove_from(&complete),
                false => self.left.remove_through(&complete),
            }
        }
        let limit = self.request.limit;
        self.is_done = limit > 0 && self.tracker.rows() >= limit;
        self.outdated = Some(current.version);
        let was_open = self.tracker.is_open();
        self.tracker.reset();
        if !self.is_done && !self.left.is_empty() {
            self.patience.wait(obstacle).await?;
        }
        Ok(was_open.then(reset_row))
    }

    /// Returns the message after the last row, if there is one.
    fn last(&mut self) -> Option<Bytes> {
        self.stats.sum.take().map(|stats| {
            frame::encode(&v2::ReadRowsResponse {
                request_stats: Some(stats),
                ..Default::default()
            })
        })
    }
}

/// Returns a message that makes the client drop its part of a row.
fn reset_row() -> Bytes {
    let chunk = CellChunk { row_status: Some(RowStatus::ResetRow(true)), ..Default::default() };
    frame::encode(&v2::ReadRowsResponse { chunks: vec![chunk], ..Default::default() })
}

/// The statistics of all parts.
#[derive(Default)]
struct Stats {
    sum: Option<v2::RequestStats>,
}

impl Stats {
    /// Takes the statistics out of a message and adds them up. Returns the rest of the
    /// message; `None` if it has none.
    fn take(&mut self, message: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
        let mut rest = None;
        for field in Fields::of(message) {
            let field = field?;
            if field.tag == STATS {
                let stats = v2::RequestStats::decode(field.bytes().ok_or(Malformed)?);
                self.add(stats.map_err(|_| Malformed)?);
                let rest = rest.get_or_insert_with(Vec::new);
                rest.extend_from_slice(&message[..field.start]);
                rest.extend_from_slice(&message[field.end..]);
                // A server sends them once.
                break;
            }
        }
        Ok(rest)
    }

    fn add(&mut self, stats: v2::RequestStats) {
        use v2::request_stats::StatsView::FullReadStatsView;
        let Some(sum) = &mut self.sum else {
            self.sum = Some(stats);
            return;
        };
        let (Some(FullReadStatsView(sum)), Some(FullReadStatsView(more))) =
            (&mut sum.stats_view, stats.stats_view)
        else {
            return;
        };
        if let (Some(sum), Some(more)) = (&mut sum.read_iteration_stats, more.read_iteration_stats)
        {
            sum.rows_seen_count += more.rows_seen_count;
            sum.rows_returned_count += more.rows_returned_count;
            sum.cells_seen_count += more.cells_seen_count;
            sum.cells_returned_count += more.cells_returned_count;
        }
        let latency = |view: &v2::FullReadStatsView| {
            view.request_latency_stats.as_ref()?.frontend_server_latency
        };
        if let (Some(one), Some(other)) = (latency(sum), latency(&more))
            && let Some(all) = &mut sum.request_latency_stats
        {
            let nanos = i64::from(one.nanos) + i64::from(other.nanos);
            all.frontend_server_latency = Some(prost_types::Duration {
                seconds: one.seconds + other.seconds + nanos / 1_000_000_000,
                nanos: i32::try_from(nanos % 1_000_000_000).unwrap_or_default(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_request_keeps_its_other_fields() {
        let rows = v2::RowSet { row_keys: vec!["b".into(), "x".into()], row_ranges: vec![] };
        let sent = v2::ReadRowsRequest {
            table_name: "t".into(),
            rows: Some(rows),
            filter: Some(v2::RowFilter {
                filter: Some(v2::row_filter::Filter::CellsPerRowLimitFilter(3)),
            }),
            rows_limit: 7,
            request_stats_view: 2,
            reversed: true,
            app_profile_id: "a".into(),
            ..Default::default()
        };
        let request = Request::of(&sent.encode_to_vec()).unwrap();
        assert!(request.has_stats && request.is_reversed && request.table_name == b"t");
        assert_eq!(request.limit, 7);
        let part = request.part(&request.rows.within(&RowRange::from("c")), 5);
        let part = v2::ReadRowsRequest::decode(&part[PREFIX_BYTES..]).unwrap();
        let rows = v2::RowSet { row_keys: vec!["x".into()], row_ranges: vec![] };
        assert_eq!(part, v2::ReadRowsRequest { rows: Some(rows), rows_limit: 5, ..sent.clone() });
        let negative = v2::ReadRowsRequest { rows_limit: -1, ..sent };
        assert!(Request::of(&negative.encode_to_vec()).is_none());
    }

    #[test]
    fn statistics_are_taken_out_and_added_up() {
        use v2::request_stats::StatsView::FullReadStatsView;
        let stats = v2::RequestStats {
            stats_view: Some(FullReadStatsView(v2::FullReadStatsView {
                read_iteration_stats: Some(v2::ReadIterationStats {
                    rows_seen_count: 2,
                    rows_returned_count: 1,
                    cells_seen_count: 4,
                    cells_returned_count: 3,
                }),
                request_latency_stats: Some(v2::RequestLatencyStats {
                    frontend_server_latency: Some(prost_types::Duration {
                        seconds: 1,
                        nanos: 600_000_000,
                    }),
                }),
            })),
        };
        let rows = v2::ReadRowsResponse { last_scanned_row_key: "k".into(), ..Default::default() };
        let message = v2::ReadRowsResponse { request_stats: Some(stats), ..rows.clone() };
        let mut sum = Stats::default();
        assert_eq!(sum.take(&rows.encode_to_vec()), Ok(None));
        for _ in 0..2 {
            let rest = sum.take(&message.encode_to_vec()).unwrap().unwrap();
            assert_eq!(rest, rows.encode_to_vec());
        }
        let Some(FullReadStatsView(sum)) = sum.sum.unwrap().stats_view else { panic!() };
        assert_eq!(sum.read_iteration_stats.unwrap().cells_seen_count, 8);
        let latency = sum.request_latency_stats.unwrap().frontend_server_latency.unwrap();
        assert_eq!((latency.seconds, latency.nanos), (3, 200_000_000));
    }
}
