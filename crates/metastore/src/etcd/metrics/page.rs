//! The page `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stele_metrics::{Kind, Text};
use tonic::Code;

use crate::Node;
use crate::command::Alarm;
use crate::etcd::methods::Method;
use crate::etcd::{CLUSTER_VERSION, Etcd, VERSION};
use crate::histogram::Histogram;

/// An entry that takes longer to apply counts as slow.
const SLOW_APPLY: Duration = Duration::from_millis(128);

/// The codes of calls that the group could not serve.
const FAILED_CODES: [Code; 3] = [Code::Unavailable, Code::DeadlineExceeded, Code::Internal];
const PROPOSAL_METHODS: [Method; 7] = [
    Method::Put,
    Method::DeleteRange,
    Method::Txn,
    Method::Compact,
    Method::LeaseGrant,
    Method::LeaseRevoke,
    Method::Alarm,
];
const READ_METHODS: [Method; 3] = [Method::Range, Method::RangeStream, Method::LeaseTimeToLive];

/// Returns the page.
pub fn text(etcd: &Etcd) -> String {
    let mut text = Text::default();
    server(&mut text, etcd);
    disk(&mut text, etcd.node());
    keys(&mut text, etcd);
    watches_and_leases(&mut text, etcd);
    operations(&mut text, etcd.node());
    etcd.counters().calls.write(&mut text);
    text.append(&(etcd.options().process_numbers)());
    text.into_string()
}

fn server(text: &mut Text, etcd: &Etcd) {
    let (node, counters) = (etcd.node(), etcd.counters());
    let (status, usage) = (node.status(), node.usage());
    let leads = i64::from(status.leader_id == status.member_id);
    text.gauge("etcd_server_has_leader", "", i64::from(status.leader_id != 0));
    text.gauge("etcd_server_is_leader", "", leads);
    text.gauge("etcd_server_is_learner", "", 0);
    text.counter("etcd_server_learner_promote_successes", "", 0);
    text.counter("etcd_server_learner_promote_failures", "", 0);
    text.counter("etcd_server_leader_changes_seen_total", "", i64::from(status.leader_id != 0));
    // A single voter sends no heartbeats or snapshots.
    text.counter("etcd_server_heartbeat_send_failures_total", "", 0);
    text.gauge("etcd_server_snapshot_apply_in_progress_total", "", 0);
    text.gauge("etcd_server_proposals_committed_total", "", number(status.committed));
    text.gauge("etcd_server_proposals_applied_total", "", number(status.applied));
    text.gauge("etcd_server_proposals_pending", "", number(node.group().pending() as u64));
    let calls = &counters.calls;
    let failed = calls.ended(&PROPOSAL_METHODS, &FAILED_CODES);
    text.counter("etcd_server_proposals_failed_total", "", failed);
    let failed = calls.ended(&READ_METHODS, &FAILED_CODES);
    text.counter("etcd_server_read_indexes_failed_total", "", failed);
    // The only voter may read immediately.
    text.counter("etcd_server_slow_read_indexes_total", "", 0);
    text.counter("etcd_server_slow_apply_total", "", slow_applies(node));
    text.gauge("etcd_server_quota_backend_bytes", "", usage.quota_bytes);
    text.counter("etcd_server_health_success", "", counters.health_successes.get());
    text.counter("etcd_server_health_failures", "", counters.health_failures.get());
    constant(text, "etcd_server_version", "server_version", VERSION);
    constant(text, "etcd_cluster_version", "cluster_version", CLUSTER_VERSION);
    constant(text, "etcd_server_id", "server_id", &format!("{:x}", status.member_id));
    let revision = number(node.auth().get().revision());
    text.gauge("etcd_debugging_auth_revision", "", revision);
    alarms(text, node);
}

/// Writes a gauge of 1 for each active alarm.
fn alarms(text: &mut Text, node: &Node) {
    let name = "etcd_debugging_server_alarms";
    text.head(name, Kind::Gauge, "");
    for (member, alarm) in node.alarms() {
        let member = format!("{member:x}");
        let kind = match alarm {
            Alarm::NoSpace => "NOSPACE",
            Alarm::Corrupt => "CORRUPT",
        };
        text.sample(name, &[("server_id", &member), ("alarm_type", kind)], 1);
    }
}

/// Writes a gauge of 1 whose label is the information.
fn constant(text: &mut Text, name: &str, label: &str, value: &str) {
    text.head(name, Kind::Gauge, "");
    text.sample(name, &[(label, value)], 1);
}

fn slow_applies(node: &Node) -> i64 {
    let times = node.apply_times();
    let bounds = times.bounds();
    let quick = bounds.iter().find(|(bound, _)| *bound >= SLOW_APPLY.as_secs_f64());
    number(times.count().saturating_sub(quick.map_or(0, |(_, below)| *below)))
}

fn disk(text: &mut Text, node: &Node) {
    histogram(text, "etcd_disk_wal_fsync_duration_seconds", node.group().append_times());
    histogram(text, "etcd_disk_backend_commit_duration_seconds", node.apply_times());
    let (written, _) = node.group().log_stats();
    text.gauge("etcd_disk_wal_write_bytes_total", "", number(written));
    let usage = node.usage();
    text.gauge("etcd_mvcc_db_total_size_in_bytes", "", usage.stored_bytes);
    text.gauge("etcd_mvcc_db_total_size_in_use_in_bytes", "", usage.live_bytes);
}

