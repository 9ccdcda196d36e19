//! The in-memory index of a member's log: the entries that are still needed, and
//! the terms and memberships of all entries.

use std::collections::VecDeque;

use openraft::EntryPayload;

use super::Position;
use super::types::{Entry, Membership, Payload};

/// The known entries.
#[derive(Default)]
pub struct Entries {
    /// Entries up to here are hidden from the Raft library.
    pub purged: Position,
    pub last: Position,
    /// The entries that are not applied, or not purged: consecutive, up to
    /// `last`.
    pub held: VecDeque<Entry>,
    /// Index and term of the first entry of each term, ascending.
    pub terms: Vec<Position>,
    /// Every membership in the log, preceded by the last one purged.
    pub memberships: Vec<(Position, Membership)>,
}

impl Entries {
    pub fn index_of_first_held(&self) -> u64 {
        self.last.index + 1 - self.held.len() as u64
    }

    pub fn push(&mut self, entry: Entry) {
        let position = Position::of(&entry.log_id);
        self.note(position, &entry.payload);
        self.held.push_back(entry);
    }

    /// Records an entry that follows the last one.
    pub fn note(&mut self, position: Position, payload: &Payload) {
        if self.terms.last().is_none_or(|last| last.term != position.term) {
            self.terms.push(position);
        }
        if let EntryPayload::Membership(membership) = payload {
            self.memberships.push((position, membership.clone()));
        }
        self.last = position;
    }

    /// Returns the position of an index that is in the log or the last one
    /// purged.
    pub fn position(&self, index: u64) -> Position {
        let after = self.terms.partition_point(|first| first.index <= index);
        let term = after.checked_sub(1).map_or(self.purged.term, |at| self.terms[at].term);
        Position { index, term }
    }

    /// Removes all entries after `index`.
    pub fn truncate_after(&mut self, index: u64) {
        let kept = (index + 1).saturating_sub(self.index_of_first_held());
        self.held.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
        self.terms.retain(|first| first.index <= index);
        self.memberships.retain(|(at, _)| at.index <= index);
        self.last = self.position(index);
    }

    /// Drops the entries up to `purged`, and the terms and memberships that it
    /// supersedes.
    pub fn purge(&mut self, purged: Position) {
        while self.held.front().is_some_and(|entry| entry.log_id.index < purged.index) {
            self.held.pop_front();
        }
        let needed = self.memberships.partition_point(|(at, _)| at.index <= purged.index);
        self.memberships.drain(..needed.saturating_sub(1));
        let needed = self.terms.partition_point(|first| first.index <= purged.index);
        self.terms.drain(..needed.saturating_sub(1));
        self.purged = purged;
    }

    /// Returns the membership in force after the entry at `index`.
    pub fn membership(&self, index: u64) -> (Position, Membership) {
        let after = self.memberships.partition_point(|(at, _)| at.index <= index);
        let found = after.checked_sub(1).and_then(|at| self.memberships.get(at));
        found.cloned().unwrap_or_default()
    }
}
