//! One run of a store: steps on the service and on the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use stele_catalogue::fid::{DEATHROW, META};
use stele_catalogue::proto::*;
use stele_catalogue::service::{Answer, Cancellation, Direction, Get, Walk, WalkSink};
use stele_catalogue::{Catalogues, Error, Fid, Result, Written};
use stele_engine::world::sim::SimFiles;
use stele_engine::{Options, Store, Txn};
use stele_tables::Tables;

use super::chance::Chance;
use super::memory::{self, Kept, Model, Outcome, has};
use super::power::Powered;

/// A state that a crash may leave, and the commit that created it.
#[derive(Clone)]
struct Checkpoint {
    model: Model,
    txn: Txn,
}

/// Counts of events, which show what a test has covered.
#[derive(Debug, Default)]
pub struct Tally {
    pub crashes: u32,
    /// Crashes that lost writes that were not awaited.
    pub lost: u32,
    /// Records read at the location in a cookie.
    pub places: u64,
}

pub struct Life {
    chance: Chance,
    power: Powered,
    service: Arc<Catalogues>,
    store: Arc<Store>,
    /// States that may be found after a crash, the oldest first.
    checkpoints: Vec<Checkpoint>,
    pinned: BTreeMap<Txn, Model>,
    /// Cookies seen so far, valid or stale.
    cookies: Vec<Bytes>,
    /// The last cookie of each record.
    of_records: BTreeMap<(Fid, Bytes), Bytes>,
    lives: u64,
    seed: u64,
}

fn open(power: &Powered) -> Result<(Arc<Catalogues>, Arc<Store>)> {
    let mut options = Options::default();
    options.memory.conflict_slots = 1 << 10;
    let world = power.world(1);
    let clock = world.clock.clone();
    let store = Arc::new(Store::open("/store".as_ref(), options, world)?);
    let service = Catalogues::with_clock(Tables::new(store.clone()), clock)?;
    Ok((Arc::new(service), store))
}

fn wire(fid: Fid) -> Bytes {
    Bytes::copy_from_slice(fid.bytes())
}

impl Life {
    pub fn new(seed: u64) -> Life {
        let power = Powered::new(SimFiles::new(seed));
        let (service, store) = open(&power).unwrap();
        let checkpoints = vec![Checkpoint { model: Model::default(), txn: Txn::ZERO }];
        Life {
            chance: Chance::new(seed),
            power,
            service,
            store,
            checkpoints,
            pinned: BTreeMap::new(),
            cookies: vec![Bytes::new()],
            of_records: BTreeMap::new(),
            lives: 0,
            seed,
        }
    }

    pub fn live(mut self, steps: usize, tally: &mut Tally) {
        for step in 0..steps {
            if self.chance.one_in(25) {
                self.power.cut_after(self.chance.below(12));
            }
            self.step();
            if self.power.is_out() || self.chance.one_in(60) {
                self.crash(tally);
            }
            self.check_all(step);
        }
        tally.places += self.service.counts().places;
    }

    fn newest(&self) -> &Model {
        &self.checkpoints.last().unwrap().model
    }

    /// Returns the state that readers see.
    fn durable(&self) -> &Model {
        let durable = self.store.progress().0;
        let seen = self.checkpoints.iter().rev().find(|checkpoint| checkpoint.txn <= durable);
        &seen.unwrap_or(&self.checkpoints[0]).model
    }

    fn step(&mut self) {
        let store = self.store.clone();
        let tables = store.tables();
        match self.chance.below(24) {
            0..3 => self.create(),
            3 => self.delete(),
            4..10 => self.put(),
            10..13 => self.del(),
            13 => self.del_range(),
            14..17 => self.get(),
            17..20 => self.walk(),
            20 => drop(self.service.collect_step()),
            21 => tables.iter().for_each(|(table, _)| drop(store.flush(*table))),
            22 => drop(store.compact(self.chance.of(&tables).0)),
            _ => {
                if let Ok(txn) = self.service.pin() {
                    self.pinned.insert(txn, self.durable().clone());
                }
            }
        }
    }

