//! The bound on the memory of the process under all kinds of load at once: bulk writes,
//! slow readers, reverse scans, expensive filters, conditional writes of large values,
//! ranges and watches of the metastore, grids of traces and walks through catalogues.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use stele_bigtable::proto::v2;
use stele_bigtable::proto::v2::bigtable_client::BigtableClient;
use stele_bigtable::proto::v2::mutate_rows_request::Entry;
use stele_bigtable::proto::v2::read_modify_write_rule::Rule;
use stele_bigtable::proto::v2::row_filter::{Condition, Filter, Interleave};
use stele_catalogue::Fid;
use stele_catalogue::client::{NewRecord, Walk, WalkStart};
use stele_catalogue::proto::Flag;
use stele_metastore::client::Range;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::support::{Server, TABLE, TIMEOUT, make_table, ping, write};

const MIB: u64 = 1 << 20;
const MEMORY: u64 = 256 * MIB;
/// The share of `--memory` documented in docs/operations.md.
const REQUEST_MEMORY: u64 = MEMORY / 16 * 3;
/// The largest message sent here. It exceeds a quarter of the request memory, so such
/// messages are served one at a time.
const MESSAGE: u64 = 16 * MIB;

/// Returns how often each load is repeated.
fn rounds() -> usize {
    if std::env::var_os("STELE_LONG").is_some() { 20 } else { 2 }
}

/// Accepts only success, the errors that report overload, and the end of an upload that
/// was too slow while others waited for its memory, as on a busy machine.
fn tolerate(outcome: Result<(), Status>) {
    if let Err(status) = outcome {
        let expected = match status.code() {
            Code::ResourceExhausted | Code::Unavailable | Code::Aborted => true,
            Code::DeadlineExceeded => status.message().contains("arrived within"),
            _ => false,
        };
        assert!(expected, "{status:?}");
    }
}

/// Returns a value with a two-letter alphabet, so that patterns have work to do.
fn value(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| b"ab"[(at / 3 + at) % 2]).collect()
}

/// The same without a period, so that a pattern engine reaches many states.
fn irregular_value(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b"ab"[(state >> 40) as usize & 1]
    };
    std::iter::repeat_with(letter).take(bytes).collect()
}

/// Returns a batch of rows that fills the largest message.
fn bulk(writer: usize, round: usize) -> v2::MutateRowsRequest {
    const VALUE_BYTES: usize = 100 << 10;
    let rows = MESSAGE as usize / VALUE_BYTES - 1;
    let entries = (0..rows).map(|row| {
        let row = write(&format!("bulk/{writer}/{round}/{row:04}"), value(VALUE_BYTES));
        Entry { row_key: row.row_key, mutations: row.mutations, ..Default::default() }
    });
    let entries = entries.collect();
    v2::MutateRowsRequest { table_name: TABLE.into(), entries, ..Default::default() }
}

async fn write_bulk(mut client: BigtableClient<Channel>, writer: usize) {
    for round in 0..rounds() {
        let written = async {
            let mut stream = client.mutate_rows(bulk(writer, round)).await?.into_inner();
            while stream.message().await?.is_some() {}
            Ok(())
        };
        tolerate(written.await);
    }
}

fn row_filter(filter: Filter) -> v2::RowFilter {
    v2::RowFilter { filter: Some(filter) }
}

fn all_rows() -> v2::ReadRowsRequest {
    v2::ReadRowsRequest { table_name: TABLE.into(), ..Default::default() }
}

/// Returns a read through patterns that each keep as many states as allowed.
fn expensive_read() -> v2::ReadRowsRequest {
    let pattern = |at: usize| format!("(a|b)*a(a|b){{12}}{}", at % 10);
    let patterns = (0..70).map(|at| row_filter(Filter::ValueRegexFilter(pattern(at).into())));
    let filter = row_filter(Filter::Interleave(Interleave { filters: patterns.collect() }));
    let keys = (0..4).map(|at| format!("irregular/{at}").into_bytes().into()).collect();
    let rows = Some(v2::RowSet { row_keys: keys, row_ranges: Vec::new() });
    v2::ReadRowsRequest { rows, filter: Some(filter), ..all_rows() }
}

/// Returns a condition that holds every row until its end.
fn holding_filter() -> v2::RowFilter {
    let branch = |filter| Some(Box::new(row_filter(filter)));
    row_filter(Filter::Condition(Box::new(Condition {
        predicate_filter: branch(Filter::ValueRegexFilter("nothing".into())),
        true_filter: branch(Filter::PassAllFilter(true)),
        false_filter: branch(Filter::BlockAllFilter(true)),
    })))
}

