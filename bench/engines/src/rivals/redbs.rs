//! redb: a copy-on-write B-tree in Rust. Its unsynced commits stay in the memory of the
//! process, so they are less durable than those of the other engines.

use std::path::{Path, PathBuf};

use anyhow::Result;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use crate::data::{Batch, Key, touch};
use crate::engine::{CACHE_BYTES, Engine, Safety};

const PAIRS: TableDefinition<&Key, &[u8]> = TableDefinition::new("bench");

pub struct Redb {
    db: Database,
    path: PathBuf,
}

impl Redb {
    pub fn open(dir: &Path) -> Result<Redb> {
        let path = dir.join("bench.redb");
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES as usize);
        Ok(Redb { db: builder.create(&path)?, path })
    }

    fn commit<'a>(
        &self,
        pairs: impl Iterator<Item = (&'a Key, &'a [u8])>,
        durability: Durability,
    ) -> Result<()> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(durability)?;
        {
            let mut table = txn.open_table(PAIRS)?;
            for (key, value) in pairs {
                table.insert(key, value)?;
            }
        }
        Ok(txn.commit()?)
    }
}

impl Engine for Redb {
    fn write(&self, batch: &Batch, safety: Safety) -> Result<()> {
        let durability = match safety {
            Safety::Written => Durability::None,
            Safety::Durable => Durability::Immediate,
        };
        self.commit(batch.pairs(), durability)
    }

    fn get(&self, key: &Key) -> Result<Option<usize>> {
        let table = self.db.begin_read()?.open_table(PAIRS)?;
        Ok(table.get(key)?.map(|value| {
            touch(value.value());
            value.value().len()
        }))
    }

    fn scan(&self) -> Result<u64> {
        let table = self.db.begin_read()?.open_table(PAIRS)?;
        let mut count = 0;
        for pair in table.iter()? {
            touch(pair?.1.value());
            count += 1;
        }
        Ok(count)
    }

    fn compact(&self) -> Result<()> {
        self.commit(std::iter::empty(), Durability::Immediate)
    }

    fn data_bytes(&self) -> Result<u64> {
        Ok(std::fs::metadata(&self.path)?.len())
    }
}
