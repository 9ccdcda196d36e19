//! Attacks on catalogues, names and traces.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use stele_catalogue::Fid;
use stele_catalogue::client::{Client, NewRecord};
use stele_catalogue::proto::Flag;
use tokio::time::timeout;

use crate::support::{Server, TIMEOUT, ping};

/// Less than the timeout of a stalled body.
const SOON: Duration = Duration::from_secs(25);

/// Sends the head of a request and the given part of its body.
fn send(server: &Server, method: &str, page: &str, bytes: usize, body: &str) -> TcpStream {
    let address = server.address("http");
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(
        stream,
        "{method} /traces/v1{page} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {bytes}\r\n\r\n{body}"
    )
    .unwrap();
    stream
}

/// Returns the status line of a response that must arrive soon.
fn answer(server: &Server, method: &str, page: &str, body: &str) -> String {
    let mut answer = String::new();
    send(server, method, page, body.len(), body).read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_string()
}

#[test]
fn slow_uploads_of_results_delay_no_query() {
    let server = Server::start(&["--ephemeral"]);
    let created = answer(&server, "POST", "/tables", r#"{"table": "t"}"#);
    assert!(created.contains("201"), "{created}");
    let commits = r#"{"commits": [{"hash": "abcdef1234567"}]}"#;
    assert!(answer(&server, "POST", "/tables/t/commits", commits).contains("200"));
    let slow: Vec<TcpStream> =
        (0..16).map(|_| send(&server, "POST", "/tables/t/results", 1000, "{")).collect();
    for page in ["/tables/t/query", "/tables/t/blame", "/tables/t/steps"] {
        let printed = answer(&server, "GET", page, "");
        assert!(printed.contains("200"), "{page}: {printed}");
    }
    let results = r#"{"commit": "@0", "results": [{"params": {"name": "t"}, "value": 1}]}"#;
    assert!(answer(&server, "POST", "/tables/t/results", results).contains("200"));
    drop(slow);
}

fn fid(id: u128) -> Fid {
    Fid::of_id(1000 + id).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_catalogues_of_many_records_delay_no_creations_and_pings() {
    let server = Server::start(&["--ephemeral"]);
    let client = Client::connect(&server.address("grpc"), &Default::default()).await.unwrap();
    let flags = Flag::CreateCatalogue as u32 | Flag::NoCookies as u32;
    let records = (0..100_000u32).map(|n| NewRecord::new(n.to_be_bytes().to_vec(), "v"));
    let records: Vec<NewRecord> = records.collect();
    for id in 0..3 {
        client.catalogue(fid(id)).put(records.clone(), flags).await.unwrap();
    }
    let attack = {
        let client = client.clone();
        tokio::spawn(async move {
            // One at a time; the second round finds the catalogues already dropped.
            for id in (0..3).chain(0..3) {
                client.delete(&[fid(id)], Flag::MissingOk as u32).await.unwrap();
            }
            client.await_deathrow().await.unwrap();
        })
    };
    let mut pings = server.client().await;
    let beside_it = async {
        for id in 10..60 {
            assert_eq!(client.create(&[fid(id)], 0).await.unwrap().count, 1);
            pings.ping_and_warm(ping()).await.unwrap();
        }
    };
    timeout(TIMEOUT, beside_it).await.unwrap();
    timeout(TIMEOUT, attack).await.unwrap().unwrap();
    let left = client.stat(&[fid(0), fid(10)]).await.unwrap();
    assert_ne!(left[0].code, left[1].code, "one is gone and one is there: {left:?}");
}
