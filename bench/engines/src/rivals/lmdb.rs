//! LMDB through heed: a memory-mapped copy-on-write B-tree in C.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::Result;
use heed::types::Bytes;
use heed::{Env, EnvFlags, EnvOpenOptions, FlagSetMode};

use crate::data::{Batch, Key, touch};
use crate::engine::{Engine, Safety};

const MAP_BYTES: usize = 64 << 30;

pub struct Lmdb {
    env: Env,
    pairs: heed::Database<Bytes, Bytes>,
    path: PathBuf,
    /// The current durability of commits, which is a flag of the environment rather
    /// than of a commit.
    safety: Mutex<Safety>,
}

impl Lmdb {
    #[allow(unsafe_code)]
    pub fn open(dir: &Path) -> Result<Lmdb> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_readers(64);
        // SAFETY: the directory is new and only this process uses it, so the mapped
        // file does not change underneath.
        let env = unsafe { options.open(dir)? };
        let mut txn = env.write_txn()?;
        let pairs = env.create_database(&mut txn, None)?;
        txn.commit()?;
        let path = dir.join("data.mdb");
        Ok(Lmdb { env, pairs, path, safety: Mutex::new(Safety::Durable) })
    }

    #[allow(unsafe_code)]
    fn set_safety(&self, wanted: Safety) -> Result<()> {
        let mut safety = self.safety.lock().expect("no thread panics while holding the lock");
        if *safety != wanted {
            let mode = match wanted {
                Safety::Written => FlagSetMode::Enable,
                Safety::Durable => FlagSetMode::Disable,
            };
            // SAFETY: only a crash of the machine can damage the data, which is
            // discarded anyway.
            unsafe { self.env.set_flags(EnvFlags::NO_SYNC, mode)? };
            *safety = wanted;
        }
        Ok(())
    }
}

impl Engine for Lmdb {
    fn write(&self, batch: &Batch, safety: Safety) -> Result<()> {
        self.set_safety(safety)?;
        let mut txn = self.env.write_txn()?;
        for (key, value) in batch.pairs() {
            self.pairs.put(&mut txn, key, value)?;
        }
        Ok(txn.commit()?)
    }

    fn get(&self, key: &Key) -> Result<Option<usize>> {
        let txn = self.env.read_txn()?;
        Ok(self.pairs.get(&txn, key)?.map(|value| {
            touch(value);
            value.len()
        }))
    }

    fn scan(&self) -> Result<u64> {
        let txn = self.env.read_txn()?;
        let mut count = 0;
        for pair in self.pairs.iter(&txn)? {
            touch(pair?.1);
            count += 1;
        }
        Ok(count)
    }

    fn compact(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn data_bytes(&self) -> Result<u64> {
        Ok(std::fs::metadata(&self.path)?.len())
    }
}
