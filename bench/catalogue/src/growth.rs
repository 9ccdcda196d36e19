//! Measures how the time of one GET grows with the number of records, for the catalogue
//! and for the other stores. Measurements of both sizes alternate, so that both see the
//! same load of the machine.

use std::path::Path;

use anyhow::Result;
use bytes::Bytes;
use stele_catalogue::proto::{Flag, Key as WireKey};

use crate::data::{key, mix};
use crate::local::Local;
use crate::meter::{print_time, rate, rate_async};
use crate::remote;
use crate::rivals::Rival;
use crate::rivals::lmdb::Lmdb;

const FEW: u64 = 10_000;
const TURNS: usize = 3;
/// Number of different keys read: more records than the CPU caches hold.
const KEYS_READ: u64 = 200_000;

/// Prints the time of one GET with few and with many records.
fn print_growth(what: &str, mut rates: impl FnMut() -> Result<(f64, f64)>) -> Result<()> {
    let mut turns = (0..TURNS).map(|_| rates()).collect::<Result<Vec<_>>>()?;
    turns.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let (few, many) = turns[TURNS / 2];
    print_time(&format!("{what}, {FEW} records"), few);
    print_time(&format!("{what}, all records"), many);
    println!(
        "{:<44} {:>12.2} x",
        "  time with all records over time with few (median of 3)",
        few / many
    );
    Ok(())
}

fn pick(turn: u64, records: u64) -> u64 {
    mix(turn % KEYS_READ) % records
}

fn rival<R: Rival>(what: &str, few: &R, many: &R, seconds: f64) -> Result<()> {
    let one = |rival: &R| {
        let get =
            |turn| rival.get(&[key(pick(turn, rival.records()))]).expect("the store can be read");
        (0..KEYS_READ).for_each(|turn| assert_eq!(get(turn), 1, "the record exists"));
        let records = rival.records();
        rate(seconds, |turn| rival.get(&[key(pick(turn, records))]).expect("the store can be read"))
    };
    print_growth(what, || Ok((one(few), one(many))))
}

pub fn measure(dir: &Path, records: u64, seconds: f64) -> Result<()> {
    let (few, many) = (Local::open(dir, FEW)?, Local::open(dir, records)?);
    let here = |local: &Local| {
        let target = local.target(Bytes::new());
        let get = |turn: u64| {
            let key = Bytes::copy_from_slice(&key(pick(turn, local.records)));
            let keys = vec![WireKey { key, ..Default::default() }];
            local.get(keys, &target, Flag::NoCookies as u32).expect("the catalogue exists");
            1
        };
        (0..KEYS_READ).for_each(|turn| assert_eq!(get(turn), 1));
        rate(seconds, get)
    };
    print_growth("in process", || Ok((here(&few), here(&many))))?;

    let runtime = tokio::runtime::Runtime::new()?;
    let few_served = runtime.block_on(remote::serve_local(&few))?;
    let many_served = runtime.block_on(remote::serve_local(&many))?;
    let there = |local: &Local, handle: &stele_catalogue::client::Handle| {
        runtime.block_on(rate_async(seconds, async |turn| {
            let key = Bytes::copy_from_slice(&key(pick(turn, local.records)));
            let keys = vec![key.into()];
            let none = Flag::NoCookies as u32;
            handle.get(keys, none, 0).await.expect("the server responds").len() as u64
        }))
    };
    print_growth("over gRPC", || Ok((there(&few, &few_served), there(&many, &many_served))))?;
    drop((runtime, few, many));

    rival("LMDB", &Lmdb::open(dir, FEW)?, &Lmdb::open(dir, records)?, seconds)?;
    #[cfg(feature = "rocksdb")]
    {
        use crate::rivals::rocks::Rocks;
        rival("RocksDB", &Rocks::open(dir, FEW)?, &Rocks::open(dir, records)?, seconds)?;
    }
    Ok(())
}
