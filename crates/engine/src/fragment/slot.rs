//! Slots: a weak pointer per block of an index, valid while the block is in memory, so
//! that most reads bypass the cache. Only the cache determines how long a block stays:
//! a slot does not keep it alive.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::fragment::block::Block;
use crate::fragment::index::IndexPartition;

/// A weak pointer to a block.
#[derive(Default)]
pub struct Slot(Mutex<Weak<Block>>);

impl Slot {
    /// Returns the block if it is in memory. Never waits: a caller that finds the slot
    /// locked uses the cache.
    #[inline]
    pub fn block(&self) -> Option<Arc<Block>> {
        self.0.try_lock()?.upgrade()
    }

    pub fn fill(&self, block: &Arc<Block>) {
        if let Some(mut slot) = self.0.try_lock() {
            *slot = Arc::downgrade(block);
        }
    }

    /// Clears the pointer to a dropped block. Even a weak pointer keeps part of its
    /// allocation.
    fn clear(&self) {
        let mut slot = self.0.lock();
        if slot.strong_count() == 0 {
            *slot = Weak::new();
        }
    }
}

/// The slot of a cached block, which is cleared when the block is dropped.
pub struct SlotGuard {
    partition: Weak<IndexPartition>,
    number: usize,
}

impl SlotGuard {
    pub fn new(partition: &Arc<IndexPartition>, number: usize) -> SlotGuard {
        SlotGuard { partition: Arc::downgrade(partition), number }
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        if let Some(partition) = self.partition.upgrade() {
            partition.slots[self.number].clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::BlockCache;
    use crate::fragment::testing::fragment_of;

    #[test]
    fn an_evicted_block_leaves_its_slot() {
        let cache = BlockCache::new(1 << 20);
        let fragment = fragment_of(10, &cache);
        let partition = fragment.partition(0).unwrap();
        let block = fragment.block((0, &partition), 3, true).unwrap();
        assert!(Arc::ptr_eq(&block, &partition.slots[3].block().unwrap()));
        let weak = Arc::downgrade(&block);
        cache.remove(fragment.id(), partition.handles[3].offset);
        assert!(partition.slots[3].block().is_some(), "a reader still has it");
        drop(block);
        assert!(partition.slots[3].block().is_none());
        assert_eq!(weak.weak_count(), 0);
        assert_eq!(fragment.block((0, &partition), 3, false).unwrap().entries(), 1);
        assert!(partition.slots[3].block().is_none(), "not in the cache, so not in the slot");
    }
}
