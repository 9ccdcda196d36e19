//! LMDB doing the same: one database for the catalogue.

use std::ops::Bound;
use std::path::Path;

use anyhow::Result;
use heed::types::Bytes;
use heed::{Database, Env, EnvOpenOptions};

use crate::data::{key, mix, value};
use crate::meter::{rate, say};

const MAP_BYTES: usize = 16 << 30;

#[expect(unsafe_code, reason = "LMDB maps a file that only this process uses")]
fn open(dir: &Path) -> Result<Env> {
    std::fs::create_dir_all(dir)?;
    // Safe: nobody else opens or changes the file.
    Ok(unsafe { EnvOpenOptions::new().map_size(MAP_BYTES).max_dbs(1).open(dir)? })
}

fn put(
    env: &Env,
    records: Database<Bytes, Bytes>,
    numbers: impl Iterator<Item = u64>,
) -> Result<()> {
    let mut txn = env.write_txn()?;
    for number in numbers {
        records.put(&mut txn, &key(number), &value(number))?;
    }
    Ok(txn.commit()?)
}

pub fn measure(dir: &Path, count: u64, seconds: f64) -> Result<()> {
    let env = open(dir)?;
    let mut txn = env.write_txn()?;
    let records: Database<Bytes, Bytes> = env.create_database(&mut txn, Some("records"))?;
    txn.commit()?;
    for first in (0..count).step_by(10_000) {
        put(&env, records, first..count.min(first + 10_000))?;
    }
    let pick = |turn: u64| mix(turn) % count;
    say(
        "LMDB: get, one key",
        rate(seconds, |turn| {
            let txn = env.read_txn().expect("there are readers left");
            let found = records.get(&txn, &key(pick(turn % 50_000))).expect("it can be read");
            u64::from(found.is_some())
        }),
    );
    say(
        "LMDB: get, 100 keys",
        rate(seconds, |turn| {
            let txn = env.read_txn().expect("there are readers left");
            let get = |n| records.get(&txn, &key(pick(turn * 100 + n))).expect("it can be read");
            (0..100).filter_map(get).count() as u64
        }),
    );
    say(
        "LMDB: next, 1000 records",
        rate(seconds, |turn| {
            let txn = env.read_txn().expect("there are readers left");
            let from = key(pick(turn));
            let bounds = (Bound::Included(&from[..]), Bound::Unbounded);
            let range = records.range(&txn, &bounds).expect("it can be read");
            range
                .take(1000)
                .filter(|pair| pair.as_ref().is_ok_and(|(_, value)| value[0] < 255))
                .count();
            1000
        }),
    );
    say(
        "LMDB: put, 100 records, durable",
        rate(seconds, |turn| {
            put(&env, records, (0..100).map(|n| pick(turn * 100 + n))).expect("there is room");
            100
        }),
    );
    say(
        "LMDB: put, one record, durable",
        rate(seconds, |turn| {
            put(&env, records, std::iter::once(pick(turn))).expect("there is room");
            1
        }),
    );
    Ok(())
}
