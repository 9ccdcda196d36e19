//! Embedded stores that hold the same records, each with one database for the catalogue
//! and plain keys and values, loaded in the order that suits it best.

pub mod lmdb;
#[cfg(feature = "rocksdb")]
pub mod rocks;

use std::path::Path;

use anyhow::Result;

use crate::data::{Key, key, mix};
use crate::meter::{print_rate, rate};

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
fn fill(rival: &impl Rival, is_loaded: bool, records: u64) -> Result<()> {
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

pub fn load(dir: &Path, records: u64) -> Result<()> {
    lmdb::Lmdb::open(dir, records)?;
    #[cfg(feature = "rocksdb")]
    rocks::Rocks::open(dir, records)?;
    Ok(())
}

#[cfg(feature = "rocksdb")]
pub fn measure_rocks(dir: &Path, records: u64, seconds: f64) -> Result<()> {
    measure(&rocks::Rocks::open(dir, records)?, seconds)
}

#[cfg(not(feature = "rocksdb"))]
pub fn measure_rocks(_: &Path, _: u64, _: f64) -> Result<()> {
    println!("not included in this build");
    Ok(())
}

pub fn measure(rival: &impl Rival, seconds: f64) -> Result<()> {
    let records = rival.records();
    let pick = |turn: u64| mix(turn) % records;
    let print = |what: &str, rate| print_rate(&format!("{}: {what}", rival.name()), rate);
    let one = |turn: u64| rival.get(&[key(pick(turn % 50_000))]).expect("the store can be read");
    // Compact, and read the keys once so that they are cached.
    rival.compact()?;
    (0..50_000).for_each(|turn| assert_eq!(one(turn), 1, "the record exists"));
    print("GET, one key", rate(seconds, one));
    print(
        "GET, 100 keys",
        rate(seconds, |turn| {
            let keys: Vec<Key> = (0..100).map(|n| key(pick(turn * 100 + n))).collect();
            rival.get(&keys).expect("the store can be read")
        }),
    );
    print(
        "NEXT, 1000 records",
        rate(seconds, |turn| rival.next(&key(pick(turn)), 1000).expect("the store can be read")),
    );
    for (what, count) in [("PUT, 100 records, durable", 100), ("PUT, one record, durable", 1)] {
        let put = |turn: u64| {
            let mut numbers = (0..count).map(|n| pick(turn * count + n));
            rival.put(&mut numbers).expect("the disk has space");
            count
        };
        print(what, rate(seconds, put));
    }
    Ok(())
}
