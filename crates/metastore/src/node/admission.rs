//! Orders conflicting transactions by age, oldest first.
//!
//! A transaction that fails with a conflict leaves a claim on the ranges it
//! touches. For a short time, in which it is expected to retry, younger
//! transactions that touch the same ranges wait. So the oldest transaction
//! succeeds, then the next, and none starves. No transaction waits for a
//! younger one, so there are no deadlocks. Correctness does not depend on any
//! of this.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stele_engine::fatal::Mutex;
use stele_engine::world::Clock;
use tokio::sync::Notify;

use crate::key::{KeyRange, RangeEnd};

/// How long a claim delays other transactions between two attempts.
const CLAIM: Duration = Duration::from_millis(100);
/// The maximum number of claims. A transaction without a claim may have to
/// retry more often.
const CLAIMS_MAX: usize = 1024;

/// One attempt of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The same for all attempts of a transaction, and unique to it.
    pub id: u64,
    /// The time since the first attempt.
    pub age: Duration,
}

pub struct Admission {
    clock: Arc<dyn Clock>,
    claims: Mutex<Vec<Claim>>,
    changed: Notify,
}

struct Claim {
    id: u64,
    /// When the transaction began, by the local clock; may be before that
    /// clock's start.
    begun_micros: i128,
    ranges: Arc<Footprint>,
    /// When the claim expires; `None` during an attempt.
    until: Option<Duration>,
}

/// Permission to run an attempt, until it is finished.
pub struct Admitted<'a> {
    admission: &'a Admission,
    id: u64,
    begun_micros: i128,
    ranges: Arc<Footprint>,
}

impl Admission {
    pub fn new(clock: Arc<dyn Clock>) -> Admission {
        Admission { clock, claims: Mutex::new(Vec::new()), changed: Notify::new() }
    }

    /// Waits while an older transaction has a claim on any of the ranges.
    pub async fn admit(&self, attempt: Attempt, ranges: Vec<KeyRange>) -> Admitted<'_> {
        let begun_micros = self.hold(attempt);
        let admitted = Admitted {
            admission: self,
            id: attempt.id,
            begun_micros,
            ranges: Footprint::of(ranges),
        };
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let Some(wait) = self.wait_of(&admitted) else { return admitted };
            let _ = tokio::time::timeout(wait, changed).await;
        }
    }

    /// Returns when a transaction began. A retry keeps its claim while it
    /// waits, and its start time: if that were computed again, two transactions
    /// could each be older than the other.
    fn hold(&self, attempt: Attempt) -> i128 {
        if let Some(claim) = self.claims.lock().iter_mut().find(|claim| claim.id == attempt.id) {
            claim.until = None;
            return claim.begun_micros;
        }
        self.clock.elapsed().as_micros() as i128 - attempt.age.as_micros() as i128
    }

    /// Returns how long to wait for older claims; `None` if there are none.
    fn wait_of(&self, admitted: &Admitted<'_>) -> Option<Duration> {
        let now = self.clock.elapsed();
        let mut claims = self.claims.lock();
        claims.retain(|claim| claim.until.is_none_or(|until| until > now));
        let mine = (admitted.begun_micros, admitted.id);
        let older = claims.iter().filter(|claim| {
            (claim.begun_micros, claim.id) < mine && claim.ranges.overlaps(&admitted.ranges)
        });
        older.map(|claim| claim.until.map_or(CLAIM, |until| until - now)).max()
    }
}

impl Admitted<'_> {
    /// Ends the attempt. After a conflict the transaction keeps its claim.
    pub fn finish(self, conflict: bool) {
        let mut claims = self.admission.claims.lock();
        claims.retain(|claim| claim.id != self.id);
        if conflict && claims.len() < CLAIMS_MAX {
            let until = Some(self.admission.clock.elapsed() + CLAIM);
            let (id, begun_micros, ranges) = (self.id, self.begun_micros, self.ranges.clone());
            claims.push(Claim { id, begun_micros, ranges, until });
        }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        // Also runs when the caller is cancelled while it waits for its answer.
        let mut claims = self.admission.claims.lock();
        claims.retain(|claim| claim.id != self.id || claim.until.is_some());
        drop(claims);
        self.admission.changed.notify_waiters();
    }
}

/// The keys that a transaction touches, as sorted, disjoint ranges.
struct Footprint(Vec<Span>);

/// A half-open range of keys; an end of `None` is unbounded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    start: Bytes,
    end: Option<Bytes>,
}

