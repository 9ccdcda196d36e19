//! Memory shared by the stores of a process.

use std::sync::Arc;

use crate::budget::MemoryBudget;
use crate::cache::BlockCache;
use crate::options::Options;

/// The write-memory budget and the block cache. Stores opened with clones of one
/// value share both.
#[derive(Clone)]
pub struct Resources {
    pub budget: Arc<MemoryBudget>,
    pub cache: Arc<BlockCache>,
}

impl Resources {
    /// Creates a budget and a cache of the sizes given in the options.
    pub fn new(options: &Options) -> Resources {
        Resources {
            budget: MemoryBudget::new(options.memory.budget_bytes),
            cache: BlockCache::new(options.memory.cache_bytes),
        }
    }
}
