//! The block cache: decompressed blocks, index partitions and filters of all
//! stores of a process, bounded by one budget of bytes.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::fragment::block::Block;
use crate::fragment::filter::RowFilter;
use crate::fragment::index::IndexPartition;

/// Typical size of a cached item; used to size the cache's own tables.
const ITEM_BYTES: u64 = 16 << 10;
/// Overhead per item of the cache's tables and the allocation.
const ITEM_OVERHEAD_BYTES: u64 = 100;
/// Open fragments may reserve at most this fraction of the budget.
const RESIDENT_SHARE_MAX: u64 = 2;
/// The capacity for items changes in steps of this fraction of the budget,
/// because changing it is expensive.
const RESIDENT_STEPS: u64 = 16;
/// A round ends when this fraction of the budget has been inserted.
const ROUNDS: u64 = 16;
/// Number of counter shards, to avoid contention on a single cache line.
const COUNTERS: usize = 16;

/// A decoded part of a file.
#[derive(Clone)]
pub(crate) enum Cached {
    Block(Arc<Block>),
    Index(Arc<IndexPartition>),
    Filter(Arc<RowFilter>),
}

impl Cached {
    fn bytes(&self) -> u64 {
        let bytes = match self {
            Cached::Block(block) => block.bytes(),
            Cached::Index(part) => part.bytes(),
            Cached::Filter(filter) => filter.bytes(),
        };
        bytes as u64 + ITEM_OVERHEAD_BYTES
    }
}

/// Identifies a part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct CacheKey {
    file: u64,
    offset: u64,
}

pub struct BlockCache {
    items: Cache<CacheKey, Cached, ByBytes, BuildHasherDefault<CacheKeyHasher>>,
    counters: [Counter; COUNTERS],
    next_file: AtomicU64,
    budget_bytes: u64,
    resident: Mutex<Resident>,
    inserted_bytes: AtomicU64,
    round: AtomicU32,
}

/// Memory that open fragments hold outside the cached items.
#[derive(Default)]
struct Resident {
    bytes: u64,
    /// Steps of the budget by which the capacity for items is reduced.
    steps: u64,
}

/// Bytes of the budget reserved by an open fragment; returned on drop.
pub(crate) struct CacheReservation {
    cache: Arc<BlockCache>,
    bytes: u64,
}

impl CacheReservation {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for CacheReservation {
    fn drop(&mut self) {
        let mut resident = self.cache.resident.lock();
        resident.bytes -= self.bytes;
        self.cache.adjust_capacity(&mut resident);
    }
}

/// The round in which a cached part was last used.
pub(crate) struct LastUse(AtomicU32);

impl Default for LastUse {
    fn default() -> LastUse {
        LastUse(AtomicU32::new(u32::MAX))
    }
}

#[derive(Default)]
#[repr(align(64))]
struct Counter {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Cache statistics since its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStats {
    pub hits: u64,
    pub misses: u64,
    /// Total bytes held now.
    pub bytes: u64,
    /// Bytes of indexes and filters held by open fragments for as long as they
    /// are open; included in `bytes`.
    pub resident_bytes: u64,
    pub capacity_bytes: u64,
}

impl BlockCache {
    pub fn new(bytes: u64) -> Arc<BlockCache> {
        let items = usize::try_from(bytes / ITEM_BYTES).unwrap_or(usize::MAX).max(16);
        let items = Cache::with(
            items,
            bytes,
            ByBytes,
            BuildHasherDefault::default(),
            DefaultLifecycle::default(),
        );
        Arc::new(BlockCache {
            items,
            counters: Default::default(),
            next_file: AtomicU64::new(1),
            budget_bytes: bytes,
            resident: Mutex::default(),
            inserted_bytes: AtomicU64::new(0),
            round: AtomicU32::new(0),
        })
    }

    pub fn capacity_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Reserves bytes of the budget for memory held elsewhere; `None` if too
    /// much is reserved already.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Option<CacheReservation> {
        let bytes = bytes as u64;
        let mut resident = self.resident.lock();
        if resident.bytes + bytes > self.budget_bytes / RESIDENT_SHARE_MAX {
            return None;
        }
        resident.bytes += bytes;
        self.adjust_capacity(&mut resident);
        Some(CacheReservation { cache: self.clone(), bytes })
    }

    /// Adjusts the capacity for items to the resident bytes. It is raised with
    /// hysteresis, so that files that come and go do not change it back and
    /// forth.
    fn adjust_capacity(&self, resident: &mut Resident) {
        let step = self.budget_bytes.div_ceil(RESIDENT_STEPS).max(1);
        let needed = resident.bytes.div_ceil(step);
        if needed > resident.steps || needed + 1 < resident.steps {
            resident.steps = needed;
            self.items.set_capacity(self.budget_bytes.saturating_sub(needed * step));
        }
    }