    /// Cuts the power, and opens the store from what is left.
    fn crash(&mut self, tally: &mut Tally) {
        tally.places += self.service.counts().places;
        self.power = Powered::new(self.power.sim.crash());
        (self.service, self.store) = open(&self.power).unwrap();
        self.pinned.clear();
        let found = self.read_all();
        let kept = self.checkpoints.iter().rev().find(|checkpoint| same(&checkpoint.model, &found));
        let kept = kept.unwrap_or_else(|| {
            let states: Vec<_> =
                self.checkpoints.iter().map(|checkpoint| &checkpoint.model).collect();
            panic!("seed {}: {found:?} was never a state: {states:?}", self.seed)
        });
        tally.crashes += 1;
        tally.lost += u32::from(!same(self.newest(), &found));
        // All of it is durable, because its txns are from an earlier run.
        self.checkpoints = vec![Checkpoint { model: kept.model.clone(), txn: Txn::ZERO }];
    }

    /// Reads all that is stored through the service.
    fn read_all(&self) -> BTreeMap<Fid, BTreeMap<Bytes, Bytes>> {
        let fids = self.dump(META).into_keys().map(|key| Fid::from_wire(&key).unwrap());
        fids.filter(|fid| !fid.is_reserved()).map(|fid| (fid, self.dump(fid))).collect()
    }

    fn dump(&self, fid: Fid) -> BTreeMap<Bytes, Bytes> {
        let start = Start { edge: true, count: u32::MAX, ..Default::default() };
        let request = NextRequest {
            catalogue: Some(Target { fid: wire(fid), ..Default::default() }),
            starts: vec![start],
            ..Default::default()
        };
        let mut walk = Walk::new(self.service.clone(), request, Direction::Forward).unwrap();
        let mut seen = Seen::default();
        while walk.step(&mut seen, 1_000).unwrap() {
            seen.bytes = 0;
        }
        seen.groups.remove(0).0.into_iter().collect()
    }

    /// Checks all stored data, including data that no step has read.
    fn check_all(&mut self, step: usize) {
        let at = format!("seed {} step {step}", self.seed);
        assert!(same(self.durable(), &self.read_all()), "{at}: {:?}", self.durable());
        for (fid, kept) in &self.newest().live {
            let request = StatRequest { fids: vec![wire(*fid)] };
            let stat = self.service.stat(&request, &Cancellation::never()).unwrap().reply.stats[0];
            assert_eq!(
                (stat.records, stat.bytes),
                (kept.records.len() as u64, kept.bytes()),
                "{at}"
            );
        }
        let lookup =
            LookupRequest { fids: self.durable().retired.iter().map(|f| wire(*f)).collect() };
        if !lookup.fids.is_empty() {
            let reply = self.service.lookup(&lookup).unwrap();
            for (fid, code) in self.durable().retired.iter().zip(reply.codes()) {
                let live = self.durable().live.contains_key(fid);
                assert_eq!(code == Code::Ok, live, "{at} {fid}");
                assert!(live || code == Code::Retired, "{at} {fid} {code:?}");
            }
        }
        assert_eq!(self.service.deathrow_len(), self.dump(DEATHROW).len(), "{at}");
    }

    /// Records a write that was acknowledged, or has failed and may have happened.
    fn wrote<T>(&mut self, written: Result<Written<T>>, next: Model) -> Option<T> {
        let written = match written {
            Ok(written) => written,
            Err(error) => {
                assert!(self.power.is_out(), "seed {}: {error}", self.seed);
                self.checkpoints.push(Checkpoint { model: next, txn: Txn::MAX });
                return None;
            }
        };
        let (txn, no_wait) = (written.txn, written.no_wait);
        self.checkpoints.push(Checkpoint { model: next, txn });
        let reply = self.service.wait_until_durable(written);
        if reply.is_err() {
            assert!(self.power.is_out());
        } else if !no_wait {
            let last = self.checkpoints.pop().unwrap();
            self.checkpoints = vec![last];
        }
        reply.ok()
    }

    fn target(&self, fid: Fid) -> Option<Target> {
        Some(Target { fid: wire(fid), cookie: self.cookie() })
    }

