//! A position in the stream of changes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;

use super::event::Event;
use super::history::HistoryRead;
use super::hub::Hub;
use crate::command::KeyRange;
use crate::error::{Error, Result};
use crate::state::Floor;

/// The approximate limits of one call of a cursor, which then stops between two
/// revisions.
pub const TAKE_EVENTS: usize = 1024;
pub const TAKE_BYTES: usize = 1 << 20;
/// The events of one revision are returned together up to this size.
const REVISION_BYTES_MAX: usize = 16 << 20;
/// The approximate number of changes in history that one call examines.
const TAKE_CHANGES: usize = 16 << 10;

/// A position in the stream of changes.
pub struct Cursor {
    hub: Arc<Hub>,
    next: i64,
    /// The number of changes of revision `next` that have been taken or
    /// skipped.
    next_sub: u32,
    floor: Floor,
    newest: watch::Receiver<i64>,
}

impl Cursor {
    pub(super) fn new(
        hub: Arc<Hub>,
        next: i64,
        floor: Floor,
        newest: watch::Receiver<i64>,
    ) -> Cursor {
        Cursor { hub, next, next_sub: 0, floor, newest }
    }

    /// Returns the revision below which everything has been taken.
    pub fn next(&self) -> i64 {
        self.next
    }

    /// Returns `next()` and the number of its changes that have been taken or
    /// skipped.
    pub fn position(&self) -> (i64, u32) {
        (self.next, self.next_sub)
    }

    /// Returns whether some events of revision `next()` have been taken, and
    /// more may follow.
    pub fn is_inside_revision(&self) -> bool {
        self.next_sub > 0
    }

    /// Takes events up to and including revision `until`, and advances past
    /// them. One call takes a bounded amount; the cursor has caught up when
    /// `next()` is above `until` or the hub's revision. It stops inside a
    /// revision only if that has more than 16 MiB of events, or before the
    /// first wanted one. Events that `wanted` rejects are skipped without
    /// reading their values. Fails with `Compacted` when history does not reach
    /// back to `next()`.
    pub fn take(
        &mut self,
        until: i64,
        wanted: &mut dyn FnMut(&[u8]) -> bool,
        out: &mut Vec<Event>,
    ) -> Result<()> {
        match self.take_recent(until, wanted, out) {
            None => Ok(()),
            Some(to) => self.take_history(to, wanted, out),
        }
    }

    /// Like `take`, but waits for a permit before it reads history.
    pub async fn take_with_permit(
        &mut self,
        until: i64,
        wanted: &mut (dyn FnMut(&[u8]) -> bool + Send),
        out: &mut Vec<Event>,
    ) -> Result<()> {
        let Some(to) = self.take_recent(until, wanted, out) else { return Ok(()) };
        let _permit = self.hub.history_permit().await;
        self.take_history(to, wanted, out)
    }

    /// Like `take_with_permit`, for all events of a range of keys. What is read from
    /// history is shared with other cursors that miss the same.
    pub async fn take_shared(&mut self, range: &KeyRange, out: &mut Vec<Event>) -> Result<()> {
        let in_range = &mut |key: &[u8]| range.contains(key);
        let Some(to) = self.take_recent(i64::MAX, in_range, out) else { return Ok(()) };
        let (hub, from) = (self.hub.clone(), self.position());
        let waiting = hub.history.wait(from, range);
        let _permit = hub.history_permit().await;
        drop(waiting);
        let read = match hub.history.find(from, range) {
            Some(read) => {
                self.check_floor()?;
                self.move_to(read.next.0, read.next.1);
                read
            }
            None => {
                let ranges = hub.history.ranges(from, range);
                let mut events = Vec::new();
                let wanted = &mut |key: &[u8]| ranges.iter().any(|range| range.contains(key));
                self.take_history(to, wanted, &mut events)?;
                hub.history.keep(HistoryRead { from, next: self.position(), ranges, events })
            }
        };
        let due = |event: &&Event| event.revision >= from.0 && range.contains(event.key());
        out.extend(read.events.iter().filter(due).cloned());
        Ok(())
    }

