//! Clients that are broken, rude, or too many.

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::Bytes;
use h2::SendStream;
use h2::client::ResponseFuture;
use tonic::Code;

use crate::support::{Server, TIMEOUT, until};

/// A call whose message was announced but not sent.
pub struct HalfSent {
    response: ResponseFuture,
    _body: SendStream<Bytes>,
}

impl HalfSent {
    /// Returns the status with which the server ends the call.
    pub async fn status(self) -> Option<Code> {
        let mut response = self.response.await.ok()?;
        let head = response.headers().get("grpc-status").cloned();
        let status = match head {
            Some(status) => status,
            None => {
                let trailers = response.body_mut().trailers().await.ok()??;
                trailers.get("grpc-status")?.clone()
            }
        };
        Some(Code::from_bytes(status.as_bytes()))
    }
}

/// Starts a call on its own connection and sends only `sent`.
pub async fn begin(server: &Server, timeout: &str, sent: impl Into<Bytes>) -> HalfSent {
    let tcp = tokio::net::TcpStream::connect(server.address("grpc")).await.unwrap();
    let (client, connection) = h2::client::handshake(tcp).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post("http://x/google.bigtable.v2.Bigtable/PingAndWarm")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", timeout)
        .body(())
        .unwrap();
    let mut client = client.ready().await.unwrap();
    let (response, mut body) = client.send_request(request, false).unwrap();
    body.send_data(sent.into(), false).unwrap();
    HalfSent { response, _body: body }
}

/// Sends all but the last byte of a message, and returns once the server has received
/// that.
pub async fn half_sent(server: &Server, bytes: u32) -> HalfSent {
    let before = server.metric("stele_request_memory_bytes").unwrap();
    let mut sent = vec![0];
    sent.extend(bytes.to_be_bytes());
    sent.resize(sent.len() + bytes as usize - 1, 0);
    let held = begin(server, "1H", sent).await;
    let charged = before + f64::from(bytes - 1);
    let noted = || server.metric("stele_request_memory_bytes").unwrap() >= charged;
    until("the message is noted", noted).await;
    held
}

#[tokio::test]
async fn nonsense_is_answered_by_closing_the_connection() {
    let server = Server::start(&["--ephemeral"]);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    // A frame that claims 16 MiB, and headers that cannot be decoded.
    let huge_frame = [&preface[..], &[0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 1]].concat();
    let bad_headers = [
        &preface[..],
        &[0, 0, 0, 4, 0, 0, 0, 0, 0],
        &[0, 0, 4, 1, 5, 0, 0, 0, 1, 255, 255, 255, 255],
    ]
    .concat();
    let random: Vec<u8> =
        (0..50_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for garbage in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), huge_frame, bad_headers, random] {
        let mut stream = TcpStream::connect(server.address("grpc")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let _ = stream.write_all(&garbage);
        let mut answer = Vec::new();
        // A reset also counts as closed.
        if let Err(error) = stream.read_to_end(&mut answer) {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "left open");
        }
        server.assert_healthy().await;
    }
    // An HTTP/1 head that never ends.
    let mut stream = TcpStream::connect(server.address("http")).unwrap();
    let mut sent = 0;
    while sent < 64 << 20 && stream.write_all(b"GET / HTTP/1.1\r\nA: b\r\n").is_ok() {
        sent += 1;
    }
    assert!(server.get("/health").0.contains("200"));
}

#[tokio::test]
async fn messages_that_cannot_be_are_refused_by_their_first_bytes() {
    let server = Server::start(&["--ephemeral"]);
    let too_large = begin(&server, "1H", vec![0, 0xFF, 0xFF, 0xFF, 0xFF]).await;
    assert_eq!(too_large.status().await, Some(Code::ResourceExhausted));
    let bad_flag = begin(&server, "1H", vec![9, 0, 0, 0, 1, 0]).await;
    assert_eq!(bad_flag.status().await, Some(Code::InvalidArgument));
    server.assert_healthy().await;
    assert_eq!(server.metric("stele_request_memory_bytes"), Some(0.0));
}

#[tokio::test]
async fn a_client_that_disappears_gives_back_what_it_held() {
    let server = Server::start(&["--ephemeral"]);
    for bytes in [1_000, 5_000_000] {
        drop(half_sent(&server, bytes).await);
        let given_back = || server.metric("stele_request_memory_bytes") == Some(0.0);
        until("memory is given back", given_back).await;
    }
    let ended = || server.metric("stele_grpc_requests_in_flight") == Some(0.0);
    until("the calls end", ended).await;
}

#[tokio::test]
async fn two_thousand_idle_connections_do_not_delay_others() {
    let server = Server::start(&["--ephemeral"]);
    let address = server.address("grpc");
    let idle: Vec<TcpStream> = (0..2000)
        .map(|number| {
            let mut stream = TcpStream::connect(&address).unwrap();
            if number % 2 == 0 {
                // Half of them are HTTP/2 connections without calls.
                stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
            }
            stream
        })
        .collect();
    server.assert_healthy().await;
    let open = server.metric("stele_connections{port=\"grpc\"}").unwrap();
    assert!(open >= 2000.0, "{open}");
    let ended = server.terminate();
    assert!(ended.status.success(), "{}", ended.stderr);
    drop(idle);
}