    /// Returns any cookie, related or not.
    fn cookie(&self) -> Bytes {
        let cookie = self.chance.of(&self.cookies).clone();
        if cookie.is_empty() || !self.chance.one_in(4) {
            return cookie;
        }
        let mut forged = cookie.to_vec();
        let at = self.chance.below(forged.len() as u64) as usize;
        forged[at] ^= 1 << self.chance.below(8);
        forged.into()
    }

    /// Returns the last cookie of the record, or any.
    fn cookie_of(&self, fid: Fid, key: &Bytes) -> Bytes {
        match self.of_records.get(&(fid, key.clone())) {
            Some(cookie) if !self.chance.one_in(3) => cookie.clone(),
            _ => self.cookie(),
        }
    }

    fn keep_cookies(&mut self, cookies: impl IntoIterator<Item = Bytes>) {
        self.cookies.extend(cookies);
        let surplus = self.cookies.len().saturating_sub(60);
        self.cookies.drain(..surplus);
    }

    fn create(&mut self) {
        let fids: Vec<Fid> = (0..1 + self.chance.below(3)).map(|_| self.chance.fid()).collect();
        let flags = self.chance.flags(&[
            Flag::AllOrNothing as u32,
            Flag::NoWait as u32,
            Flag::Reuse as u32,
        ]);
        let (mut next, mut lives) = (self.newest().clone(), self.lives);
        let expected = memory::create(&mut next, &fids, flags, &mut lives);
        self.lives = lives;
        let request = CreateRequest { fids: fids.into_iter().map(wire).collect(), flags };
        let written = self.service.create(&request);
        if let Some(reply) = self.wrote(written, next) {
            assert_eq!((reply.codes().collect(), reply.count), (expected.0, expected.1));
            self.keep_cookies(reply.cookies);
        }
    }

    fn delete(&mut self) {
        let fids: Vec<Fid> = (0..1 + self.chance.below(3)).map(|_| self.chance.fid()).collect();
        let flags = self.chance.flags(&[Flag::AllOrNothing as u32, Flag::MissingOk as u32]);
        let mut next = self.newest().clone();
        let expected = memory::delete(&mut next, &fids, flags);
        let request = DeleteRequest { fids: fids.into_iter().map(wire).collect(), flags };
        let written = self.service.delete(&request);
        if let Some(reply) = self.wrote(written, next) {
            assert_eq!((reply.codes().collect(), reply.count), (expected.0, expected.1));
        }
    }

    fn put(&mut self) {
        let fid = self.chance.fid();
        let mode = *self.chance.of(&[
            0,
            Flag::InsertOnly as u32,
            Flag::CreateIfAbsent as u32,
            Flag::Overwrite as u32,
        ]);
        let flags = mode
            + self.chance.flags(&[
                Flag::CreateCatalogue as u32,
                Flag::AllOrNothing as u32,
                Flag::NoWait as u32,
                Flag::NoCookies as u32,
            ]);
        let expects = mode != Flag::InsertOnly as u32 && self.chance.one_in(4);
        let record = |key: Bytes| Record {
            value: self.chance.value(),
            cookie: self.cookie_of(fid, &key),
            expected: (expects && self.chance.one_in(2)).then(|| self.chance.value()),
            key,
        };
        let records = self.chance.keys().into_iter().map(record).collect();
        let request = PutRequest { catalogue: self.target(fid), records, flags };
        let mut next = self.newest().clone();
        let missing = !next.live.contains_key(&fid);
        let makes = missing && has(flags, Flag::CreateCatalogue) && !next.retired.contains(&fid);
        if missing && !makes {
            let error = self.service.put(&request).unwrap_err();
            let retired = has(flags, Flag::CreateCatalogue);
            assert!(
                matches!(error, Error::Retired(_)) == retired || self.power.is_out(),
                "{error}"
            );
            return;
        }
        let mut kept = next.live.get(&fid).cloned().unwrap_or_else(|| {
            self.lives += 1;
            Kept { life: self.lives, ..Kept::default() }
        });
        let expected = memory::put(&mut kept, &request);
        // A vector of which nothing is stored creates no catalogue.
        if !missing || !kept.records.is_empty() {
            next.live.insert(fid, kept);
        }
        let written = self.service.put(&request);
        self.check_written(written, next, expected);
    }

