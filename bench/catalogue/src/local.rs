//! Measures the service in process, without gRPC.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use stele_catalogue::proto::*;
use stele_catalogue::service::{Answer, Cancellation, Direction, Get, Walk, WalkSink};
use stele_catalogue::{Catalogues, Fid};
use stele_engine::world::World;
use stele_engine::{Options, Store};
use stele_tables::Tables;

use crate::data::{CACHE_BYTES, key, mix, touch, value};
use crate::meter::{print_rate, print_ratio, rate};

pub struct Local {
    pub service: Arc<Catalogues>,
    store: Arc<Store>,
    pub fid: Fid,
    pub records: u64,
}

/// Reads every value it is given and keeps the last cookie.
#[derive(Default)]
struct Touch {
    cookie: Vec<u8>,
}

impl Answer for Touch {
    fn value(&mut self, value: &[u8]) {
        touch(value);
    }

    fn done(&mut self, _: Code, cookie: &[u8]) {
        self.cookie.clear();
        self.cookie.extend_from_slice(cookie);
    }

    fn bytes(&self) -> usize {
        0
    }
}

impl WalkSink for Touch {
    fn record(&mut self, _: u32, _: &[u8], value: &[u8], _: &[u8]) {
        Answer::value(self, value);
    }

    fn end(&mut self, _: u32, _: Code, _: u64) {}

    fn bytes(&self) -> usize {
        0
    }
}

impl Local {
    /// Opens a compacted catalogue with the given number of records, and loads them
    /// first if the catalogue is empty.
    pub fn open(dir: &Path, records: u64) -> Result<Local> {
        let mut options = Options::default();
        options.memory.cache_bytes = CACHE_BYTES;
        let dir = dir.join(format!("stele-{records}"));
        let store = Arc::new(Store::open(&dir, options, World::real())?);
        let service = Arc::new(Catalogues::open(Tables::new(store.clone()))?);
        let fid = Fid::of_id(1000).expect("1000 fits in an id");
        let local = Local { service, store, fid, records };
        let fids = vec![Bytes::copy_from_slice(fid.bytes())];
        let request = CreateRequest { fids: fids.clone(), flags: 0 };
        local.service.wait_until_durable(local.service.create(&request)?)?;
        let stat =
            local.service.stat(&StatRequest { fids }, &Cancellation::never())?.reply.stats[0];
        if stat.records < records {
            for first in (stat.records..records).step_by(10_000) {
                local.put(first..records.min(first + 10_000), Flag::NoWait as u32)?;
            }
            local.compact()?;
        }
        Ok(local)
    }

    /// Flushes and compacts all tables.
    pub fn compact(&self) -> Result<()> {
        for (table, _) in self.store.tables() {
            self.store.flush(table)?;
            self.store.compact(table)?;
        }
        Ok(())
    }

    pub fn target(&self, cookie: Bytes) -> Option<Target> {
        Some(Target { fid: Bytes::copy_from_slice(self.fid.bytes()), cookie })
    }

    fn put(&self, numbers: impl Iterator<Item = u64>, flags: u32) -> Result<u64> {
        let record = |number| Record {
            key: Bytes::copy_from_slice(&key(number)),
            value: value(number),
            ..Default::default()
        };
        let records: Vec<Record> = numbers.map(record).collect();
        let count = records.len() as u64;
        let catalogue = self.target(Bytes::new());
        let flags = flags | Flag::NoCookies as u32;
        let written = self.service.put(&PutRequest { catalogue, records, flags })?;
        self.service.wait_until_durable(written)?;
        Ok(count)
    }

    pub fn get(&self, keys: Vec<Key>, target: &Option<Target>, flags: u32) -> Result<Vec<u8>> {
        let request = GetRequest { catalogue: target.clone(), keys, flags, at: 0 };
        let mut touch = Touch::default();
        let mut get = Get::new(self.service.clone(), request)?;
        while get.step(&mut touch, usize::MAX)? {}
        Ok(touch.cookie)
    }

