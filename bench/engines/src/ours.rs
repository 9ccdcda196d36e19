//! Stele's engine: row = key, family "f", empty qualifier, timestamp 0. Writing a key
//! again replaces its value, as in the other engines.

use std::path::Path;

use anyhow::Result;
use stele_engine::schema::{Family, Purge, Schema};
use stele_engine::world::World;
use stele_engine::{
    Commit, CommitBuilder, Durability, MemoryOptions, Options, ScanSpec, Store, TableId, Txn,
};

use crate::data::{Batch, Key, touch};
use crate::engine::{CACHE_BYTES, Engine, Safety, WRITE_BUFFER_BYTES};

pub const FAMILY: &[u8] = b"f";
pub const TABLE: &str = "bench";

pub struct Ours {
    pub store: Store,
    pub table: TableId,
    /// The scan of a point read.
    spec: ScanSpec,
}

/// Returns the options that all measurements use.
pub fn options() -> Options {
    let mut options = Options {
        memory: MemoryOptions { cache_bytes: CACHE_BYTES, ..MemoryOptions::default() },
        ..Options::default()
    };
    options.flush.fragment_bytes = WRITE_BUFFER_BYTES;
    options
}

pub fn schema() -> Result<Schema> {
    Ok(Schema::with_families([Family::with_purge(FAMILY, Purge::MaxVersions(1))])?)
}

impl Ours {
    pub fn open(dir: &Path) -> Result<Ours> {
        Ours::open_with(dir, options())
    }

    /// Opens the store, and its table, which is created if it does not exist.
    pub fn open_with(dir: &Path, options: Options) -> Result<Ours> {
        let store = Store::open(dir, options, World::real())?;
        let table = match store.table(TABLE) {
            Some(table) => table,
            None => store.create_table(TABLE, schema()?)?,
        };
        Ok(Ours { store, table, spec: ScanSpec::default() })
    }
}

/// Returns a commit of all pairs of a batch, with rows in ascending order.
pub fn commit_of(table: TableId, batch: &Batch) -> Commit {
    let mut order: Vec<usize> = (0..batch.len()).collect();
    order.sort_unstable_by_key(|&at| batch.pair(at).0);
    let mut builder = CommitBuilder::new();
    builder.table(table);
    for at in order {
        let (key, value) = batch.pair(at);
        builder.row(key).set(FAMILY, b"", 0, value);
    }
    builder.finish()
}

impl Engine for Ours {
    fn write(&self, batch: &Batch, safety: Safety) -> Result<()> {
        let wait = match safety {
            Safety::Written => Durability::Written,
            Safety::Durable => Durability::Durable,
        };
        self.store.apply(&commit_of(self.table, batch), Txn::MAX, wait)?;
        Ok(())
    }

    fn get(&self, key: &Key) -> Result<Option<usize>> {
        let mut found = None;
        self.store.read_row(self.table, key, &self.spec, |cell| {
            touch(cell.value);
            found = Some(cell.value.len());
        })?;
        Ok(found)
    }

    fn scan(&self) -> Result<u64> {
        let mut count = 0;
        self.store.read(self.table, ScanSpec::default(), |cell| {
            touch(cell.value);
            count += 1;
        })?;
        Ok(count)
    }

    fn compact(&self) -> Result<()> {
        self.store.flush(self.table)?;
        Ok(self.store.compact(self.table)?)
    }

    fn data_bytes(&self) -> Result<u64> {
        Ok(self.store.stats().fragment_bytes)
    }
}
