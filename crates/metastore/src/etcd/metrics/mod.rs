//! Metrics of the server in the Prometheus format, under the names that
//! dashboards for etcd use. `calls` counts calls, `page` writes the format.

mod calls;
mod page;

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tonic::Code;

pub use self::calls::{Calls, counted};
use self::page::Page;
use super::methods::Method;
use super::{CLUSTER_VERSION, Etcd, VERSION};
use crate::Node;

/// A number that tasks count up and down.
#[derive(Default)]
pub struct Count(AtomicI64);

impl Count {
    pub fn add(&self, number: i64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of the API.
#[derive(Default)]
pub struct Counters {
    pub calls: Calls,
    pub ranges: Count,
    pub puts: Count,
    pub deletes: Count,
    pub txns: Count,
    pub watch_streams: Count,
    pub watchers: Count,
    /// Watchers that have not caught up.
    pub slow_watchers: Count,
    pub events: Count,
    pub grants: Count,
    pub revocations: Count,
    pub renewals: Count,
    pub health_failures: Count,
    pub health_successes: Count,
}

/// An entry that takes longer to apply counts as slow.
const SLOW_APPLY: Duration = Duration::from_millis(128);

/// The codes of calls that the group could not serve.
const LEFT_UNDONE: [Code; 3] = [Code::Unavailable, Code::DeadlineExceeded, Code::Internal];
const PROPOSING: [Method; 7] = [
    Method::Put,
    Method::DeleteRange,
    Method::Txn,
    Method::Compact,
    Method::LeaseGrant,
    Method::LeaseRevoke,
    Method::Alarm,
];
const READING: [Method; 3] = [Method::Range, Method::RangeStream, Method::LeaseTimeToLive];

/// Returns all metrics as text.
pub fn text(etcd: &Etcd) -> String {
    let mut page = Page::default();
    server(&mut page, etcd);
    disk(&mut page, etcd.node());
    keys(&mut page, etcd);
    watches_and_leases(&mut page, etcd);
    etcd.counters().calls.write(&mut page);
    page.0 += &(etcd.options().process_numbers)();
    page.0
}

fn server(page: &mut Page, etcd: &Etcd) {
    let (node, counters) = (etcd.node(), etcd.counters());
    let (status, usage) = (node.status(), node.usage());
    let leads = i64::from(status.leader_id == status.member_id);
    page.gauge("etcd_server_has_leader", i64::from(status.leader_id != 0));
    page.gauge("etcd_server_is_leader", leads);
    page.gauge("etcd_server_is_learner", 0);
    page.counter("etcd_server_leader_changes_seen_total", i64::from(status.leader_id != 0));
    // A single voter sends no heartbeats or snapshots.
    page.counter("etcd_server_heartbeat_send_failures_total", 0);
    page.gauge("etcd_server_snapshot_apply_in_progress_total", 0);
    page.gauge("etcd_server_proposals_committed_total", number(status.committed));
    page.gauge("etcd_server_proposals_applied_total", number(status.applied));
    page.gauge("etcd_server_proposals_pending", number(node.group().pending() as u64));
    let calls = &counters.calls;
    let failed = calls.ended(&PROPOSING, &LEFT_UNDONE);
    page.counter("etcd_server_proposals_failed_total", failed);
    let failed = calls.ended(&READING, &LEFT_UNDONE);
    page.counter("etcd_server_read_indexes_failed_total", failed);
    // The only voter may read immediately.
    page.counter("etcd_server_slow_read_indexes_total", 0);
    page.counter("etcd_server_slow_apply_total", slow_applies(node));
    page.gauge("etcd_server_quota_backend_bytes", usage.quota_bytes);
    page.counter("etcd_server_health_success", counters.health_successes.get());
    page.counter("etcd_server_health_failures", counters.health_failures.get());
    page.labelled("etcd_server_version", "gauge", &[(format!("server_version=\"{VERSION}\""), 1)]);
    let cluster = format!("cluster_version=\"{CLUSTER_VERSION}\"");
    page.labelled("etcd_cluster_version", "gauge", &[(cluster, 1)]);
    let member = format!("server_id=\"{:x}\"", status.member_id);
    page.labelled("etcd_server_id", "gauge", &[(member, 1)]);
}

fn slow_applies(node: &Node) -> i64 {
    let times = node.apply_times();
    let bounds = times.bounds();
    let quick = bounds.iter().find(|(bound, _)| *bound >= SLOW_APPLY.as_secs_f64());
    number(times.count().saturating_sub(quick.map_or(0, |(_, below)| *below)))
}

fn disk(page: &mut Page, node: &Node) {
    page.histogram("etcd_disk_wal_fsync_duration_seconds", node.group().append_times());
    page.histogram("etcd_disk_backend_commit_duration_seconds", node.apply_times());
    let (written, _) = node.group().log_stats();
    page.gauge("etcd_disk_wal_write_bytes_total", number(written));
    let usage = node.usage();
    page.gauge("etcd_mvcc_db_total_size_in_bytes", usage.stored_bytes);
    page.gauge("etcd_mvcc_db_total_size_in_use_in_bytes", usage.live_bytes);
}

fn keys(page: &mut Page, etcd: &Etcd) {
    let (node, counters) = (etcd.node(), etcd.counters());
    page.counter("etcd_mvcc_range_total", counters.ranges.get());
    page.counter("etcd_mvcc_put_total", counters.puts.get());
    page.counter("etcd_mvcc_delete_total", counters.deletes.get());
    page.counter("etcd_mvcc_txn_total", counters.txns.get());
    let keys = node.count(&crate::command::KeyRange::all(), 0).unwrap_or(0);
    page.gauge("etcd_debugging_mvcc_keys_total", keys);
    page.gauge("etcd_debugging_mvcc_current_revision", node.revision());
    page.gauge("etcd_debugging_mvcc_compact_revision", node.compacted());
}

fn watches_and_leases(page: &mut Page, etcd: &Etcd) {
    let counters = etcd.counters();
    page.gauge("etcd_debugging_mvcc_watch_stream_total", counters.watch_streams.get());
    page.gauge("etcd_debugging_mvcc_watcher_total", counters.watchers.get());
    page.gauge("etcd_debugging_mvcc_slow_watcher_total", counters.slow_watchers.get());
    page.counter("etcd_debugging_mvcc_events_total", counters.events.get());
    // A watcher that lags has a position in history, not a queue.
    page.gauge("etcd_debugging_mvcc_pending_events_total", 0);
    let leases = number(etcd.node().leases().list().len() as u64);
    page.gauge("etcd_debugging_lease_leases", leases);
    page.counter("etcd_debugging_lease_granted_total", counters.grants.get());
    page.counter("etcd_debugging_lease_revoked_total", counters.revocations.get());
    page.counter("etcd_debugging_lease_renewed_total", counters.renewals.get());
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