    /// Returns whether the next events must be read from history.
    pub fn needs_history(&self) -> bool {
        self.next < self.hub.ring.read().floor || self.next_sub > 0
    }

    /// Takes events from the ring. If they are not there, returns the revision
    /// up to which history must be read instead.
    fn take_recent(
        &mut self,
        until: i64,
        wanted: &mut dyn FnMut(&[u8]) -> bool,
        out: &mut Vec<Event>,
    ) -> Option<i64> {
        let ring = self.hub.ring.read();
        let until = until.min(ring.newest);
        if self.next > until {
            return None;
        }
        if self.next < ring.floor || self.next_sub > 0 {
            let to = if self.next < ring.floor { until.min(ring.floor - 1) } else { self.next };
            return Some(to);
        }
        let (entries, known) = ring.entries_from(self.next, until);
        drop(ring);
        for event in entries.iter().flat_map(|entry| &entry.events) {
            let due = (self.next..=known).contains(&event.revision);
            if due && wanted(event.key()) {
                out.push(event.clone());
            }
        }
        self.move_to(known + 1, 0);
        None
    }

    fn take_history(
        &mut self,
        to: i64,
        wanted: &mut dyn FnMut(&[u8]) -> bool,
        out: &mut Vec<Event>,
    ) -> Result<()> {
        self.check_floor()?;
        let begun = out.len();
        let reached = self.read_history(to, wanted, out);
        // History that was dropped during the read may be missing from the
        // result.
        match self.check_floor().and(reached) {
            Ok((next, sub)) => {
                self.move_to(next, sub);
                Ok(())
            }
            Err(error) => {
                out.truncate(begun);
                Err(error)
            }
        }
    }

    /// Reads events of revisions up to `to`. Returns the position after them.
    fn read_history(
        &self,
        to: i64,
        wanted: &mut dyn FnMut(&[u8]) -> bool,
        out: &mut Vec<Event>,
    ) -> Result<(i64, u32)> {
        let state = &self.hub.state;
        self.hub.history_reads.fetch_add(1, Ordering::Relaxed);
        let mut scan = state.open_changes((self.next, self.next_sub), to)?;
        let (mut taken, mut bytes, mut examined) = (0, 0, 0);
        let mut last = self.next;
        let mut changes = Vec::new();
        loop {
            let done = scan.next(&mut changes)?;
            for change in changes.drain(..) {
                let enough = taken >= TAKE_EVENTS || bytes >= TAKE_BYTES;
                let between = change.revision > last;
                if between && (enough || examined >= TAKE_CHANGES)
                    || bytes >= REVISION_BYTES_MAX
                    || taken == 0 && examined >= TAKE_CHANGES
                {
                    return Ok((change.revision, change.sub));
                }
                last = change.revision;
                examined += 1;
                if wanted(&change.key) {
                    let compacted = || Error::Compacted { compacted: state.compacted() };
                    let versions = state.versions_of(&change)?.ok_or_else(compacted)?;
                    let event = Event::of_change(&change, &versions);
                    bytes += event.bytes();
                    taken += 1;
                    out.push(event);
                }
            }
            if done {
                return Ok((to + 1, 0));
            }
        }
    }

    fn move_to(&mut self, next: i64, sub: u32) {
        (self.next, self.next_sub) = (next, sub);
    }

    fn check_floor(&self) -> Result<()> {
        let state = &self.hub.state;
        let floor = match self.floor {
            Floor::Compacted => state.compacted(),
            Floor::InProgress | Floor::Retained => state.waterline(),
        };
        if self.next < floor { Err(Error::Compacted { compacted: floor }) } else { Ok(()) }
    }

    /// Waits until a revision at or above `next()` is published.
    pub async fn changed(&mut self) {
        let next = self.next;
        // Cannot fail: this cursor holds the hub, which holds the sender.
        let _ = self.newest.wait_for(|newest| *newest >= next).await;
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if self.hub.cursors.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.hub.history.clear();
        }
    }
}
