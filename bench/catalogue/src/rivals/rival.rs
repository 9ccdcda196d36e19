//! What an embedded store must be able to do.

use std::path::Path;

use anyhow::Result;

use crate::data::{Key, key};

/// Records per commit while loading.
const LOAD_BATCH: usize = 100_000;

pub trait Rival: Sized {
    fn open_empty(dir: &Path) -> Result<Self>;
    fn name(&self) -> &'static str;
    fn records(&self) -> u64;
    /// Reads the values of these keys from one snapshot and returns how many exist.
    fn get(&self, keys: &[Key]) -> Result<u64>;
    /// Reads the values of up to `count` records from `start` on and returns how many
    /// there were.
    fn next(&self, start: &Key, count: usize) -> Result<u64>;
    /// Stores the records with these numbers in one durable commit.
    fn put(&self, numbers: &mut dyn Iterator<Item = u64>) -> Result<()>;
    /// Flushes and compacts the store.
    fn compact(&self) -> Result<()>;
}

/// Loads all records in key order, which suits these stores best, unless they are
/// loaded already.
pub fn fill(rival: &impl Rival, is_loaded: bool, records: u64) -> Result<()> {
    if is_loaded {
        return Ok(());
    }
    let mut numbers: Vec<u64> = (0..records).collect();
    numbers.sort_unstable_by_key(|number| key(*number));
    for batch in numbers.chunks(LOAD_BATCH) {
        rival.put(&mut batch.iter().copied())?;
    }
    rival.compact()
}
