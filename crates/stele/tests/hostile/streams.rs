//! Attacks on requests, responses and connections: messages that are only announced, slow
//! bodies, half-open handshakes, clients that do not read.
//!
//! Nothing here measures time: a limit is considered broken if it does not take effect
//! within `TIMEOUT`. `STELE_TEST_TIME_SCALE` scales down the server's timeouts.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use rcgen::KeyPair;
use stele_bigtable::proto::v2;
use tokio::time::timeout;
use tonic::Code;

use crate::support::{Server, TABLE, TIMEOUT, command, make_table, ping, rows, until, write};

const MIB: usize = 1 << 20;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Starts a server with a twentieth of the usual timeouts.
fn impatient(args: &[&str]) -> Server {
    scaled("0.05", args)
}

fn scaled(scale: &str, args: &[&str]) -> Server {
    let mut command = command(&["serve", "--grpc-port", "0", "--http-port", "0"]);
    command.args(args).env("STELE_TEST_TIME_SCALE", scale);
    Server::spawn(command)
}

/// Starts a server with the table and with timeouts scaled by `scale`.
fn with_table(dir: &Path, scale: &str, args: &[&str]) -> Server {
    make_table(dir);
    let mut all = vec!["--data", dir.to_str().unwrap()];
    all.extend(args);
    scaled(scale, &all)
}

/// Opens a connection of a client that the test controls completely.
pub async fn connect(server: &Server) -> SendRequest<Bytes> {
    let tcp = tokio::net::TcpStream::connect(server.address("grpc")).await.unwrap();
    let (client, connection) = h2::client::handshake(tcp).await.unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

pub fn request(method: &str, deadline: &str) -> http::Request<()> {
    http::Request::post(format!("http://x/google.bigtable.v2.Bigtable/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", deadline)
        .body(())
        .unwrap()
}

/// A call in progress.
struct Begun {
    response: ResponseFuture,
    body: SendStream<Bytes>,
}

impl Begun {
    /// Starts a call, announces a message of `announced` bytes and sends `sent` of them.
    async fn new(client: &mut SendRequest<Bytes>, announced: usize, sent: usize) -> Begun {
        let mut bytes = vec![0];
        bytes.extend(u32::try_from(announced).unwrap().to_be_bytes());
        bytes.resize(bytes.len() + sent, 0);
        let (response, mut body) = client.send_request(request("MutateRow", "1H"), false).unwrap();
        body.send_data(bytes.into(), false).unwrap();
        Begun { response, body }
    }

    /// Returns the status with which the server ends the call.
    async fn code(self) -> Code {
        let ended = async {
            let mut response = self.response.await.unwrap();
            let code = match response.headers().get("grpc-status").cloned() {
                Some(code) => code,
                None => {
                    let trailers = response.body_mut().trailers().await.unwrap().unwrap();
                    trailers["grpc-status"].clone()
                }
            };
            Code::from_bytes(code.as_bytes())
        };
        let code = timeout(TIMEOUT, ended).await.expect("the call is ended");
        drop(self.body);
        code
    }
}

/// Waits until the server closes the connection.
fn assert_closed(mut stream: TcpStream) {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    // A reset also counts as closed.
    if let Err(error) = stream.read_to_end(&mut Vec::new()) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "left open");
    }
}

