//! A store for unit tests, on a simulated disk and without workers.

use std::path::Path;
use std::sync::Arc;

use super::Store;
use crate::cell::commit::{CommitBuilder, TableId};
use crate::durability::Durability;
use crate::options::Options;
use crate::schema::{Family, Schema};
use crate::txn::Txn;
use crate::world::sim::SimFiles;
use crate::world::{ManualClock, SeededRandom, World};

pub fn open(options: Options) -> Store {
    let world = World {
        clock: Arc::new(ManualClock::at(1_000_000)),
        files: Arc::new(SimFiles::new(1)),
        random: Arc::new(SeededRandom::new(1)),
        spawner: None,
    };
    Store::open(Path::new("/store"), options, world).unwrap()
}

/// Creates a table with the family `f`.
pub fn create_table(store: &Store, name: &str) -> TableId {
    store.create_table(name, Schema::with_families([Family::new("f")]).unwrap()).unwrap()
}

/// Writes a row with one cell of `value_bytes` bytes.
pub fn write(store: &Store, table: TableId, row: &[u8], value_bytes: usize) {
    let mut commit = CommitBuilder::new();
    commit.table(table).row(row).set(b"f", b"", 0, &vec![7; value_bytes]);
    store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
}
