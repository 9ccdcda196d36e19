//! A simulated store of fragments outside the directory, for tests with misses, faults and
//! crashes. All requests end at once, on the caller's thread.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::config::FileName;
use crate::world::random::{Random, SeededRandom};
use crate::world::{Done, Fetch, FragmentSink, FragmentStore, Part, StoredFile};

/// The probability that requests fail, from 0.0 (never) to 1.0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ObjectFaults {
    /// A put fails and has no effect.
    pub put: f64,
    /// A put fails although it took effect.
    pub applied_put: f64,
    /// A put fails and takes effect later.
    pub late_put: f64,
    pub get: f64,
    pub list: f64,
    pub delete: f64,
}

/// The number of requests so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectRequests {
    pub puts: u64,
    pub gets: u64,
    pub lists: u64,
    pub deletes: u64,
    pub prefetches: u64,
    pub prefetched_bytes: u64,
    /// Reads answered without a fetch.
    pub hits: u64,
    pub forgotten: u64,
}

/// A store of fragments. Clones share it.
#[derive(Clone)]
pub struct SimObjects {
    state: Arc<Mutex<State>>,
}

struct State {
    random: SeededRandom,
    files: BTreeMap<FileName, Bytes>,
    /// Puts that take effect with the next request.
    late: Vec<(FileName, Bytes)>,
    /// Names that were used once.
    names: BTreeSet<FileName>,
    /// Damaged local copies: the bytes that a read gets until they are forgotten.
    damaged: BTreeMap<FileName, Bytes>,
    /// Fetches that someone may hold.
    fetches: BTreeMap<(FileName, u64, u64), Weak<Fetch>>,
    faults: ObjectFaults,
    /// The probability that bytes are on this machine.
    hit_rate: f64,
    capacity: Option<u64>,
    /// The connection is cut at the request of this number; whether that one takes
    /// effect.
    cut: Option<(u64, bool)>,
    requests: ObjectRequests,
}

impl SimObjects {
    /// Creates a store without files in which every read misses at first.
    pub fn new(seed: u64) -> SimObjects {
        let state = State {
            random: SeededRandom::new(seed),
            files: BTreeMap::new(),
            late: Vec::new(),
            names: BTreeSet::new(),
            damaged: BTreeMap::new(),
            fetches: BTreeMap::new(),
            faults: ObjectFaults::default(),
            hit_rate: 0.0,
            capacity: None,
            cut: None,
            requests: ObjectRequests::default(),
        };
        SimObjects { state: Arc::new(Mutex::new(state)) }
    }

    pub fn set_faults(&self, faults: ObjectFaults) {
        self.state.lock().faults = faults;
    }

    pub fn set_hit_rate(&self, rate: f64) {
        self.state.lock().hit_rate = rate;
    }

    /// Limits the total size of the files.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// Cuts the connection after this many more changing requests, lists and fetches.
    /// `applied`: whether the request that fails takes effect.
    pub fn cut_after(&self, requests: u64, applied: bool) {
        let mut state = self.state.lock();
        let begun = state.begun();
        state.cut = Some((begun + requests, applied));
    }

    /// Whether a request has failed because the connection is cut.
    pub fn is_cut(&self) -> bool {
        let state = self.state.lock();
        state.cut.is_some_and(|(at, _)| state.begun() > at)
    }

    /// Connects again, as after a crash of the process that used it: without local bytes.
    pub fn reconnect(&self) {
        let mut state = self.state.lock();
        state.cut = None;
        state.faults = ObjectFaults::default();
        state.fetches.clear();
        state.damaged.clear();
    }

    pub fn files(&self) -> BTreeMap<FileName, Bytes> {
        let mut state = self.state.lock();
        state.apply_late();
        state.files.clone()
    }

    /// Puts a file there, as a stray of another process would be.
    pub fn put(&self, name: FileName, bytes: &[u8]) {
        self.state.lock().files.insert(name, Bytes::copy_from_slice(bytes));
    }

    /// Removes a file behind the back of its users.
    pub fn lose(&self, name: FileName) {
        self.state.lock().files.remove(&name);
    }

    /// Damages the local copy of a file; with `stored`, also the file itself.
    pub fn damage(&self, name: FileName, stored: bool) {
        let mut state = self.state.lock();
        let Some(bytes) = state.files.get(&name) else { return };
        let damaged: Bytes = bytes.iter().map(|byte| byte ^ 0x5A).collect::<Vec<u8>>().into();
        if stored {
            state.files.insert(name, damaged.clone());
        }
        state.damaged.insert(name, damaged);
    }

    pub fn requests(&self) -> ObjectRequests {
        self.state.lock().requests
    }

    fn create_sink(&self, name: FileName) -> SimSink {
        let is_new = self.state.lock().names.insert(name);
        assert!(is_new, "{name} was used twice");
        SimSink { objects: self.clone(), name, bytes: Vec::new() }
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Succeeds,
    Fails,
    FailsApplied,
    FailsLate,
}

impl State {
    fn begun(&self) -> u64 {
        let ObjectRequests { puts, gets, lists, deletes, .. } = self.requests;
        puts + gets + lists + deletes
    }

    fn chance(&self, rate: f64) -> bool {
        rate > 0.0 && (self.random.next_u64() as f64) < rate * u64::MAX as f64
    }

    fn apply_late(&mut self) {
        let late = std::mem::take(&mut self.late);
        self.files.extend(late);
    }

