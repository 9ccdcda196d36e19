//! How long a request spends in each phase of a write.
//!
//! The thread of the Raft group notes when it became free, took a batch, synced
//! it and applied it. A caller that gets its answer finds its entry among the
//! recent ones by the time at which it queued its proposal, so nothing has to
//! travel with the proposal.

use std::collections::VecDeque;
use std::time::Duration;

use stele_engine::fatal::Mutex;

use crate::histogram::Histogram;

/// The number of entries whose times are kept for their callers.
const RECENT_MAX: usize = 64;

/// When an entry reached each step, by the monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
struct EntryTimes {
    /// The entry before it was done.
    free: Duration,
    taken: Duration,
    synced: Duration,
    applied: Duration,
}

/// The durations of one request's phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breakdown {
    /// Waiting for the entry before.
    pub queue: Duration,
    /// Waiting for other proposals to share the entry.
    pub gather: Duration,
    /// Writing the entry to the log and syncing it.
    pub sync: Duration,
    pub apply: Duration,
    /// Until the caller resumed with its answer.
    pub send: Duration,
}

/// The phases of all requests.
pub struct Phases {
    pub queue: Histogram,
    pub gather: Histogram,
    pub sync: Histogram,
    pub apply: Histogram,
    pub send: Histogram,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    current: EntryTimes,
    /// From the oldest to the newest.
    recent: VecDeque<EntryTimes>,
}

impl Default for Phases {
    fn default() -> Phases {
        Phases {
            queue: Histogram::fine(),
            gather: Histogram::fine(),
            sync: Histogram::fine(),
            apply: Histogram::fine(),
            send: Histogram::fine(),
            entries: Mutex::new(Entries::default()),
        }
    }
}

impl Phases {
    /// Notes that the group can take the next batch.
    pub fn note_free(&self, now: Duration) {
        self.entries.lock().current = EntryTimes { free: now, ..EntryTimes::default() };
    }

    pub fn note_taken(&self, now: Duration) {
        self.entries.lock().current.taken = now;
    }

    pub fn note_synced(&self, now: Duration) {
        self.entries.lock().current.synced = now;
    }

    /// Notes that the entry is applied, before its callers are answered.
    pub fn note_applied(&self, now: Duration) {
        let mut entries = self.entries.lock();
        entries.current.applied = now;
        let entry = entries.current;
        if entries.recent.len() == RECENT_MAX {
            entries.recent.pop_front();
        }
        entries.recent.push_back(entry);
    }

    /// Records the phases of a request that was queued and answered at these
    /// times. Returns `None` if the times of its entry are no longer known.
    pub fn record(&self, queued: Duration, answered: Duration) -> Option<Breakdown> {
        let entry = self.entry_of(queued)?;
        let breakdown = Breakdown {
            queue: entry.free.saturating_sub(queued),
            gather: entry.taken.saturating_sub(queued.max(entry.free)),
            sync: entry.synced.saturating_sub(entry.taken),
            apply: entry.applied.saturating_sub(entry.synced),
            send: answered.saturating_sub(entry.applied),
        };
        self.queue.add(breakdown.queue);
        self.gather.add(breakdown.gather);
        self.sync.add(breakdown.sync);
        self.apply.add(breakdown.apply);
        self.send.add(breakdown.send);
        Some(breakdown)
    }

    /// Returns the first entry that was taken after a proposal was queued.
    fn entry_of(&self, queued: Duration) -> Option<EntryTimes> {
        let entries = self.entries.lock();
        let newer = entries.recent.iter().rev().take_while(|entry| entry.taken >= queued);
        newer.last().copied()
    }

    /// Returns the histograms with their names.
    pub fn histograms(&self) -> [(&'static str, &Histogram); 5] {
        [
            ("queue", &self.queue),
            ("gather", &self.gather),
            ("sync", &self.sync),
            ("apply", &self.apply),
            ("send", &self.send),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    fn entry(phases: &Phases, free: u64, taken: u64, synced: u64, applied: u64) {
        phases.note_free(micros(free));
        phases.note_taken(micros(taken));
        phases.note_synced(micros(synced));
        phases.note_applied(micros(applied));
    }

    #[test]
    fn the_phases_of_a_request_add_up_to_its_time() {
        let phases = Phases::default();
        entry(&phases, 0, 10, 200, 230);
        entry(&phases, 240, 250, 600, 640);
        entry(&phases, 650, 660, 900, 910);
        // Queued while the first entry was synced: in the second.
        let breakdown = phases.record(micros(100), micros(700)).unwrap();
        let expected = Breakdown {
            queue: micros(140),
            gather: micros(10),
            sync: micros(350),
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
    fn a_caller_that_comes_too_late_is_not_counted_in_another_entry() {
        let phases = Phases::default();
        for at in 0..100 {
            entry(&phases, 10 * at, 10 * at + 1, 10 * at + 2, 10 * at + 3);
        }
        assert_eq!(phases.entries.lock().recent.len(), RECENT_MAX);
        assert_eq!(phases.entry_of(micros(985)).unwrap().taken, micros(991));
    }
}