    fn check_written(
        &mut self,
        written: Result<Written<WriteReply>>,
        next: Model,
        expected: Outcome,
    ) {
        let Some(reply) = self.wrote(written, next) else { return };
        let got = (reply.codes().collect::<Vec<_>>(), reply.count, reply.applied);
        assert_eq!(got, expected, "seed {}", self.seed);
        self.keep_cookies(reply.cookies.into_iter().chain([reply.catalogue_cookie]));
    }

    fn del(&mut self) {
        let fid = self.chance.fid();
        let flags = self.chance.flags(&[Flag::AllOrNothing as u32, Flag::NoWait as u32]);
        let key = |key: Bytes| Key {
            cookie: self.cookie_of(fid, &key),
            expected: self.chance.one_in(5).then(|| self.chance.value()),
            key,
        };
        let keys = self.chance.keys().into_iter().map(key).collect();
        let request = DelRequest { catalogue: self.target(fid), keys, flags };
        let mut next = self.newest().clone();
        let written = self.service.del(&request);
        let Some(kept) = next.live.get_mut(&fid) else {
            assert!(matches!(written, Err(Error::NoCatalogue(_))) || self.power.is_out());
            return;
        };
        let expected = memory::del(kept, &request);
        self.check_written(written, next, expected);
    }

    fn range(&self) -> Option<Range> {
        (!self.chance.one_in(3)).then(|| Range {
            start: if self.chance.one_in(2) { self.chance.key() } else { Bytes::new() },
            end: self.chance.one_in(2).then(|| self.chance.key()),
            prefix: if self.chance.one_in(3) { self.chance.key() } else { Bytes::new() },
        })
    }

    fn del_range(&mut self) {
        let fid = self.chance.fid();
        let flags = self.chance.flags(&[Flag::NoWait as u32]);
        let range = self.range();
        let mut next = self.newest().clone();
        let catalogue = self.target(fid);
        let request = DelRangeRequest { catalogue, range: range.clone(), flags };
        let written = self.service.del_range(&request, &Cancellation::never());
        let Some(kept) = next.live.get_mut(&fid) else {
            assert!(matches!(written, Err(Error::NoCatalogue(_))) || self.power.is_out());
            return;
        };
        let doomed: Vec<Bytes> =
            kept.range(range.as_ref()).into_iter().map(|(key, _)| key.clone()).collect();
        doomed.iter().for_each(|key| drop(kept.records.remove(key)));
        self.check_written(written, next, (Vec::new(), doomed.len() as u64, true));
    }

    /// Returns a txn to read at, and the catalogue at that txn.
    fn snapshot_of(&self, fid: Fid) -> (u64, Option<Kept>) {
        let present = self.durable().live.get(&fid);
        let pins: Vec<&Txn> = self.pinned.keys().collect();
        if pins.is_empty() || self.chance.one_in(2) {
            return (0, present.cloned());
        }
        let txn = *self.chance.of(&pins);
        let then = self.pinned[txn].live.get(&fid);
        // A deleted catalogue is gone for all readers; one that was created later is
        // empty.
        let kept = present.map(|present| match then {
            Some(then) if then.life == present.life => then.clone(),
            _ => Kept::default(),
        });
        (txn.raw(), kept)
    }

