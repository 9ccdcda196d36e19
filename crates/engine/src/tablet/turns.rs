//! The order of publications of a table. Before a publication changes the config it
//! takes a turn for its rows, and keeps it until readers see the change. Publications
//! of files share their rows; a change of bounds has its rows to itself. Turns are taken
//! in the order of arrival. A turn is not a lock: neither readers nor writers wait for
//! one.

use crate::cell::rows::RowRange;
use crate::sync::{Condvar, NoIoGuard, NoIoMutex, assert_io_allowed};

#[derive(Default)]
pub struct Turns {
    state: NoIoMutex<Queue>,
    /// Notified when a turn ends.
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Number of turns so far.
    last: u64,
    /// Those that were asked for and have not ended, in order.
    turns: Vec<Entry>,
}

struct Entry {
    number: u64,
    rows: RowRange,
    shared: bool,
}

impl Entry {
    fn excludes(&self, other: &Entry) -> bool {
        !(self.shared && other.shared) && self.rows.overlaps(&other.rows)
    }
}

impl Queue {
    /// Whether no earlier turn excludes this one.
    fn is_next(&self, number: u64) -> bool {
        let mut earlier = self.turns.iter().take_while(|entry| entry.number < number);
        let asked = self.turns.iter().find(|entry| entry.number == number);
        asked.is_some_and(|asked| !earlier.any(|entry| entry.excludes(asked)))
    }
}

impl Turns {
    /// Waits for a turn for some rows: with other publications of files if `shared`,
    /// otherwise alone.
    pub fn take(&self, rows: RowRange, shared: bool) -> Turn<'_> {
        assert_io_allowed();
        let mut queue = self.state.lock();
        queue.last += 1;
        let number = queue.last;
        queue.turns.push(Entry { number, rows, shared });
        while !queue.is_next(number) {
            NoIoGuard::wait(&mut queue, &self.changed);
        }
        Turn { turns: self, number }
    }
}

/// The right to publish, until it is dropped.
pub struct Turn<'t> {
    turns: &'t Turns,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.state.lock().turns.retain(|entry| entry.number != self.number);
        self.turns.changed.notify_all();
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn waiting(turns: &Turns) -> usize {
        turns.state.lock().turns.len()
    }

    #[test]
    fn scale_3_1_changes_of_bounds_have_their_rows_alone_and_nothing_overtakes_them() {
        let turns = Turns::default();
        let (low, high) = (RowRange::new("a", "m"), RowRange::new("m", "z"));
        let first = turns.take(RowRange::all(), true);
        let second = turns.take(low.clone(), true);
        let (sender, received) = mpsc::channel();
        thread::scope(|scope| {
            let enter = |name: &'static str, rows: &RowRange, shared| {
                let (sender, turns, rows) = (sender.clone(), &turns, rows.clone());
                let before = waiting(turns);
                scope.spawn(move || {
                    let _turn = turns.take(rows, shared);
                    sender.send(name).unwrap();
                });
                while waiting(turns) == before {
                    thread::yield_now();
                }
            };
            enter("split", &low, false);
            enter("files", &low, true);
            drop(first);
            // Rows that nobody has to himself are free at once.
            drop(turns.take(high.clone(), false));
            assert!(received.try_recv().is_err());
            drop(second);
            assert_eq!(received.recv().unwrap(), "split");
            assert_eq!(received.recv().unwrap(), "files");
        });
        assert_eq!(waiting(&turns), 0);
    }
}
