//! Attacks through ReadRows: scans without output, expensive filters, stalled readers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stele_bigtable::proto::v2;
use stele_bigtable::proto::v2::bigtable_client::BigtableClient;
use stele_bigtable::proto::v2::row_filter::{Filter, Interleave};
use stele_engine::world::World;
use stele_engine::{CommitBuilder, Durability, Options, Store, Txn};
use tokio::time::timeout;
use tonic::Code;
use tonic::transport::Endpoint;

use crate::support::*;

fn long() -> bool {
    std::env::var_os("STELE_LONG").is_some()
}

fn row_filter(filter: Filter) -> v2::RowFilter {
    v2::RowFilter { filter: Some(filter) }
}

fn all_rows(filter: Option<v2::RowFilter>) -> v2::ReadRowsRequest {
    v2::ReadRowsRequest { table_name: TABLE.into(), filter, ..Default::default() }
}

/// Returns a scan that examines every cell and finds nothing.
fn no_match() -> v2::ReadRowsRequest {
    all_rows(Some(row_filter(Filter::ValueRegexFilter("nothing[a-z]+x".into()))))
}

/// Creates a table of many small rows.
fn make_rows(dir: &Path, rows: usize) {
    make_table(dir);
    let store = Store::open(dir, Options::default(), World::real()).unwrap();
    let table = store.table(TABLE).unwrap();
    for from in (0..rows).step_by(50_000) {
        let mut commit = CommitBuilder::new();
        commit.table(table);
        for row in from..rows.min(from + 50_000) {
            commit.row(format!("r{row:08}").as_bytes()).set(b"f", b"q", 0, b"a dull value");
        }
        store.apply(&commit.finish(), Txn::MAX, Durability::Accepted).unwrap();
    }
    store.flush(table).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_without_a_match_keep_no_ping_waiting_and_stop_when_they_are_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    make_rows(dir.path(), 200_000);
    let server = Server::with_data(dir.path(), &[]);

    // The cost of a full scan.
    let mut client = server.client().await;
    let before = server.cpu_time();
    for _ in 0..8 {
        let mut stream = client.read_rows(no_match()).await.unwrap().into_inner();
        assert!(stream.message().await.unwrap().is_none());
    }
    let whole = server.cpu_time() - before;

    // Scans that are cancelled right after their start cost much less.
    server.until_idle().await;
    let before = server.cpu_time();
    for _ in 0..8 {
        let mut client = server.client().await;
        drop(client.read_rows(no_match()).await.unwrap());
    }
    server.until_idle().await;
    let cancelled = server.cpu_time() - before;
    assert!(cancelled < whole / 2, "cancelled scans took {cancelled:?}, whole ones {whole:?}");

    // Pings are answered while scans run continuously.
    let stop = Arc::new(AtomicBool::new(false));
    let mut scans = Vec::new();
    for _ in 0..8 {
        let (mut client, stop) = (server.client().await, stop.clone());
        scans.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let mut stream = client.read_rows(no_match()).await.unwrap().into_inner();
                assert!(stream.message().await.unwrap().is_none());
            }
        }));
    }
    for _ in 0..10 {
        timeout(TIMEOUT, client.ping_and_warm(ping())).await.expect("answered").unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    for scan in scans {
        scan.await.unwrap();
    }
}

#[tokio::test]
async fn a_filter_full_of_large_patterns_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    make_table(dir.path());
    let server = Server::with_data(dir.path(), &[]);
    let pattern = r"\pP{1000}".repeat(32);
    let filters = (0..68).map(|_| row_filter(Filter::ValueRegexFilter(pattern.clone().into())));
    let filter = row_filter(Filter::Interleave(Interleave { filters: filters.collect() }));
    let mut client = server.client().await;
    let status = client.read_rows(all_rows(Some(filter))).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("65536 states in total"), "{status}");
    assert!(server.peak_rss() < 256 << 20, "{} MiB", server.peak_rss() >> 20);
    server.assert_healthy().await;
}