    /// Decides about a request that was counted.
    fn fate(&mut self, rates: &[(f64, Fate)]) -> Fate {
        self.apply_late();
        let number = self.begun();
        if let Some((at, applied)) = self.cut
            && number > at
        {
            return if applied && number == at + 1 { Fate::FailsApplied } else { Fate::Fails };
        }
        let struck = rates.iter().find(|(rate, _)| self.chance(*rate));
        struck.map_or(Fate::Succeeds, |(_, fate)| *fate)
    }

    fn has_capacity(&self, bytes: usize) -> bool {
        let used: usize = self.files.values().map(Bytes::len).sum();
        self.capacity.is_none_or(|capacity| (used + bytes) as u64 <= capacity)
    }

    fn bytes_of(&self, name: FileName, file_bytes: u64, range: &Range<u64>) -> io::Result<Bytes> {
        let Some(bytes) = self.damaged.get(&name).or_else(|| self.files.get(&name)) else {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("no file {name}")));
        };
        assert_eq!(bytes.len() as u64, file_bytes, "the size of {name} is known");
        Ok(bytes.slice(range.start as usize..range.end as usize))
    }
}

fn unavailable() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "503 from the simulated store")
}

impl FragmentStore for SimObjects {
    fn create(&self, name: FileName) -> Box<dyn FragmentSink> {
        Box::new(self.create_sink(name))
    }

    fn read(&self, name: FileName, file_bytes: u64, range: Range<u64>) -> io::Result<Part> {
        let mut state = self.state.lock();
        let key = (name, range.start, range.end);
        let held = state.fetches.get(&key).and_then(Weak::upgrade);
        // A fetch that has ended does not block.
        if let Some(bytes) = held.and_then(|fetch| fetch.wait().ok()) {
            state.requests.hits += 1;
            return Ok(Part::Ready(bytes));
        }
        if state.chance(state.hit_rate) {
            state.requests.hits += 1;
            return state.bytes_of(name, file_bytes, &range).map(Part::Ready);
        }
        state.requests.gets += 1;
        let get = state.faults.get;
        let outcome = match state.fate(&[(get, Fate::Fails)]) {
            Fate::Succeeds => state.bytes_of(name, file_bytes, &range),
            _ => Err(unavailable()),
        };
        let fetch = Fetch::new();
        fetch.finish(outcome);
        state.fetches.retain(|_, fetch| fetch.strong_count() > 0);
        state.fetches.insert(key, Arc::downgrade(&fetch));
        Ok(Part::Fetch(fetch))
    }

    fn prefetch(&self, _name: FileName, file_bytes: u64, range: Range<u64>) {
        assert!(range.end <= file_bytes && !range.is_empty());
        let mut state = self.state.lock();
        state.requests.prefetches += 1;
        state.requests.prefetched_bytes += range.end - range.start;
    }

    fn forget(&self, name: FileName, _range: Range<u64>) {
        let mut state = self.state.lock();
        state.requests.forgotten += 1;
        state.damaged.remove(&name);
        state.fetches.retain(|(of, _, _), _| *of != name);
    }

    fn delete(&self, name: FileName, done: Done<()>) {
        let mut state = self.state.lock();
        state.requests.deletes += 1;
        let delete = state.faults.delete;
        let fate = state.fate(&[(delete, Fate::Fails)]);
        if matches!(fate, Fate::Succeeds | Fate::FailsApplied) {
            state.files.remove(&name);
        }
        drop(state);
        done(if fate == Fate::Succeeds { Ok(()) } else { Err(unavailable()) });
    }

    fn list(&self, done: Done<Vec<StoredFile>>) {
        let mut state = self.state.lock();
        state.requests.lists += 1;
        let list = state.faults.list;
        let fate = state.fate(&[(list, Fate::Fails)]);
        let file = |(name, bytes): (&FileName, &Bytes)| StoredFile {
            name: *name,
            bytes: bytes.len() as u64,
        };
        let files: Vec<StoredFile> = state.files.iter().map(file).collect();
        drop(state);
        // A listing that misses a page has failed.
        done(if fate == Fate::Succeeds { Ok(files) } else { Err(unavailable()) });
    }

    fn address(&self) -> String {
        "sim://objects".to_string()
    }
}

struct SimSink {
    objects: SimObjects,
    name: FileName,
    bytes: Vec<u8>,
}

impl FragmentSink for SimSink {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>, done: Done<()>) {
        let SimSink { objects, name, bytes } = *self;
        let mut state = objects.state.lock();
        state.requests.puts += 1;
        let ObjectFaults { put, applied_put, late_put, .. } = state.faults;
        let rates =
            [(put, Fate::Fails), (applied_put, Fate::FailsApplied), (late_put, Fate::FailsLate)];
        let mut fate = state.fate(&rates);
        let is_full = !state.has_capacity(bytes.len());
        if is_full {
            fate = Fate::Fails;
        }
        match fate {
            Fate::Succeeds | Fate::FailsApplied => {
                state.files.insert(name, bytes.into());
            }
            Fate::FailsLate => state.late.push((name, bytes.into())),
            Fate::Fails => {}
        }
        drop(state);
        done(match fate {
            Fate::Succeeds => Ok(()),
            _ if is_full => Err(io::ErrorKind::StorageFull.into()),
            _ => Err(unavailable()),
        });
    }
}
