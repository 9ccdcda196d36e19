//! Blocks that stay in memory, for the files of in-memory groups. They are charged to the
//! budget of the cache as reserved bytes. A file for which there is no space is read
//! through the cache like any other.

use std::sync::Arc;

use crate::cache::CacheReservation;
use crate::error::Result;
use crate::fragment::block::Block;
use crate::fragment::index::IndexPartition;
use crate::fragment::reader::Fragment;
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{ArcSwapOption, Mutex};

/// Bytes charged for a block beyond its contents.
const BLOCK_OVERHEAD_BYTES: usize = 256;

/// Whether and how the blocks of a file stay in memory.
#[derive(Default)]
pub struct Keeping {
    state: AtomicU8,
    /// Held while blocks are read, so that they are read once.
    reading: Mutex<()>,
    kept: ArcSwapOption<KeptBlocks>,
}

/// Nobody asked for it.
const NOT_KEPT: u8 = 0;
/// The blocks are kept, or there was no space, or they cannot all be read.
const DECIDED: u8 = 1;

/// All blocks of a file. The slots of the index point to them.
struct KeptBlocks {
    partitions: Vec<Arc<IndexPartition>>,
    _blocks: Vec<Arc<Block>>,
    _reserved: CacheReservation,
}

impl Fragment {
    /// Keeps all blocks in memory from now on if there is space for them. Reads them all
    /// when it is first called; a failure is left to the reader of the block.
    #[inline]
    pub fn keep_blocks(&self) {
        if self.keeping.state.load(Ordering::Acquire) == NOT_KEPT {
            self.read_kept_blocks();
        }
    }

    /// Leaves the blocks to the cache again.
    pub fn release_blocks(&self) {
        let _reading = self.keeping.reading.lock();
        self.keeping.state.store(NOT_KEPT, Ordering::Release);
        self.keeping.kept.store(None);
    }

    /// Whether all blocks stay in memory.
    pub fn keeps_blocks(&self) -> bool {
        self.keeping.kept.load().is_some()
    }

    #[cold]
    fn read_kept_blocks(&self) {
        let _reading = self.keeping.reading.lock();
        if self.keeping.state.load(Ordering::Acquire) != NOT_KEPT {
            return;
        }
        match self.kept_blocks() {
            Ok(Some(kept)) => self.keeping.kept.store(Some(Arc::new(kept))),
            Ok(None) => {
                let path = self.path().display();
                tracing::debug!(%path, "no space to keep the blocks of an in-memory group");
            }
            Err(error) => tracing::warn!(%error, "the blocks of an in-memory group are not kept"),
        }
        self.keeping.state.store(DECIDED, Ordering::Release);
    }

    /// Reads all blocks; `None` if there is no space for them.
    fn kept_blocks(&self) -> Result<Option<KeptBlocks>> {
        let mut partitions = Vec::with_capacity(self.partition_count());
        for number in 0..self.partition_count() {
            partitions.push(self.peek_partition(number)?);
        }
        let handles = partitions.iter().flat_map(|partition| &partition.handles);
        let bytes: usize =
            handles.map(|handle| handle.raw_len as usize + BLOCK_OVERHEAD_BYTES).sum();
        let index_bytes: usize = partitions.iter().map(|partition| partition.bytes()).sum();
        let Some(reserved) = self.cache.reserve(bytes + index_bytes) else { return Ok(None) };
        let mut blocks = Vec::new();
        for partition in &partitions {
            for (number, handle) in partition.handles.iter().enumerate() {
                let mut block = self.read_block(handle)?;
                block.attach_to_slot(partition, number);
                let block = Arc::new(block);
                partition.slots[number].fill(&block);
                // It is charged as a part of the reservation.
                self.cache.remove(self.id, handle.offset);
                blocks.push(block);
            }
        }
        Ok(Some(KeptBlocks { partitions, _blocks: blocks, _reserved: reserved }))
    }

    /// Returns a partition of the index whose blocks are kept.
    #[inline]
    pub(super) fn kept_partition(&self, number: usize) -> Option<Arc<IndexPartition>> {
        let kept = self.keeping.kept.load();
        let kept = kept.as_ref()?;
        kept.partitions.get(number).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::BlockCache;
    use crate::fragment::CursorOptions;
    use crate::fragment::testing::fragment_of;
    use crate::merge::Cursor;

    fn walk(fragment: &Arc<Fragment>) -> usize {
        let mut cursor = fragment.cursor(&CursorOptions::default());
        let mut entries = 0;
        cursor.seek(b"").unwrap();
        while cursor.valid() {
            entries += 1;
            cursor.next().unwrap();
        }
        entries
    }

    #[test]
    fn tablets_1_9_9_kept_blocks_are_charged_and_outlive_any_use_of_the_cache() {
        let cache = BlockCache::new(1 << 20);
        let (kept, other) = (fragment_of(500, &cache), fragment_of(20_000, &cache));
        let before = cache.stats().resident_bytes;
        kept.keep_blocks();
        assert!(kept.keeps_blocks());
        assert!(cache.stats().resident_bytes > before + 500 * BLOCK_OVERHEAD_BYTES as u64);
        walk(&other);
        let misses = cache.stats().misses;
        assert_eq!(walk(&kept), 500);
        assert_eq!(cache.stats().misses, misses);
        assert!(cache.stats().bytes <= 1 << 20, "{:?}", cache.stats());
        kept.release_blocks();
        assert_eq!(cache.stats().resident_bytes, before);
        assert_eq!(walk(&kept), 500);
        assert!(cache.stats().misses > misses);
    }

    #[test]
    fn tablets_1_9_9_a_file_without_space_is_read_through_the_cache() {
        let cache = BlockCache::new(100_000);
        let fragment = fragment_of(500, &cache);
        fragment.keep_blocks();
        assert!(!fragment.keeps_blocks());
        assert_eq!(walk(&fragment), 500);
        assert!(cache.stats().bytes <= 100_000);
    }
}
