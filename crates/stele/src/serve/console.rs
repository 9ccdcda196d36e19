//! The server as its console sees it: counters, tables and what needs attention.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use parking_lot::Mutex;
use serde_json::{Value, json};
use stele_console::{
    Attention, BUCKETS, Console, Facts, Group, Host, Level, MethodCounts, Mode, Sample,
    TableSummary, Tablet,
};
use stele_engine::StoreStats;
use stele_grpc::Services;

use super::banner;
use super::http::PageState;
use super::metrics::{Method, Process};
use super::settings::ConsoleMode;
use crate::output::{bytes, things};

const READS: [&str; 2] =
    ["/google.bigtable.v2.Bigtable/ReadRows", "/google.bigtable.v2.Bigtable/SampleRowKeys"];
const WRITES: [&str; 4] = [
    "/google.bigtable.v2.Bigtable/MutateRow",
    "/google.bigtable.v2.Bigtable/MutateRows",
    "/google.bigtable.v2.Bigtable/CheckAndMutateRow",
    "/google.bigtable.v2.Bigtable/ReadModifyWriteRow",
];
/// Statistics of the store walk all its files, so they are not taken every second.
const STATS_AGE: Duration = Duration::from_secs(5);
/// A disk with less free space needs attention.
const DISK_FREE_SHARE: u64 = 10;
/// A chain this long makes reads slow.
const CHAIN_RUNS: usize = 24;

/// Returns the console of a server, and starts to observe it; `None` if it is off.
pub fn start(
    state: &PageState,
    mode: Option<ConsoleMode>,
    grpc: Services,
    metastore: Option<Services>,
    tasks: &tokio_util::task::TaskTracker,
) -> Option<Router> {
    let address = state.info.http?;
    let mode = match mode {
        Some(ConsoleMode::Off) => return None,
        Some(ConsoleMode::Read) => Mode::Read,
        Some(ConsoleMode::Write) => Mode::Write,
        None if address.ip().is_loopback() => Mode::Write,
        None => Mode::Read,
    };
    let host = Arc::new(Observed { state: state.clone(), stats: Mutex::default() });
    let slow_calls = state.metrics.slow_calls.clone();
    let closing = state.components.phases.draining.clone();
    let console = Console::new(host, grpc, metastore, mode, slow_calls, closing);
    tasks.spawn(console.clone().observe());
    Some(stele_console::router(console))
}

struct Observed {
    state: PageState,
    /// The last statistics, and those a minute before the next ones.
    stats: Mutex<Vec<(Instant, Arc<StoreStats>)>>,
}

/// How many statistics are kept: a minute.
const STATS_MAX: usize = 13;

impl Observed {
    /// Returns statistics that are at most some seconds old.
    fn stats(&self) -> Arc<StoreStats> {
        let mut kept = self.stats.lock();
        if let Some((at, stats)) = kept.last()
            && at.elapsed() < STATS_AGE
        {
            return stats.clone();
        }
        let stats = Arc::new(self.state.components.store.stats());
        if kept.len() == STATS_MAX {
            kept.remove(0);
        }
        kept.push((Instant::now(), stats.clone()));
        stats
    }

    /// Returns the statistics of about a minute ago.
    fn stats_before(&self) -> Option<Arc<StoreStats>> {
        self.stats.lock().first().map(|(_, stats)| stats.clone())
    }

    fn throttled(&self, all: &mut Vec<Attention>) {
        let (now, Some(before)) = (self.stats(), self.stats_before()) else { return };
        let causes: [(&str, u64, u64, u64, u64); 3] = [
            (
                "memory for cells",
                before.throttled,
                now.throttled,
                before.throttled_micros,
                now.throttled_micros,
            ),
            (
                "shorter chains of files",
                before.throttled_by_chains,
                now.throttled_by_chains,
                before.throttled_by_chains_micros,
                now.throttled_by_chains_micros,
            ),
            (
                "the log",
                before.throttled_by_log,
                now.throttled_by_log,
                before.throttled_by_log_micros,
                now.throttled_by_log_micros,
            ),
        ];
        for (cause, before, now, micros_before, micros) in causes {
            if now > before {
                let seconds = (micros.saturating_sub(micros_before)) as f64 / 1e6;
                all.push(warning(
                    format!(
                        "In the last minute {} waited for {cause}, {seconds:.1} s together.",
                        things(now - before, "write")
                    ),
                    None,
                ));
            }
        }
    }

