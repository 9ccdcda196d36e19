//! A scripted service: it stores rows, and breaks streams and rejects rows where
//! the script says so.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_stream::Stream;
use tonic::{Code, Request, Response, Status};

use crate::{Client, Options, Retry, Row};
use stele_bigtable_proto::v2;
use stele_bigtable_proto::v2::bigtable_server::{Bigtable, BigtableServer};
use stele_bigtable_proto::v2::read_rows_response::CellChunk;
use stele_bigtable_proto::v2::read_rows_response::cell_chunk::RowStatus;
use stele_bigtable_proto::v2::row_range::{EndKey, StartKey};

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The course of one read attempt.
#[derive(Clone, Debug)]
pub struct ReadScript {
    /// The number of chunks in each message.
    pub message_chunks: usize,
    /// After this many messages the stream breaks with this status.
    pub cut: Option<(usize, Code)>,
    /// Every row is started, reset and started again.
    pub resets: bool,
    /// Progress is reported after each row.
    pub progress: bool,
}

#[derive(Default)]
pub struct FlakyState {
    pub rows: BTreeMap<Vec<u8>, Row>,
    /// One script per attempt; further attempts do not break.
    pub reads: Vec<ReadScript>,
    pub read_requests: Vec<v2::ReadRowsRequest>,
    /// The number of reads whose client consumed the stream to the end.
    pub reads_ended: usize,
    /// The outcomes of each bulk write attempt by row key; OK if absent. `None`
    /// is not reported at all.
    pub writes: Vec<BTreeMap<Bytes, Option<Code>>>,
    pub write_requests: Vec<v2::MutateRowsRequest>,
    /// The outcomes of single calls, in order; OK afterwards.
    pub singles: Vec<Status>,
    pub single_calls: usize,
    /// The headers of the last MutateRow call.
    pub headers: tonic::metadata::MetadataMap,
}

#[derive(Clone, Default)]
pub struct Flaky(pub Arc<Mutex<FlakyState>>);

impl Flaky {
    pub fn client(&self) -> Client {
        let mut options = Options::new("in process", "p", "i");
        options.retry = Retry {
            attempts_max: 8,
            backoff_min: std::time::Duration::ZERO,
            backoff_max: std::time::Duration::ZERO,
        };
        self.client_with(options)
    }

    pub fn client_with(&self, options: Options) -> Client {
        let routes = tonic::service::Routes::new(BigtableServer::new(self.clone()));
        Client::in_process(routes, options)
    }

    fn single(&self) -> Result<(), Status> {
        let mut state = self.0.lock();
        let at = state.single_calls;
        state.single_calls += 1;
        state.singles.get(at).cloned().map_or(Ok(()), Err)
    }
}

fn is_wanted(rows: Option<&v2::RowSet>, key: &[u8]) -> bool {
    let Some(rows) = rows else { return true };
    if rows.row_keys.is_empty() && rows.row_ranges.is_empty() {
        return true;
    }
    let within = |range: &v2::RowRange| {
        let from = match &range.start_key {
            Some(StartKey::StartKeyClosed(start)) => key >= &start[..],
            Some(StartKey::StartKeyOpen(start)) => key > &start[..],
            None => true,
        };
        let to = match &range.end_key {
            Some(EndKey::EndKeyOpen(end)) => end.is_empty() || key < &end[..],
            Some(EndKey::EndKeyClosed(end)) => key <= &end[..],
            None => true,
        };
        from && to
    };
    rows.row_keys.iter().any(|other| other == key) || rows.row_ranges.iter().any(within)
}

/// Returns the chunks of a row; every value that can be split is sent in two
/// pieces.
fn chunks(row: &Row, resets: bool) -> Vec<CellChunk> {
    let mut chunks = Vec::new();
    for (at, cell) in row.cells.iter().enumerate() {
        let half = cell.value.len() / 2;
        chunks.push(CellChunk {
            row_key: if at == 0 { row.key.clone() } else { Bytes::new() },
            family_name: Some(cell.family.to_string()),
            qualifier: Some(cell.qualifier.to_vec()),
            timestamp_micros: cell.timestamp_micros,
            labels: cell.labels.clone(),
            value: cell.value.slice(..half),
            value_size: cell.value.len() as i32,
            row_status: None,
        });
        if !cell.value.is_empty() {
            chunks.push(CellChunk { value: cell.value.slice(half..), ..Default::default() });
        }
    }
    if resets {
        let reset = Some(RowStatus::ResetRow(true));
        let begun = chunks[0].clone();
        chunks.splice(0..0, [begun, CellChunk { row_status: reset, ..Default::default() }]);
    }
    chunks.last_mut().unwrap().row_status = Some(RowStatus::CommitRow(true));
    chunks
}

