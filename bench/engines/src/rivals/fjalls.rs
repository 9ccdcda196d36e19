//! fjall: a log-structured merge tree in Rust.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use fjall::config::{BlockSizePolicy, HashRatioPolicy, PinningPolicy};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::data::{Batch, Key, Shape, touch};
use crate::engine::{CACHE_BYTES, Engine, Safety, WRITE_BUFFER_BYTES};

pub struct Fjall {
    db: Database,
    pairs: Keyspace,
}

impl Fjall {
    pub fn open(dir: &Path, _shape: Shape) -> Result<Fjall> {
        let db = Database::builder(dir).cache_size(CACHE_BYTES).open()?;
        let block_bytes =
            std::env::var("FJALL_BLOCK").ok().and_then(|s| s.parse().ok()).unwrap_or(4096);
        let hash: f32 =
            std::env::var("FJALL_HASH").ok().and_then(|s| s.parse().ok()).unwrap_or(0.0);
        let pairs = db.keyspace("bench", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(WRITE_BUFFER_BYTES as u64)
                .data_block_size_policy(BlockSizePolicy::all(block_bytes))
                .data_block_hash_ratio_policy(HashRatioPolicy::all(hash))
                .index_block_pinning_policy(PinningPolicy::all(true))
                .filter_block_pinning_policy(PinningPolicy::all(true))
        })?;
        Ok(Fjall { db, pairs })
    }
}

impl Engine for Fjall {
    fn write(&self, batch: &Batch, safety: Safety) -> Result<()> {
        // A single insert is handed to the kernel by itself and is cheaper
        // than a batch of one.
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

    fn settle(&self) -> Result<()> {
        self.pairs.rotate_memtable_and_wait()?;
        // The counters are zero for a moment between two compactions.
        let mut quiet = 0;
        while quiet < 5 {
            let busy = self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0;
            quiet = if busy { 0 } else { quiet + 1 };
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        self.settle()?;
        self.pairs.major_compact()?;
        self.settle()
    }

    fn data_bytes(&self) -> Result<u64> {
        Ok(self.pairs.disk_space())
    }
}
