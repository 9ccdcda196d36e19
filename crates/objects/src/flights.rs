//! Fetches under way. Every part is fetched once, however many readers want it.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use stele_engine::config::FileName;
use stele_engine::world::{Fetch, FetchError};

use crate::cache::PartKey;
use crate::reply::closed;

/// The outcome of a fetch of a part.
pub type Outcome = Result<Bytes, FetchError>;
type Waiter = Box<dyn FnOnce(Outcome) + Send>;

/// Fetches of parts, and the reads that wait for them.
#[derive(Default)]
pub struct Flights {
    parts: Mutex<HashMap<PartKey, Flight>>,
    reads: Mutex<HashMap<Wanted, Weak<Fetch>>>,
}

enum Flight {
    Fetching(Vec<Waiter>),
    /// Fetched, but not yet in the cache.
    Fetched(Bytes),
}

/// What a read wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Wanted {
    name: FileName,
    range: Range<u64>,
}

/// Whether a part has to be fetched by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// The part is in the cache now.
    Cached,
    /// The caller starts the fetch and reports its end to `Flights::ended`.
    Start,
    /// A fetch is under way, or has just ended.
    UnderWay,
}

impl Flights {
    /// Registers `waiter` for a part. It is called when the fetch has ended, or at once;
    /// not at all if the part `is_cached`. That is asked while no fetch can end, so that a
    /// part is not fetched again right after it has arrived.
    pub fn join(
        &self,
        key: PartKey,
        is_cached: impl FnOnce() -> bool,
        waiter: impl FnOnce(Outcome) + Send + 'static,
    ) -> Join {
        let mut parts = self.parts.lock();
        let fetched = match parts.get_mut(&key) {
            None if is_cached() => return Join::Cached,
            None => {
                parts.insert(key, Flight::Fetching(vec![Box::new(waiter)]));
                return Join::Start;
            }
            Some(Flight::Fetching(waiters)) => {
                waiters.push(Box::new(waiter));
                return Join::UnderWay;
            }
            Some(Flight::Fetched(bytes)) => bytes.clone(),
        };
        drop(parts);
        waiter(Ok(fetched));
        Join::UnderWay
    }

    /// Begins a prefetch unless the part is being fetched or `is_cached`.
    pub fn begin(&self, key: PartKey, is_cached: impl FnOnce() -> bool) -> bool {
        let mut parts = self.parts.lock();
        let absent = !parts.contains_key(&key) && !is_cached();
        if absent {
            parts.insert(key, Flight::Fetching(Vec::new()));
        }
        absent
    }

    /// Returns bytes that were fetched and are not yet in the cache.
    pub fn fetched(&self, key: PartKey) -> Option<Bytes> {
        match self.parts.lock().get(&key)? {
            Flight::Fetched(bytes) => Some(bytes.clone()),
            Flight::Fetching(_) => None,
        }
    }

    /// Reports the end of a fetch to all that wait for it. Fetched bytes stay available
    /// until `landed`.
    pub fn ended(&self, key: PartKey, outcome: Outcome) {
        let mut parts = self.parts.lock();
        let before = match &outcome {
            Ok(bytes) => parts.insert(key, Flight::Fetched(bytes.clone())),
            Err(_) => parts.remove(&key),
        };
        drop(parts);
        if let Some(Flight::Fetching(waiters)) = before {
            waiters.into_iter().for_each(|waiter| waiter(outcome.clone()));
        }
    }

    /// Drops bytes that are in the cache now.
    pub fn landed(&self, key: PartKey) {
        self.parts.lock().remove(&key);
    }

    /// Returns the read of the same bytes that someone still holds, or a new one.
    pub fn read(&self, name: FileName, range: &Range<u64>) -> (Arc<Fetch>, bool) {
        let wanted = Wanted { name, range: range.clone() };
        let mut reads = self.reads.lock();
        if let Some(fetch) = reads.get(&wanted).and_then(Weak::upgrade) {
            return (fetch, false);
        }
        if reads.len() >= 64 && reads.len().is_power_of_two() {
            reads.retain(|_, fetch| fetch.strong_count() > 0);
        }
        let fetch = Fetch::new();
        reads.insert(wanted, Arc::downgrade(&fetch));
        (fetch, true)
    }

    /// Returns the bytes of a read that has ended and that someone still holds. So a
    /// reader that keeps its fetch makes progress even if the cache has evicted them.
    pub fn held(&self, name: FileName, range: &Range<u64>) -> Option<Bytes> {
        let wanted = Wanted { name, range: range.clone() };
        let fetch = self.reads.lock().get(&wanted)?.upgrade()?;
        let slot = Arc::new(Mutex::new(None));
        let found = slot.clone();
        // Called at once if the fetch has ended; else it is a waiter without effect.
        fetch.when_ended(move |outcome| *found.lock() = outcome.ok());
        slot.lock().take()
    }

    /// Drops a read that failed, or whose bytes are damaged, so that the next one starts over.
    pub fn drop_reads(&self, name: FileName, range: &Range<u64>) {
        let touches = |wanted: &Wanted| {
            wanted.name == name && wanted.range.start < range.end && range.start < wanted.range.end
        };
        self.reads.lock().retain(|wanted, _| !touches(wanted));
    }
}

/// Collects the parts of a read, and ends its fetch when all have arrived.
pub struct Gather {
    fetch: Arc<Fetch>,
    range: Range<u64>,
    parts: Mutex<GatherState>,
}

struct GatherState {
    missing: usize,
    /// The wanted bytes of each part.
    pieces: Vec<Option<Bytes>>,
    failure: Option<FetchError>,
}