#[tokio::test]
async fn messages_of_256_mib_that_are_only_announced_keep_nobody_waiting() {
    let dir = tempfile::tempdir().unwrap();
    // A waiting request waits longer than this test runs.
    let server = with_table(dir.path(), "1", &["--request-memory=8MiB", "--request-wait=1h"]);
    let mut hostile = Vec::new();
    for _ in 0..16 {
        let mut client = connect(&server).await;
        hostile.push(Begun::new(&mut client, 256 * MIB, 0).await);
        hostile.push(Begun::new(&mut client, 2 * MIB, 0).await);
    }
    let calls = || server.metric("stele_grpc_requests_in_flight") == Some(32.0);
    until("the calls have begun", calls).await;
    let mut client = server.client().await;
    for (row, bytes) in [("a", 100_000), ("b", MIB), ("c", 20 * MIB)] {
        let written = client.mutate_row(write(row, vec![1; bytes]));
        timeout(TIMEOUT, written).await.expect("nobody waits").unwrap();
    }
    assert_eq!(rows(&server).await, ["a", "b", "c"]);
    drop(hostile);
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_ended() {
    let server = impatient(&["--ephemeral"]);
    for (announced, sent) in [(1000, 0), (1000, 999), (5 * MIB, 0), (5 * MIB, 300_000)] {
        let mut client = connect(&server).await;
        let begun = Begun::new(&mut client, announced, sent).await;
        assert_eq!(begun.code().await, Code::DeadlineExceeded, "{sent} of {announced}");
    }
    server.assert_healthy().await;
    let returned = || server.metric("stele_request_memory_bytes") == Some(0.0);
    until("memory is returned", returned).await;
}

#[tokio::test]
async fn a_body_that_stops_while_others_wait_for_its_memory_is_ended_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = with_table(dir.path(), "1", &["--request-memory=8MiB", "--request-wait=1h"]);
    let mut client = connect(&server).await;
    let hoarder = Begun::new(&mut client, 200 * MIB, 100 * MIB).await;
    let received = || server.metric("stele_request_memory_bytes") >= Some(100.0 * MIB as f64);
    until("the bytes have arrived", received).await;
    let mut client = server.client().await;
    let written = client.mutate_row(write("a", vec![1; 4 * MIB]));
    timeout(TIMEOUT, written).await.expect("the turn is passed on").unwrap();
    assert_eq!(hoarder.code().await, Code::DeadlineExceeded);
}

#[tokio::test]
async fn half_prefaces_and_half_heads_are_closed() {
    let server = impatient(&["--ephemeral", "--metastore-port=0"]);
    for (port, sent) in [
        ("grpc", &b"P"[..]),
        ("grpc", &PREFACE[..23]),
        ("metastore", b"PRI * HT"),
        ("metastore", b"GET /health HT"),
        ("http", b"GET /health HTTP/1.1\r\nHost:"),
    ] {
        let mut stream = TcpStream::connect(server.address(port)).unwrap();
        stream.write_all(sent).unwrap();
        assert_closed(stream);
    }
    server.assert_healthy().await;
}

#[tokio::test]
async fn half_a_body_of_an_http_request_is_ended() {
    let server = impatient(&["--ephemeral", "--metastore-port=0"]);
    for (port, path) in [("http", "/traces/api/t/results"), ("metastore", "/v3/kv/range")] {
        let mut stream = TcpStream::connect(server.address(port)).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: 1000\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).unwrap();
        assert_closed(stream);
    }
    server.assert_healthy().await;
}

#[tokio::test]
async fn half_tls_handshakes_are_closed() {
    let dir = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_string()]).unwrap();
    let files = [("cert", params.self_signed(&key).unwrap().pem()), ("key", key.serialize_pem())];
    let [cert, pem] = files.map(|(name, text)| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, private).unwrap();
        path.to_str().unwrap().to_string()
    });
    let server = impatient(&["--ephemeral", "--tls-cert", &cert, "--tls-key", &pem]);
    for port in ["grpc", "http"] {
        let mut stream = TcpStream::connect(server.address(port)).unwrap();
        // The beginning of a record with a ClientHello.
        stream.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).unwrap();
        assert_closed(stream);
    }
}

