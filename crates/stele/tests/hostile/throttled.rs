//! Writers that are throttled while memory cannot be flushed. `STELE_TEST_HOLD_FLUSHES`
//! holds the flush, so a write that does not fit into memory waits until it times out,
//! however fast the machine is.

use std::path::{Path, PathBuf};

use http::HeaderValue;
use stele_bigtable::proto::v2;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::streams::{connect, request};
use crate::support::{Server, TABLE, TIMEOUT, command, make_table, rows, until, write};

/// Of this, 8 MiB are for cells: about half of the writes fit.
const MEMORY: &str = "--memory=32MiB";
const WRITES: usize = 160;
const VALUE_BYTES: usize = 100 << 10;

/// A server whose memory is not flushed while the file exists.
struct UnflushedServer {
    server: Server,
    file: PathBuf,
}

impl UnflushedServer {
    /// Starts the server with scaled timeouts.
    fn start(dir: &Path, scale: &str) -> UnflushedServer {
        let data = dir.join("data");
        make_table(&data);
        let file = dir.join("hold");
        std::fs::write(&file, "").unwrap();
        let mut command = command(&["serve", "--grpc-port", "0", "--http-port", "0", MEMORY]);
        command.args(["--request-memory=128MiB", "--data", data.to_str().unwrap()]);
        command.env("STELE_TEST_HOLD_FLUSHES", &file).env("STELE_TEST_TIME_SCALE", scale);
        UnflushedServer { server: Server::spawn(command), file }
    }

    fn release(&self) {
        std::fs::remove_file(&self.file).unwrap();
    }

    /// Returns whether writers wait for memory.
    fn is_throttled(&self) -> bool {
        let waited = self.server.metric("stele_throttled_total{reason=\"memory\"}");
        waited.unwrap() > 0.0
    }

    /// Asserts that a row can be read.
    async fn assert_reads(&self) {
        let row =
            v2::ReadRowsRequest { table_name: TABLE.into(), rows_limit: 1, ..Default::default() };
        let read = async {
            let mut client = self.server.client().await;
            let mut stream = client.read_rows(row).await?.into_inner();
            stream.message().await
        };
        timeout(TIMEOUT, read).await.expect("reads are answered").unwrap();
    }
}

fn key(number: usize) -> String {
    format!("{number:04}")
}

/// Writes all of these rows concurrently. Returns the rejected rows.
async fn write_at_once(server: &Server, rows: Vec<String>) -> Vec<(String, Status)> {
    let client = server.client().await;
    let mut writers = JoinSet::new();
    for row in rows {
        let mut client = client.clone();
        writers.spawn(async move {
            let written = client.mutate_row(write(&row, vec![7; VALUE_BYTES]));
            let outcome = timeout(TIMEOUT, written).await.expect("every writer is answered");
            (row, outcome)
        });
    }
    let outcomes = writers.join_all().await.into_iter();
    outcomes.filter_map(|(row, outcome)| Some((row, outcome.err()?))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_that_wait_for_memory_too_long_are_refused_and_may_try_again() {
    let dir = tempfile::tempdir().unwrap();
    // Rejected after 1.5 s.
    let held = UnflushedServer::start(dir.path(), "0.05");
    let all: Vec<String> = (0..WRITES).map(key).collect();
    let mut refused = write_at_once(&held.server, all.clone()).await;
    assert!(!refused.is_empty() && refused.len() < WRITES, "{} refused", refused.len());
    for (row, status) in &refused {
        assert_eq!(status.code(), Code::ResourceExhausted, "{row}: {status:?}");
        assert!(status.message().contains("flushing is behind"), "{row}: {status:?}");
        let retry = status.get_details_retry_info().expect("it says when to try again");
        assert!(retry.retry_delay.is_some());
    }
    assert!(held.is_throttled());
    held.assert_reads().await;
    let mut stored = rows(&held.server).await;
    stored.extend(refused.iter().map(|(row, _)| row.clone()));
    stored.sort();
    assert_eq!(stored, all, "a row is either stored or refused");

    held.release();
    while !refused.is_empty() {
        let again = refused.into_iter().map(|(row, _)| row).collect();
        refused = write_at_once(&held.server, again).await;
        assert!(refused.iter().all(|(_, status)| status.code() == Code::ResourceExhausted));
    }
    assert_eq!(rows(&held.server).await, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_waits_for_memory_ends_with_its_own_deadline() {
    let dir = tempfile::tempdir().unwrap();
    // Without a deadline they would wait for 10 minutes.
    let held = UnflushedServer::start(dir.path(), "20");
    let mut calls = JoinSet::new();
    for number in 0..WRITES {
        let mut client = connect(&held.server).await;
        calls.spawn(async move {
            let framed = stele_grpc::frame::encode(&write(&key(number), vec![7; VALUE_BYTES]));
            let call = request("MutateRow", "1S");
            let (response, mut body) = client.send_request(call, false).unwrap();
            body.send_data(framed, true).unwrap();
            let answered = async {
                let mut response = response.await.unwrap();
                let at_once = response.headers().get("grpc-status").cloned();
                let status = match at_once {
                    Some(status) => status,
                    None => {
                        let body = response.body_mut();
                        while let Some(data) = body.data().await {
                            data.unwrap();
                        }
                        body.trailers().await.unwrap().unwrap()["grpc-status"].clone()
                    }
                };
                Code::from_bytes(HeaderValue::as_bytes(&status))
            };
            timeout(TIMEOUT, answered).await.expect("the deadline ends the wait")
        });
    }
    let codes = calls.join_all().await;
    let late = codes.iter().filter(|code| **code == Code::DeadlineExceeded).count();
    assert!(late >= WRITES / 4, "{codes:?}");
    assert!(
        codes.iter().all(|code| matches!(code, Code::Ok | Code::DeadlineExceeded)),
        "{codes:?}"
    );
    held.assert_reads().await;
    let ended = || held.server.metric("stele_grpc_requests_in_flight") == Some(0.0);
    until("the calls are over", ended).await;
    let returned = || held.server.metric("stele_request_memory_bytes") == Some(0.0);
    until("their memory is returned", returned).await;

    held.release();
    let mut client = held.server.client().await;
    let written = client.mutate_row(write("after", vec![7; VALUE_BYTES]));
    timeout(TIMEOUT, written).await.expect("there is memory again").unwrap();
}
