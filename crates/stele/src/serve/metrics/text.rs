//! All metrics in the Prometheus text format.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use stele_engine::StoreStats;
use stele_grpc::offload;
use tonic::Code;

use super::super::health::FailingWork;
use super::super::inject::Totals;
use super::methods::{self, Method};
use super::{Metrics, Process};

/// Returns the response of `/metrics`.
pub fn render(
    metrics: &Metrics,
    store: &StoreStats,
    health: &[(&'static str, Option<String>)],
    failing: &[FailingWork],
    injected: Option<&Totals>,
) -> String {
    let mut text = Text(String::with_capacity(16 << 10));
    text.health(health);
    text.failing(failing);
    if let Some(injected) = injected {
        text.injected(injected);
    }
    text.calls(metrics);
    text.connections(metrics);
    text.engine(store);
    text.process(&Process::now());
    text.0
}

/// Returns the metrics of this process, also for the metastore's page.
pub fn process_numbers() -> String {
    let mut text = Text(String::with_capacity(2 << 10));
    text.process(&Process::now());
    text.0
}

struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"", if at == 0 { '{' } else { ',' });
            for letter in value.chars() {
                match letter {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    letter => self.0.push(letter),
                }
            }
            self.0.push('"');
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.sample(name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.single(name, "counter", help, value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.single(name, "gauge", help, value);
    }

    fn health(&mut self, parts: &[(&'static str, Option<String>)]) {
        let name = "stele_healthy";
        self.head(name, "gauge", "Whether a part of the server serves (1) or has failed (0).");
        for (part, failure) in parts {
            self.sample(name, &[("part", part)], u8::from(failure.is_none()));
        }
    }

    fn failing(&mut self, failing: &[FailingWork]) {
        let name = "stele_background_failures";
        let help = "Failed attempts of background work that has not succeeded since, by table.";
        self.head(name, "gauge", help);
        let mut attempts: BTreeMap<_, u32> = BTreeMap::new();
        for failing in failing {
            let table = failing.table.as_deref().unwrap_or_default();
            *attempts.entry((failing.work, table)).or_default() += failing.failures;
        }
        for ((work, table), failures) in attempts {
            self.sample(name, &[("work", work), ("table", table)], failures);
        }
    }

    fn injected(&mut self, totals: &Totals) {
        let name = "stele_injected_faults_total";
        self.head(name, "counter", "Calls delayed or failed on purpose by fault injection.");
        for (effect, count) in [("latency", &totals.delayed), ("error", &totals.failed)] {
            self.sample(name, &[("effect", effect)], count.load(Ordering::Relaxed));
        }
    }

    fn calls(&mut self, metrics: &Metrics) {
        let called: Vec<_> =
            metrics.methods.all().into_iter().filter(|method| method.calls() > 0).collect();
        self.head("stele_grpc_requests_total", "counter", "Calls that have ended.");
        for method in &called {
            for (code, count) in method.codes.iter().enumerate() {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let labels = [("method", &*method.path), ("code", code_name(code))];
                    self.sample("stele_grpc_requests_total", &labels, count);
                }
            }
        }
        let name = "stele_grpc_request_seconds";
        self.head(name, "histogram", "Time from the head of a request to the end of its response.");
        for method in &called {
            self.histogram(name, method);
        }
        self.head("stele_grpc_received_bytes_total", "counter", "Bytes of request messages.");
        for method in &called {
            let bytes = method.received_bytes.load(Ordering::Relaxed);
            self.sample("stele_grpc_received_bytes_total", &[("method", &method.path)], bytes);
        }
        self.head("stele_grpc_sent_bytes_total", "counter", "Bytes of response messages.");
        for method in &called {
            let bytes = method.sent_bytes.load(Ordering::Relaxed);
            self.sample("stele_grpc_sent_bytes_total", &[("method", &method.path)], bytes);
        }
        let in_flight = metrics.in_flight.load(Ordering::Relaxed);
        self.gauge("stele_grpc_requests_in_flight", "Calls that are being served.", in_flight);
        let memory = &metrics.memory;
        let pools = [
            ("request", memory.requests_used(), memory.requests_limit()),
            ("response", memory.responses().used(), memory.responses().limit()),
        ];
        for (pool, used, limit) in pools {
            let name = format!("stele_{pool}_memory_bytes");
            self.gauge(&name, &format!("Memory held by {pool}s being served."), used);
            let name = format!("stele_{pool}_memory_limit_bytes");
            self.gauge(&name, &format!("Limit of stele_{pool}_memory_bytes."), limit);
        }
        let stalled = metrics.streams_stalled.load(Ordering::Relaxed);
        let help = "Responses that were ended because the client did not read them.";
        self.counter("stele_streams_stalled_total", help, stalled);
        let waiting = offload::in_place_now();
        self.gauge("stele_calls_waiting_in_place", "Calls that occupy a thread to wait.", waiting);
    }

    fn histogram(&mut self, name: &str, method: &Method) {
        let path = ("method", &*method.path);
        let bucket_name = format!("{name}_bucket");
        let mut below = 0;
        for (bucket, count) in method.buckets.iter().enumerate() {
            below += count.load(Ordering::Relaxed);
            let bound = match bucket {
                methods::BUCKETS => "+Inf".to_string(),
                bucket => methods::bucket_seconds(bucket).to_string(),
            };
            self.sample(&bucket_name, &[path, ("le", &bound)], below);
        }
        let seconds = Duration::from_nanos(method.nanos.load(Ordering::Relaxed)).as_secs_f64();
        self.sample(&format!("{name}_sum"), &[path], seconds);
        self.sample(&format!("{name}_count"), &[path], below);
    }

    fn connections(&mut self, metrics: &Metrics) {
        let ports =
            [("grpc", &metrics.grpc), ("http", &metrics.http), ("metastore", &metrics.metastore)];
        self.head("stele_connections", "gauge", "Connections that are open.");
        for (port, connections) in ports {
            let open = connections.open.load(Ordering::Relaxed);
            self.sample("stele_connections", &[("port", port)], open);
        }
        self.head("stele_connections_total", "counter", "Connections that were accepted.");
        for (port, connections) in ports {
            let accepted = connections.accepted.load(Ordering::Relaxed);
            self.sample("stele_connections_total", &[("port", port)], accepted);
        }
    }

    fn engine(&mut self, store: &StoreStats) {
        let (log, cache) = (&store.log, &store.cache);
        self.gauge("stele_memory_used_bytes", "Cells not yet on disk.", store.memory_used_bytes);
        self.gauge("stele_memory_limit_bytes", "What these may be.", store.memory_limit_bytes);
        self.gauge("stele_cache_bytes", "Cached blocks.", cache.bytes);
        self.gauge("stele_cache_limit_bytes", "What these may be.", cache.capacity_bytes);
        self.counter("stele_cache_hits_total", "Blocks found in the cache.", cache.hits);
        self.counter("stele_cache_misses_total", "Blocks not found in it.", cache.misses);
        self.counter("stele_log_records_total", "Records written to the log.", log.records);
        self.counter("stele_log_bytes_total", "Bytes written to the log.", log.bytes);
        self.counter("stele_log_writes_total", "Writes to the log.", log.writes);
        self.counter("stele_log_syncs_total", "Syncs of the log.", log.syncs);
        self.gauge("stele_log_queued_bytes", "Bytes waiting for it.", store.log_queued_bytes);
        self.head("stele_throttled_total", "counter", "Commits that had to wait.");
        let reasons = [
            ("memory", store.throttled),
            ("chains", store.throttled_by_chains),
            ("log", store.throttled_by_log),
        ];
        for (reason, count) in reasons {
            self.sample("stele_throttled_total", &[("reason", reason)], count);
        }
        self.counter("stele_flushes_total", "Memory fragments written to disk.", store.flushes);
        self.counter("stele_compactions_total", "Chains merged.", store.compactions);
        let parts = store.compaction_parts;
        self.counter("stele_compaction_parts_total", "Parts of these put in place.", parts);
        self.gauge("stele_chain_longest", "Fragments in the longest chain.", store.chain_longest);
        self.gauge("stele_fragments", "Fragments on disk.", store.fragments);
        self.gauge("stele_fragment_bytes", "Bytes of these.", store.fragment_bytes);
        let damaged = store.fragments_damaged;
        self.gauge("stele_fragments_damaged", "Fragments that cannot be read.", damaged);
    }

    fn process(&mut self, process: &Process) {
        let cpu = process.cpu_seconds;
        let started = process.started_seconds;
        let resident = process.resident_bytes;
        self.counter("process_cpu_seconds_total", "Processor time used.", cpu);
        self.gauge("process_resident_memory_bytes", "Memory in use.", resident);
        let reserved = process.virtual_bytes;
        self.gauge("process_virtual_memory_bytes", "Address space taken.", reserved);
        self.gauge("process_threads", "Threads.", process.threads);
        self.gauge("process_open_fds", "Open files and connections.", process.open_files);
        self.gauge("process_max_fds", "What these may be.", process.open_files_max);
        self.gauge("process_start_time_seconds", "When it started.", started);
        self.head("stele_build_info", "gauge", "What is running.");
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        self.sample("stele_build_info", &version, 1);
    }
}

fn code_name(code: usize) -> &'static str {
    match Code::from(i32::try_from(code).unwrap_or(i32::MAX)) {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_buckets_add_up() {
        let mut text = Text(String::new());
        text.sample("a", &[("b", "c\"\\\nd"), ("e", "f")], 1);
        assert_eq!(text.0, "a{b=\"c\\\"\\\\\\nd\",e=\"f\"} 1\n");
        let methods = super::super::Methods::default();
        let method = methods.find_or_add("/x/Y");
        method.ended(Code::Ok, Duration::from_micros(40), 1, 2);
        method.ended(Code::Ok, Duration::from_secs(100), 1, 2);
        let mut text = Text(String::new());
        text.histogram("h", method);
        let has = |line: &str| assert!(text.0.lines().any(|found| found == line), "{}", text.0);
        has("h_bucket{method=\"/x/Y\",le=\"0.000032\"} 0");
        has("h_bucket{method=\"/x/Y\",le=\"0.000064\"} 1");
        has("h_bucket{method=\"/x/Y\",le=\"+Inf\"} 2");
        has("h_sum{method=\"/x/Y\"} 100.00004");
        has("h_count{method=\"/x/Y\"} 2");
    }

    #[test]
    fn failing_work_is_counted_by_kind_and_table() {
        let of = |work, table: &str, failures| FailingWork {
            work,
            table: (!table.is_empty()).then(|| table.to_string()),
            failures,
            reason: String::new(),
        };
        let mut text = Text(String::new());
        // Two groups of one table are a single sample.
        text.failing(&[of("compaction", "t", 2), of("flush", "", 7), of("compaction", "t", 3)]);
        let samples: Vec<_> = text.0.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "stele_background_failures{work=\"compaction\",table=\"t\"} 5",
            "stele_background_failures{work=\"flush\",table=\"\"} 7",
        ];
        assert_eq!(samples, expected);
    }
}
