//! Numbers about a store, for people and programs.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Shared;
use crate::cache::CacheStats;
use crate::log::LogStats;
use crate::txn::Txn;

/// Counts since the store was opened.
#[derive(Default)]
pub struct Counters {
    pub flushes: AtomicU64,
    pub compactions: AtomicU64,
    pub compaction_parts: AtomicU64,
    /// Commits that had to wait for memory.
    pub throttled: AtomicU64,
    /// Commits that had to wait for shorter chains.
    pub throttled_by_chains: AtomicU64,
}

/// A look at a store.
#[derive(Clone, Debug)]
pub struct StoreStats {
    pub durable: Txn,
    pub latest: Txn,
    pub memory_used_bytes: usize,
    pub memory_limit_bytes: usize,
    pub log: LogStats,
    pub log_queued_bytes: u64,
    pub cache: CacheStats,
    pub flushes: u64,
    pub compactions: u64,
    /// Parts of compactions that were put in place, each with an output or none.
    pub compaction_parts: u64,
    /// Commits that had to wait for memory.
    pub throttled: u64,
    /// Commits that had to wait for shorter chains.
    pub throttled_by_chains: u64,
    /// Runs in the longest chain.
    pub chain_longest: usize,
    pub fragments: usize,
    pub fragment_bytes: u64,
}

impl Shared {
    pub fn stats(&self) -> StoreStats {
        let all = self.tables.all();
        let versions: Vec<_> = all.values().map(|table| table.version()).collect();
        let tablets = versions.iter().flat_map(|version| &version.tablets);
        let chains: Vec<_> = tablets.flat_map(|tablet| &tablet.chains).collect();
        let links = || chains.iter().flat_map(|chain| chain.links());
        StoreStats {
            durable: self.durable(),
            latest: self.latest(),
            memory_used_bytes: self.tables.budget.used(),
            memory_limit_bytes: self.tables.budget.limit(),
            log: self.log.stats(),
            log_queued_bytes: self.log.queued_bytes(),
            cache: self.tables.cache.stats(),
            flushes: self.counters.flushes.load(Ordering::Relaxed),
            compactions: self.counters.compactions.load(Ordering::Relaxed),
            compaction_parts: self.counters.compaction_parts.load(Ordering::Relaxed),
            throttled: self.counters.throttled.load(Ordering::Relaxed),
            throttled_by_chains: self.counters.throttled_by_chains.load(Ordering::Relaxed),
            chain_longest: chains.iter().map(|chain| chain.runs.len()).max().unwrap_or(0),
            fragments: links().count(),
            fragment_bytes: links().map(|link| link.file.bytes).sum(),
        }
    }
}
