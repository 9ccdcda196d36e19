//! Shutdown: requests in flight, endless streams, a second signal.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::hostile::half_sent;
use crate::support::{Server, make_table, rows, until, write};

/// Writes rows until the server rejects them. Returns the acknowledged rows.
async fn write_until_refused(server: &Server, name: &str, acked: Arc<AtomicUsize>) -> Vec<String> {
    let mut client = server.client().await;
    let mut written = Vec::new();
    for number in 0.. {
        let row = format!("{name}-{number:06}");
        match client.mutate_row(write(&row, vec![7; 100])).await {
            Ok(_) => {
                written.push(row);
                acked.fetch_add(1, Ordering::SeqCst);
            }
            Err(_) => break,
        }
    }
    written
}

/// Lets clients write until some rows are acknowledged, then sends the signal.
async fn stopped_under_load(server: &Server, signal: Signal) -> BTreeSet<String> {
    let acked = Arc::new(AtomicUsize::new(0));
    let stop = async {
        until("rows are acknowledged", || acked.load(Ordering::SeqCst) >= 200).await;
        server.signal(signal);
    };
    let writing = |name| write_until_refused(server, name, acked.clone());
    let (a, b, c, d, ()) =
        tokio::join!(writing("a"), writing("b"), writing("c"), writing("d"), stop);
    [a, b, c, d].into_iter().flatten().collect()
}

#[tokio::test]
async fn a_server_that_is_stopped_under_load_keeps_what_it_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    make_table(dir.path());
    let server = Server::with_data(dir.path(), &[]);
    let acked = stopped_under_load(&server, Signal::TERM).await;
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let server = Server::with_data(dir.path(), &[]);
    let kept: BTreeSet<String> = rows(&server).await.into_iter().collect();
    assert!(acked.len() >= 200 && acked.is_subset(&kept));
}

#[tokio::test]
async fn a_server_that_is_killed_under_load_keeps_what_it_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    make_table(dir.path());
    for _ in 0..2 {
        let server = Server::with_data(dir.path(), &[]);
        let acked = stopped_under_load(&server, Signal::KILL).await;
        assert!(!server.wait().status.success());
        let server = Server::with_data(dir.path(), &[]);
        let kept: BTreeSet<String> = rows(&server).await.into_iter().collect();
        assert!(acked.len() >= 200 && acked.is_subset(&kept));
    }
}

#[tokio::test]
async fn a_stream_without_end_is_ended_with_unavailable() {
    let server = Server::start(&["--ephemeral"]);
    let mut health = HealthClient::new(server.channel().await);
    let request = HealthCheckRequest { service: String::new() };
    let mut watch = health.watch(request).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    server.signal(Signal::TERM);
    let end = loop {
        match watch.message().await {
            Ok(message) => assert_eq!(message.unwrap().status(), ServingStatus::NotServing),
            Err(end) => break end,
        }
    };
    assert_eq!(end.code(), Code::Unavailable, "{end:?}");
    assert_eq!(server.wait().status.code(), Some(0));
}

#[tokio::test]
async fn a_call_that_does_not_end_is_ended_after_the_grace() {
    let server = Server::start(&["--ephemeral", "--shutdown-grace", "300ms"]);
    let held = half_sent(&server, 1000).await;
    server.signal(Signal::TERM);
    let trailers = held.status().await.unwrap();
    assert_eq!(trailers, Code::Unavailable);
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("cancelling unfinished calls"), "{}", ended.stderr);
}

#[tokio::test]
async fn a_second_signal_ends_the_process_at_once() {
    let temporary = tempfile::tempdir().unwrap();
    let mut command = crate::support::command(&["serve", "--ephemeral", "--shutdown-grace=10m"]);
    command.args(["--grpc-port=0", "--http-port=0"]).env("TMPDIR", temporary.path());
    let server = Server::spawn(command);
    let held = half_sent(&server, 1000).await;
    server.signal(Signal::TERM);
    // The server is draining once it accepts no new connections.
    let address = server.address("http");
    until("the ports are closed", || TcpStream::connect(&address).is_err()).await;
    server.signal(Signal::INT);
    assert_eq!(server.wait().status.code(), Some(130));
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
    drop(held);
}