    fn get(&mut self) {
        let fid = self.chance.fid();
        let (at, kept) = self.snapshot_of(fid);
        let key = |key: Bytes| Key { cookie: self.cookie_of(fid, &key), key, expected: None };
        let keys: Vec<Key> = self.chance.keys().into_iter().map(key).collect();
        let request = GetRequest { catalogue: self.target(fid), keys: keys.clone(), flags: 0, at };
        let mut got = Got::default();
        let read = Get::new(self.service.clone(), request).and_then(|mut get| {
            while get.step(&mut got, 50)? {
                got.bytes = 0;
            }
            Ok(get.found)
        });
        match (read, kept) {
            (Ok(found), Some(kept)) => {
                let expected: Vec<_> =
                    keys.iter().map(|key| kept.records.get(&key.key).cloned()).collect();
                let values: Vec<_> = got.answers.iter().map(|answer| answer.0.clone()).collect();
                assert_eq!(values, expected, "seed {}", self.seed);
                assert_eq!(found as usize, expected.iter().flatten().count());
                for (key, (_, cookie)) in keys.iter().zip(&got.answers) {
                    self.of_records.insert((fid, key.key.clone()), cookie.clone());
                }
                self.keep_cookies(got.answers.into_iter().map(|answer| answer.1));
            }
            (Err(Error::NoCatalogue(_)), None) => {}
            (read, kept) => {
                assert!(self.power.is_out(), "seed {}: {read:?}, {kept:?}", self.seed);
            }
        }
    }

    fn walk(&mut self) {
        let fid = self.chance.fid();
        let (at, kept) = self.snapshot_of(fid);
        let flags = self.chance.flags(&[
            Flag::Slant as u32,
            Flag::ExcludeStart as u32,
            Flag::KeysOnly as u32,
            Flag::NoCookies as u32,
        ]);
        let backward = self.chance.one_in(2);
        let direction = if backward { Direction::Backward } else { Direction::Forward };
        let start = |_| Start {
            key: self.chance.key(),
            count: self.chance.below(5) as u32,
            cookie: self.cookie(),
            edge: self.chance.one_in(4),
        };
        let starts: Vec<Start> = (0..1 + self.chance.below(4)).map(start).collect();
        let within = self.range();
        let request = NextRequest {
            catalogue: self.target(fid),
            starts: starts.clone(),
            flags,
            within: within.clone(),
            at,
        };
        let bytes = 1 + self.chance.below(300) as usize;
        let mut seen = Seen::default();
        let read = Walk::new(self.service.clone(), request, direction).and_then(|mut walk| {
            while walk.step(&mut seen, bytes)? {
                seen.bytes = 0;
            }
            Ok(())
        });
        match (read, kept) {
            (Ok(()), Some(kept)) => {
                let expected: Vec<_> = starts
                    .iter()
                    .map(|start| kept.walk(start, flags, within.as_ref(), backward))
                    .collect();
                assert_eq!(seen.groups, expected, "seed {} {starts:?} {flags}", self.seed);
            }
            (Err(Error::NoCatalogue(_)), None) => {}
            (read, kept) => {
                assert!(self.power.is_out(), "seed {}: {read:?}, {kept:?}", self.seed);
            }
        }
    }
}

fn same(model: &Model, found: &BTreeMap<Fid, BTreeMap<Bytes, Bytes>>) -> bool {
    model.live.len() == found.len()
        && model.live.iter().all(|(fid, kept)| found.get(fid) == Some(&kept.records))
}

#[derive(Default)]
struct Got {
    answers: Vec<(Option<Bytes>, Bytes)>,
    value: Option<Bytes>,
    bytes: usize,
}

impl Answer for Got {
    fn value(&mut self, value: &[u8]) {
        self.bytes += value.len();
        self.value = Some(Bytes::copy_from_slice(value));
    }

    fn done(&mut self, code: Code, cookie: &[u8]) {
        assert_eq!(code == Code::Ok, self.value.is_some());
        assert!(code != Code::Ok || !cookie.is_empty(), "every record has a cookie");
        self.answers.push((self.value.take(), Bytes::copy_from_slice(cookie)));
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

#[derive(Default)]
struct Seen {
    groups: Vec<(Vec<(Bytes, Bytes)>, Code)>,
    open: Vec<(Bytes, Bytes)>,
    bytes: usize,
}

impl WalkSink for Seen {
    fn record(&mut self, start: u32, key: &[u8], value: &[u8], _: &[u8]) {
        assert_eq!(start as usize, self.groups.len());
        self.bytes += key.len() + value.len() + 1;
        self.open.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
    }

    fn end(&mut self, start: u32, code: Code, count: u64) {
        assert_eq!((start as usize, count), (self.groups.len(), self.open.len() as u64));
        self.groups.push((std::mem::take(&mut self.open), code));
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
