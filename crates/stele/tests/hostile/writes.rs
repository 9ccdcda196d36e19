//! Attacks through writes: throttled writers, contention, oversized batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::{BufMut, Bytes};
use http::uri::PathAndQuery;
use stele_bigtable::proto::v2;
use tokio::task::JoinSet;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use crate::support::{Server, TABLE, TIMEOUT, make_table, ping, rows, write};

const MIB: usize = 1 << 20;

/// A codec that sends raw bytes and ignores the response.
#[derive(Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = ();
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        bytes::Buf::advance(from, bytes::Buf::remaining(from));
        Ok(Some(()))
    }
}

/// Makes a call with one raw message.
async fn call(server: &Server, method: &'static str, message: Bytes) -> Result<(), Status> {
    let mut grpc = Grpc::new(server.channel().await);
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static(method);
    grpc.unary(Request::new(message), path, Raw).await.map(drop)
}

/// Returns empty nested messages, one for every two bytes.
fn bomb(tag: u8, bytes: usize) -> Bytes {
    [tag << 3 | 2, 0].repeat(bytes / 2).into()
}

/// Wraps a message in a field.
fn nested(tag: u8, inside: &[u8]) -> Bytes {
    let mut message = vec![tag << 3 | 2];
    prost::encoding::encode_varint(inside.len() as u64, &mut message);
    message.extend_from_slice(inside);
    message.into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decode_bombs_are_refused_before_they_are_decoded() {
    let dir = tempfile::tempdir().unwrap();
    make_table(dir.path());
    let server = Server::with_data(dir.path(), &["--memory=64MiB"]);
    let entry_of_mutations = nested(2, &bomb(2, 8 * MIB));
    for (method, message) in [
        ("/google.bigtable.v2.Bigtable/MutateRow", bomb(3, 8 * MIB)),
        ("/google.bigtable.v2.Bigtable/MutateRows", bomb(2, 8 * MIB)),
        ("/google.bigtable.v2.Bigtable/MutateRows", entry_of_mutations),
        ("/google.bigtable.v2.Bigtable/CheckAndMutateRow", bomb(4, 8 * MIB)),
        ("/google.bigtable.v2.Bigtable/CheckAndMutateRow", bomb(5, 8 * MIB)),
        ("/google.bigtable.v2.Bigtable/ReadModifyWriteRow", bomb(3, 8 * MIB)),
        ("/google.bigtable.v2.Bigtable/ReadRows", nested(2, &bomb(1, MIB - 100))),
        ("/google.bigtable.v2.Bigtable/ReadRows", nested(2, &bomb(2, 8 * MIB))),
        ("/google.bigtable.v2.Bigtable/SampleRowKeys", bomb(6, 8 * MIB)),
        (
            "/google.bigtable.admin.v2.BigtableTableAdmin/ModifyColumnFamilies",
            bomb(2, 4 * MIB - 100),
        ),
        ("/google.bigtable.admin.v2.BigtableTableAdmin/CreateTable", bomb(4, 4 * MIB - 100)),
        (
            "/google.bigtable.admin.v2.BigtableTableAdmin/CreateTable",
            nested(3, &bomb(3, 4 * MIB - 100)),
        ),
        (
            "/google.bigtable.admin.v2.BigtableTableAdmin/UpdateTable",
            nested(2, &bomb(1, 4 * MIB - 100)),
        ),
    ] {
        let refused = call(&server, method, message).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{method}: {refused:?}");
    }
    // Decoded, the first message alone would take 2 GiB.
    let peak = server.peak_rss();
    assert!(peak < 256 * MIB as u64, "{} MiB resident", peak / MIB as u64);
    server.assert_healthy().await;
}

/// Calls the server repeatedly until stopped; every response must arrive in time.
async fn innocent(server: &Server, stop: Arc<AtomicBool>) -> tokio::task::JoinHandle<usize> {
    let mut client = server.client().await;
    tokio::spawn(async move {
        let mut answered = 0;
        loop {
            let pinged = tokio::time::timeout(TIMEOUT, client.ping_and_warm(ping())).await;
            pinged.expect("pings are answered").unwrap();
            let read = async {
                let request = v2::ReadRowsRequest {
                    table_name: TABLE.into(),
                    rows_limit: 1,
                    ..Default::default()
                };
                let mut stream = client.read_rows(request).await?.into_inner();
                while stream.message().await?.is_some() {}
                Ok::<_, Status>(())
            };
            let read = tokio::time::timeout(TIMEOUT, read).await;
            read.expect("reads are answered").unwrap();
            answered += 1;
            if stop.load(Ordering::Relaxed) {
                return answered;
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_throttled_writers_do_not_stop_reads() {
    const WRITERS: usize = 2000;
    const VALUE_BYTES: usize = 20 << 10;
    let dir = tempfile::tempdir().unwrap();
    make_table(dir.path());
    // 8 MiB for cells: the writers send five times as much at once.
    let server = Server::with_data(dir.path(), &["--memory=32MiB", "--request-memory=128MiB"]);
    let stop = Arc::new(AtomicBool::new(false));
    let innocent = innocent(&server, stop.clone()).await;
    let clients = [server.client().await, server.client().await, server.client().await];
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let mut client = clients[number % clients.len()].clone();
        writers.spawn(async move {
            let row = format!("{number:04}");
            let written = client.mutate_row(write(&row, vec![7; VALUE_BYTES]));
            let outcome = tokio::time::timeout(2 * TIMEOUT, written).await;
            (row, outcome.expect("every writer is answered"))
        });
    }
    let mut acknowledged = Vec::new();
    for (row, outcome) in writers.join_all().await {
        match outcome {
            Ok(_) => acknowledged.push(row),
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                let retry = status.get_details_retry_info().expect("it tells when to try again");
                assert!(retry.retry_delay.is_some());
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(innocent.await.unwrap() > 0);
    // The number depends on speed; `overload.rs` of the engine tests the waiting itself.
    let throttled = server.metric("stele_throttled_total{reason=\"memory\"}").unwrap();
    println!("{throttled} writers had to wait for memory");
    acknowledged.sort();
    let mut stored = rows(&server).await;
    stored.retain(|row| acknowledged.binary_search(row).is_ok());
    assert_eq!(stored, acknowledged);
    assert!(!acknowledged.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_conditional_writes_to_one_row_ends_and_loses_nothing() {
    const CLIENTS: usize = 200;
    const CALLS: usize = 10;
    let dir = tempfile::tempdir().unwrap();
    make_table(dir.path());
    let server = Server::with_data(dir.path(), &[]);
    let stop = Arc::new(AtomicBool::new(false));
    let innocent = innocent(&server, stop.clone()).await;
    let increment = v2::ReadModifyWriteRowRequest {
        table_name: TABLE.into(),
        row_key: "hot".into(),
        rules: vec![v2::ReadModifyWriteRule {
            family_name: "f".into(),
            column_qualifier: "n".into(),
            rule: Some(v2::read_modify_write_rule::Rule::IncrementAmount(1)),
        }],
        ..Default::default()
    };
    let check = v2::CheckAndMutateRowRequest {
        table_name: TABLE.into(),
        row_key: "hot".into(),
        true_mutations: write("hot", b"v".to_vec()).mutations,
        false_mutations: write("hot", b"v".to_vec()).mutations,
        ..Default::default()
    };
    let incremented = Arc::new(AtomicUsize::new(0));
    let client = server.client().await;
    let mut storm = JoinSet::new();
    for number in 0..CLIENTS {
        let (mut client, incremented) = (client.clone(), incremented.clone());
        let (increment, check) = (increment.clone(), check.clone());
        storm.spawn(async move {
            for _ in 0..CALLS {
                let outcome = if number % 2 == 0 {
                    let answer = client.read_modify_write_row(increment.clone()).await;
                    answer.map(|_| {
                        incremented.fetch_add(1, Ordering::Relaxed);
                    })
                } else {
                    client.check_and_mutate_row(check.clone()).await.map(drop)
                };
                if let Err(status) = outcome {
                    assert_eq!(status.code(), Code::Aborted, "{status:?}");
                }
            }
        });
    }
    tokio::time::timeout(2 * TIMEOUT, storm.join_all()).await.expect("the storm ends");
    stop.store(true, Ordering::Relaxed);
    assert!(innocent.await.unwrap() > 0);
    let mut client = server.client().await;
    let row = client.read_modify_write_row(increment).await.unwrap().into_inner().row.unwrap();
    let value = &row.families[0].columns[0].cells[0].value;
    let expected = incremented.load(Ordering::Relaxed) as i64 + 1;
    assert_eq!(value[..], expected.to_be_bytes());
}
