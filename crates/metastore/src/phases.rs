//! How long a request spends in each phase of a write.
//!
//! The Raft group notes when it took the batch of an entry, when the entry was
//! written to the log of this member, and when it was applied here. A caller that
//! gets its answer finds its entry among the recent ones by the time at which it
//! queued its proposal, so nothing has to travel with the proposal.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use stele_engine::fatal::Mutex;

use crate::histogram::Histogram;

/// The number of entries whose times are kept for their callers, of entries in
/// flight, and of writes to the log.
const KEPT_MAX: usize = 128;

/// When an entry of this member reached each step, by the monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
struct EntryTimes {
    /// The group could take another batch.
    free: Duration,
    taken: Duration,
    /// How long the local log took to write and sync it.
    sync: Duration,
    /// A majority had it, and this member began to apply it.
    began: Duration,
    applied: Duration,
}

/// A write of entries to the local log.
#[derive(Clone, Copy, Debug)]
struct LogWrite {
    /// The last entry that it made durable.
    last: u64,
    took: Duration,
}

/// The durations of one request's phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breakdown {
    /// Waiting until the group could take another batch.
    pub queue: Duration,
    /// Waiting for other proposals to share the entry.
    pub gather: Duration,
    /// Writing the entry to the local log and syncing it.
    pub sync: Duration,
    /// The rest of the time until it was committed: forwarding it to the leader
    /// and waiting for a majority, less the local sync, which runs meanwhile.
    pub replicate: Duration,
    pub apply: Duration,
    /// Until the caller resumed with its answer.
    pub send: Duration,
}

/// The phases of all requests.
pub struct Phases {
    pub queue: Histogram,
    pub gather: Histogram,
    pub sync: Histogram,
    pub replicate: Histogram,
    pub apply: Histogram,
    pub send: Histogram,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    /// Those in flight, by ticket.
    taken: BTreeMap<u64, EntryTimes>,
    /// From the oldest to the newest.
    writes: VecDeque<LogWrite>,
    /// From the first to the last applied.
    recent: VecDeque<EntryTimes>,
}

impl Default for Phases {
    fn default() -> Phases {
        Phases {
            queue: Histogram::fine(),
            gather: Histogram::fine(),
            sync: Histogram::fine(),
            replicate: Histogram::fine(),
            apply: Histogram::fine(),
            send: Histogram::fine(),
            entries: Mutex::new(Entries::default()),
        }
    }
}

impl Phases {
    /// Notes that a batch was taken for the entry with this ticket. The group
    /// could have taken it from `free` on.
    pub fn note_taken(&self, ticket: u64, free: Duration, taken: Duration) {
        let mut entries = self.entries.lock();
        entries.taken.insert(ticket, EntryTimes { free, taken, ..EntryTimes::default() });
        if entries.taken.len() > KEPT_MAX {
            // Its outcome was never known here.
            entries.taken.pop_first();
        }
    }

    /// Notes that the entries up to `last` are in the local log.
    pub fn note_synced(&self, last: u64, took: Duration) {
        let writes = &mut self.entries.lock().writes;
        push(writes, LogWrite { last, took });
    }

    /// Notes that an entry was applied, before its callers are answered.
    pub fn note_applied(&self, ticket: u64, index: u64, began: Duration, applied: Duration) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.taken.remove(&ticket) else { return };
        // The newest one that reaches no further than needed: a log that was
        // truncated has older ones that reach further.
        let covering = entries.writes.iter().rev().take_while(|write| write.last >= index).last();
        let sync = covering.map_or(Duration::ZERO, |write| write.took);
        push(&mut entries.recent, EntryTimes { sync, began, applied, ..entry });
    }

    /// Records the phases of a request that was queued and answered at these
    /// times. Returns `None` if the times of its entry are no longer known.
    pub fn record(&self, queued: Duration, answered: Duration) -> Option<Breakdown> {
        let entry = self.entry_of(queued)?;
        let committing = entry.began.saturating_sub(entry.taken);
        let sync = entry.sync.min(committing);
        let breakdown = Breakdown {
            queue: entry.free.saturating_sub(queued),
            gather: entry.taken.saturating_sub(queued.max(entry.free)),
            sync,
            replicate: committing.saturating_sub(sync),
            apply: entry.applied.saturating_sub(entry.began),
            send: answered.saturating_sub(entry.applied),
        };
        self.queue.add(breakdown.queue);
        self.gather.add(breakdown.gather);
        self.sync.add(breakdown.sync);
        self.replicate.add(breakdown.replicate);
        self.apply.add(breakdown.apply);
        self.send.add(breakdown.send);
        Some(breakdown)
    }

    /// Returns the first entry that was taken after a proposal was queued. With
    /// several in flight, it need not be the first that was applied.
    fn entry_of(&self, queued: Duration) -> Option<EntryTimes> {
        let entries = self.entries.lock();
        let later = entries.recent.iter().filter(|entry| entry.taken >= queued);
        later.min_by_key(|entry| entry.taken).copied()
    }

    /// Returns the histograms with their names.
    pub fn histograms(&self) -> [(&'static str, &Histogram); 6] {
        [
            ("queue", &self.queue),
            ("gather", &self.gather),
            ("sync", &self.sync),
            ("replicate", &self.replicate),
            ("apply", &self.apply),
            ("send", &self.send),
        ]
    }
}

