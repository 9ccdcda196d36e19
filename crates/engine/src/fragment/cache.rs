//! The block cache: decompressed blocks, index partitions and filters of all
//! stores of a process, bounded by one budget of bytes.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, Weighter};

use crate::fragment::block::Block;
use crate::fragment::filter::RowFilter;
use crate::fragment::index::IndexPartition;
use crate::fragment::parts::SlotRef;

/// Typical size of a cached item; used to size the cache's own tables.
const ITEM_BYTES: u64 = 16 << 10;
/// Overhead per item of the cache's tables and the allocation.
const ITEM_OVERHEAD_BYTES: u64 = 100;
/// Open fragments may reserve at most this fraction of the budget.
const RESERVED_SHARE_MAX: u64 = 2;
/// The capacity for items changes in steps of this fraction of the budget,
/// because changing it is expensive.
const RESERVED_STEPS: u64 = 16;
/// A round ends when this fraction of the budget has been inserted.
const ROUNDS: u64 = 16;
/// Number of counter shards, to avoid contention on a single cache line.
const COUNTERS: usize = 16;

/// A decoded part of a file.
#[derive(Clone)]
pub(crate) enum Cached {
    Block(Arc<Block>),
    Index(Arc<IndexPartition>, SlotRef),
    Filter(Arc<RowFilter>, SlotRef),
}

impl Cached {
    fn bytes(&self) -> u64 {
        let bytes = match self {
            Cached::Block(block) => block.bytes(),
            Cached::Index(partition, _) => partition.bytes(),
            Cached::Filter(filter, _) => filter.bytes(),
        };
        bytes as u64 + ITEM_OVERHEAD_BYTES
    }

    fn is_part(&self) -> bool {
        !matches!(self, Cached::Block(_))
    }

    /// Clears the pointer of the fragment to this part.
    fn clear_slot(&self) {
        match self {
            Cached::Block(_) => {}
            Cached::Index(partition, slot) => slot.clear_partition(partition),
            Cached::Filter(filter, slot) => slot.clear_filter(filter),
        }
    }
}

/// Identifies a part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct CacheKey {
    file: u64,
    offset: u64,
}

pub struct BlockCache {
    items: Cache<CacheKey, Cached, ByBytes, BuildHasherDefault<CacheKeyHasher>, Eviction>,
    counters: [Counter; COUNTERS],
    next_file: AtomicU64,
    budget_bytes: u64,
    /// Bytes of index partitions and filters.
    part_bytes: Arc<AtomicU64>,
    reserved: Mutex<Reserved>,
    inserted_bytes: AtomicU64,
    round: AtomicU32,
}

/// Memory that open fragments hold outside the cached items.
#[derive(Default)]
struct Reserved {
    bytes: u64,
    /// Steps of the budget by which the capacity for items is reduced.
    steps: u64,
}

/// Bytes of the budget reserved by an open fragment; returned on drop.
pub(crate) struct CacheReservation {
    cache: Arc<BlockCache>,
    bytes: u64,
}

impl Drop for CacheReservation {
    fn drop(&mut self) {
        let mut reserved = self.cache.reserved.lock();
        reserved.bytes -= self.bytes;
        self.cache.adjust_capacity(&mut reserved);
    }
}

/// Removes evicted parts from the slots of their fragments.
#[derive(Clone)]
struct Eviction {
    part_bytes: Arc<AtomicU64>,
}

/// The items evicted by one insertion. They are released after the lock of the cache.
#[derive(Default)]
struct Evicted {
    /// Usually there are one or two.
    first: [Option<Cached>; 2],
    rest: Vec<Cached>,
}

impl Lifecycle<CacheKey, Cached> for Eviction {
    type RequestState = Evicted;

    fn on_evict(&self, evicted: &mut Evicted, _key: CacheKey, item: Cached) {
        if item.is_part() {
            self.part_bytes.fetch_sub(item.bytes(), Ordering::Relaxed);
        }
        match evicted.first.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(item),
            None => evicted.rest.push(item),
        }
    }
}

impl Drop for Evicted {
    fn drop(&mut self) {
        self.first.iter().flatten().chain(&self.rest).for_each(Cached::clear_slot);
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
    /// Bytes of index partitions and row filters; included in `bytes`.
    pub resident_bytes: u64,
    pub capacity_bytes: u64,
}

impl BlockCache {
    pub fn new(bytes: u64) -> Arc<BlockCache> {
        let items = usize::try_from(bytes / ITEM_BYTES).unwrap_or(usize::MAX).max(16);
        let part_bytes: Arc<AtomicU64> = Arc::default();
        let eviction = Eviction { part_bytes: part_bytes.clone() };
        let items = Cache::with(items, bytes, ByBytes, BuildHasherDefault::default(), eviction);
        Arc::new(BlockCache {
            items,
            counters: Default::default(),
            next_file: AtomicU64::new(1),
            budget_bytes: bytes,
            part_bytes,
            reserved: Mutex::default(),
            inserted_bytes: AtomicU64::new(0),
            round: AtomicU32::new(0),
        })
    }