    pub fn cookie_of(&self, number: u64) -> Result<Bytes> {
        let key = Key { key: Bytes::copy_from_slice(&key(number)), ..Default::default() };
        Ok(self.get(vec![key], &self.target(Bytes::new()), 0)?.into())
    }
}

pub fn measure(local: &Local, seconds: f64) -> Result<()> {
    local.compact()?;
    let pick = |turn: u64| mix(turn) % local.records;
    let wire = |number: u64| Bytes::copy_from_slice(&key(number));
    let none = Flag::NoCookies as u32;
    let plain = local.target(Bytes::new());
    let fids = vec![Bytes::copy_from_slice(local.fid.bytes())];
    let whole = local.service.lookup(&LookupRequest { fids })?.cookies.remove(0);
    let whole = local.target(whole);

    // Both reads use the same keys, so both find the same blocks in the cache.
    let numbers: Vec<u64> = (0..50_000).map(pick).collect();
    let cookies = numbers.iter().map(|number| local.cookie_of(*number));
    let cookies: Vec<Bytes> = cookies.collect::<Result<_>>()?;
    let one = |turn: u64, target: &Option<Target>, with: bool| {
        let at = turn as usize % numbers.len();
        let cookie = if with { cookies[at].clone() } else { Bytes::new() };
        let key = Key { key: wire(numbers[at]), cookie, expected: None };
        local.get(vec![key], target, none).expect("the catalogue exists");
        1
    };
    let mut ratios = Vec::new();
    let (mut by_key, mut by_cookie) = (0.0f64, 0.0f64);
    for _ in 0..3 {
        let plain_rate = rate(seconds / 3.0, |turn| one(turn, &plain, false));
        let cookie_rate = rate(seconds / 3.0, |turn| one(turn, &whole, true));
        (by_key, by_cookie) = (by_key.max(plain_rate), by_cookie.max(cookie_rate));
        ratios.push(cookie_rate / plain_rate);
    }
    ratios.sort_by(f64::total_cmp);
    print_rate("GET, one key", by_key);
    print_rate("GET, one key, by cookie", by_cookie);
    print_ratio("  by cookie over by key (median of 3)", ratios[1]);
    let many = print_rate(
        "GET, 100 keys",
        rate(seconds, |turn| {
            let key = |n| Key { key: wire(pick(turn * 100 + n)), ..Default::default() };
            local.get((0..100).map(key).collect(), &plain, none).expect("the catalogue exists");
            100
        }),
    );
    let next = print_rate(
        "NEXT, 1000 records",
        rate(seconds, |turn| {
            let start = Start { key: wire(pick(turn)), count: 1000, ..Default::default() };
            let catalogue = plain.clone();
            let flags = none | Flag::Slant as u32;
            let request =
                NextRequest { catalogue, starts: vec![start], flags, ..Default::default() };
            let walk = Walk::new(local.service.clone(), request, Direction::Forward);
            let mut touch = Touch::default();
            let mut walk = walk.expect("the catalogue exists");
            while walk.step(&mut touch, usize::MAX).expect("the catalogue exists") {}
            1000
        }),
    );
    print_ratio("  NEXT over single GET", next / by_key);
    print_ratio("  GET of 100 over single GET", many / by_key);
    let put = |count: u64, flags: u32| {
        move |turn: u64| {
            let numbers = (0..count).map(move |n| mix(turn * count + n) % local.records);
            local.put(numbers, flags).expect("the disk has space")
        }
    };
    print_rate("PUT, 100 records, not awaited", rate(seconds, put(100, Flag::NoWait as u32)));
    let hundred = print_rate("PUT, 100 records, durable", rate(seconds, put(100, 0)));
    let single = print_rate("PUT, one record, durable", rate(seconds, put(1, 0)));
    print_ratio("  PUT of 100 over single PUT", hundred / single);
    local.compact()
}