/// Adds the newest, and drops the oldest if there are too many.
fn push<T>(kept: &mut VecDeque<T>, newest: T) {
    if kept.len() == KEPT_MAX {
        kept.pop_front();
    }
    kept.push_back(newest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// An entry of a group of one: written, synced and applied.
    fn entry(phases: &Phases, index: u64, [free, taken, synced, applied]: [u64; 4]) {
        phases.note_taken(index, micros(free), micros(taken));
        phases.note_synced(index, micros(synced - taken));
        phases.note_applied(index, index, micros(synced), micros(applied));
    }

    #[test]
    fn the_phases_of_a_request_add_up_to_its_time() {
        let phases = Phases::default();
        entry(&phases, 1, [0, 10, 200, 230]);
        entry(&phases, 2, [240, 250, 600, 640]);
        entry(&phases, 3, [650, 660, 900, 910]);
        // Queued while the first entry was synced: in the second.
        let breakdown = phases.record(micros(100), micros(700)).unwrap();
        let expected = Breakdown {
            queue: micros(140),
            gather: micros(10),
            sync: micros(350),
            replicate: micros(0),
            apply: micros(40),
            send: micros(60),
        };
        assert_eq!(breakdown, expected);
        // Queued while the group was free.
        let breakdown = phases.record(micros(655), micros(911)).unwrap();
        assert_eq!((breakdown.queue, breakdown.gather), (micros(0), micros(5)));
        assert_eq!(phases.record(micros(1000), micros(1001)), None);
        assert_eq!(phases.send.count(), 2);
    }

    #[test]
    fn entries_in_flight_are_told_apart_and_waiting_for_a_majority_is_replication() {
        let phases = Phases::default();
        // Entry 8 was retried, and is applied after entry 7 that was taken later.
        phases.note_taken(1, micros(10), micros(20));
        phases.note_taken(2, micros(20), micros(40));
        // One sync for both.
        phases.note_synced(8, micros(30));
        phases.note_applied(2, 7, micros(300), micros(310));
        phases.note_applied(1, 8, micros(320), micros(340));
        let first = phases.record(micros(15), micros(400)).unwrap();
        let expected = Breakdown {
            queue: micros(0),
            gather: micros(5),
            sync: micros(30),
            replicate: micros(270),
            apply: micros(20),
            send: micros(60),
        };
        assert_eq!(first, expected);
        let second = phases.record(micros(30), micros(400)).unwrap();
        assert_eq!((second.replicate, second.apply), (micros(230), micros(10)));
    }

    #[test]
    fn an_entry_of_another_member_is_not_counted() {
        let phases = Phases::default();
        phases.note_synced(1, micros(1));
        phases.note_applied(9, 1, micros(5), micros(6));
        assert_eq!(phases.record(micros(0), micros(7)), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let phases = Phases::default();
        for at in 0..1000 {
            // One whose outcome is never known.
            phases.note_taken(at, micros(0), micros(0));
            entry(&phases, 10_000 + at, [10 * at, 10 * at + 1, 10 * at + 2, 10 * at + 3]);
        }
        let entries = phases.entries.lock();
        assert_eq!([entries.recent.len(), entries.writes.len()], [KEPT_MAX; 2]);
        assert!(entries.taken.len() <= KEPT_MAX);
        drop(entries);
        assert_eq!(phases.entry_of(micros(9985)).unwrap().taken, micros(9991));
    }
}
