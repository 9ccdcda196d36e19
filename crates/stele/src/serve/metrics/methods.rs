//! Counters of the gRPC methods. A method gets its slot when it is first answered;
//! finding the slot takes one hash and no lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tonic::Code;
use xxhash_rust::xxh3::xxh3_64;

/// The number of slots in the table. At most half are used, so probing is short.
const SLOTS: usize = 512;
const METHODS_MAX: usize = SLOTS / 2;

/// Latency buckets are powers of two, from 2^5 us to 2^24 us (16.8 s).
const FIRST_POWER: u32 = 5;
pub const BUCKETS: usize = 20;
pub const CODES: usize = 17;

/// All methods that were ever called.
pub struct Methods {
    slots: Box<[OnceLock<Method>]>,
    used: AtomicUsize,
    /// Calls of methods that this server does not have.
    other: Method,
}

/// The counters of one method.
pub struct Method {
    pub path: Box<str>,
    pub codes: [AtomicU64; CODES],
    pub buckets: [AtomicU64; BUCKETS + 1],
    pub nanos: AtomicU64,
    pub received_bytes: AtomicU64,
    pub sent_bytes: AtomicU64,
}

impl Default for Methods {
    fn default() -> Methods {
        Methods {
            slots: (0..SLOTS).map(|_| OnceLock::new()).collect(),
            used: AtomicUsize::new(0),
            other: Method::new("other"),
        }
    }
}

impl Methods {
    /// Returns the counters of a method that was called before.
    pub fn find(&self, path: &str) -> Option<&Method> {
        let mut at = slot(path);
        loop {
            let method = self.slots[at].get()?;
            if *method.path == *path {
                return Some(method);
            }
            at = (at + 1) % SLOTS;
        }
    }

    /// Returns the counters of a method, adding it if the table has a free slot.
    pub fn find_or_add(&self, path: &str) -> &Method {
        if let Some(method) = self.find(path) {
            return method;
        }
        // Counted before a slot is claimed, so that some slots always stay free.
        if self.used.fetch_add(1, Ordering::Relaxed) >= METHODS_MAX {
            self.used.fetch_sub(1, Ordering::Relaxed);
            return &self.other;
        }
        let mut at = slot(path);
        loop {
            let method = self.slots[at].get_or_init(|| Method::new(path));
            if *method.path == *path {
                return method;
            }
            at = (at + 1) % SLOTS;
        }
    }

    pub fn other(&self) -> &Method {
        &self.other
    }

    /// Returns all methods by path, then the counters of unknown ones.
    pub fn all(&self) -> Vec<&Method> {
        let mut all: Vec<_> = self.slots.iter().filter_map(OnceLock::get).collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all.push(&self.other);
        all
    }
}

fn slot(path: &str) -> usize {
    xxh3_64(path.as_bytes()) as usize % SLOTS
}

impl Method {
    fn new(path: &str) -> Method {
        Method {
            path: path.into(),
            codes: Default::default(),
            buckets: Default::default(),
            nanos: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
        }
    }

    /// Records the end of a call.
    pub fn ended(&self, code: Code, took: Duration, received: u64, sent: u64) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.codes[(code as usize).min(CODES - 1)].fetch_add(1, Ordering::Relaxed);
        self.buckets[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.received_bytes.fetch_add(received, Ordering::Relaxed);
        self.sent_bytes.fetch_add(sent, Ordering::Relaxed);
    }

    pub fn calls(&self) -> u64 {
        self.codes.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Returns the first bucket whose bound is at least the time.
fn bucket(nanos: u64) -> usize {
    let micros = nanos.div_ceil(1000).max(1);
    let power = micros.next_power_of_two().trailing_zeros();
    (power.saturating_sub(FIRST_POWER) as usize).min(BUCKETS)
}

/// Returns the upper bound of a bucket, in seconds.
pub fn bucket_seconds(bucket: usize) -> f64 {
    (1u64 << (FIRST_POWER as usize + bucket)) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_keeps_its_place_and_there_is_a_limit() {
        let methods = Methods::default();
        assert!(methods.find("/a/B").is_none());
        let first: *const Method = methods.find_or_add("/a/B");
        for number in 0..2 * METHODS_MAX {
            methods.find_or_add(&format!("/a/{number}"));
        }
        assert!(std::ptr::eq(first, methods.find("/a/B").unwrap()));
        assert_eq!(methods.all().len(), METHODS_MAX + 1);
        assert_eq!(&*methods.find_or_add("/a/one more").path, "other");
    }

    #[test]
    fn a_time_falls_into_the_first_bucket_that_holds_it() {
        for (nanos, expected) in [
            (0, 0),
            (32_000, 0),
            (32_001, 1),
            (64_000, 1),
            (1_000_000_000, 15),
            (u64::MAX / 2, BUCKETS),
        ] {
            let bucket = bucket(nanos);
            assert_eq!(bucket, expected, "{nanos}");
            if bucket < BUCKETS {
                assert!(nanos as f64 / 1e9 <= bucket_seconds(bucket));
            }
            if bucket > 0 {
                assert!(nanos as f64 / 1e9 > bucket_seconds(bucket - 1));
            }
        }
    }
}
