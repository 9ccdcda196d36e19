//! Statistics of a store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::engine::Engine;
use crate::cache::CacheStats;
use crate::config::FileName;
use crate::log::LogStats;
use crate::tablet::Link;
use crate::txn::Txn;
use crate::world::Clock;

/// Counters since the store was opened.
#[derive(Default)]
pub struct Counters {
    pub flushes: AtomicU64,
    pub compactions: AtomicU64,
    pub compaction_parts: AtomicU64,
    pub joins: AtomicU64,
    pub tablet_splits: AtomicU64,
    pub tablet_joins: AtomicU64,
    /// The longest time for which writers were excluded to seal memory.
    pub seal_nanos_max: AtomicU64,
    pub for_memory: Delay,
    pub for_chains: Delay,
    pub for_log: Delay,
}

/// How many commits had to wait, and for how long in total.
#[derive(Default)]
pub struct Delay {
    commits: AtomicU64,
    micros: AtomicU64,
}

impl Delay {
    /// Counts a commit immediately, and its waiting time afterwards.
    pub fn measure<T>(&self, clock: &dyn Clock, wait: impl FnOnce() -> T) -> T {
        self.count();
        let begun = clock.elapsed();
        let waited = wait();
        self.add(clock.elapsed().saturating_sub(begun));
        waited
    }

    /// Counts a commit that starts to wait.
    pub fn count(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a commit's waiting time.
    pub fn add(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    fn micros(&self) -> u64 {
        self.micros.load(Ordering::Relaxed)
    }
}

/// A sample of a store's statistics.
#[derive(Clone, Debug)]
pub struct StoreStats {
    pub durable: Txn,
    pub latest: Txn,
    pub memory_used_bytes: usize,
    /// Peak usage by all stores that share the budget.
    pub memory_peak_bytes: usize,
    pub memory_limit_bytes: usize,
    pub log: LogStats,
    pub log_queued_bytes: u64,
    pub cache: CacheStats,
    pub flushes: u64,
    pub compactions: u64,
    /// Published parts of compactions, including those without an output.
    pub compaction_parts: u64,
    /// Compactions that joined runs without rewriting them.
    pub joins: u64,
    /// Tablets that were split, and pairs that were joined, by the store itself or by call.
    pub tablet_splits: u64,
    pub tablet_joins: u64,
    /// The longest time for which writers were excluded to seal memory.
    pub seal_longest: Duration,
    /// Commits that waited for memory, and their total waiting time.
    pub throttled: u64,
    pub throttled_micros: u64,
    /// Commits that waited for shorter chains, and their total waiting time.
    pub throttled_by_chains: u64,
    pub throttled_by_chains_micros: u64,
    /// Commits that waited for the log queue, and their total waiting time.
    pub throttled_by_log: u64,
    pub throttled_by_log_micros: u64,
    pub tablets: usize,
    /// Number of runs in the longest chain.
    pub chain_longest: usize,
    pub fragments: usize,
    /// Fragments that cannot be read because of damage or a failing disk.
    pub fragments_damaged: usize,
    pub fragment_bytes: u64,
}

impl Engine {
    pub fn stats(&self) -> StoreStats {
        let all = self.tables.map.all();
        let versions: Vec<_> = all.values().map(|table| table.version()).collect();
        let tablets = || versions.iter().flat_map(|version| version.tablets.iter());
        let links = || tablets().flat_map(|tablet| tablet.links());
        // Tablets share files.
        let distinct = |chosen: &dyn Fn(&Link) -> bool| -> BTreeMap<FileName, u64> {
            let chosen = links().filter(|link| chosen(link));
            chosen.map(|link| (link.file.name, link.file.bytes)).collect()
        };
        let (files, damaged) = (distinct(&|_| true), distinct(&|link| !link.is_readable()));
        StoreStats {
            durable: self.durable(),
            latest: self.latest(),
            memory_used_bytes: self.tables.resources.budget.used(),
            memory_peak_bytes: self.tables.resources.budget.peak(),
            memory_limit_bytes: self.tables.resources.budget.limit(),
            log: self.log.stats(),
            log_queued_bytes: self.log.queued_bytes(),
            cache: self.tables.resources.cache.stats(),
            flushes: self.counters.flushes.load(Ordering::Relaxed),
            compactions: self.counters.compactions.load(Ordering::Relaxed),
            compaction_parts: self.counters.compaction_parts.load(Ordering::Relaxed),
            joins: self.counters.joins.load(Ordering::Relaxed),
            tablet_splits: self.counters.tablet_splits.load(Ordering::Relaxed),
            tablet_joins: self.counters.tablet_joins.load(Ordering::Relaxed),
            seal_longest: Duration::from_nanos(
                self.counters.seal_nanos_max.load(Ordering::Relaxed),
            ),
            throttled: self.counters.for_memory.commits(),
            throttled_micros: self.counters.for_memory.micros(),
            throttled_by_chains: self.counters.for_chains.commits(),
            throttled_by_chains_micros: self.counters.for_chains.micros(),
            throttled_by_log: self.counters.for_log.commits(),
            throttled_by_log_micros: self.counters.for_log.micros(),
            tablets: versions.iter().map(|version| version.tablets.len()).sum(),
            chain_longest: all.values().map(|table| table.chain_longest()).max().unwrap_or(0),
            fragments: files.len(),
            fragments_damaged: damaged.len(),
            fragment_bytes: files.values().sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::ManualClock;

    #[test]
    fn a_delay_is_counted_when_it_starts_and_timed_when_it_ends() {
        let (clock, delay) = (ManualClock::at(0), Delay::default());
        for seconds in [2, 3] {
            delay.measure(&clock, || {
                clock.advance(Duration::from_secs(seconds));
                assert_eq!(delay.commits(), seconds - 1);
            });
        }
        assert_eq!((delay.commits(), delay.micros()), (2, 5_000_000));
    }
}
