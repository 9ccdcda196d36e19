//! fjall: a log-structured merge tree in Rust.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use fjall::config::{BlockSizePolicy, PinningPolicy};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::data::{Batch, Key, touch};
use crate::engine::{CACHE_BYTES, Engine, Safety, WRITE_BUFFER_BYTES};

/// The best block size for reads of 4, 8 and 16 KiB, within noise.
const BLOCK_BYTES: u32 = 8 << 10;

pub struct Fjall {
    db: Database,
    pairs: Keyspace,
}

impl Fjall {
    pub fn open(dir: &Path, block_bytes: Option<u32>) -> Result<Fjall> {
        let block_bytes = block_bytes.unwrap_or(BLOCK_BYTES);
        let db = Database::builder(dir).cache_size(CACHE_BYTES).open()?;
        let pairs = db.keyspace("bench", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(WRITE_BUFFER_BYTES as u64)
                .data_block_size_policy(BlockSizePolicy::all(block_bytes))
                .index_block_pinning_policy(PinningPolicy::all(true))
                .filter_block_pinning_policy(PinningPolicy::all(true))
        })?;
        Ok(Fjall { db, pairs })
    }

    /// Waits for running flushes and compactions.
    fn wait_idle(&self) -> Result<()> {
        self.pairs.rotate_memtable_and_wait()?;
        // The counters are briefly zero between two compactions.
        let mut quiet = 0;
        while quiet < 5 {
            let busy = self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0;
            quiet = if busy { 0 } else { quiet + 1 };
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Engine for Fjall {
    fn write(&self, batch: &Batch, safety: Safety) -> Result<()> {
        // A single insert is written to the kernel on its own and is cheaper than a
        // batch of one.
        if safety == Safety::Written && batch.len() == 1 {
            let (key, value) = batch.pair(0);
            return Ok(self.pairs.insert(key.as_slice(), value)?);
        }
        let mode = match safety {
            Safety::Written => PersistMode::Buffer,
            Safety::Durable => PersistMode::SyncData,
        };
        let mut writes = self.db.batch().durability(Some(mode));
        for (key, value) in batch.pairs() {
            writes.insert(&self.pairs, key.as_slice(), value);
        }
        Ok(writes.commit()?)
    }

    fn get(&self, key: &Key) -> Result<Option<usize>> {
        Ok(self.pairs.get(key)?.map(|value| {
            touch(&value);
            value.len()
        }))
    }

    fn scan(&self) -> Result<u64> {
        let mut count = 0;
        for pair in self.pairs.iter() {
            touch(&pair.value()?);
            count += 1;
        }
        Ok(count)
    }

    fn compact(&self) -> Result<()> {
        self.wait_idle()?;
        self.pairs.major_compact()?;
        self.wait_idle()
    }

    fn data_bytes(&self) -> Result<u64> {
        Ok(self.pairs.disk_space())
    }
}