impl Gather {
    pub fn new(fetch: Arc<Fetch>, range: Range<u64>, parts: usize) -> Arc<Gather> {
        let state = GatherState { missing: parts, pieces: vec![None; parts], failure: None };
        Arc::new(Gather { fetch, range, parts: Mutex::new(state) })
    }

    /// Adds the part at `index`, whose first byte is at `start` of the file.
    pub fn arrived(&self, index: usize, start: u64, outcome: Outcome) {
        let mut state = self.parts.lock();
        match outcome {
            Ok(bytes) => state.pieces[index] = Some(slice(&bytes, start, &self.range)),
            Err(error) => state.failure = Some(error),
        }
        state.missing -= 1;
        if state.missing > 0 {
            return;
        }
        let failure = state.failure.take();
        let pieces = std::mem::take(&mut state.pieces);
        drop(state);
        self.fetch.finish(match failure {
            Some(error) => Err(io::Error::from(error)),
            None => Ok(concatenate(pieces.into_iter().flatten())),
        });
    }
}

impl Drop for Gather {
    /// Ends the fetch if its parts will not arrive because the store is closed.
    fn drop(&mut self) {
        if self.parts.get_mut().missing > 0 {
            self.fetch.finish(Err(closed()));
        }
    }
}

/// Returns the bytes of a part that lie in a range of the file.
pub fn slice(part: &Bytes, start: u64, range: &Range<u64>) -> Bytes {
    let end = start + part.len() as u64;
    let from = range.start.clamp(start, end) - start;
    let to = range.end.clamp(start, end) - start;
    part.slice(from as usize..to as usize)
}

/// Joins pieces; a single one is not copied.
pub fn concatenate(pieces: impl Iterator<Item = Bytes>) -> Bytes {
    let mut pieces = pieces.peekable();
    let first = pieces.next().unwrap_or_default();
    if pieces.peek().is_none() {
        return first;
    }
    let mut all = BytesMut::from(&first[..]);
    pieces.for_each(|piece| all.extend_from_slice(&piece));
    all.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(part: u32) -> PartKey {
        PartKey { name: FileName { incarnation: 1, number: 2 }, part }
    }

    fn counter() -> (Arc<Mutex<Vec<Bytes>>>, impl Fn(Outcome) + Clone) {
        let seen: Arc<Mutex<Vec<Bytes>>> = Arc::default();
        let waiter = seen.clone();
        (seen, move |outcome: Outcome| waiter.lock().push(outcome.unwrap()))
    }

    #[test]
    fn a_part_is_fetched_once_for_all_that_want_it() {
        let flights = Flights::default();
        let (seen, waiter) = counter();
        assert_eq!(flights.join(key(0), || false, waiter.clone()), Join::Start);
        assert_eq!(flights.join(key(0), || false, waiter.clone()), Join::UnderWay);
        assert!(!flights.begin(key(0), || false));
        assert_eq!(flights.fetched(key(0)), None);
        flights.ended(key(0), Ok(Bytes::from_static(b"x")));
        assert_eq!(seen.lock().len(), 2);
        // Until it is in the cache the bytes are served from memory.
        assert_eq!(flights.join(key(0), || false, waiter.clone()), Join::UnderWay);
        assert_eq!(seen.lock().len(), 3);
        assert_eq!(flights.fetched(key(0)).unwrap(), "x");
        flights.landed(key(0));
        assert_eq!(flights.join(key(0), || true, waiter.clone()), Join::Cached);
        assert!(!flights.begin(key(0), || true));
        assert_eq!(flights.join(key(0), || false, waiter), Join::Start);
    }

    #[test]
    fn a_failed_fetch_can_be_started_again() {
        let flights = Flights::default();
        let failed = Arc::new(Mutex::new(0));
        let waiter = || {
            let failed = failed.clone();
            move |outcome: Outcome| *failed.lock() += u32::from(outcome.is_err())
        };
        assert_eq!(flights.join(key(0), || false, waiter()), Join::Start);
        flights.ended(key(0), Err(FetchError::from(io::Error::other("down"))));
        assert_eq!(*failed.lock(), 1);
        assert_eq!(flights.join(key(0), || false, waiter()), Join::Start);
    }

    #[test]
    fn held_reads_keep_their_bytes() {
        let flights = Flights::default();
        let name = key(0).name;
        let (fetch, new) = flights.read(name, &(5..9));
        assert!(new && !flights.read(name, &(5..9)).1);
        assert_eq!(flights.held(name, &(5..9)), None);
        fetch.finish(Ok(Bytes::from_static(b"abcd")));
        assert_eq!(flights.held(name, &(5..9)).unwrap(), "abcd");
        assert_eq!(flights.held(name, &(5..8)), None);
        drop(fetch);
        assert_eq!(flights.held(name, &(5..9)), None);
    }

    #[test]
    fn a_read_gathers_its_parts_in_order() {
        let fetch = Fetch::new();
        let gather = Gather::new(fetch.clone(), 3..9, 3);
        for (index, start, bytes) in [(2, 8, "ij"), (0, 0, "abcd"), (1, 4, "efgh")] {
            gather.arrived(index, start, Ok(Bytes::from_static(bytes.as_bytes())));
        }
        assert_eq!(fetch.wait().unwrap(), "defghi");
    }

    #[test]
    fn a_read_whose_parts_are_dropped_fails() {
        let fetch = Fetch::new();
        drop(Gather::new(fetch.clone(), 0..1, 1));
        assert_eq!(fetch.wait().unwrap_err().kind, io::ErrorKind::BrokenPipe);
    }
}