async fn read_often(mut client: BigtableClient<Channel>, request: v2::ReadRowsRequest) {
    for _ in 0..rounds() {
        let read = async {
            let mut stream = client.read_rows(request.clone()).await?.into_inner();
            while stream.message().await?.is_some() {}
            Ok(())
        };
        tolerate(read.await);
    }
}

/// Appends to a value that is already large.
async fn append(mut client: BigtableClient<Channel>, row: String) {
    let rule = v2::ReadModifyWriteRule {
        family_name: "f".into(),
        column_qualifier: "q".into(),
        rule: Some(Rule::AppendValue("x".into())),
    };
    let request = v2::ReadModifyWriteRowRequest {
        table_name: TABLE.into(),
        row_key: row.into_bytes().into(),
        rules: vec![rule],
        ..Default::default()
    };
    for _ in 0..2 * rounds() {
        tolerate(client.read_modify_write_row(request.clone()).await.map(drop));
    }
}

/// Writes under a condition that needs the whole row.
async fn check_and_mutate(mut client: BigtableClient<Channel>, row: String) {
    let request = v2::CheckAndMutateRowRequest {
        table_name: TABLE.into(),
        row_key: row.clone().into_bytes().into(),
        predicate_filter: Some(holding_filter()),
        true_mutations: write(&row, b"v".to_vec()).mutations,
        ..Default::default()
    };
    for _ in 0..2 * rounds() {
        tolerate(client.check_and_mutate_row(request.clone()).await.map(drop));
    }
}

