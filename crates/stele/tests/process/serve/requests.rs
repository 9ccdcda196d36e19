//! Large requests: admitted while memory is available, rejected otherwise.

use std::time::Duration;

use tonic::Code;
use tonic_types::StatusExt;

use super::hostile::{begin, half_sent};
use crate::support::{Server, make_table, ping, rows, until, write};

const MIB: usize = 1 << 20;

#[tokio::test]
async fn many_large_requests_take_turns_within_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    make_table(dir.path());
    let server = Server::with_data(dir.path(), &["--request-memory=8MiB", "--memory=256MiB"]);
    let mut sending = tokio::task::JoinSet::new();
    for number in 0..16 {
        let mut client = server.client().await;
        let request = write(&format!("{number:02}"), vec![1; 4 * MIB]);
        sending.spawn(async move { client.mutate_row(request).await });
    }
    for outcome in sending.join_all().await {
        outcome.unwrap();
    }
    assert_eq!(rows(&server).await.len(), 16);
    assert_eq!(server.metric("stele_request_memory_bytes"), Some(0.0));
}

#[tokio::test]
async fn a_request_without_memory_in_time_is_refused_and_small_ones_pass() {
    let dir = tempfile::tempdir().unwrap();
    make_table(dir.path());
    let server = Server::with_data(dir.path(), &["--request-memory=8MiB", "--request-wait=200ms"]);
    let held = half_sent(&server, 6 * MIB as u32).await;
    let mut client = server.client().await;
    let refused = client.mutate_row(write("large", vec![1; MIB])).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    let delay = refused.get_details_retry_info().unwrap().retry_delay;
    assert_eq!(delay, Some(Duration::from_secs(1)));
    client.ping_and_warm(ping()).await.unwrap();
    client.mutate_row(write("small", vec![1; 1000])).await.unwrap();
    drop(held);
    until("memory is given back", || server.metric("stele_request_memory_bytes") == Some(0.0))
        .await;
    client.mutate_row(write("large", vec![1; MIB])).await.unwrap();
    assert_eq!(rows(&server).await, ["large", "small"]);
}

#[tokio::test]
async fn a_call_is_ended_by_its_deadline() {
    let server = Server::start(&["--ephemeral"]);
    let unfinished = begin(&server, "50m", vec![0, 0, 0, 1, 0]).await;
    assert_eq!(unfinished.status().await, Some(Code::DeadlineExceeded));
    server.assert_healthy().await;
}
