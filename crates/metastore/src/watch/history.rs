//! What was read from history most recently, shared by watchers on different streams that
//! miss the same. A reader reads what any of the watchers wants that wait for their turn;
//! the others find it here when theirs comes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::event::Event;
use crate::command::{KeyRange, RangeEnd};

/// The maximum number of reads that are kept, and of bytes of each.
const READS_MAX: usize = 4;
const READ_BYTES_MAX: usize = 2 << 20;
/// The maximum number of ranges that one read covers, and of watchers that it considers.
const RANGES_MAX: usize = 64;
const WATCHERS_MAX: usize = 256;

/// A position in the stream of changes: a revision, and the number of its changes before
/// the position.
pub type Position = (i64, u32);

#[derive(Default)]
pub struct SharedHistory(Mutex<Shared>);

#[derive(Default)]
struct Shared {
    /// What the watchers want that wait for their turn, in the order of their arrival.
    waiting: BTreeMap<u64, (Position, KeyRange)>,
    arrivals: u64,
    reads: VecDeque<Arc<HistoryRead>>,
}

/// The changes of some ranges between two positions.
pub struct HistoryRead {
    pub from: Position,
    pub next: Position,
    pub ranges: Vec<KeyRange>,
    pub events: Vec<Event>,
}

/// A watcher that waits for its turn.
pub struct Waiting<'h> {
    history: &'h SharedHistory,
    arrival: u64,
}

impl SharedHistory {
    /// Notes that a watcher waits for its turn to read.
    pub fn wait(&self, position: Position, range: &KeyRange) -> Waiting<'_> {
        let mut shared = self.0.lock();
        let arrival = shared.arrivals;
        shared.arrivals += 1;
        shared.waiting.insert(arrival, (position, range.clone()));
        Waiting { history: self, arrival }
    }

    /// Returns the ranges to read from a position on: the own one, and those that others
    /// wait for who can use this read.
    pub fn ranges(&self, from: Position, own: &KeyRange) -> Vec<KeyRange> {
        let shared = self.0.lock();
        let mut ranges = vec![own.clone()];
        for (position, range) in shared.waiting.values().take(WATCHERS_MAX) {
            let usable = begins(from, *position);
            if usable && !ranges.iter().any(|read| covers(read, range)) {
                ranges.push(range.clone());
            }
            if ranges.len() == RANGES_MAX {
                break;
            }
        }
        ranges
    }

    /// Returns a read that has all changes of the range from the position on.
    pub fn find(&self, position: Position, range: &KeyRange) -> Option<Arc<HistoryRead>> {
        let shared = self.0.lock();
        let has = |read: &&Arc<HistoryRead>| {
            let in_reach = begins(read.from, position) && position < read.next;
            in_reach && read.ranges.iter().any(|read| covers(read, range))
        };
        shared.reads.iter().rev().find(has).cloned()
    }

    /// Keeps a read for others, unless it is large.
    pub fn keep(&self, read: HistoryRead) -> Arc<HistoryRead> {
        let bytes: usize = read.events.iter().map(Event::bytes).sum();
        let read = Arc::new(read);
        if bytes <= READ_BYTES_MAX {
            let mut shared = self.0.lock();
            if shared.reads.len() == READS_MAX {
                shared.reads.pop_front();
            }
            shared.reads.push_back(read.clone());
        }
        read
    }

    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }

    /// Releases what was read, when nobody watches any more.
    pub fn clear(&self) {
        self.0.lock().reads.clear();
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.history.0.lock().waiting.remove(&self.arrival);
    }
}

/// Returns whether a read has all changes from a position on, if it reaches that far.
fn begins(from: Position, position: Position) -> bool {
    // Events do not tell their position inside a revision.
    position == from || position.1 == 0 && position > from
}

/// Returns whether a range has all keys of another.
fn covers(range: &KeyRange, other: &KeyRange) -> bool {
    match (&range.end, &other.end) {
        (_, RangeEnd::Single) => range.contains(&other.start),
        (RangeEnd::Single, _) | (RangeEnd::Before(_), RangeEnd::Unbounded) => false,
        (RangeEnd::Unbounded, _) => range.start <= other.start,
        (RangeEnd::Before(end), RangeEnd::Before(other_end)) => {
            range.start <= other.start && other_end <= end
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &'static str, end: &'static str) -> KeyRange {
        KeyRange { start: start.into(), end: RangeEnd::Before(end.into()) }
    }

    fn read(from: Position, next: Position, ranges: Vec<KeyRange>) -> HistoryRead {
        HistoryRead { from, next, ranges, events: Vec::new() }
    }

    #[test]
    fn a_read_serves_positions_inside_it_and_ranges_within_its_own() {
        let history = SharedHistory::default();
        history.keep(read((5, 2), (9, 0), vec![range("a", "c"), range("x", "y")]));
        let found = |position, start, end| history.find(position, &range(start, end)).is_some();
        assert!(found((5, 2), "a", "c") && found((6, 0), "b", "c") && found((8, 0), "x", "xx"));
        assert!(!found((5, 0), "a", "c") && !found((5, 1), "a", "c"), "before it");
        assert!(!found((9, 0), "a", "c"), "after it");
        assert!(!found((6, 1), "a", "c"), "inside another revision");
        assert!(!found((6, 0), "a", "d") && !found((6, 0), "k", "l"), "other keys");
        let single = |key: &'static str| history.find((6, 0), &KeyRange::single(key)).is_some();
        assert!(single("b") && !single("c"));
        let all = KeyRange::all();
        assert!(history.find((6, 0), &all).is_none());
        for at in 0..READS_MAX as i64 {
            history.keep(read((10 + at, 0), (11 + at, 0), vec![all.clone()]));
        }
        assert!(!found((6, 0), "a", "c") && found((10, 0), "a", "c"), "the oldest is dropped");
        history.clear();
        assert!(!found((10, 0), "a", "c"));
    }

    #[test]
    fn a_read_covers_what_others_wait_for() {
        let history = SharedHistory::default();
        let own = range("a", "c");
        let starts = ["b", "b", "k", "x"];
        let waiting: Vec<_> =
            starts.map(|start| history.wait((7, 0), &range(start, "z"))).into_iter().collect();
        let inner = history.wait((7, 0), &range("b", "c"));
        assert_eq!(history.ranges((7, 0), &own), [own.clone(), range("b", "z")]);
        assert_eq!(
            history.ranges((8, 0), &own),
            std::slice::from_ref(&own),
            "they need earlier changes"
        );
        drop(waiting);
        assert_eq!(history.ranges((7, 0), &own), std::slice::from_ref(&own));
        drop(inner);
        assert_eq!(history.waiting(), 0);
    }
}