#[tokio::test]
async fn a_silent_connection_is_pinged_and_one_that_does_not_answer_is_closed() {
    let server = impatient(&["--ephemeral"]);
    let mut stream = TcpStream::connect(server.address("grpc")).unwrap();
    stream.write_all(PREFACE).unwrap();
    assert_closed(stream);
    server.assert_healthy().await;
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed_even_if_it_answers_pings() {
    let server = scaled("0.01", &["--ephemeral"]);
    let tcp = tokio::net::TcpStream::connect(server.address("grpc")).await.unwrap();
    let (_client, connection) = h2::client::handshake(tcp).await.unwrap();
    let _ = timeout(TIMEOUT, connection).await.expect("the connection is closed");
}

/// Requests all rows and reads only the head of the response.
async fn stalled_reader(client: &mut SendRequest<Bytes>, deadline: &str) -> RecvStream {
    let request_message = v2::ReadRowsRequest { table_name: TABLE.into(), ..Default::default() };
    let framed = stele_grpc::frame::encode(&request_message);
    let (response, mut body) = client.send_request(request("ReadRows", deadline), false).unwrap();
    body.send_data(framed, true).unwrap();
    timeout(TIMEOUT, response).await.expect("the response begins").unwrap().into_body()
}

/// Starts a server that has one row with a large cell.
async fn with_large_cell(dir: &Path, scale: &str, bytes: usize, args: &[&str]) -> Server {
    let server = with_table(dir, scale, args);
    server.client().await.mutate_row(write("large", vec![7; bytes])).await.unwrap();
    server
}

#[tokio::test]
async fn readers_that_do_not_read_are_ended_and_keep_nobody_from_reading() {
    let long = std::env::var_os("STELE_LONG").is_some();
    let (readers, cell, memory) = if long { (256, 100, 512) } else { (48, 8, 64) };
    let dir = tempfile::tempdir().unwrap();
    let memory_flag = format!("--memory={memory}MiB");
    let server = with_large_cell(dir.path(), "0.05", cell * MIB, &[&memory_flag]).await;
    let mut clients = Vec::new();
    let mut stalled = Vec::new();
    for number in 0..readers {
        if number % 16 == 0 {
            clients.push(connect(&server).await);
        }
        let client = clients.last_mut().unwrap();
        stalled.push(stalled_reader(client, "1H").await);
    }
    let mut innocent = server.client().await;
    innocent.ping_and_warm(ping()).await.unwrap();
    assert_eq!(timeout(TIMEOUT, rows(&server)).await.expect("others can read"), ["large"]);
    let ended = || server.metric("stele_streams_stalled_total") >= Some(f64::from(readers));
    until("the streams are reset", ended).await;
    let returned = || server.metric("stele_response_memory_bytes") == Some(0.0);
    until("memory is returned", returned).await;
    drop(stalled);
}

#[tokio::test]
async fn the_deadline_ends_a_response_that_nobody_reads() {
    let dir = tempfile::tempdir().unwrap();
    // Without the deadline the call would end only after `TIMEOUT`.
    let server = with_large_cell(dir.path(), "2", 8 * MIB, &[]).await;
    let mut client = connect(&server).await;
    let stalled = stalled_reader(&mut client, "500m").await;
    let ended = || server.metric("stele_grpc_requests_in_flight") == Some(0.0);
    until("the call is ended", ended).await;
    assert_eq!(server.metric("stele_response_memory_bytes"), Some(0.0));
    drop(stalled);
}

#[tokio::test]
async fn a_name_with_several_addresses_is_bound_on_all_of_them() {
    let server = Server::start(&["--ephemeral", "--listen", "localhost"]);
    let address: std::net::SocketAddr = server.address("grpc").parse().unwrap();
    for host in ["127.0.0.1", "::1"] {
        let is_localhost = std::net::ToSocketAddrs::to_socket_addrs(&("localhost", 0))
            .unwrap()
            .any(|found| found.ip().to_string() == host);
        if is_localhost && std::net::TcpListener::bind((host, 0)).is_ok() {
            TcpStream::connect((host, address.port())).unwrap();
        }
    }
}

/// Reads until the text has arrived.
fn read_until(stream: &mut TcpStream, text: &str) {
    let mut all = Vec::new();
    while !String::from_utf8_lossy(&all).contains(text) {
        let mut piece = [0; 1024];
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "the stream ended: {}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&piece[..read]);
    }
}

#[tokio::test]
async fn a_watch_by_json_may_keep_its_body_open_and_silent() {
    let server = scaled("0.01", &["--ephemeral", "--metastore-port", "0"]);
    let connect = || {
        let stream = TcpStream::connect(server.address("metastore")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    };
    let mut watch = connect();
    let body = r#"{"create_request":{"key":"a2V5"}}"#;
    let chunk = format!("{:x}\r\n{body}\r\n", body.len());
    write!(
        watch,
        "POST /v3/watch HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}"
    )
    .unwrap();
    read_until(&mut watch, "\"created\":true");
    // The body of another call is ended although it was silent for less time.
    let mut slow = connect();
    write!(slow, "POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{").unwrap();
    assert_closed(slow);
    let mut put = connect();
    let body = r#"{"key":"a2V5","value":"dg=="}"#;
    let length = body.len();
    write!(put, "POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}")
        .unwrap();
    read_until(&mut watch, "\"events\"");
}
