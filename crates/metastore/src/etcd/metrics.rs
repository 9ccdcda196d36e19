//! Numbers about the server in the format of Prometheus, under the names that
//! dashboards for etcd use.

use std::fmt::Write;
use std::sync::atomic::{AtomicI64, Ordering};

use tonic::Code;

use super::methods::Method;
use super::{CLUSTER_VERSION, Etcd, VERSION};

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

/// Codes of gRPC, OK included.
const CODES: usize = 17;

/// What the API counts.
#[derive(Default)]
pub struct Counters {
    pub ranges: Count,
    pub puts: Count,
    pub deletes: Count,
    pub txns: Count,
    pub watchers: Count,
    pub events: Count,
    pub health_failures: Count,
    pub health_successes: Count,
    started: [Count; Method::COUNT],
    handled: [[Count; CODES]; Method::COUNT],
}

impl Counters {
    pub fn started(&self, method: Method) {
        self.started[method as usize].add(1);
    }

    pub fn handled(&self, method: Method, code: Code) {
        self.handled[method as usize][code as usize].add(1);
    }
}

/// All numbers as text.
pub fn text(etcd: &Etcd) -> String {
    let (node, counters) = (etcd.node(), etcd.counters());
    let (status, usage) = (node.status(), node.usage());
    let leads = i64::from(status.leader_id == status.member_id);
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let mut page = Page::default();
    page.gauge("etcd_server_has_leader", i64::from(status.leader_id != 0));
    page.gauge("etcd_server_is_leader", leads);
    page.gauge("etcd_server_is_learner", 0);
    page.counter("etcd_server_leader_changes_seen_total", i64::from(status.leader_id != 0));
    page.gauge("etcd_server_proposals_committed_total", number(status.committed));
    page.gauge("etcd_server_proposals_applied_total", number(status.applied));
    page.gauge("etcd_server_proposals_pending", number(node.group().pending() as u64));
    page.gauge("etcd_server_quota_backend_bytes", usage.quota_bytes);
    page.counter("etcd_server_health_success", counters.health_successes.get());
    page.counter("etcd_server_health_failures", counters.health_failures.get());
    page.labelled("etcd_server_version", "gauge", &[(format!("server_version=\"{VERSION}\""), 1)]);
    let cluster = format!("cluster_version=\"{CLUSTER_VERSION}\"");
    page.labelled("etcd_cluster_version", "gauge", &[(cluster, 1)]);
    let member = format!("server_id=\"{:x}\"", status.member_id);
    page.labelled("etcd_server_id", "gauge", &[(member, 1)]);
    page.gauge("etcd_mvcc_db_total_size_in_bytes", usage.stored_bytes);
    page.gauge("etcd_mvcc_db_total_size_in_use_in_bytes", usage.live_bytes);
    page.counter("etcd_mvcc_range_total", counters.ranges.get());
    page.counter("etcd_mvcc_put_total", counters.puts.get());
    page.counter("etcd_mvcc_delete_total", counters.deletes.get());
    page.counter("etcd_mvcc_txn_total", counters.txns.get());
    let keys = node.count(&crate::command::KeyRange::all(), 0).unwrap_or(0);
    page.gauge("etcd_debugging_mvcc_keys_total", keys);
    page.gauge("etcd_debugging_mvcc_current_revision", node.revision());
    page.gauge("etcd_debugging_mvcc_compact_revision", node.compacted());
    page.gauge("etcd_debugging_mvcc_watcher_total", counters.watchers.get());
    page.counter("etcd_debugging_mvcc_events_total", counters.events.get());
    let leases = i64::try_from(node.leases().list().len()).unwrap_or(i64::MAX);
    page.gauge("etcd_debugging_lease_leases", leases);
    page.calls(counters);
    page.0
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn gauge(&mut self, name: &str, value: i64) {
        self.labelled(name, "gauge", &[(String::new(), value)]);
    }

    fn counter(&mut self, name: &str, value: i64) {
        self.labelled(name, "counter", &[(String::new(), value)]);
    }

    fn labelled(&mut self, name: &str, kind: &str, values: &[(String, i64)]) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = match labels.as_str() {
                "" => writeln!(self.0, "{name} {value}"),
                labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
            };
        }
    }

    fn calls(&mut self, counters: &Counters) {
        let mut started = Vec::new();
        let mut handled = Vec::new();
        for method in Method::all() {
            let (service, name) = method.names();
            let labels = format!("grpc_method=\"{name}\",grpc_service=\"{service}\"");
            started.push((labels.clone(), counters.started[method as usize].get()));
            for (code, count) in counters.handled[method as usize].iter().enumerate() {
                if code == 0 || count.get() != 0 {
                    let code = CODE_NAMES[code];
                    handled.push((format!("grpc_code=\"{code}\",{labels}"), count.get()));
                }
            }
        }
        self.labelled("grpc_server_started_total", "counter", &started);
        self.labelled("grpc_server_handled_total", "counter", &handled);
    }
}

const CODE_NAMES: [&str; CODES] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_its_type_and_its_labels() {
        let mut page = Page::default();
        page.gauge("a", -1);
        page.labelled("b", "counter", &[("x=\"1\"".into(), 2)]);
        assert_eq!(page.0, "# TYPE a gauge\na -1\n# TYPE b counter\nb{x=\"1\"} 2\n");
    }
}
