//! Loads and measures the stores.

use std::path::Path;

use anyhow::Result;

#[cfg(feature = "rocksdb")]
use super::rocks;
use super::{Rival, lmdb};
use crate::data::{Key, key, mix};
use crate::meter::{print_rate, rate};

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
