//! A store on a disk whose every operation is a step of the schedule.

use std::path::Path;
use std::sync::Arc;

use stele_engine::config::{RowFaults, SimRows};
use stele_engine::schema::{Family, Schema};
use stele_engine::world::{Files, ManualClock, SeededRandom, Spawner, World};
use stele_engine::*;

use super::disk::Disk;
use super::unsure::open_unsure;

const DIR: &str = "/store";

pub struct Machine {
    pub disk: Disk,
    pub rows: Arc<SimRows>,
    pub store: Arc<Store>,
    pub table: TableId,
}

impl Machine {
    /// Creates a store with one table of one tablet. Without a spawner the test's own
    /// threads do the background work.
    pub fn new(options: Options, spawner: Option<Arc<dyn Spawner>>) -> Machine {
        Machine::with_splits(options, spawner, &[])
    }

    /// Like `new`, with a table whose tablets meet at some rows.
    pub fn with_splits(
        options: Options,
        spawner: Option<Arc<dyn Spawner>>,
        splits: &[&[u8]],
    ) -> Machine {
        Machine::unsure(options, spawner, splits, RowFaults::default())
    }

    /// Like `with_splits`, with changes of tablets that get lost.
    pub fn unsure(
        options: Options,
        spawner: Option<Arc<dyn Spawner>>,
        splits: &[&[u8]],
        rates: RowFaults,
    ) -> Machine {
        let disk = Disk::new();
        let world = World {
            clock: Arc::new(ManualClock::at(1_000_000)),
            files: Arc::new(disk.clone()),
            random: Arc::new(SeededRandom::new(1)),
            spawner,
        };
        let dir = Path::new(DIR);
        let (store, rows) = open_unsure(dir, options, world, 1, rates).unwrap();
        let schema = Schema::with_families([Family::new("f")]).unwrap();
        let splits = splits.iter().map(|row| row.to_vec()).collect();
        let table = store.create_table_with_splits("t", schema, splits).unwrap();
        Machine { disk, rows, store: Arc::new(store), table }
    }

    /// Reopens the store without workers.
    pub fn open_again(disk: &Disk) -> Store {
        let world = World {
            clock: Arc::new(ManualClock::at(1_000_000)),
            files: Arc::new(disk.clone()),
            random: Arc::new(SeededRandom::new(2)),
            spawner: None,
        };
        Store::open(Path::new(DIR), small(), world).unwrap()
    }

    /// Returns the fragments on the disk.
    pub fn fragments(&self) -> Vec<String> {
        fragments(&self.disk)
    }

    /// Returns the fragments that the config names.
    pub fn named_fragments(&self) -> Vec<String> {
        named_fragments(&self.store)
    }
}

pub fn fragments(disk: &Disk) -> Vec<String> {
    let listed = disk.list(&Path::new(DIR).join(FRAGMENTS_DIR)).unwrap();
    listed.into_iter().map(|name| name.display().to_string()).collect()
}

pub fn named_fragments(store: &Store) -> Vec<String> {
    let configs = store.configs().unwrap();
    let mut names: Vec<_> = configs.files().map(|file| file.name.to_string()).collect();
    names.sort();
    names.dedup();
    names
}

/// Returns sizes that keep a run short: a cache of zero bytes, so that every read goes
/// to the disk, and small segments.
pub fn small() -> Options {
    let mut options = Options::default();
    options.memory.conflict_slots = 4;
    options.memory.cache_bytes = 0;
    options.log.segment_bytes = 1 << 10;
    // No schedule depends on the time.
    options.tablets.automatic = false;
    options
}
