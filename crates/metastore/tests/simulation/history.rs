//! What clients did and saw, and the rules it must satisfy.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use stele_metastore::command::{KeyRange, RangeQuery};
use stele_metastore::{Floor, Node};

/// A completed operation of a client. Operations without an answer are not
/// recorded: they may or may not have happened.
#[derive(Clone, Debug)]
pub struct Done {
    pub began: Duration,
    pub ended: Duration,
    /// The revision of the store that the operation saw or made.
    pub revision: i64,
    pub key: Bytes,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Put(Bytes),
    /// The value that was read.
    Get(Option<Bytes>),
    /// Sets the second value if the first was stored.
    Swapped(Bytes, Bytes),
    /// The value was not stored.
    NotSwapped(Bytes),
    /// A lock was granted, with its token.
    Locked(i64),
}

impl What {
    fn writes(&self) -> bool {
        matches!(self, What::Put(_) | What::Swapped(..) | What::Locked(_))
    }
}

/// Everything that clients saw.
#[derive(Default)]
pub struct History {
    pub done: Vec<Done>,
    /// Events of a watch that moved between members: revision and key.
    pub watched: Vec<(i64, Bytes)>,
    /// Leases that ended early.
    pub early: Vec<String>,
}

impl History {
    /// Checks all rules against a member that has applied everything.
    pub fn check(&self, node: &Node) -> Result<(), String> {
        if let Some(early) = self.early.first() {
            return Err(early.clone());
        }
        self.check_order()?;
        for done in &self.done {
            check_value(node, done)?;
        }
        self.check_watch(node)
    }

    /// Revisions follow the order of operations that did not overlap.
    fn check_order(&self) -> Result<(), String> {
        let mut by_begin: Vec<&Done> = self.done.iter().collect();
        by_begin.sort_by_key(|done| done.began);
        let mut by_end: Vec<&Done> = self.done.iter().collect();
        by_end.sort_by_key(|done| done.ended);
        let mut ended = by_end.into_iter().peekable();
        let mut newest: Option<&Done> = None;
        for done in by_begin {
            while let Some(before) = ended.next_if(|before| before.ended < done.began) {
                if newest.is_none_or(|newest| newest.revision < before.revision) {
                    newest = Some(before);
                }
            }
            let Some(before) = newest else { continue };
            let ordered = match done.what.writes() {
                true => done.revision > before.revision,
                false => done.revision >= before.revision,
            };
            if !ordered {
                return Err(format!("{done:?} began after {before:?} had ended"));
            }
        }
        let mut writes = BTreeMap::new();
        for done in self.done.iter().filter(|done| done.what.writes()) {
            if let Some(other) = writes.insert(done.revision, done) {
                return Err(format!("{done:?} and {other:?} have the same revision"));
            }
        }
        Ok(())
    }

    /// The watch has every change once, in order.
    fn check_watch(&self, node: &Node) -> Result<(), String> {
        let last = self.watched.last().map_or(0, |(revision, _)| *revision);
        let mut cursor = node.watch().cursor_retained(2);
        let mut events = Vec::new();
        while cursor.next() <= last {
            let taken = cursor.take(last, &mut |_| true, &mut events);
            taken.map_err(|error| format!("reading the events again: {error}"))?;
        }
        let all: Vec<(i64, Bytes)> = events
            .iter()
            .map(|event| (event.revision, Bytes::copy_from_slice(event.key())))
            .collect();
        if all != self.watched {
            let at = all.iter().zip(&self.watched).position(|(all, seen)| all != seen);
            let at = at.unwrap_or(all.len().min(self.watched.len()));
            return Err(format!(
                "the watch differs from the history at event {at}: saw {:?}, not {:?}",
                self.watched.get(at),
                all.get(at)
            ));
        }
        Ok(())
    }
}

/// Returns the value of a key at a revision.
pub fn value_at(node: &Node, key: &Bytes, revision: i64) -> Result<Option<Bytes>, String> {
    let mut found = None;
    let query = RangeQuery::new(KeyRange::single(key.clone())).at(revision);
    let read = node.reader(Floor::Retained).range(&query, &mut |view| {
        found = Some(Bytes::copy_from_slice(view.value()));
    });
    read.map_err(|error| format!("reading at revision {revision}: {error}"))?;
    Ok(found)
}

/// What an operation saw or wrote is what the history holds at its revision.
fn check_value(node: &Node, done: &Done) -> Result<(), String> {
    let at = |revision| value_at(node, &done.key, revision);
    let agrees = match &done.what {
        What::Put(value) => at(done.revision)?.as_ref() == Some(value),
        What::Get(value) => at(done.revision)? == *value,
        What::Swapped(old, new) => {
            at(done.revision)?.as_ref() == Some(new) && at(done.revision - 1)?.as_ref() == Some(old)
        }
        What::NotSwapped(old) => at(done.revision)?.as_ref() != Some(old),
        What::Locked(token) => *token == done.revision,
    };
    if agrees { Ok(()) } else { Err(format!("{done:?} is not what the history holds")) }
}