    fn disk(&self, all: &mut Vec<Attention>) {
        let Ok(disk) = rustix::fs::statvfs(&self.state.info.data) else { return };
        let (free, total) = (disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize);
        if total > 0 && free < total / DISK_FREE_SHARE {
            all.push(warning(
                format!(
                    "The disk of the data directory has {} of {} left. When it is full, writes are \
                     refused; reads go on.",
                    bytes(free),
                    bytes(total)
                ),
                None,
            ));
        }
    }

    fn metastore(&self, all: &mut Vec<Attention>) {
        let Some(node) = &self.state.components.metastore else { return };
        let usage = node.usage();
        let (used, quota) = (usage.live_bytes.max(0) as u64, usage.quota_bytes.max(0) as u64);
        if quota > 0 && quota < i64::MAX as u64 && used >= quota / 10 * 9 {
            all.push(warning(
                format!(
                    "The metastore holds {} of the {} that --metastore-quota allows. When it is \
                     full, it refuses writes.",
                    bytes(used),
                    bytes(quota)
                ),
                Some("/metastore"),
            ));
        }
    }

    fn access(&self, all: &mut Vec<Attention>) {
        let info = &self.state.info;
        let addresses = [info.grpc, info.http, info.metastore];
        let is_open = addresses.iter().flatten().any(|at| !at.ip().is_loopback());
        if is_open && !(info.tls && info.client_certificates) {
            let text = match info.tls {
                true => "Other machines can connect, and the server does not check who they are.",
                false => {
                    "Other machines can connect without TLS, and the server does not check who they \
                     are."
                }
            };
            all.push(warning(text.into(), None));
        }
        if let Some(injector) = &self.state.injector {
            let rules = injector.rules().rules.len() as u64;
            all.push(note(format!(
                "Fault injection is on with {}: calls fail or wait on purpose.",
                things(rules, "rule")
            )));
        }
        if info.ephemeral {
            all.push(note("The data is temporary: it is removed when the server stops.".into()));
        }
    }
}

fn warning(text: String, link: Option<&'static str>) -> Attention {
    Attention { level: Level::Warning, text, link }
}

fn note(text: String) -> Attention {
    Attention { level: Level::Note, text, link: None }
}

/// Begins a sentence with a capital letter and ends it with a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}

impl Host for Observed {
    fn facts(&self) -> Facts {
        let info = &self.state.info;
        let text = |address: Option<std::net::SocketAddr>| {
            address.map(|address| banner::reachable(address).to_string())
        };
        Facts {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            uptime_seconds: self.state.metrics.started.elapsed().as_secs(),
            grpc: text(info.grpc),
            http: text(info.http),
            dns: text(info.dns),
            metastore: text(info.metastore),
            data: info.data.display().to_string(),
            store: info.store.clone(),
            ephemeral: info.ephemeral,
            tls: info.tls,
        }
    }

