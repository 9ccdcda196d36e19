//! Carries cache residency over to a rewritten fragment: where most of the blocks read
//! by the rewrite were cached, they are in use, and the new blocks are cached too.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;

use crate::cache::{BlockCache, Cached};
use crate::fragment::Fragment;
use crate::fragment::block::Block;

/// One output may fill at most 1/`CACHE_SHARE` of the cache before it can be read.
const CACHE_SHARE: u64 = 4;

/// What the cursors of a rewrite report to its writer.
#[derive(Debug, Default)]
pub struct Heat {
    /// Blocks entered since the writer last read this count, and how many of them were cached.
    entered: AtomicU32,
    found: AtomicU32,
    /// The last answer to the writer.
    hot: AtomicBool,
}

impl Heat {
    /// Records that a cursor has entered a block.
    pub(super) fn note(&self, found: bool) {
        self.entered.fetch_add(1, Ordering::Relaxed);
        self.found.fetch_add(found.into(), Ordering::Relaxed);
    }

    /// Returns whether most blocks entered since the last call were cached; if none
    /// were entered, repeats the last answer.
    fn take(&self) -> bool {
        let entered = self.entered.swap(0, Ordering::Relaxed);
        let found = self.found.swap(0, Ordering::Relaxed);
        if entered > 0 {
            self.hot.store(found * 2 > entered, Ordering::Relaxed);
        }
        self.hot.load(Ordering::Relaxed)
    }
}

/// The blocks of a new file that are cached before the file is open. They are removed
/// when the last clone is dropped, unless the open fragment has taken ownership of
/// them.
pub struct Warmed {
    cache: Arc<BlockCache>,
    /// The cache id of the file.
    id: u64,
    offsets: Mutex<Vec<u64>>,
}

impl Warmed {
    pub fn new(cache: &Arc<BlockCache>) -> Arc<Warmed> {
        let id = cache.next_file_id();
        Arc::new(Warmed { cache: cache.clone(), id, offsets: Mutex::default() })
    }

    /// Returns the cache id of the file.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Hands ownership of the blocks to the fragment, which removes them when it is
    /// dropped.
    pub fn hand_over(&self, fragment: &Fragment) {
        if !mem::take(&mut *self.offsets.lock()).is_empty() {
            fragment.note_blocks_cached();
        }
    }
}

impl Drop for Warmed {
    fn drop(&mut self) {
        for &offset in self.offsets.get_mut().iter() {
            self.cache.remove(self.id, offset);
        }
    }
}

/// Inserts the hot blocks of a file into the cache while it is written.
pub struct Warmer {
    warmed: Arc<Warmed>,
    heat: Arc<Heat>,
    bytes_left: u64,
}

impl Warmer {
    pub fn new(warmed: &Arc<Warmed>, heat: &Arc<Heat>) -> Warmer {
        let bytes_left = warmed.cache.capacity_bytes() / CACHE_SHARE;
        Warmer { warmed: warmed.clone(), heat: heat.clone(), bytes_left }
    }

    /// Caches a block that was written, if it is hot.
    pub(super) fn block_written(&mut self, offset: u64, raw: &[u8]) {
        let bytes = raw.len() as u64;
        if !self.heat.take() || bytes > self.bytes_left {
            return;
        }
        self.bytes_left -= bytes;
        let block = Block::parse(raw.to_vec()).expect("a block that was just built is valid");
        let Warmed { cache, id, offsets } = &*self.warmed;
        offsets.lock().push(offset);
        cache.insert(*id, offset, Cached::Block(Arc::new(block)));
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
