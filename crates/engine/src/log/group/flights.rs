//! The groups under way: at most [`WINDOW`], in log order. Their writes may end in
//! any order; entries are acknowledged in log order only, when all writes up to
//! theirs have ended.

use std::collections::VecDeque;

/// Maximum number of groups under way.
pub(super) const WINDOW: usize = 2;

/// A group under way.
struct Flight {
    number: u64,
    /// Index of the last entry before the group, and of its last entry.
    before: u64,
    last: u64,
    /// Number of its last record.
    record: u64,
    /// Whether its entries are in the page cache.
    written: bool,
    ended: bool,
}

#[derive(Default)]
pub(super) struct Flights {
    groups: VecDeque<Flight>,
    next: u64,
}

/// The last entry and the last record of the groups that became durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Landed {
    pub last: u64,
    pub record: u64,
}

impl Flights {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.groups.len() >= WINDOW
    }

    /// Returns the number of the next group. Groups that are under way at the
    /// same time have consecutive numbers.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Adds a group with the entries after `before` up to `last`, whose last record
    /// is `record`. `written` tells whether only the sync is left to do.
    pub(super) fn start(&mut self, before: u64, last: u64, record: u64, written: bool) -> u64 {
        assert!(!self.is_full(), "more than {WINDOW} groups under way");
        let number = self.next;
        self.next += 1;
        self.groups.push_back(Flight { number, before, last, record, written, ended: false });
        number
    }

    /// Notes that a group's bytes are durable. Returns the end of the entries
    /// that became durable with it: none while an earlier group is under way.
    pub(super) fn end(&mut self, number: u64) -> Option<Landed> {
        let ended = self.groups.iter_mut().find(|group| group.number == number);
        let ended = ended.expect("a group ends once");
        (ended.ended, ended.written) = (true, true);
        let mut landed = None;
        while let Some(Flight { last, record, .. }) = self.groups.pop_front_if(|group| group.ended)
        {
            landed = Some(Landed { last, record });
        }
        landed
    }

    /// Returns the index before the first entry that is not written yet, among
    /// the groups under way.
    pub(super) fn unwritten_after(&self) -> Option<u64> {
        self.groups.iter().find(|group| !group.written).map(|group| group.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_5_3_entries_land_in_order_however_their_groups_end() {
        let mut flights = Flights::default();
        let first = flights.start(0, 5, 50, false);
        let second = flights.start(5, 9, 90, false);
        assert!(flights.is_full());
        assert_eq!(flights.unwritten_after(), Some(0));
        assert_eq!(flights.end(second), None, "the first is missing");
        assert!(flights.is_full(), "it still takes its place");
        assert_eq!(flights.end(first), Some(Landed { last: 9, record: 90 }));
        assert!(flights.is_empty());

        let third = flights.start(9, 10, 100, true);
        let fourth = flights.start(10, 11, 110, false);
        assert_eq!(flights.unwritten_after(), Some(10));
        assert_eq!(flights.end(third), Some(Landed { last: 10, record: 100 }));
        assert_eq!(flights.end(fourth), Some(Landed { last: 11, record: 110 }));
        assert_eq!(flights.unwritten_after(), None);
    }
}
