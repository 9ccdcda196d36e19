//! Metrics of a store: plain counters that a page prints when it is requested.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use stele_metrics::{Kind, Text};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Get,
    Put,
    /// Starts a multipart upload.
    Begin,
    Part,
    Complete,
    Abort,
    Delete,
    List,
}

impl Request {
    pub const ALL: [Request; 8] = [
        Request::Get,
        Request::Put,
        Request::Begin,
        Request::Part,
        Request::Complete,
        Request::Abort,
        Request::Delete,
        Request::List,
    ];

    /// Returns the name in metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Request::Get => "get",
            Request::Put => "put",
            Request::Begin => "begin_upload",
            Request::Part => "put_part",
            Request::Complete => "complete_upload",
            Request::Abort => "abort_upload",
            Request::Delete => "delete",
            Request::List => "list",
        }
    }
}

/// How an attempt of a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    /// Failed, and is tried again.
    Retry,
    /// Failed for good.
    Error,
}

impl Outcome {
    pub const ALL: [Outcome; 3] = [Outcome::Ok, Outcome::Retry, Outcome::Error];

    fn name(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Retry => "retry",
            Outcome::Error => "error",
        }
    }
}

/// Upper bounds of the latency histogram, in milliseconds.
const LATENCY_MS: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 30_000];

/// Latencies of fetches.
#[derive(Debug, Default)]
pub struct Latency {
    /// The last one counts what is above all bounds.
    buckets: [AtomicU64; LATENCY_MS.len() + 1],
    micros: AtomicU64,
}

impl Latency {
    pub fn record(&self, took: Duration) {
        let bucket = LATENCY_MS.partition_point(|bound| Duration::from_millis(*bound) < took);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    fn write(&self, text: &mut Text, name: &str) {
        let mut below = 0;
        let mut cumulative = [0; LATENCY_MS.len() + 1];
        for (sum, bucket) in cumulative.iter_mut().zip(&self.buckets) {
            below += bucket.load(Relaxed);
            *sum = below;
        }
        let bounds = LATENCY_MS.iter().map(|bound| *bound as f64 / 1e3).zip(cumulative);
        text.histogram(name, &[], bounds, self.micros.load(Relaxed) as f64 / 1e6, below);
    }
}

/// The counters of one store.
#[derive(Debug, Default)]
pub struct Counters {
    requests: [[AtomicU64; Outcome::ALL.len()]; Request::ALL.len()],
    pub sent_bytes: AtomicU64,
    pub received_bytes: AtomicU64,
    pub cache_hits: AtomicU64,
    pub cache_misses: AtomicU64,
    pub cache_evictions: AtomicU64,
    /// Slots whose contents were damaged, and were dropped.
    pub cache_damaged: AtomicU64,
    pub cache_used_bytes: AtomicU64,
    pub cache_limit_bytes: AtomicU64,
    pub prefetches: AtomicU64,
    /// Prefetches that were not started because too many were under way.
    pub prefetches_skipped: AtomicU64,
    pub fetches: Latency,
}

impl Counters {
    pub fn count(&self, request: Request, outcome: Outcome) {
        self.requests[request as usize][outcome as usize].fetch_add(1, Relaxed);
    }

    /// Returns the number of attempts of a request with an outcome.
    pub fn requests(&self, request: Request, outcome: Outcome) -> u64 {
        self.requests[request as usize][outcome as usize].load(Relaxed)
    }

    /// Writes all metrics.
    pub fn write(&self, text: &mut Text) {
        let name = "stele_objects_requests_total";
        text.head(name, Kind::Counter, "Attempts of requests to the object store by outcome.");
        for request in Request::ALL {
            for outcome in Outcome::ALL {
                let labels = [("request", request.name()), ("outcome", outcome.name())];
                text.sample(name, &labels, self.requests(request, outcome));
            }
        }
        let name = "stele_objects_fetch_seconds";
        text.head(name, Kind::Histogram, "Duration of fetches from the object store.");
        self.fetches.write(text, name);
        for (name, help, value) in [
            ("sent_bytes_total", "Bytes of files sent to the object store.", &self.sent_bytes),
            (
                "received_bytes_total",
                "Bytes of files received from the object store.",
                &self.received_bytes,
            ),
            ("cache_hits_total", "Reads of files that the disk cache served.", &self.cache_hits),
            (
                "cache_misses_total",
                "Reads of files that had to wait for the object store.",
                &self.cache_misses,
            ),
            ("cache_evictions_total", "Parts evicted from the disk cache.", &self.cache_evictions),
            (
                "cache_damaged_total",
                "Damaged parts dropped from the disk cache.",
                &self.cache_damaged,
            ),
            ("prefetches_total", "Parts fetched ahead of a read.", &self.prefetches),
            (
                "prefetches_skipped_total",
                "Prefetches not started for lack of memory.",
                &self.prefetches_skipped,
            ),
        ] {
            text.counter(&format!("stele_objects_{name}"), help, value.load(Relaxed));
        }
        for (name, help, value) in [
            ("cache_used_bytes", "Bytes of files in the disk cache.", &self.cache_used_bytes),
            ("cache_limit_bytes", "Size limit of the disk cache.", &self.cache_limit_bytes),
        ] {
            text.gauge(&format!("stele_objects_{name}"), help, value.load(Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_has_its_own_counters() {
        let counters = Counters::default();
        for (index, request) in Request::ALL.into_iter().enumerate() {
            assert_eq!(request as usize, index);
            counters.count(request, Outcome::Ok);
            assert_eq!(counters.requests(request, Outcome::Ok), 1);
            assert_eq!(counters.requests(request, Outcome::Error), 0);
        }
    }

    #[test]
    fn the_page_has_all_metrics() {
        let counters = Counters::default();
        counters.count(Request::Get, Outcome::Retry);
        counters.fetches.record(Duration::from_millis(3));
        counters.fetches.record(Duration::from_secs(60));
        let mut text = Text::default();
        counters.write(&mut text);
        let page = text.into_string();
        for line in [
            "stele_objects_requests_total{request=\"get\",outcome=\"retry\"} 1",
            "stele_objects_fetch_seconds_bucket{le=\"0.002\"} 0",
            "stele_objects_fetch_seconds_bucket{le=\"0.005\"} 1",
            "stele_objects_fetch_seconds_bucket{le=\"30\"} 1",
            "stele_objects_fetch_seconds_bucket{le=\"+Inf\"} 2",
            "stele_objects_fetch_seconds_sum 60.003",
            "stele_objects_cache_hits_total 0",
        ] {
            assert!(page.lines().any(|shown| shown == line), "{line} is not in\n{page}");
        }
    }
}
