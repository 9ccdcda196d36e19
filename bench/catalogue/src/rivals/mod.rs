//! Stores that do the same within the process, each in its best order: one
//! database for the catalogue, keys and values as they are.

pub mod lmdb;
#[cfg(feature = "rocksdb")]
pub mod rocks;

use std::path::Path;

use anyhow::Result;

use crate::data::{Key, key, mix};
use crate::meter::{rate, say};

/// Records of one commit while loading.
const LOAD_BATCH: usize = 100_000;

pub trait Rival: Sized {
    fn open_empty(dir: &Path) -> Result<Self>;
    fn name(&self) -> &'static str;
    fn records(&self) -> u64;
    /// Finds these keys at one moment, and touches their values.
    fn get(&self, keys: &[Key]) -> Result<u64>;
    /// Walks over so many records, and touches their values.
    fn next(&self, start: &Key, count: usize) -> Result<u64>;
    /// Stores the records of these numbers by one durable commit.
    fn put(&self, numbers: &mut dyn Iterator<Item = u64>) -> Result<()>;
    /// Puts everything where it is read best.
    fn settle(&self) -> Result<()>;
}

/// Loads all records in the order of their keys, as such a store would have
/// them loaded, unless some are there.
fn fill(rival: &impl Rival, is_loaded: bool, records: u64) -> Result<()> {
    if is_loaded {
        return Ok(());
    }
    let mut numbers: Vec<u64> = (0..records).collect();
    numbers.sort_unstable_by_key(|number| key(*number));
    for batch in numbers.chunks(LOAD_BATCH) {
        rival.put(&mut batch.iter().copied())?;
    }
    rival.settle()
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
    println!("left out of this build");
    Ok(())
}

pub fn measure(rival: &impl Rival, seconds: f64) -> Result<()> {
    let records = rival.records();
    let pick = |turn: u64| mix(turn) % records;
    let told = |what: &str, rate| say(&format!("{}: {what}", rival.name()), rate);
    let one = |turn: u64| rival.get(&[key(pick(turn % 50_000))]).expect("it can be read");
    // All in its place, and what is asked for in the cache.
    rival.settle()?;
    (0..50_000).for_each(|turn| assert_eq!(one(turn), 1, "the record is there"));
    told("GET, one key", rate(seconds, one));
    told(
        "GET, 100 keys",
        rate(seconds, |turn| {
            let keys: Vec<Key> = (0..100).map(|n| key(pick(turn * 100 + n))).collect();
            rival.get(&keys).expect("it can be read")
        }),
    );
    told(
        "NEXT, 1000 records",
        rate(seconds, |turn| rival.next(&key(pick(turn)), 1000).expect("it can be read")),
    );
    for (what, count) in [("PUT, 100 records, durable", 100), ("PUT, one record, durable", 1)] {
        let put = |turn: u64| {
            let mut numbers = (0..count).map(|n| pick(turn * count + n));
            rival.put(&mut numbers).expect("there is room");
            count
        };
        told(what, rate(seconds, put));
    }
    Ok(())
}
