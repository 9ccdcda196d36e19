//! Calls as HTTP/2 frames: what client libraries hide from their users, and what only
//! broken clients send.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::RecvStream;
use h2::client::SendRequest;
use http::{HeaderMap, Request, StatusCode};
use prost::Message;
use stele_bigtable::proto::v2;
use tokio::time::Instant;
use tonic::Code;

use super::calls::set;
use super::server::{ephemeral, make_table, until_no_calls};
use crate::support::{INSTANCE, Server, TABLE};

const PING: &str = "/google.bigtable.v2.Bigtable/PingAndWarm";
const READ: &str = "/google.bigtable.v2.Bigtable/ReadRows";
/// The default flow-control window of HTTP/2.
const WINDOW_BYTES: usize = 65_535;

/// Opens a connection whose flow control the test controls.
async fn connect(server: &Server) -> SendRequest<Bytes> {
    let tcp = tokio::net::TcpStream::connect(server.address("grpc")).await.unwrap();
    let (client, connection) = h2::client::handshake(tcp).await.unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

fn post(path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let request = Request::post(format!("http://x{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    headers
        .iter()
        .fold(request, |request, (name, value)| request.header(*name, *value))
        .body(())
        .unwrap()
}

/// Frames a message as gRPC does.
fn framed(flag: u8, message: &[u8]) -> Bytes {
    let mut body = BytesMut::new();
    body.put_u8(flag);
    body.put_u32(message.len().try_into().unwrap());
    body.put_slice(message);
    body.freeze()
}

fn ping() -> Bytes {
    let request = v2::PingAndWarmRequest { name: INSTANCE.into(), ..Default::default() };
    framed(0, &request.encode_to_vec())
}

fn read_all() -> Bytes {
    let request = v2::ReadRowsRequest { table_name: TABLE.into(), ..Default::default() };
    framed(0, &request.encode_to_vec())
}

/// A complete response.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body_bytes: usize,
    trailers: HeaderMap,
}

impl Answer {
    fn code(&self) -> Code {
        let status = self.trailers.get("grpc-status").or(self.headers.get("grpc-status"));
        Code::from_bytes(status.unwrap_or_else(|| panic!("no status: {self:?}")).as_bytes())
    }
}

/// Makes a call with this body and reads its response.
async fn call(server: &Server, path: &str, headers: &[(&str, &str)], body: Bytes) -> Answer {
    let mut client = connect(server).await;
    let (response, mut sending) = client.send_request(post(path, headers), false).unwrap();
    sending.send_data(body, true).unwrap();
    let (head, body) = response.await.unwrap().into_parts();
    let (body_bytes, trailers) = drain(body).await;
    Answer { status: head.status, headers: head.headers, body_bytes, trailers }
}

/// Reads the body to its end.
async fn drain(mut body: RecvStream) -> (usize, HeaderMap) {
    let mut received = 0;
    while let Some(data) = body.data().await {
        let bytes = data.unwrap().len();
        received += bytes;
        body.flow_control().release_capacity(bytes).unwrap();
    }
    (received, body.trailers().await.unwrap().unwrap_or_default())
}

/// Starts a server with far more rows than fit into a window.
async fn filled() -> Server {
    let server = ephemeral();
    make_table(&server).await;
    let mut client = server.client().await;
    for row in 0..64 {
        let request = v2::MutateRowRequest {
            table_name: TABLE.into(),
            row_key: format!("{row:02}").into(),
            mutations: vec![set("q", vec![7; 250_000])],
            ..Default::default()
        };
        client.mutate_row(request).await.unwrap();
    }
    server
}
const FILLED_BYTES: usize = 64 * 250_000;

#[tokio::test]
async fn a_good_call_ends_with_status_0_in_trailers() {
    let server = ephemeral();
    let answer = call(&server, PING, &[], ping()).await;
    assert_eq!((answer.status, answer.code()), (StatusCode::OK, Code::Ok));
    assert_eq!(answer.headers["content-type"], "application/grpc");
    assert_eq!(answer.body_bytes, 5, "an empty message");
    assert!(answer.trailers.contains_key("grpc-status"));
}

#[tokio::test]
async fn bytes_that_are_no_message_are_an_invalid_argument() {
    let server = ephemeral();
    for path in [PING, READ, "/google.bigtable.admin.v2.BigtableTableAdmin/CreateTable"] {
        let answer = call(&server, path, &[], framed(0, &[0x0A, 0xFF, 0xFF])).await;
        assert_eq!(answer.code(), Code::InvalidArgument, "{path} {answer:?}");
    }
}

#[tokio::test]
async fn a_compressed_message_is_refused_with_what_is_accepted() {
    let server = ephemeral();
    for path in [PING, READ] {
        let gzip = call(&server, path, &[("grpc-encoding", "gzip")], framed(1, b"gzip")).await;
        assert_eq!(gzip.code(), Code::Unimplemented, "{path} {gzip:?}");
        assert_eq!(gzip.headers["grpc-accept-encoding"], "identity");
    }
    // Accepting compressed responses is allowed; they are sent uncompressed.
    let response = call(&server, PING, &[("grpc-accept-encoding", "gzip,identity")], ping()).await;
    assert_eq!(response.code(), Code::Ok);
    assert!(!response.headers.contains_key("grpc-encoding"));
}

#[tokio::test]
async fn an_unknown_method_or_service_is_unimplemented_and_not_an_http_error() {
    let server = ephemeral();
    for path in ["/google.bigtable.v2.Bigtable/Nothing", "/no.such.Service/Nothing", "/"] {
        let answer = call(&server, path, &[], ping()).await;
        assert_eq!((answer.status, answer.code()), (StatusCode::OK, Code::Unimplemented), "{path}");
    }
}

#[tokio::test]
async fn a_request_that_breaks_off_leaves_the_server_well() {
    let server = ephemeral();
    let whole = ping();
    for cut in 0..whole.len() {
        let answer = call(&server, PING, &[], whole.slice(..cut)).await;
        assert_ne!(answer.code(), Code::Ok, "cut at {cut}");
    }
    for cut in [3, 20] {
        let mut client = connect(&server).await;
        let (response, mut sending) = client.send_request(post(READ, &[]), false).unwrap();
        sending.send_data(whole.slice(..cut), false).unwrap();
        sending.send_reset(h2::Reason::CANCEL);
        assert!(response.await.is_err());
    }
    until_no_calls(&server).await;
    assert_eq!(call(&server, PING, &[], whole).await.code(), Code::Ok);
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_before_it_is_sent() {
    let server = ephemeral();
    let mut client = connect(&server).await;
    let (response, mut sending) = client.send_request(post(READ, &[]), false).unwrap();
    sending.send_data(Bytes::from_static(&[0, 0x10, 0, 0, 1]), false).unwrap();
    let head = response.await.unwrap();
    assert_eq!(head.headers()["grpc-status"], "8", "{head:?}");
}

#[tokio::test]
async fn a_deadline_that_has_passed_ends_any_call() {
    let server = filled().await;
    for (path, body) in [(READ, read_all()), (PING, ping().slice(..7))] {
        let mut client = connect(&server).await;
        let request = post(path, &[("grpc-timeout", "1n")]);
        let (response, mut sending) = client.send_request(request, false).unwrap();
        // One of the two requests never ends, so only its deadline ends the call.
        sending.send_data(body, path == READ).unwrap();
        let (head, body) = response.await.unwrap().into_parts();
        let (body_bytes, trailers) = drain(body).await;
        let answer = Answer { status: head.status, headers: head.headers, body_bytes, trailers };
        assert_eq!(answer.code(), Code::DeadlineExceeded, "{path} {answer:?}");
    }
}

#[tokio::test]
async fn a_stream_ends_at_its_deadline_in_the_middle() {
    let server = filled().await;
    let mut client = connect(&server).await;
    // Finds the first deadline that leaves the server enough time for the first rows.
    for deadline_millis in [100, 1_000, 10_000] {
        let request = post(READ, &[("grpc-timeout", &format!("{deadline_millis}m"))]);
        let (response, mut sending) = client.send_request(request, false).unwrap();
        sending.send_data(read_all(), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        let Some(first) = body.data().await else { continue };
        let first = first.unwrap();
        // The server received the call before the first rows arrived. Now its deadline
        // passes while the client has read no more than its window.
        let passed = Instant::now() + Duration::from_millis(deadline_millis);
        tokio::time::sleep_until(passed).await;
        body.flow_control().release_capacity(first.len()).unwrap();
        let (rest, trailers) = drain(body).await;
        assert_eq!(trailers["grpc-status"], "4");
        assert!(first.len() + rest < FILLED_BYTES, "the deadline came too late");
        return;
    }
    panic!("no rows came in ten seconds");
}

#[tokio::test]
async fn a_slow_reader_is_sent_no_more_than_it_takes_and_a_cancelled_one_nothing() {
    let server = filled().await;
    let mut client = connect(&server).await;
    let (response, mut sending) = client.send_request(post(READ, &[]), false).unwrap();
    sending.send_data(read_all(), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    let mut received = 0;
    while received < WINDOW_BYTES {
        received += body.data().await.unwrap().unwrap().len();
    }
    assert_eq!(received, WINDOW_BYTES);
    assert_eq!(server.metric("stele_grpc_requests_in_flight"), Some(1.0));
    // Dropping resets the stream.
    drop((body, sending));
    until_no_calls(&server).await;
}
