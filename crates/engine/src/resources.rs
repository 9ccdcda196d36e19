//! Memory shared by the stores of a process.

use std::sync::Arc;

use crate::budget::MemoryBudget;
use crate::cache::BlockCache;
use crate::fragment::FileHandles;
use crate::options::Options;

/// The write-memory budget, the block cache and the open files of fragments. Stores
/// opened with clones of one value share them.
#[derive(Clone)]
pub struct Resources {
    pub budget: Arc<MemoryBudget>,
    pub cache: Arc<BlockCache>,
    pub handles: Arc<FileHandles>,
}

impl Resources {
    /// Creates a budget, a cache and handles of the sizes given in the options.
    pub fn new(options: &Options) -> Resources {
        Resources {
            budget: MemoryBudget::new(options.memory.budget_bytes),
            cache: BlockCache::new(options.memory.cache_bytes),
            handles: FileHandles::new(options.memory.open_files_max),
        }
    }
}
