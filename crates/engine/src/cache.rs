//! The block cache: decompressed blocks, index partitions and filters of all
//! stores of a process, within one budget of bytes.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::fragment::block::Block;
use crate::fragment::filter::RowFilter;
use crate::fragment::index::IndexPart;

/// About how large a cached item is; sizes the cache's own tables.
const ITEM_BYTES: u64 = 16 << 10;
/// What the cache's tables and an allocation cost per item.
const ITEM_OVERHEAD_BYTES: u64 = 100;
/// Counters are spread so that threads do not fight over one cache line.
const COUNTERS: usize = 16;

/// A piece of a file, ready to use.
#[derive(Clone)]
pub(crate) enum Cached {
    Block(Arc<Block>),
    Index(Arc<IndexPart>),
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

/// Which piece of which file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    file: u64,
    offset: u64,
}

pub struct BlockCache {
    items: Cache<Place, Cached, ByBytes, BuildHasherDefault<PlaceHasher>>,
    counters: [Counter; COUNTERS],
    next_file: AtomicU64,
}

#[derive(Default)]
#[repr(align(64))]
struct Counter {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// How well the cache does, since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStats {
    pub hits: u64,
    pub misses: u64,
    /// Bytes held now.
    pub bytes: u64,
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
        Arc::new(BlockCache { items, counters: Default::default(), next_file: AtomicU64::new(1) })
    }

    /// An id that no other file of this cache has.
    pub fn next_file_id(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn get(&self, file: u64, offset: u64) -> Option<Cached> {
        let found = self.items.get(&Place { file, offset });
        let counter = &self.counters[(offset >> 12) as usize % COUNTERS];
        match found {
            Some(_) => counter.hits.fetch_add(1, Ordering::Relaxed),
            None => counter.misses.fetch_add(1, Ordering::Relaxed),
        };
        found
    }

    /// Looks without being noticed: neither counted nor taken for a use that
    /// would keep the item longer.
    pub(crate) fn peek(&self, file: u64, offset: u64) -> Option<Cached> {
        self.items.peek(&Place { file, offset })
    }

    pub(crate) fn insert(&self, file: u64, offset: u64, item: Cached) {
        self.items.insert(Place { file, offset }, item);
    }

    pub fn stats(&self) -> CacheStats {
        let sum = |field: fn(&Counter) -> &AtomicU64| {
            self.counters.iter().map(|counter| field(counter).load(Ordering::Relaxed)).sum()
        };
        CacheStats {
            hits: sum(|counter| &counter.hits),
            misses: sum(|counter| &counter.misses),
            bytes: self.items.weight(),
            capacity_bytes: self.items.capacity(),
        }
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Place, Cached> for ByBytes {
    fn weight(&self, _place: &Place, item: &Cached) -> u64 {
        item.bytes()
    }
}

/// Mixes two numbers nobody outside can choose, so it need not resist attack.
#[derive(Default)]
struct PlaceHasher {
    state: u64,
}

impl Hasher for PlaceHasher {
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
        Cached::Filter(Arc::new(RowFilter::open()))
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
}
