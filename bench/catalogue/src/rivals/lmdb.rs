//! LMDB: a B+ tree in a memory-mapped file.

use std::ops::Bound;
use std::path::Path;

use anyhow::Result;
use heed::types::Bytes;
use heed::{Database, Env, EnvOpenOptions};

use super::Rival;
use crate::data::{Key, key, touch, value};

const MAP_BYTES: usize = 16 << 30;

pub struct Lmdb {
    env: Env,
    pairs: Database<Bytes, Bytes>,
}

impl Lmdb {
    pub fn open(dir: &Path, records: u64) -> Result<Lmdb> {
        let lmdb = Lmdb::open_empty(&dir.join(format!("lmdb-{records}")))?;
        super::fill(&lmdb, lmdb.records() == records, records)?;
        Ok(lmdb)
    }
}

impl Rival for Lmdb {
    #[expect(unsafe_code, reason = "LMDB maps a file that only this process uses")]
    fn open_empty(dir: &Path) -> Result<Lmdb> {
        std::fs::create_dir_all(dir)?;
        // SAFETY: only this process opens or changes the file.
        let env = unsafe { EnvOpenOptions::new().map_size(MAP_BYTES).max_dbs(1).open(dir)? };
        let mut txn = env.write_txn()?;
        let pairs = env.create_database(&mut txn, Some("records"))?;
        txn.commit()?;
        Ok(Lmdb { env, pairs })
    }

    fn name(&self) -> &'static str {
        "LMDB"
    }

    fn records(&self) -> u64 {
        let txn = self.env.read_txn().expect("the reader table is not full");
        self.pairs.len(&txn).expect("the database can be read")
    }

    fn get(&self, keys: &[Key]) -> Result<u64> {
        let txn = self.env.read_txn()?;
        let mut found = 0;
        for key in keys {
            if let Some(value) = self.pairs.get(&txn, key)? {
                touch(value);
                found += 1;
            }
        }
        Ok(found)
    }

    fn next(&self, start: &Key, count: usize) -> Result<u64> {
        let txn = self.env.read_txn()?;
        let bounds = (Bound::Included(&start[..]), Bound::Unbounded);
        let mut found = 0;
        for pair in self.pairs.range(&txn, &bounds)?.take(count) {
            touch(pair?.1);
            found += 1;
        }
        Ok(found)
    }

    fn put(&self, numbers: &mut dyn Iterator<Item = u64>) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        for number in numbers {
            self.pairs.put(&mut txn, &key(number), &value(number))?;
        }
        Ok(txn.commit()?)
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }
}
