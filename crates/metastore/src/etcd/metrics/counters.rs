//! The counters of the API.

use std::sync::atomic::{AtomicI64, Ordering};

use super::calls::Calls;

/// A number that tasks count up and down.
#[derive(Default)]
pub struct Count(AtomicI64);

impl Count {
    pub fn add(&self, number: i64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    pub fn get(&self) -> i64 {
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
