//! What clients did and saw, and the rules it must satisfy.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use stele_metastore::command::{KeyRange, RangeQuery};
use stele_metastore::{Floor, Node};

/// There was a leader between two writes that were answered with at most this
/// distance.
const SERVED_GAP: Duration = Duration::from_millis(300);
/// How much of that time a lease may outlive its TTL.
const LATE_MAX: Duration = Duration::from_secs(1);

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
    /// Sets the value, if nothing has changed since all of this was read.
    Executed {
        read: BTreeMap<Bytes, Option<Bytes>>,
        wrote: Bytes,
    },
    /// Sets a value under the lock that was granted with this token.
    Guarded(i64),
}

/// A lease that was never renewed.
#[derive(Clone, Debug)]
pub struct Abandoned {
    pub key: Bytes,
    /// When the grant was answered.
    pub granted: Duration,
    /// When a read that found the lease began last.
    pub seen: Duration,
    pub ttl: Duration,
}

/// A time in which a client held a lock.
#[derive(Clone, Debug)]
pub struct Hold {
    /// The revision at which it queued, and its token.
    pub queued: i64,
    pub token: i64,
    pub from: Duration,
    pub until: Duration,
}

impl What {
    fn writes(&self) -> bool {
        !matches!(self, What::Get(_) | What::NotSwapped(_))
    }
}

/// Everything that clients saw.
#[derive(Default)]
pub struct History {
    pub done: Vec<Done>,
    /// Events of a watch that moved between members: revision and key.
    pub watched: Vec<(i64, Bytes)>,
    pub abandoned: Vec<Abandoned>,
    pub holds: Vec<Hold>,
    /// Violations that a client noticed itself.
    pub violations: Vec<String>,
}

impl History {
    /// Checks the rules that need no member.
    pub fn check_answers(&self, has_deadlines: bool) -> Result<(), String> {
        if let Some(violation) = self.violations.first() {
            return Err(violation.clone());
        }
        self.check_order()?;
        self.check_locks()?;
        if has_deadlines { self.check_abandoned() } else { Ok(()) }
    }

    /// One client holds the lock at a time, in the order in which they queued, and
    /// nobody writes with the token of an earlier one.
    fn check_locks(&self) -> Result<(), String> {
        let mut holds: Vec<&Hold> = self.holds.iter().collect();
        holds.sort_by_key(|hold| hold.from);
        if let Some([first, second]) = holds.windows(2).find(|pair| pair[1].from < pair[0].until) {
            return Err(format!("two holders: {first:?} and {second:?}"));
        }
        holds.sort_by_key(|hold| hold.queued);
        if let Some([first, second]) = holds.windows(2).find(|pair| pair[1].token <= pair[0].token)
        {
            return Err(format!("unfair: {first:?} before {second:?}"));
        }
        let guarded = self.done.iter().filter_map(|done| match done.what {
            What::Guarded(token) => Some((done.revision, token)),
            _ => None,
        });
        let guarded: BTreeMap<i64, i64> = guarded.collect();
        let tokens: Vec<i64> = guarded.into_values().collect();
        match tokens.is_sorted() {
            true => Ok(()),
            false => Err(format!("the tokens of writes decrease: {tokens:?}")),
        }
    }

    /// No lease is there for more than its TTL and a second of the time in which
    /// writes were answered.
    fn check_abandoned(&self) -> Result<(), String> {
        let mut answered: Vec<Duration> =
            self.done.iter().filter(|done| done.what.writes()).map(|done| done.ended).collect();
        answered.sort_unstable();
        for lease in &self.abandoned {
            let within = |at: &&Duration| (lease.granted..=lease.seen).contains(*at);
            let times: Vec<Duration> = answered.iter().filter(within).copied().collect();
            let served = times.windows(2).map(|pair| pair[1] - pair[0]);
            let served: Duration = served.filter(|gap| *gap <= SERVED_GAP).sum();
            if served > lease.ttl + LATE_MAX {
                let Abandoned { key, granted, seen, .. } = lease;
                return Err(format!(
                    "ended late: the lease of {key:?}, granted at {granted:?}, was there at \
                     {seen:?}, after {served:?} with a leader"
                ));
            }
        }
        Ok(())
    }

    /// Checks that a member has every answered change that it should have by its
    /// revision.
    pub fn check_values(&self, node: &Node) -> Result<(), String> {
        let revision = node.revision();
        self.done
            .iter()
            .filter(|done| done.revision <= revision)
            .try_for_each(|done| check_value(node, done))
    }

    /// Checks all that members must have when they agree.
    pub fn check_all(&self, node: &Node) -> Result<(), String> {
        self.check_values(node)?;
        if let Some(lost) = self.done.iter().find(|done| done.revision > node.revision()) {
            return Err(format!(
                "answered and lost: {lost:?}; the last revision is {}",
                node.revision()
            ));
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
                return Err(format!("out of order: {done:?} began after {before:?} had ended"));
            }
        }
        let mut writes = BTreeMap::new();
        for done in self.done.iter().filter(|done| done.what.writes()) {
            if let Some(other) = writes.insert(done.revision, done) {
                return Err(format!("out of order: {done:?} and {other:?} have the same revision"));
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
        What::Guarded(token) => at(done.revision)? == Some(Bytes::from(token.to_string())),
        What::Executed { read, wrote } => {
            for (key, value) in read {
                if value_at(node, key, done.revision - 1)? != *value {
                    return Err(format!("not serializable: {key:?} has changed before {done:?}"));
                }
            }
            at(done.revision)?.as_ref() == Some(wrote)
        }
    };
    if agrees {
        Ok(())
    } else {
        Err(format!("answered and lost: {done:?} is not what the history holds"))
    }
}
