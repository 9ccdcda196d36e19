//! `/metrics`, under the names that dashboards for etcd use.

use serde_json::json;
use stele_metastore::etcd::Options;
use stele_metastore::etcd::proto::*;
use tokio_stream::wrappers::ReceiverStream;

use crate::etcd::gateway;
use crate::etcd::peer::{Peer, TIMEOUT};

/// Returns all samples of the page: names with labels, and values.
async fn samples(peer: &Peer) -> Vec<(String, f64)> {
    let page = gateway::text(gateway::send(peer, "GET", "/metrics", "").await).await;
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
        (name.to_string(), value.parse().unwrap_or_else(|_| panic!("{line:?}")))
    };
    lines.map(sample).collect()
}

/// Returns the sum of the samples with this name and all these labels.
async fn number(peer: &Peer, name: &str, labels: &[&str]) -> f64 {
    let samples = samples(peer).await;
    let mut found = samples
        .iter()
        .filter(|(sample, _)| sample.split('{').next() == Some(name))
        .filter(|(sample, _)| labels.iter().all(|label| sample.contains(label)))
        .peekable();
    assert!(found.peek().is_some(), "{name} {labels:?} is missing in {samples:?}");
    found.map(|(_, value)| value).sum()
}

async fn put(peer: &Peer, bytes: usize) {
    let value = vec![0; bytes].into();
    let request = PutRequest { key: "k".into(), value, ..Default::default() };
    peer.call::<_, PutResponse>("/etcdserverpb.KV/Put", request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn phases_history_and_backups_are_on_the_page() {
    let peer = Peer::with(Options::default()).await;
    put(&peer, 10).await;
    for phase in ["queue", "gather", "sync", "apply", "send"] {
        let label = format!("phase=\"{phase}\"");
        let name = "stele_metastore_request_phase_seconds_count";
        assert!(number(&peer, name, &[&label]).await >= 1.0, "{phase}");
    }
    assert_eq!(number(&peer, "stele_metastore_history_oldest_revision", &[]).await, 1.0);
    assert!(number(&peer, "stele_metastore_history_oldest_timestamp_seconds", &[]).await > 0.0);
    assert_eq!(number(&peer, "stele_metastore_level", &[]).await, 3.0);
    for name in [
        "stele_metastore_slow_requests_total",
        "stele_metastore_backups_total",
        "stele_metastore_backups_failed_total",
        "stele_metastore_backup_revision",
        "stele_metastore_backup_timestamp_seconds",
    ] {
        number(&peer, name, &[]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_name_that_dashboards_read_is_there() {
    let peer = Peer::with(Options {
        process_numbers: || "process_resident_memory_bytes 1\n".into(),
        ..Options::default()
    })
    .await;
    put(&peer, 10).await;
    let samples = samples(&peer).await;
    for name in [
        "etcd_server_has_leader",
        "etcd_server_is_leader",
        "etcd_server_leader_changes_seen_total",
        "etcd_server_proposals_committed_total",
        "etcd_server_proposals_applied_total",
        "etcd_server_proposals_pending",
        "etcd_server_proposals_failed_total",
        "etcd_server_heartbeat_send_failures_total",
        "etcd_server_quota_backend_bytes",
        "etcd_server_version",
        "etcd_server_id",
        "etcd_server_slow_apply_total",
        "etcd_server_slow_read_indexes_total",
        "etcd_server_read_indexes_failed_total",
        "etcd_server_health_success",
        "etcd_server_health_failures",
        "etcd_server_client_requests_total",
        "etcd_disk_wal_fsync_duration_seconds_bucket",
        "etcd_disk_wal_fsync_duration_seconds_sum",
        "etcd_disk_wal_fsync_duration_seconds_count",
        "etcd_disk_backend_commit_duration_seconds_bucket",
        "etcd_mvcc_db_total_size_in_bytes",
        "etcd_mvcc_db_total_size_in_use_in_bytes",
        "etcd_mvcc_range_total",
        "etcd_mvcc_put_total",
        "etcd_mvcc_delete_total",
        "etcd_mvcc_txn_total",
        "etcd_debugging_mvcc_keys_total",
        "etcd_debugging_mvcc_watcher_total",
        "etcd_debugging_mvcc_slow_watcher_total",
        "etcd_debugging_mvcc_watch_stream_total",
        "etcd_debugging_mvcc_pending_events_total",
        "etcd_debugging_mvcc_events_total",
        "etcd_debugging_mvcc_current_revision",
        "etcd_debugging_mvcc_compact_revision",
        "etcd_debugging_lease_granted_total",
        "etcd_debugging_lease_revoked_total",
        "etcd_debugging_lease_renewed_total",
        "etcd_network_client_grpc_received_bytes_total",
        "etcd_network_client_grpc_sent_bytes_total",
        "grpc_server_started_total",
        "grpc_server_handled_total",
        "grpc_server_msg_received_total",
        "grpc_server_msg_sent_total",
        "process_resident_memory_bytes",
    ] {
        let named = |(sample, _): &(String, f64)| sample.split('{').next() == Some(name);
        assert!(samples.iter().any(named), "{name} is missing");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_bytes_and_syncs_are_counted() {
    let peer = Peer::ours().await;
    let (received, synced) = (
        "etcd_network_client_grpc_received_bytes_total",
        "etcd_disk_wal_fsync_duration_seconds_count",
    );
    let before = (number(&peer, received, &[]).await, number(&peer, synced, &[]).await);
    for _ in 0..3 {
        put(&peer, 1000).await;
    }
    assert_eq!(number(&peer, synced, &[]).await, before.1 + 3.0);
    assert_eq!(
        number(&peer, "etcd_disk_wal_fsync_duration_seconds_bucket", &["+Inf"]).await,
        before.1 + 3.0
    );
    let bytes = number(&peer, received, &[]).await - before.0;
    assert!((3000.0..3100.0).contains(&bytes), "{bytes} bytes");
    let puts = ["grpc_method=\"Put\"", "grpc_type=\"unary\"", "grpc_code=\"OK\""];
    assert_eq!(number(&peer, "grpc_server_handled_total", &puts).await, 3.0);
    assert_eq!(number(&peer, "grpc_server_msg_received_total", &puts[..2]).await, 3.0);
    assert_eq!(number(&peer, "etcd_mvcc_put_total", &[]).await, 3.0);
    let empty = PutRequest::default();
    peer.call::<_, PutResponse>("/etcdserverpb.KV/Put", empty).await.unwrap_err();
    let refused = ["grpc_method=\"Put\"", "grpc_code=\"InvalidArgument\""];
    assert_eq!(number(&peer, "grpc_server_handled_total", &refused).await, 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_handled_when_it_ends_and_not_before() {
    let peer = Peer::ours().await;
    let watch = ["grpc_method=\"Watch\"", "grpc_type=\"bidi_stream\""];
    let create = WatchRequest {
        request_union: Some(watch_request::RequestUnion::CreateRequest(WatchCreateRequest {
            key: "k".into(),
            ..Default::default()
        })),
    };
    let (asking, requests) = tokio::sync::mpsc::channel(1);
    asking.send(create).await.unwrap();
    let requests = ReceiverStream::new(requests);
    let mut events = peer.stream::<_, WatchResponse>("/etcdserverpb.Watch/Watch", requests).await;
    let created = tokio::time::timeout(TIMEOUT, events.message()).await.unwrap().unwrap();
    assert!(created.unwrap().created);
    assert_eq!(number(&peer, "grpc_server_started_total", &watch).await, 1.0);
    assert_eq!(number(&peer, "grpc_server_handled_total", &watch).await, 0.0);
    assert_eq!(number(&peer, "etcd_debugging_mvcc_watch_stream_total", &[]).await, 1.0);
    assert_eq!(number(&peer, "etcd_debugging_mvcc_watcher_total", &[]).await, 1.0);
    // The stream ends when both of its halves are dropped.
    drop((asking, events));
    let ended = async {
        while number(&peer, "grpc_server_handled_total", &watch).await < 1.0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, ended).await.expect("the server sees it end");
    assert_eq!(number(&peer, "etcd_debugging_mvcc_watch_stream_total", &[]).await, 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_counted() {
    let peer = Peer::ours().await;
    gateway::post(&peer, "/v3/lease/grant", json!({ "TTL": 60, "ID": 7 })).await;
    gateway::send(&peer, "POST", "/v3/lease/keepalive", r#"{"ID":7} {"ID":7} {"ID":8}"#).await;
    let renewed = async {
        while number(&peer, "etcd_debugging_lease_renewed_total", &[]).await < 2.0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, renewed).await.expect("two renewals");
    assert_eq!(number(&peer, "etcd_debugging_lease_leases", &[]).await, 1.0);
    gateway::post(&peer, "/v3/lease/revoke", json!({ "ID": 7 })).await;
    for name in ["etcd_debugging_lease_granted_total", "etcd_debugging_lease_revoked_total"] {
        assert_eq!(number(&peer, name, &[]).await, 1.0, "{name}");
    }
}