fn messages<'r>(
    rows: impl Iterator<Item = &'r Row>,
    script: &ReadScript,
) -> Vec<v2::ReadRowsResponse> {
    let mut messages = Vec::new();
    let mut open = v2::ReadRowsResponse::default();
    for row in rows {
        for chunk in chunks(row, script.resets) {
            open.chunks.push(chunk);
            if open.chunks.len() >= script.message_chunks {
                messages.push(std::mem::take(&mut open));
            }
        }
        if script.progress {
            if !open.chunks.is_empty() {
                messages.push(std::mem::take(&mut open));
            }
            let last_scanned_row_key = row.key.clone();
            messages.push(v2::ReadRowsResponse { last_scanned_row_key, ..Default::default() });
        }
    }
    messages.push(open);
    messages
}

#[tonic::async_trait]
impl Bigtable for Flaky {
    type ReadRowsStream = Streamed<v2::ReadRowsResponse>;
    type SampleRowKeysStream = Streamed<v2::SampleRowKeysResponse>;
    type MutateRowsStream = Streamed<v2::MutateRowsResponse>;

    async fn read_rows(
        &self,
        request: Request<v2::ReadRowsRequest>,
    ) -> Result<Response<Self::ReadRowsStream>, Status> {
        let request = request.into_inner();
        let mut state = self.0.lock();
        let attempt = state.read_requests.len();
        state.read_requests.push(request.clone());
        let whole = ReadScript { message_chunks: 3, cut: None, resets: false, progress: false };
        let script = state.reads.get(attempt).cloned().unwrap_or(whole);
        let mut rows: Vec<_> =
            state.rows.values().filter(|row| is_wanted(request.rows.as_ref(), &row.key)).collect();
        if request.reversed {
            rows.reverse();
        }
        if request.rows_limit > 0 {
            rows.truncate(request.rows_limit as usize);
        }
        let mut items: Vec<_> = messages(rows.into_iter(), &script).into_iter().map(Ok).collect();
        if let Some((after, code)) = script.cut {
            items.truncate(after);
            items.push(Err(Status::new(code, "cut off: RST_STREAM")));
        }
        let state = self.clone();
        let end = std::iter::from_fn(move || {
            state.0.lock().reads_ended += 1;
            None
        });
        Ok(Response::new(Box::pin(tokio_stream::iter(items.into_iter().chain(end)))))
    }

    async fn sample_row_keys(
        &self,
        _: Request<v2::SampleRowKeysRequest>,
    ) -> Result<Response<Self::SampleRowKeysStream>, Status> {
        self.single()?;
        let end = v2::SampleRowKeysResponse { row_key: Bytes::new(), offset_bytes: 7 };
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(end)))))
    }

    async fn get_client_configuration(
        &self,
        _: Request<v2::GetClientConfigurationRequest>,
    ) -> Result<Response<v2::ClientConfiguration>, Status> {
        Err(Status::unimplemented("GetClientConfiguration"))
    }

    async fn mutate_row(
        &self,
        request: Request<v2::MutateRowRequest>,
    ) -> Result<Response<v2::MutateRowResponse>, Status> {
        self.0.lock().headers = request.metadata().clone();
        self.single().map(|()| Response::new(v2::MutateRowResponse {}))
    }

    async fn mutate_rows(
        &self,
        request: Request<v2::MutateRowsRequest>,
    ) -> Result<Response<Self::MutateRowsStream>, Status> {
        let request = request.into_inner();
        self.single()?;
        let mut state = self.0.lock();
        let script = state.writes.get(state.write_requests.len()).cloned().unwrap_or_default();
        let reports = request.entries.iter().enumerate().filter_map(|(index, entry)| {
            let code = script.get(&entry.row_key).copied().unwrap_or(Some(Code::Ok))?;
            let status = tonic_types::Status {
                code: code as i32,
                message: "as scripted".into(),
                details: vec![],
            };
            let status = Some(status);
            Some(v2::mutate_rows_response::Entry { index: index as i64, status })
        });
        let entries = reports.collect();
        state.write_requests.push(request.clone());
        let response = v2::MutateRowsResponse { entries, rate_limit_info: None };
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(response)))))
    }

    async fn check_and_mutate_row(
        &self,
        _: Request<v2::CheckAndMutateRowRequest>,
    ) -> Result<Response<v2::CheckAndMutateRowResponse>, Status> {
        self.single()?;
        Ok(Response::new(v2::CheckAndMutateRowResponse { predicate_matched: true }))
    }

    async fn ping_and_warm(
        &self,
        _: Request<v2::PingAndWarmRequest>,
    ) -> Result<Response<v2::PingAndWarmResponse>, Status> {
        Ok(Response::new(v2::PingAndWarmResponse {}))
    }

    async fn read_modify_write_row(
        &self,
        _: Request<v2::ReadModifyWriteRowRequest>,
    ) -> Result<Response<v2::ReadModifyWriteRowResponse>, Status> {
        self.single()?;
        Ok(Response::new(v2::ReadModifyWriteRowResponse { row: None }))
    }
}
