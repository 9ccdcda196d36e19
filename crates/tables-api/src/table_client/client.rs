//! The connection to a server, and the handle of a table.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stele_engine::TableId;
use stele_grpc::{Pending, Services, Tls, Transport, backoff};
use tonic::{Request, Status};

use super::commit::RowCommit;
use super::error::{TableError, TableResult, is_temporary};
use super::row::Row;
use super::scanner::{ScanOptions, Scanner};
use crate::error::reason;
use crate::proto::tables_client::TablesClient;
use crate::proto::*;

/// Larger than any block: a value has at most 100 MiB.
const MESSAGE_BYTES_MAX: usize = 128 << 20;
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a call that changes nothing is retried.
const RETRY_TIME: Duration = Duration::from_secs(60);
const BACKOFF_FIRST: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// A client of one server. Cheap to clone.
#[derive(Clone)]
pub struct TableClient {
    transport: Transport,
    call_timeout: Duration,
    retry_time: Duration,
}

impl TableClient {
    /// Connects to `host:port` in plain text, or `https://host` with TLS. A connection that
    /// is lost later is established again.
    pub fn connect<'a>(
        endpoint: &'a str,
        tls: &'a Tls,
    ) -> Pending<'a, Result<TableClient, Status>> {
        Box::pin(async move { Ok(TableClient::new(Transport::connect(endpoint, tls).await?)) })
    }

    /// Calls services of this process.
    pub fn in_process(services: impl Into<Services>) -> TableClient {
        TableClient::new(Transport::InProcess(services.into()))
    }

    fn new(transport: Transport) -> TableClient {
        TableClient { transport, call_timeout: CALL_TIMEOUT, retry_time: RETRY_TIME }
    }

    /// Sets the timeout of each call.
    pub fn with_timeout(self, call_timeout: Duration) -> TableClient {
        TableClient { call_timeout, ..self }
    }

    /// Sets how long calls are retried that surely had no effect.
    pub fn with_retry_time(self, retry_time: Duration) -> TableClient {
        TableClient { retry_time, ..self }
    }

    /// Opens a table, by its name in the Bigtable API.
    pub async fn open(&self, name: &str) -> TableResult<Table> {
        let reply = self
            .retried(|client| async move {
                let mut calls = client.calls();
                let request = client.request(OpenRequest { table: name.into() });
                calls.open(request).await
            })
            .await?;
        let name = name.into();
        Ok(Table { client: self.clone(), handle: Arc::new(Handle { name, opened: reply }) })
    }

    pub(super) fn calls(&self) -> TablesClient<Transport> {
        TablesClient::new(self.transport.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.call_timeout);
        request
    }

    /// Makes a call that changes nothing, and repeats it while the server cannot be
    /// reached.
    pub(super) async fn retried<T, F, R>(&self, mut call: F) -> TableResult<T>
    where
        F: FnMut(TableClient) -> R,
        R: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let begun = Instant::now();
        let mut failed = 0;
        loop {
            match call(self.clone()).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) if is_temporary(&status) && begun.elapsed() < self.retry_time => {
                    pause(failed).await;
                    failed += 1;
                }
                Err(status) => return Err(TableError::of_read(status)),
            }
        }
    }

    pub(super) fn retry_time(&self) -> Duration {
        self.retry_time
    }
}

/// Waits before a retry.
pub(super) async fn pause(failed: u32) {
    tokio::time::sleep(backoff::delay(BACKOFF_FIRST, BACKOFF_MAX, failed)).await;
}

/// An open table. Cheap to clone.
#[derive(Clone)]
pub struct Table {
    pub(super) client: TableClient,
    handle: Arc<Handle>,
}

struct Handle {
    name: String,
    opened: OpenReply,
}

impl Table {
    pub fn name(&self) -> &str {
        &self.handle.name
    }

    pub fn id(&self) -> u32 {
        self.handle.opened.table_id
    }

    /// Returns what the server reported when the table was opened.
    pub fn opened(&self) -> &OpenReply {
        &self.handle.opened
    }

    /// Applies a commit unconditionally. Durable on return. Returns its txn.
    pub async fn apply(&self, commit: &RowCommit) -> TableResult<u64> {
        self.apply_as(commit, None, Wait::Durable).await
    }

    /// Applies a commit unless one of its rows was changed after `commit_max_txn`. Durable
    /// on return. Returns its txn.
    pub async fn apply_if(&self, commit: &RowCommit, commit_max_txn: u64) -> TableResult<u64> {
        self.apply_as(commit, Some(commit_max_txn), Wait::Durable).await
    }

    /// Applies a commit, and returns when it is durable, or when it is applied.
    pub async fn apply_as(
        &self,
        commit: &RowCommit,
        commit_max_txn: Option<u64>,
        wait: Wait,
    ) -> TableResult<u64> {
        let packed = commit.pack(TableId(self.id()));
        let begun = Instant::now();
        let mut failed = 0;
        loop {
            let request = self.client.request(ApplyRequest {
                table: self.name().into(),
                table_id: self.id(),
                commit: packed.clone(),
                commit_max_txn,
                wait: wait.into(),
                schema_version: 0,
            });
            match self.client.calls().apply(request).await {
                Ok(reply) => return Ok(reply.into_inner().txn),
                // The server was busy and has not applied the commit.
                Err(status)
                    if reason(&status).as_deref() == Some("OVERLOADED")
                        && begun.elapsed() < self.client.retry_time() =>
                {
                    pause(failed).await;
                    failed += 1;
                }
                Err(status) => return Err(TableError::of_commit(status)),
            }
        }
    }

    /// Waits until all commits up to `txn` are durable; `None` means all so far. Returns
    /// the newest durable txn.
    pub async fn sync(&self, txn: Option<u64>) -> TableResult<u64> {
        let reply = self
            .client
            .retried(|client| async move {
                let mut calls = client.calls();
                let (table, table_id) = (self.name().to_string(), self.id());
                calls.sync(client.request(SyncRequest { table, table_id, txn })).await
            })
            .await?;
        Ok(reply.durable_txn)
    }

    /// Opens a scan. The first call is made when the first row is requested.
    pub fn scan(&self, options: ScanOptions) -> Scanner {
        Scanner::new(self.clone(), options)
    }

    /// Reads a row, and the txn at which it was read, which is valid as a `commit_max_txn`
    /// also if there is no row.
    pub async fn read(&self, row: impl AsRef<[u8]>) -> TableResult<(Option<Row>, u64)> {
        let mut scan = self.scan(ScanOptions::row(row));
        let found = scan.next().await?;
        let txn = found.as_ref().map(|row| row.txn).or(scan.txn()).unwrap_or_default();
        Ok((found, txn))
    }
}