fn keys(text: &mut Text, etcd: &Etcd) {
    let (node, counters) = (etcd.node(), etcd.counters());
    text.counter("etcd_mvcc_range_total", "", counters.ranges.get());
    text.counter("etcd_mvcc_put_total", "", counters.puts.get());
    text.counter("etcd_mvcc_delete_total", "", counters.deletes.get());
    text.counter("etcd_mvcc_txn_total", "", counters.txns.get());
    // The names before etcd 3.4, which older dashboards use.
    text.counter("etcd_debugging_mvcc_range_total", "", counters.ranges.get());
    text.counter("etcd_debugging_mvcc_put_total", "", counters.puts.get());
    text.counter("etcd_debugging_mvcc_delete_total", "", counters.deletes.get());
    text.counter("etcd_debugging_mvcc_txn_total", "", counters.txns.get());
    // No read keeps a transaction open, and nothing is defragmented.
    text.gauge("etcd_mvcc_db_open_read_transactions", "", 0);
    text.gauge("etcd_disk_defrag_inflight", "", 0);
    let keys = node.count(&crate::command::KeyRange::all(), 0).unwrap_or(0);
    text.gauge("etcd_debugging_mvcc_keys_total", "", keys);
    text.gauge("etcd_debugging_mvcc_current_revision", "", node.revision());
    text.gauge("etcd_debugging_mvcc_compact_revision", "", node.compacted());
}

fn watches_and_leases(text: &mut Text, etcd: &Etcd) {
    let counters = etcd.counters();
    text.gauge("etcd_debugging_mvcc_watch_stream_total", "", counters.watch_streams.get());
    text.gauge("etcd_debugging_mvcc_watcher_total", "", counters.watchers.get());
    text.gauge("etcd_debugging_mvcc_slow_watcher_total", "", counters.slow_watchers.get());
    text.counter("etcd_debugging_mvcc_events_total", "", counters.events.get());
    // A watcher that lags has a position in history, not a queue.
    text.gauge("etcd_debugging_mvcc_pending_events_total", "", 0);
    let leases = number(etcd.node().leases().list().len() as u64);
    text.gauge("etcd_debugging_lease_leases", "", leases);
    text.counter("etcd_debugging_lease_granted_total", "", counters.grants.get());
    text.counter("etcd_debugging_lease_revoked_total", "", counters.revocations.get());
    text.counter("etcd_debugging_lease_renewed_total", "", counters.renewals.get());
}

/// Metrics that etcd does not have.
fn operations(text: &mut Text, node: &Node) {
    let name = "stele_metastore_request_phase_seconds";
    text.head(name, Kind::Histogram, "Time that writes spent in each phase.");
    for (phase, times) in node.group().phases().histograms() {
        let labels = [("phase", phase)];
        text.histogram(name, &labels, times.bounds(), times.seconds(), times.count());
    }
    let help = "Requests that took longer than --metastore-slow-request.";
    text.counter("stele_metastore_slow_requests_total", help, number(node.slow_requests()));
    if let Ok(history) = node.history_reach() {
        let help = "Oldest revision that can be read.";
        text.gauge("stele_metastore_history_oldest_revision", help, history.oldest_revision);
        let seconds = history.oldest_micros.unwrap_or(0) / 1_000_000;
        let help = "Time of the oldest revision that can be read, in seconds since 1970; 0 if \
                    nothing was written since.";
        text.gauge("stele_metastore_history_oldest_timestamp_seconds", help, seconds);
    }
    text.gauge("stele_metastore_level", "Feature level of the group.", node.level());
    let backups = node.backups();
    let count = |count: &AtomicU64| number(count.load(Ordering::Relaxed));
    text.counter("stele_metastore_backups_total", "Backups taken.", count(&backups.done));
    let help = "Backups that failed.";
    text.counter("stele_metastore_backups_failed_total", help, count(&backups.failed));
    let help = "Revision of the last backup; 0 before the first.";
    let revision = backups.last_revision.load(Ordering::Relaxed);
    text.gauge("stele_metastore_backup_revision", help, revision);
    let help = "Time of the last backup, in seconds since 1970; 0 before the first.";
    let seconds = backups.last_micros.load(Ordering::Relaxed) / 1_000_000;
    text.gauge("stele_metastore_backup_timestamp_seconds", help, seconds);
}

fn histogram(text: &mut Text, name: &str, times: &Histogram) {
    text.head(name, Kind::Histogram, "");
    text.histogram(name, &[], times.bounds(), times.seconds(), times.count());
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_ends_with_all_its_sum_and_its_count() {
        let times = Histogram::default();
        times.add(Duration::from_millis(3));
        times.add(Duration::from_secs(60));
        let mut text = Text::default();
        histogram(&mut text, "h", &times);
        let text = text.into_string();
        assert!(text.starts_with("# TYPE h histogram\nh_bucket{le=\"0.001\"} 0\n"), "{text}");
        assert!(text.contains("\nh_bucket{le=\"0.004\"} 1\n"), "{text}");
        assert!(text.ends_with("\nh_bucket{le=\"+Inf\"} 2\nh_sum 60.003\nh_count 2\n"), "{text}");
    }
}