impl Footprint {
    fn of(ranges: Vec<KeyRange>) -> Arc<Footprint> {
        let ranges = ranges.into_iter().filter(|range| !range.is_empty());
        let mut spans: Vec<Span> = ranges.map(Span::of).collect();
        spans.sort_unstable();
        let mut joined: Vec<Span> = Vec::with_capacity(spans.len());
        for span in spans {
            match joined.last_mut() {
                Some(last) if last.reaches(&span.start) => {
                    if span.ends_after(last) {
                        last.end = span.end;
                    }
                }
                _ => joined.push(span),
            }
        }
        Arc::new(Footprint(joined))
    }

    /// Returns whether they share a key, in one pass over both.
    fn overlaps(&self, other: &Footprint) -> bool {
        let (mut mine, mut others) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(a), Some(b)) = (mine.peek(), others.peek()) {
            if a.reaches(&b.start) && b.reaches(&a.start) {
                return true;
            }
            if a.ends_after(b) {
                others.next();
            } else {
                mine.next();
            }
        }
        false
    }
}

impl Span {
    fn of(range: KeyRange) -> Span {
        let end = match range.end {
            RangeEnd::Single => Some([&range.start[..], &[0]].concat().into()),
            RangeEnd::Before(end) => Some(end),
            RangeEnd::Unbounded => None,
        };
        Span { start: range.start, end }
    }

    /// Returns whether the span ends after a key.
    fn reaches(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| &end[..] > key)
    }

    fn ends_after(&self, other: &Span) -> bool {
        match (&self.end, &other.end) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(mine), Some(other)) => mine > other,
        }
    }
}

#[cfg(test)]
mod tests {
    use stele_engine::world::ManualClock;

    use super::*;

    fn attempt(id: u64, age_seconds: u64) -> Attempt {
        Attempt { id, age: Duration::from_secs(age_seconds) }
    }

    fn key(key: &'static str) -> Vec<KeyRange> {
        vec![KeyRange::single(key)]
    }

    #[test]
    fn ranges_meet_when_they_share_a_key() {
        let range =
            |from: &'static str, to: &'static str| KeyRange::from_wire(from.into(), to.into());
        let overlap = |a: &KeyRange, b: &KeyRange| {
            let (a, b) = (Footprint::of(vec![a.clone()]), Footprint::of(vec![b.clone()]));
            assert_eq!(a.overlaps(&b), b.overlaps(&a));
            a.overlaps(&b)
        };
        assert!(
            overlap(&range("a", "c"), &range("b", "d"))
                && overlap(&range("a", ""), &range("a", "b"))
        );
        assert!(
            !overlap(&range("a", "b"), &range("b", "c"))
                && !overlap(&range("c", "a"), &range("b", ""))
        );
        assert!(
            overlap(&range("a", "\0"), &range("z", ""))
                && !overlap(&range("b", "\0"), &range("a", ""))
        );
    }

    #[test]
    fn many_ranges_are_compared_in_one_walk() {
        let range = |from: usize| {
            let end = format!("{:05}", from + 2);
            KeyRange::from_wire(format!("{from:05}").into(), end.into())
        };
        let even = Footprint::of((0..5_000).rev().map(|at| range(4 * at)).collect());
        let odd: Vec<KeyRange> = (0..5_000).map(|at| range(4 * at + 2)).collect();
        assert_eq!(even.0.len(), 5_000);
        assert!(!even.overlaps(&Footprint::of(odd.clone())));
        let one_more = odd.into_iter().chain([range(4 * 3_000 + 1)]).collect();
        assert!(even.overlaps(&Footprint::of(one_more)));
    }

    #[tokio::test]
    async fn the_older_of_two_that_conflicted_goes_first() {
        let clock = Arc::new(ManualClock::at(100_000_000));
        let admission = Admission::new(clock.clone());
        admission.admit(attempt(1, 5), key("a")).await.finish(true);
        admission.admit(attempt(2, 9), key("a")).await.finish(true);
        let younger = Admitted {
            admission: &admission,
            id: 1,
            begun_micros: -5_000_000,
            ranges: Footprint::of(key("a")),
        };
        assert_eq!(admission.wait_of(&younger), Some(CLAIM), "it waits for the older one");
        admission.admit(attempt(3, 0), key("b")).await.finish(false);
        admission.admit(attempt(2, 9), key("a")).await.finish(false);
        assert_eq!(admission.wait_of(&younger), None, "the older one is done");
    }

    #[tokio::test]
    async fn a_transaction_that_does_not_come_again_holds_nobody_up_for_long() {
        let clock = Arc::new(ManualClock::at(0));
        let admission = Admission::new(clock.clone());
        admission.admit(attempt(1, 9), key("a")).await.finish(true);
        clock.advance(CLAIM);
        admission.admit(attempt(2, 0), key("a")).await.finish(false);
        assert!(admission.claims.lock().is_empty());
    }
}
