//! One block cache is shared by all stores of a process and stays within its budget.

use std::sync::Arc;

use stele_engine::schema::{Family, Schema};
use stele_engine::world::{Disk, ManualClock, SeededRandom, World};
use stele_engine::*;

const CACHE_BYTES: u64 = 256 << 10;
const ROWS: u64 = 4_000;

struct Fixture {
    _dir: tempfile::TempDir,
    store: Store,
    table: TableId,
}

impl Fixture {
    /// A store without threads, whose table is larger than the cache.
    fn new(resources: &Resources) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let world = World {
            clock: Arc::new(ManualClock::at(0)),
            files: Arc::new(Disk),
            random: Arc::new(SeededRandom::new(1)),
            spawner: None,
        };
        let store =
            Store::open_with(dir.path(), Options::default(), world, resources.clone()).unwrap();
        let schema = Schema::with_families([Family::new("f")]).unwrap();
        let table = store.create_table("t", schema).unwrap();
        Fixture { _dir: dir, store, table }
    }

    fn write(&self) {
        let mut builder = CommitBuilder::new();
        builder.table(self.table);
        for number in 0..ROWS {
            builder.row(&number.to_be_bytes()).set(b"f", b"q", 0, &[number as u8; 100]);
        }
        self.store.apply(&builder.finish(), Txn::MAX, Durability::Durable).unwrap();
        self.store.flush(self.table).unwrap();
    }

    fn read(&self, number: u64) {
        let mut found = 0;
        let row = number.to_be_bytes();
        self.store.read_row(self.table, &row, &ScanSpec::default(), |_| found += 1).unwrap();
        assert_eq!(found, 1);
    }
}

fn resources() -> Resources {
    let mut options = Options::default();
    options.memory.cache_bytes = CACHE_BYTES;
    Resources::new(&options)
}

#[test]
fn the_budget_of_the_cache_holds_for_two_stores_together() {
    let resources = resources();
    let stores = [Fixture::new(&resources), Fixture::new(&resources)];
    stores.iter().for_each(Fixture::write);
    let resident = resources.cache.stats().resident_bytes;
    assert!(resident > 2 * ROWS, "the filters of both: {resident} bytes");
    for number in 0..ROWS {
        stores[number as usize % 2].read(number * 7 % ROWS);
        let stats = resources.cache.stats();
        assert!(stats.bytes <= CACHE_BYTES, "{stats:?}");
    }
    let stats = resources.cache.stats();
    assert!(stats.bytes > CACHE_BYTES / 2, "{stats:?}");
    assert_eq!(stats, stores[0].store.stats().cache);
    assert_eq!(stats, stores[1].store.stats().cache);
}

#[test]
fn what_is_no_longer_read_leaves_the_cache_at_once() {
    let resources = resources();
    let [stays, goes] = [Fixture::new(&resources), Fixture::new(&resources)];
    stays.write();
    (0..50).for_each(|number| stays.read(number));
    let before = resources.cache.stats();
    goes.write();
    goes.write();
    (0..500).for_each(|number| goes.read(number));
    let two_fragments = resources.cache.stats();
    goes.store.compact(goes.table).unwrap();
    let compacted = resources.cache.stats();
    assert!(compacted.bytes < two_fragments.bytes, "{two_fragments:?} {compacted:?}");
    assert!(compacted.resident_bytes < two_fragments.resident_bytes);
    (0..500).for_each(|number| goes.read(number));
    goes.store.drop_table(goes.table).unwrap();
    let after = resources.cache.stats();
    assert_eq!(after.resident_bytes, before.resident_bytes);
    assert_eq!(after.bytes, before.bytes);
}