    pub fn capacity_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Reserves bytes of the budget for parts held elsewhere; `None` if too much is
    /// reserved already.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Option<CacheReservation> {
        let bytes = bytes as u64;
        let mut reserved = self.reserved.lock();
        if reserved.bytes + bytes > self.budget_bytes / RESERVED_SHARE_MAX {
            return None;
        }
        reserved.bytes += bytes;
        self.adjust_capacity(&mut reserved);
        Some(CacheReservation { cache: self.clone(), bytes })
    }

    /// Adjusts the capacity for items to the reserved bytes. It is raised with
    /// hysteresis, so that files that come and go do not change it back and
    /// forth.
    fn adjust_capacity(&self, reserved: &mut Reserved) {
        let step = self.budget_bytes.div_ceil(RESERVED_STEPS).max(1);
        let needed = reserved.bytes.div_ceil(step);
        if needed > reserved.steps || needed + 1 < reserved.steps {
            reserved.steps = needed;
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
        self.refresh(file, offset, last);
    }

    /// Like `note_use`, but counts nothing.
    #[inline]
    pub(crate) fn refresh(&self, file: u64, offset: u64, last: &LastUse) {
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
        if item.is_part() {
            self.part_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        let put = self.inserted_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let round = put / (self.budget_bytes / ROUNDS).max(1);
        // `u32::MAX` marks items never used, so it must not be a round.
        self.round.store((round % u64::from(u32::MAX)) as u32, Ordering::Relaxed);
        self.items.insert(CacheKey { file, offset }, item);
    }

    pub(crate) fn remove(&self, file: u64, offset: u64) {
        if let Some((_, item)) = self.items.remove(&CacheKey { file, offset })
            && item.is_part()
        {
            self.part_bytes.fetch_sub(item.bytes(), Ordering::Relaxed);
            item.clear_slot();
        }
    }

    pub fn stats(&self) -> CacheStats {
        let sum = |field: fn(&Counter) -> &AtomicU64| {
            self.counters.iter().map(|counter| field(counter).load(Ordering::Relaxed)).sum()
        };
        let reserved = self.reserved.lock().bytes;
        CacheStats {
            hits: sum(|counter| &counter.hits),
            misses: sum(|counter| &counter.misses),
            bytes: self.items.weight() + reserved,
            resident_bytes: self.part_bytes.load(Ordering::Relaxed) + reserved,
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
    use crate::fragment::parts::Parts;

    fn filter() -> Cached {
        let slot = SlotRef::new(&Parts::new(0, 1), 0);
        Cached::Filter(Arc::new(RowFilter::accept_all()), slot)
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
    fn reserved_bytes_are_taken_from_the_capacity_of_items() {
        let cache = BlockCache::new(100_000);
        let fill = || (0..10_000).for_each(|offset| cache.insert(1, offset << 14, filter()));
        fill();
        assert!(cache.stats().bytes > 90_000 && cache.stats().bytes <= 100_000);
        let reserved: Vec<_> = (0..20).filter_map(|_| cache.reserve(9_000)).collect();
        assert_eq!(reserved.len(), 5, "half of the budget is left for items");
        fill();
        let beside = cache.stats();
        assert!(beside.bytes > 85_000 && beside.bytes <= 100_000, "{beside:?}");
        drop(reserved);
        fill();
        assert!(cache.stats().bytes > 90_000, "{:?}", cache.stats());
        assert!(cache.reserve(50_001).is_none() && BlockCache::new(0).reserve(1).is_none());
    }

    #[test]
    fn scale_2_13_an_evicted_filter_leaves_the_slot_of_its_file() {
        let cache = BlockCache::new(10_000);
        let fill = |file| {
            (1..1_000).for_each(|offset| cache.insert(file, offset << 14, self::filter()));
        };
        fill(2);
        let parts = Parts::new(0, 1);
        let filter = Arc::new(RowFilter::accept_all());
        parts.filters[0].store(Some(filter.clone()));
        cache.insert(1, 0, Cached::Filter(filter, SlotRef::new(&parts, 0)));
        assert!(cache.peek(1, 0).is_some() && parts.filters[0].load().is_some());
        fill(3);
        assert!(cache.peek(1, 0).is_none() && parts.filters[0].load().is_none());
        let stats = cache.stats();
        assert_eq!(stats.resident_bytes, stats.bytes);
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