    /// Returns a file id that is unique in this cache.
    pub fn next_file_id(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn get(&self, file: u64, offset: u64) -> Option<Cached> {
        let found = self.items.get(&CacheKey { file, offset });
        let counter = self.counter(offset);
        match found {
            Some(_) => counter.hits.fetch_add(1, Ordering::Relaxed),
            None => counter.misses.fetch_add(1, Ordering::Relaxed),
        };
        found
    }

    /// Looks up an item without counting a hit or a miss and without refreshing
    /// it.
    pub(crate) fn peek(&self, file: u64, offset: u64) -> Option<Cached> {
        self.items.peek(&CacheKey { file, offset })
    }

    /// Records a hit by a reader that has the item already. The item is
    /// refreshed once per round; otherwise the cache would consider it unused.
    #[inline]
    pub(crate) fn note_use(&self, file: u64, offset: u64, last: &LastUse) {
        self.counter(offset).hits.fetch_add(1, Ordering::Relaxed);
        let round = self.round.load(Ordering::Relaxed);
        if last.0.load(Ordering::Relaxed) != round {
            last.0.store(round, Ordering::Relaxed);
            self.items.get(&CacheKey { file, offset });
        }
    }

    #[inline]
    fn counter(&self, offset: u64) -> &Counter {
        &self.counters[(offset >> 12) as usize % COUNTERS]
    }

    pub(crate) fn insert(&self, file: u64, offset: u64, item: Cached) {
        let bytes = item.bytes();
        let put = self.inserted_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let round = put / (self.budget_bytes / ROUNDS).max(1);
        // `u32::MAX` marks items never used, so it must not be a round.
        self.round.store((round % u64::from(u32::MAX)) as u32, Ordering::Relaxed);
        self.items.insert(CacheKey { file, offset }, item);
    }

    pub(crate) fn remove(&self, file: u64, offset: u64) {
        self.items.remove(&CacheKey { file, offset });
    }

    pub fn stats(&self) -> CacheStats {
        let sum = |field: fn(&Counter) -> &AtomicU64| {
            self.counters.iter().map(|counter| field(counter).load(Ordering::Relaxed)).sum()
        };
        let resident_bytes = self.resident.lock().bytes;
        CacheStats {
            hits: sum(|counter| &counter.hits),
            misses: sum(|counter| &counter.misses),
            bytes: self.items.weight() + resident_bytes,
            resident_bytes,
            capacity_bytes: self.budget_bytes,
        }
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<CacheKey, Cached> for ByBytes {
    fn weight(&self, _key: &CacheKey, item: &Cached) -> u64 {
        item.bytes()
    }
}

/// Mixes two numbers that no client controls, so it need not resist attacks.
#[derive(Default)]
struct CacheKeyHasher {
    state: u64,
}

impl Hasher for CacheKeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let mixed = (self.state ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.state = mixed ^ (mixed >> 32);
    }

    #[inline]
    fn finish(&self) -> u64 {
        let mixed = self.state.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        mixed ^ (mixed >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter() -> Cached {
        Cached::Filter(Arc::new(RowFilter::accept_all()))
    }

    #[test]
    fn what_was_put_in_is_found_and_counted() {
        let cache = BlockCache::new(1 << 20);
        let (a, b) = (cache.next_file_id(), cache.next_file_id());
        assert_ne!(a, b);
        cache.insert(a, 0, filter());
        assert!(cache.get(a, 0).is_some());
        assert!(cache.get(b, 0).is_none());
        assert!(cache.get(a, 1).is_none());
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses), (1, 2));
        assert_eq!(stats.bytes, filter().bytes());
    }

    #[test]
    fn the_budget_of_bytes_holds() {
        let cache = BlockCache::new(10_000);
        for offset in 0..10_000 {
            cache.insert(1, offset << 14, filter());
        }
        let stats = cache.stats();
        assert!(stats.bytes > 0 && stats.bytes <= 10_000, "{stats:?}");
    }

    #[test]
    fn memory_of_open_fragments_is_taken_from_the_capacity_of_blocks() {
        let cache = BlockCache::new(100_000);
        let fill = || (0..10_000).for_each(|offset| cache.insert(1, offset << 14, filter()));
        fill();
        let alone = cache.stats();
        let kept = cache.reserve(40_000).unwrap();
        fill();
        let beside = cache.stats();
        assert_eq!((alone.resident_bytes, beside.resident_bytes), (0, 40_000));
        assert!(alone.bytes > 90_000 && alone.bytes <= 100_000, "{alone:?}");
        assert!(beside.bytes > 85_000 && beside.bytes <= 100_000, "{beside:?}");
        drop(kept);
        fill();
        assert_eq!(cache.stats().resident_bytes, 0);
        assert!(cache.stats().bytes > 90_000, "{:?}", cache.stats());
    }

    #[test]
    fn open_fragments_leave_blocks_half_of_the_budget() {
        let cache = BlockCache::new(100_000);
        let kept: Vec<CacheReservation> = (0..20).filter_map(|_| cache.reserve(9_000)).collect();
        assert_eq!(kept.len(), 5);
        assert_eq!(cache.stats().resident_bytes, 45_000);
        assert!(cache.reserve(5_000).is_some());
        drop(kept);
        assert!(cache.reserve(50_000).is_some() && cache.reserve(50_001).is_none());
        assert!(BlockCache::new(0).reserve(1).is_none());
    }

    #[test]
    fn entries_that_are_used_outlive_those_that_are_not() {
        let cache = BlockCache::new(100_000);
        let fill = |file| (0..1_000).for_each(|offset| cache.insert(file, offset << 14, filter()));
        fill(1);
        cache.insert(2, 0, filter());
        cache.note_use(2, 0, &LastUse::default());
        cache.insert(3, 0, filter());
        fill(4);
        assert!(cache.get(2, 0).is_some());
        assert!(cache.get(3, 0).is_none());
    }
}