/// Sends a request over HTTP/1 and returns the stream with the unread response.
fn http(address: &str, head: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let length = body.len();
    write!(
        stream,
        "{head} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    stream
}

/// Returns the status line and the length of the response.
fn answer(address: &str, head: &str, body: &str) -> (String, usize) {
    let mut answer = Vec::new();
    http(address, head, body).read_to_end(&mut answer).unwrap();
    let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
    (String::from_utf8_lossy(line).into_owned(), answer.len())
}

/// Requests all keys, sorted by their values, in JSON.
fn sorted_ranges(address: &str) {
    let body = r#"{"key":"AA==","range_end":"AA==","sort_order":"DESCEND","sort_target":"VALUE"}"#;
    for _ in 0..rounds() {
        let (status, bytes) = answer(address, "POST /v3/kv/range", body);
        assert!(status.contains("200") || status.contains("429"), "{status}, {bytes} bytes");
    }
}

/// Stores many traces.
fn fill_traces(address: &str) {
    let post = |page: &str, body: &str| {
        let (status, _) = answer(address, &format!("POST /traces/v1{page}"), body);
        assert!(status.contains("200") || status.contains("201"), "{page}: {status}");
    };
    post("/tables", r#"{"table": "t"}"#);
    let commits: Vec<String> =
        (0..64).map(|at| format!(r#"{{"hash": "abcdef{at:08}"}}"#)).collect();
    post("/tables/t/commits", &format!(r#"{{"commits": [{}]}}"#, commits.join(",")));
    for commit in 0..4 {
        let result = |at: usize| {
            format!(
                r#"{{"params": {{"name": "test {at}", "machine": "m{}"}}, "value": {at}}}"#,
                at % 7
            )
        };
        let results: Vec<String> = (0..4000).map(result).collect();
        let body = format!(r#"{{"commit": "@{commit}", "results": [{}]}}"#, results.join(","));
        post("/tables/t/results", &body);
    }
}

fn query_traces(address: &str) {
    for page in ["query", "blame", "steps"].repeat(rounds()) {
        let (status, bytes) = answer(address, &format!("GET /traces/v1/tables/t/{page}"), "");
        let refused = ["413", "429", "503"].iter().any(|code| status.contains(code));
        assert!(status.contains("200") || refused, "{page}: {status}, {bytes} bytes");
    }
}

async fn walk_catalogue(address: String, id: u128) {
    let tls = Default::default();
    let client = stele_catalogue::client::Client::connect(&address, &tls).await.unwrap();
    let catalogue = client.catalogue(Fid::of_id(1000 + id).unwrap());
    let flags = Flag::CreateCatalogue as u32 | Flag::NoCookies as u32;
    let records = (0..8000u32).map(|n| NewRecord::new(n.to_be_bytes().to_vec(), value(1000)));
    let records: Vec<_> = records.collect();
    // Rejected while the other loads hold the request memory.
    while let Err(status) = catalogue.put(records.clone(), flags).await {
        tolerate(Err(status));
    }
    for _ in 0..rounds() {
        let starts = vec![WalkStart::at_edge(8000)];
        let walked = async {
            let mut records = catalogue.next(Walk { starts, ..Walk::default() }).await?;
            while records.next().await?.is_some() {}
            client.list(None, 1000, 0).await.map(drop)
        };
        tolerate(walked.await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_loads_at_once_stay_within_the_memory_of_the_process() {
    let dir = tempfile::tempdir().unwrap();
    make_table(dir.path());
    let memory = format!("--memory={}MiB", MEMORY / MIB);
    let server = Server::with_data(dir.path(), &[&memory, "--metastore-port", "0"]);

    // The data that the loads below read.
    let mut client = server.client().await;
    for at in 0..4 {
        client.mutate_row(write(&format!("large/{at}"), value(6 << 20))).await.unwrap();
        let row = format!("irregular/{at}");
        client.mutate_row(write(&row, irregular_value(16 << 10))).await.unwrap();
    }
    let metastore = format!("http://{}", server.address("metastore"));
    let keys = stele_metastore::client::Client::connect(&metastore).await.unwrap();
    let first = keys.put("key/0000", value(256 << 10)).await.unwrap();
    for at in 1..32 {
        keys.put(format!("key/{at:04}"), value(256 << 10)).await.unwrap();
    }
    let http_address = server.address("http");
    let filled = http_address.clone();
    tokio::task::spawn_blocking(move || fill_traces(&filled)).await.unwrap();

    // Readers and watchers that do not read.
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address("grpc"))).unwrap();
    let endpoint = endpoint.initial_stream_window_size(65_535);
    let mut stalled = Vec::new();
    for reversed in [false, true].repeat(8) {
        let mut client = BigtableClient::new(endpoint.connect().await.unwrap());
        stalled.push(client.read_rows(v2::ReadRowsRequest { reversed, ..all_rows() }).await);
    }
    let mut watches = Vec::new();
    for _ in 0..8 {
        let client = stele_metastore::client::Client::connect(&metastore).await.unwrap();
        watches.push(client.watch(&Range::prefix("key/"), first).await.unwrap());
    }

    let mut loads = JoinSet::new();
    for at in 0..4 {
        loads.spawn(write_bulk(server.client().await, at));
        let reverse = v2::ReadRowsRequest { reversed: true, ..all_rows() };
        loads.spawn(read_often(server.client().await, reverse));
        loads.spawn(append(server.client().await, format!("large/{at}")));
        loads.spawn(check_and_mutate(server.client().await, format!("large/{}", 3 - at)));
        let held = v2::ReadRowsRequest { filter: Some(holding_filter()), ..all_rows() };
        loads.spawn(read_often(server.client().await, held));
        loads.spawn(walk_catalogue(server.address("grpc"), at as u128));
    }
    for _ in 0..8 {
        loads.spawn(read_often(server.client().await, expensive_read()));
    }
    for _ in 0..4 {
        let (metastore, http) = (server.address("metastore"), http_address.clone());
        loads.spawn_blocking(move || sorted_ranges(&metastore));
        loads.spawn_blocking(move || query_traces(&http));
    }
    loads.spawn(async move {
        // Watchers that lag fall back to the history.
        for at in 0..32 * rounds() {
            keys.put(format!("key/{:04}", at % 32), value(256 << 10)).await.unwrap();
        }
    });

    // Other clients are served in the meantime.
    let (done, mut requests) = (AtomicBool::new(false), 0);
    let loads = async {
        timeout(10 * TIMEOUT, loads.join_all()).await.expect("the loads come to an end");
        done.store(true, Ordering::Relaxed);
    };
    let beside = async {
        while !done.load(Ordering::Relaxed) {
            let pinged = timeout(TIMEOUT, client.ping_and_warm(ping())).await;
            pinged.expect("pings are answered").unwrap();
            let held = server.metric("stele_request_memory_bytes").unwrap() as u64;
            requests = held.max(requests);
        }
    };
    tokio::join!(loads, beside);
    drop((stalled, watches));

    let limit = REQUEST_MEMORY + 2 * MESSAGE;
    assert!(requests <= limit, "requests took {} MiB, at most {}", requests / MIB, limit / MIB);
    let (peak, limit) = (server.peak_rss(), MEMORY / 4 * 5 + 64 * MIB + 3 * MESSAGE);
    println!("{} MiB resident, at most {} are allowed", peak / MIB, limit / MIB);
    assert!(peak <= limit, "{} MiB resident, at most {} are allowed", peak / MIB, limit / MIB);
    timeout(TIMEOUT, server.assert_healthy()).await.expect("the server still serves");
}
