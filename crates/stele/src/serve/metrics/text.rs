//! All metrics in the Prometheus text format.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stele_engine::{StoreStats, TabletSummary};
use stele_grpc::offload;
use stele_metrics::{Kind, Text};
use tonic::Code;

use super::super::health::FailingWork;
use super::super::inject::Totals;
use super::methods::{self, Method};
use super::{Metrics, Process};

/// Returns the response of `/metrics`.
pub fn render(
    metrics: &Metrics,
    store: &StoreStats,
    tables: &[TabletSummary],
    health: &[(&'static str, Option<String>)],
    failing: &[FailingWork],
    injected: Option<&Totals>,
) -> String {
    let mut text = Text::with_capacity(16 << 10);
    write_health(&mut text, health);
    write_failing(&mut text, failing);
    if let Some(injected) = injected {
        write_injected(&mut text, injected);
    }
    write_calls(&mut text, metrics);
    write_connections(&mut text, metrics);
    write_engine(&mut text, store);
    write_tablets(&mut text, store, tables);
    write_process(&mut text, &Process::now());
    text.into_string()
}

/// Returns the metrics of this process, also for the metastore's page.
pub fn process_numbers() -> String {
    let mut text = Text::with_capacity(2 << 10);
    write_process(&mut text, &Process::now());
    text.into_string()
}

fn write_health(text: &mut Text, parts: &[(&'static str, Option<String>)]) {
    let name = "stele_healthy";
    text.head(name, Kind::Gauge, "Whether a component of the server serves (1) or has failed (0).");
    for (part, failure) in parts {
        text.sample(name, &[("part", part)], u8::from(failure.is_none()));
    }
}

fn write_failing(text: &mut Text, failing: &[FailingWork]) {
    let name = "stele_background_failures";
    let help = "Failed attempts of background work that has not succeeded since, by table.";
    text.head(name, Kind::Gauge, help);
    let mut attempts: BTreeMap<_, u32> = BTreeMap::new();
    for failing in failing {
        let table = failing.table.as_deref().unwrap_or_default();
        *attempts.entry((failing.work, table)).or_default() += failing.failures;
    }
    for ((work, table), failures) in attempts {
        text.sample(name, &[("work", work), ("table", table)], failures);
    }
}

fn write_injected(text: &mut Text, totals: &Totals) {
    let name = "stele_injected_faults_total";
    text.head(name, Kind::Counter, "Calls delayed or failed on purpose by fault injection.");
    for (effect, count) in [("latency", &totals.delayed), ("error", &totals.failed)] {
        text.sample(name, &[("effect", effect)], count.load(Ordering::Relaxed));
    }
}

fn write_calls(text: &mut Text, metrics: &Metrics) {
    let called: Vec<_> =
        metrics.methods.all().into_iter().filter(|method| method.calls() > 0).collect();
    text.head("stele_grpc_requests_total", Kind::Counter, "Calls that have ended.");
    for method in &called {
        for (code, count) in method.codes.iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                let labels = [("method", &*method.path), ("code", code_name(code))];
                text.sample("stele_grpc_requests_total", &labels, count);
            }
        }
    }
    let name = "stele_grpc_request_seconds";
    text.head(name, Kind::Histogram, "Time from the head of a request to the end of its response.");
    for method in &called {
        write_histogram(text, name, method);
    }
    text.head("stele_grpc_received_bytes_total", Kind::Counter, "Bytes of request messages.");
    for method in &called {
        let bytes = method.received_bytes.load(Ordering::Relaxed);
        text.sample("stele_grpc_received_bytes_total", &[("method", &method.path)], bytes);
    }
    text.head("stele_grpc_sent_bytes_total", Kind::Counter, "Bytes of response messages.");
    for method in &called {
        let bytes = method.sent_bytes.load(Ordering::Relaxed);
        text.sample("stele_grpc_sent_bytes_total", &[("method", &method.path)], bytes);
    }
    let in_flight = metrics.in_flight.load(Ordering::Relaxed);
    text.gauge("stele_grpc_requests_in_flight", "Calls that are being served.", in_flight);
    let memory = &metrics.memory;
    let pools = [
        ("request", memory.requests_used(), memory.requests_limit()),
        ("response", memory.responses().used(), memory.responses().limit()),
    ];
    for (pool, used, limit) in pools {
        let name = format!("stele_{pool}_memory_bytes");
        text.gauge(&name, &format!("Memory held by {pool}s being served."), used);
        let name = format!("stele_{pool}_memory_limit_bytes");
        text.gauge(&name, &format!("Limit of stele_{pool}_memory_bytes."), limit);
    }
    let stalled = metrics.streams_stalled.load(Ordering::Relaxed);
    let help = "Responses that were ended because the client did not read them.";
    text.counter("stele_streams_stalled_total", help, stalled);
    let waiting = offload::in_place_now();
    text.gauge(
        "stele_calls_waiting_in_place",
        "Calls that block a thread while they wait for the disk or a lock.",
        waiting,
    );
}

fn write_histogram(text: &mut Text, name: &str, method: &Method) {
    let mut below = 0;
    let counts = method.buckets.iter().map(|count| count.load(Ordering::Relaxed));
    let mut bounds = Vec::with_capacity(methods::BUCKETS);
    for (bucket, count) in counts.enumerate() {
        below += count;
        // The last bucket has no upper bound.
        if bucket < methods::BUCKETS {
            bounds.push((methods::bucket_seconds(bucket), below));
        }
    }
    let seconds = Duration::from_nanos(method.nanos.load(Ordering::Relaxed)).as_secs_f64();
    text.histogram(name, &[("method", &method.path)], bounds, seconds, below);
}

fn write_connections(text: &mut Text, metrics: &Metrics) {
    let ports =
        [("grpc", &metrics.grpc), ("http", &metrics.http), ("metastore", &metrics.metastore)];
    text.head("stele_connections", Kind::Gauge, "Connections that are open.");
    for (port, connections) in ports {
        let open = connections.open.load(Ordering::Relaxed);
        text.sample("stele_connections", &[("port", port)], open);
    }
    text.head("stele_connections_total", Kind::Counter, "Connections that were accepted.");
    for (port, connections) in ports {
        let accepted = connections.accepted.load(Ordering::Relaxed);
        text.sample("stele_connections_total", &[("port", port)], accepted);
    }
}

fn write_engine(text: &mut Text, store: &StoreStats) {
    let (log, cache) = (&store.log, &store.cache);
    text.gauge(
        "stele_memory_used_bytes",
        "Memory used by cells that are not yet on disk.",
        store.memory_used_bytes,
    );
    text.gauge(
        "stele_memory_limit_bytes",
        "Limit of stele_memory_used_bytes.",
        store.memory_limit_bytes,
    );
    text.gauge("stele_cache_bytes", "Cached blocks.", cache.bytes);
    text.gauge("stele_cache_limit_bytes", "Limit of stele_cache_bytes.", cache.capacity_bytes);
    text.counter("stele_cache_hits_total", "Blocks found in the cache.", cache.hits);
    text.counter("stele_cache_misses_total", "Blocks not found in the cache.", cache.misses);
    text.counter("stele_log_records_total", "Records written to the log.", log.records);
    text.counter("stele_log_bytes_total", "Bytes written to the log.", log.bytes);
    text.counter("stele_log_writes_total", "Writes to the log.", log.writes);
    text.counter("stele_log_syncs_total", "Syncs of the log.", log.syncs);
    text.gauge(
        "stele_log_queued_bytes",
        "Bytes waiting to be written to the log.",
        store.log_queued_bytes,
    );
    text.head("stele_throttled_total", Kind::Counter, "Commits that were delayed, by reason.");
    let reasons = [
        ("memory", store.throttled),
        ("chains", store.throttled_by_chains),
        ("log", store.throttled_by_log),
    ];
    for (reason, count) in reasons {
        text.sample("stele_throttled_total", &[("reason", reason)], count);
    }
    text.counter("stele_flushes_total", "Memory fragments written to disk.", store.flushes);
    text.counter("stele_compactions_total", "Completed compactions.", store.compactions);
    let parts = store.compaction_parts;
    text.counter(
        "stele_compaction_parts_total",
        "Outputs of compactions that replaced their inputs.",
        parts,
    );
    text.gauge("stele_chain_longest", "Runs in the longest chain.", store.chain_longest);
    text.gauge("stele_fragments", "Fragments on disk.", store.fragments);
    text.gauge("stele_fragment_bytes", "Bytes of disk fragments.", store.fragment_bytes);
    let damaged = store.fragments_damaged;
    text.gauge("stele_fragments_damaged", "Fragments that cannot be read.", damaged);
}

fn write_tablets(text: &mut Text, store: &StoreStats, tables: &[TabletSummary]) {
    text.head("stele_tablets", Kind::Gauge, "Tablets of a table.");
    for table in tables {
        text.sample("stele_tablets", &[("table", &table.table)], table.tablets);
    }
    let splits = store.tablet_splits;
    text.counter("stele_tablet_splits_total", "Tablets that were split.", splits);
    let joins = store.tablet_joins;
    text.counter("stele_tablet_joins_total", "Pairs of tablets that were joined.", joins);
}

fn write_process(text: &mut Text, process: &Process) {
    let cpu = process.cpu_seconds;
    let started = process.started_seconds;
    let resident = process.resident_bytes;
    text.counter("process_cpu_seconds_total", "Processor time used.", cpu);
    text.gauge("process_resident_memory_bytes", "Resident memory of the process.", resident);
    let reserved = process.virtual_bytes;
    text.gauge("process_virtual_memory_bytes", "Virtual memory of the process.", reserved);
    text.gauge("process_threads", "Threads of the process.", process.threads);
    text.gauge(
        "process_open_fds",
        "Open file descriptors, including connections.",
        process.open_files,
    );
    text.gauge("process_max_fds", "Limit of process_open_fds.", process.open_files_max);
    text.gauge(
        "process_start_time_seconds",
        "Start time of the process, in seconds since 1970.",
        started,
    );
    text.head("stele_build_info", Kind::Gauge, "Version of the server; the value is always 1.");
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    text.sample("stele_build_info", &version, 1);
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
    fn buckets_add_up() {
        let methods = super::super::Methods::default();
        let method = methods.find_or_add("/x/Y");
        method.ended(Code::Ok, Duration::from_micros(40), 1, 2);
        method.ended(Code::Ok, Duration::from_secs(100), 1, 2);
        let mut text = Text::default();
        write_histogram(&mut text, "h", method);
        let text = text.into_string();
        let has = |line: &str| assert!(text.lines().any(|found| found == line), "{text}");
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
        let mut text = Text::default();
        // Two groups of one table are a single sample.
        let failing = [of("compaction", "t", 2), of("flush", "", 7), of("compaction", "t", 3)];
        write_failing(&mut text, &failing);
        let text = text.into_string();
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "stele_background_failures{work=\"compaction\",table=\"t\"} 5",
            "stele_background_failures{work=\"flush\",table=\"\"} 7",
        ];
        assert_eq!(samples, expected);
    }
}
