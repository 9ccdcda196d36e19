//! Carries over to a rewritten fragment what the cache knew of the old ones:
//! where most of the blocks read were in the cache, readers are at work, and
//! the new blocks go there too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::cache::{BlockCache, Cached};
use crate::fragment::block::Block;

/// The share of the cache that one output may fill before anybody can read it.
const CACHE_SHARE: u64 = 4;

/// What the cursors of a rewrite tell its writer.
#[derive(Debug, Default)]
pub struct Heat {
    /// Blocks entered since the writer last asked, and those of them that were
    /// found in the cache.
    entered: AtomicU32,
    found: AtomicU32,
    /// What the writer was told last.
    hot: AtomicBool,
}

impl Heat {
    /// A cursor has entered a block.
    pub(super) fn note(&self, found: bool) {
        self.entered.fetch_add(1, Ordering::Relaxed);
        self.found.fetch_add(found.into(), Ordering::Relaxed);
    }

    /// Whether most blocks entered since the last call were found; if there
    /// were none, what holds for those before.
    fn take(&self) -> bool {
        let entered = self.entered.swap(0, Ordering::Relaxed);
        let found = self.found.swap(0, Ordering::Relaxed);
        if entered > 0 {
            self.hot.store(found * 2 > entered, Ordering::Relaxed);
        }
        self.hot.load(Ordering::Relaxed)
    }
}

/// Puts the hot blocks of a file into the cache while it is written.
pub struct Warmer {
    cache: Arc<BlockCache>,
    /// The file's name in the cache.
    id: u64,
    heat: Arc<Heat>,
    bytes_left: u64,
}

impl Warmer {
    pub fn new(cache: &Arc<BlockCache>, id: u64, heat: &Arc<Heat>) -> Warmer {
        let bytes_left = cache.stats().capacity_bytes / CACHE_SHARE;
        Warmer { cache: cache.clone(), id, heat: heat.clone(), bytes_left }
    }

    /// A block was written.
    pub(super) fn see(&mut self, offset: u64, raw: &[u8]) {
        let bytes = raw.len() as u64;
        if !self.heat.take() || bytes > self.bytes_left {
            return;
        }
        self.bytes_left -= bytes;
        let block = Block::parse(raw.to_vec()).expect("a block that was just built is sound");
        self.cache.insert(self.id, offset, Cached::Block(Arc::new(block)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_is_what_most_blocks_say_and_lasts_until_the_next_block() {
        let heat = Heat::default();
        assert!(!heat.take());
        [true, true, false].into_iter().for_each(|found| heat.note(found));
        assert!(heat.take() && heat.take());
        [true, false].into_iter().for_each(|found| heat.note(found));
        assert!(!heat.take() && !heat.take());
    }
}