/// Returns a scan of all rows that holds several megabytes of patterns.
fn many_patterns() -> v2::ReadRowsRequest {
    let pattern = |at: usize| format!("(a|b)*a(a|b){{12}}{}", at % 10);
    let patterns = (0..70).map(|at| row_filter(Filter::ValueRegexFilter(pattern(at).into())));
    let filters = patterns.chain([row_filter(Filter::PassAllFilter(true))]).collect();
    all_rows(Some(row_filter(Filter::Interleave(Interleave { filters }))))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_stream_of_small_frames_that_holds_a_large_filter_is_ended_when_others_wait() {
    const ROWS: usize = 2000;
    let dir = tempfile::tempdir().unwrap();
    make_rows(dir.path(), ROWS);
    // A stream that nobody waits for is ended after 90 s, later than `TIMEOUT`.
    let mut command = command(&["serve", "--grpc-port", "0", "--http-port", "0"]);
    command.args(["--data", dir.path().to_str().unwrap()]);
    command.args(["--memory=64MiB", "--request-wait=1h"]).env("STELE_TEST_TIME_SCALE", "1.5");
    let server = Server::spawn(command);
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address("grpc"))).unwrap();
    let endpoint = endpoint.initial_stream_window_size(1024);
    let mut stalled = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let mut client = BigtableClient::new(endpoint.connect().await.unwrap());
        stalled.spawn(async move { client.read_rows(many_patterns()).await });
    }
    let begun = || server.metric("stele_grpc_requests_in_flight") == Some(3.0);
    until("the streams have begun", begun).await;
    let mut client = server.client().await;
    let read = async {
        let mut rows = 0;
        let mut stream = client.read_rows(many_patterns()).await.unwrap().into_inner();
        while let Some(message) = stream.message().await.unwrap() {
            rows += message.chunks.len();
        }
        rows
    };
    assert_eq!(timeout(TIMEOUT, read).await.expect("the memory is released"), ROWS);
    assert!(server.metric("stele_streams_stalled_total") >= Some(1.0));
    drop(stalled);
}

#[tokio::test]
async fn stalled_readers_of_large_cells_stay_within_the_memory_for_responses() {
    let (readers, cell_mib) = if long() { (256, 100) } else { (48, 24) };
    let dir = tempfile::tempdir().unwrap();
    make_table(dir.path());
    let memory = 256 << 20;
    let server = Server::with_data(dir.path(), &["--memory", "256MiB"]);
    let mut client = server.client().await;
    client.mutate_row(write("large", vec![b'v'; cell_mib << 20])).await.unwrap();
    client.mutate_row(write("small", vec![b'v'; 10])).await.unwrap();
    let mut stream = client.read_rows(all_rows(None)).await.unwrap().into_inner();
    while stream.message().await.unwrap().is_some() {}
    let before = server.peak_rss();

    let endpoint = Endpoint::from_shared(format!("http://{}", server.address("grpc"))).unwrap();
    let endpoint = endpoint.initial_stream_window_size(65_535);
    let mut stalled = Vec::new();
    for _ in 0..readers {
        let channel = endpoint.connect().await.unwrap();
        stalled.push(BigtableClient::new(channel).read_rows(all_rows(None)).await.unwrap());
    }
    server.until_idle().await;

    // Other clients are served in the meantime.
    let rows = Some(v2::RowSet { row_keys: vec!["small".into()], row_ranges: Vec::new() });
    let request = v2::ReadRowsRequest { rows, ..all_rows(None) };
    for _ in 0..10 {
        let read = async {
            let mut stream = client.read_rows(request.clone()).await?.into_inner();
            stream.message().await
        };
        let message = timeout(TIMEOUT, read).await.expect("answered").unwrap();
        assert_eq!(message.unwrap().chunks.len(), 1);
    }
    let grown = server.peak_rss() - before;
    // The response memory, one cell beyond it, and the cell as the server's threads read
    // and copy it.
    let bound = memory / 8 + 5 * ((cell_mib as u64) << 20) + (64 << 20);
    assert!(grown < bound, "{} MiB more, at most {}", grown >> 20, bound >> 20);
    drop(stalled);
    timeout(Duration::from_secs(60), server.assert_healthy()).await.expect("answered");
}