    fn sample(&self) -> Sample {
        let (metrics, stats, process) = (self.state.metrics, self.stats(), Process::now());
        let mut sample = Sample {
            throttled: stats.throttled + stats.throttled_by_chains + stats.throttled_by_log,
            cpu_millis: (process.cpu_seconds * 1000.0) as u64,
            resident_bytes: process.resident_bytes,
            in_flight: metrics.in_flight.load(Ordering::Relaxed),
            connections: [&metrics.grpc, &metrics.http, &metrics.metastore]
                .iter()
                .map(|port| port.open.load(Ordering::Relaxed))
                .sum(),
            ..Sample::default()
        };
        for method in metrics.methods.all() {
            let calls = method.calls();
            let is_read = READS.contains(&&*method.path);
            let is_write = WRITES.contains(&&*method.path);
            match (is_read, is_write) {
                (true, _) => sample.reads += calls,
                (_, true) => sample.writes += calls,
                _ => sample.others += calls,
            }
            sample.failed += failed(method);
            sample.received_bytes += method.received_bytes.load(Ordering::Relaxed);
            sample.sent_bytes += method.sent_bytes.load(Ordering::Relaxed);
            if is_read || is_write {
                let counts = buckets(method);
                sample.buckets.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
        }
        sample
    }

    fn attention(&self) -> Vec<Attention> {
        let mut all = Vec::new();
        for failure in self.state.components.failures() {
            let text = format!("{}: {}", failure.component, failure.reason);
            all.push(Attention { level: Level::Failure, text: sentence(&text), link: None });
        }
        for text in self.state.components.warnings() {
            all.push(warning(sentence(&text), Some("/tables")));
        }
        self.throttled(&mut all);
        let longest = self.stats().chain_longest;
        if longest >= CHAIN_RUNS {
            all.push(warning(
                format!(
                    "The longest chain of files has {longest} runs, so reads of its rows look into \
                     many files; compaction is behind."
                ),
                Some("/tables"),
            ));
        }
        self.disk(&mut all);
        self.metastore(&mut all);
        self.access(&mut all);
        all
    }

    fn gauges(&self) -> Value {
        let (stats, process) = (self.stats(), Process::now());
        let disk = rustix::fs::statvfs(&self.state.info.data).ok();
        let disk = disk.map(|disk| {
            json!({
                "free_bytes": disk.f_bavail * disk.f_frsize,
                "total_bytes": disk.f_blocks * disk.f_frsize,
            })
        });
        let objects = self.state.components.objects.as_ref().map(|objects| {
            let (bytes, limit) = objects.cached_bytes();
            json!({"cache_bytes": bytes, "cache_limit_bytes": limit})
        });
        json!({
            "objects": objects,
            "resident_bytes": process.resident_bytes,
            "threads": process.threads,
            "memory_bytes": stats.memory_used_bytes,
            "memory_limit_bytes": stats.memory_limit_bytes,
            "cache_bytes": stats.cache.bytes,
            "cache_limit_bytes": stats.cache.capacity_bytes,
            "tablets": stats.tablets,
            "fragments": stats.fragments,
            "fragment_bytes": stats.fragment_bytes,
            "chain_longest": stats.chain_longest,
            "flushes": stats.flushes,
            "compactions": stats.compactions,
            "log_syncs": stats.log.syncs,
            "disk": disk,
        })
    }

    fn methods(&self) -> Vec<MethodCounts> {
        let all = self.state.metrics.methods.all().into_iter();
        let counted = all.filter(|method| method.calls() > 0).map(|method| {
            let (calls, counts) = (method.calls(), buckets(method));
            let quantile = |share| stele_console::quantile(&counts, share).unwrap_or(0);
            MethodCounts {
                path: method.path.to_string(),
                calls,
                failed: failed(method),
                mean_micros: method.nanos.load(Ordering::Relaxed) / calls / 1000,
                p50_micros: quantile(0.5),
                p99_micros: quantile(0.99),
                received_bytes: method.received_bytes.load(Ordering::Relaxed),
                sent_bytes: method.sent_bytes.load(Ordering::Relaxed),
            }
        });
        counted.collect()
    }

    fn tables(&self) -> Vec<TableSummary> {
        let all = self.state.components.store.tablet_summaries().into_iter();
        let summary = |table: stele_engine::TabletSummary| TableSummary {
            name: table.table,
            tablets: table.tablets,
            disk_bytes: table.disk_bytes,
            largest_bytes: table.largest_bytes,
        };
        all.map(summary).collect()
    }

    fn tablets(&self, table: &str) -> Option<Vec<Tablet>> {
        let store = &self.state.components.store;
        let tablets = store.tablets(store.table(table)?).ok()?.into_iter();
        let tablet = |tablet: stele_engine::TabletInfo| Tablet {
            id: tablet.id.to_string(),
            state: tablet.state.to_string(),
            load: tablet.load,
            start: tablet.rows.start.to_vec(),
            end: tablet.rows.end.map(|end| end.to_vec()),
            disk_bytes: tablet.disk_bytes,
            groups: tablet
                .chains
                .into_iter()
                .map(|chain| Group {
                    name: chain.group,
                    runs: chain.runs,
                    files: chain.files,
                    disk_bytes: chain.disk_bytes,
                    damaged: chain.damaged,
                })
                .collect(),
        };
        Some(tablets.map(tablet).collect())
    }
}

/// Returns the calls that failed. Callers that cancel, and rows or keys that do not exist,
/// are no failures.
fn failed(method: &Method) -> u64 {
    use tonic::Code::{AlreadyExists, Cancelled, NotFound, Ok};
    let fine = [Ok, Cancelled, NotFound, AlreadyExists].map(|code| code as usize);
    let counted = method.codes.iter().enumerate().filter(|(code, _)| !fine.contains(code));
    counted.map(|(_, count)| count.load(Ordering::Relaxed)).sum()
}

fn buckets(method: &Method) -> [u64; BUCKETS] {
    std::array::from_fn(|at| method.buckets[at].load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_becomes_a_sentence() {
        assert_eq!(sentence("the disk is gone; retrying"), "The disk is gone; retrying.");
        assert_eq!(sentence(""), ".");
    }
}
