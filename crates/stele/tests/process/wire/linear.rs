//! Decides whether the history of a row is linearizable: whether its calls have one order
//! that agrees with real time and explains every response. Uses the search of Wing and
//! Gong with Lowe's memoization: a set of calls that led to the same row is never tried
//! twice. Rows are independent, so each is searched separately.

use std::collections::HashSet;

use super::row::{Answer, Call, Row};

/// A call with the interval from its start to its end.
#[derive(Clone, Debug)]
pub struct Event {
    pub call: Call,
    pub begun: u64,
    /// The time after which it can have no more effect; `u64::MAX` if unknown.
    pub ended: u64,
    /// `None` if it was never answered: it took effect once, or never.
    pub answer: Option<Answer>,
}

/// Returns the row after some valid order of all calls, or the longest explainable part
/// of the history.
pub fn check(history: &[Event]) -> Result<Row, Unexplained> {
    let mut events = history.to_vec();
    events.sort_by_key(|event| event.begun);
    Search::new(&events).run()
}

/// The point at which every order fails.
#[derive(Debug)]
pub struct Unexplained {
    /// The number of calls that the best order explains.
    #[allow(dead_code, reason = "printed when a test fails")]
    pub explained: usize,
    /// The row after these calls, and the candidates of which one should have been next.
    #[allow(dead_code, reason = "printed when a test fails")]
    pub stuck: Vec<(Row, Vec<Event>)>,
}

/// The maximum number of failing points to report.
const STUCK_MAX: usize = 3;

struct Search<'h> {
    events: &'h [Event],
    /// Sets of calls with the rows that they led to.
    seen: HashSet<(Placed, Row)>,
    best: Unexplained,
}

/// The calls that are already in the order.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Placed {
    /// All calls before this one.
    low: usize,
    /// Further calls, ascending: few, because only overlapping calls can be reordered.
    beyond: Vec<usize>,
}

impl Placed {
    fn count(&self) -> usize {
        self.low + self.beyond.len()
    }

    fn has(&self, at: usize) -> bool {
        at < self.low || self.beyond.binary_search(&at).is_ok()
    }

    fn with(&self, at: usize) -> Placed {
        let mut next = self.clone();
        let place = next.beyond.partition_point(|&other| other < at);
        next.beyond.insert(place, at);
        let joined =
            next.beyond.iter().zip(next.low..).take_while(|(at, low)| **at == *low).count();
        next.beyond.drain(..joined);
        next.low += joined;
        next
    }
}

impl<'h> Search<'h> {
    fn new(events: &'h [Event]) -> Search<'h> {
        let best = Unexplained { explained: 0, stuck: Vec::new() };
        Search { events, seen: HashSet::new(), best }
    }

    fn run(mut self) -> Result<Row, Unexplained> {
        let all = self.events.len();
        let mut open = vec![(Placed::default(), Row::default())];
        while let Some((placed, row)) = open.pop() {
            if placed.count() == all {
                return Ok(row);
            }
            let candidates = self.candidates(&placed);
            let before = open.len();
            for &at in &candidates {
                for next in outcomes(&self.events[at], row).into_iter().flatten() {
                    let step = (placed.with(at), next);
                    if self.seen.insert(step.clone()) {
                        open.push(step);
                    }
                }
            }
            // The call answered first most likely took effect first.
            open[before..].reverse();
            if open.len() == before {
                self.note(&placed, row, &candidates);
            }
        }
        Err(self.best)
    }

    /// Returns the calls that can be next: those that began before any remaining call
    /// ended. Answered calls come first, in the order in which they ended.
    fn candidates(&self, placed: &Placed) -> Vec<usize> {
        let mut first_end = u64::MAX;
        let mut candidates = Vec::new();
        for (at, event) in self.events.iter().enumerate().skip(placed.low) {
            if event.begun > first_end {
                break;
            }
            if !placed.has(at) {
                first_end = first_end.min(event.ended);
                candidates.push(at);
            }
        }
        candidates.retain(|&at| self.events[at].begun <= first_end);
        candidates.sort_by_key(|&at| (self.events[at].answer.is_none(), self.events[at].ended));
        candidates
    }

    fn note(&mut self, placed: &Placed, row: Row, candidates: &[usize]) {
        if placed.count() > self.best.explained {
            self.best = Unexplained { explained: placed.count(), stuck: Vec::new() };
        }
        if placed.count() == self.best.explained && self.best.stuck.len() < STUCK_MAX {
            let next = candidates.iter().map(|&at| self.events[at].clone()).collect();
            self.best.stuck.push((row, next));
        }
    }
}

/// Returns the rows that a call may leave, if its response permits any.
fn outcomes(event: &Event, row: Row) -> [Option<Row>; 2] {
    let (next, answer) = event.call.apply(row);
    match event.answer {
        Some(expected) => [(answer == expected).then_some(next), None],
        None if next == row => [Some(row), None],
        None => [Some(row), Some(next)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates an answered call.
    fn answered(begun: u64, ended: u64, call: Call, answer: Answer) -> Event {
        Event { call, begun, ended, answer: Some(answer) }
    }

    fn set(begun: u64, ended: u64, value: u64) -> Event {
        answered(begun, ended, Call::Set(value), Answer::Done)
    }

    fn read(begun: u64, ended: u64, value: Option<u64>) -> Event {
        answered(begun, ended, Call::Read, Answer::Row(Row { value, count: None }))
    }

    fn add(begun: u64, ended: u64, count: i64) -> Event {
        answered(begun, ended, Call::Increment(1), Answer::Count(count))
    }

    fn swap(begun: u64, ended: u64, from: u64, to: u64, matched: bool) -> Event {
        answered(begun, ended, Call::Swap { from, to }, Answer::Matched(matched))
    }

    fn lost(begun: u64, ended: u64, call: Call) -> Event {
        Event { call, begun, ended, answer: None }
    }

    #[track_caller]
    fn holds(history: &[Event]) {
        check(history).unwrap();
    }

    #[track_caller]
    fn fails(history: &[Event]) {
        assert!(check(history).is_err(), "no order explains this, but one was found");
    }

    #[test]
    fn calls_side_by_side_may_have_either_order() {
        holds(&[]);
        holds(&[set(1, 10, 1), set(2, 9, 2), read(11, 12, Some(1))]);
        holds(&[set(1, 10, 1), set(2, 9, 2), read(11, 12, Some(2))]);
        holds(&[set(1, 10, 1), read(2, 3, None), read(4, 5, Some(1))]);
        holds(&[add(1, 10, 2), add(2, 9, 1), swap(1, 20, 5, 6, false)]);
    }

    #[test]
    fn a_read_does_not_miss_what_was_acknowledged() {
        fails(&[set(1, 2, 1), read(3, 4, None)]);
        fails(&[set(1, 2, 1), set(3, 4, 2), read(5, 6, Some(1))]);
        fails(&[set(1, 2, 1), answered(3, 4, Call::Delete, Answer::Done), read(5, 6, Some(1))]);
    }

    #[test]
    fn reads_do_not_run_back_in_time() {
        fails(&[set(1, 20, 1), read(2, 3, Some(1)), read(4, 5, None)]);
        fails(&[read(1, 2, Some(7))]);
    }

    #[test]
    fn an_increment_is_neither_lost_nor_done_twice() {
        holds(&[add(1, 5, 1), add(2, 6, 2), add(3, 7, 3)]);
        fails(&[add(1, 5, 1), add(2, 6, 1)]);
        fails(&[add(1, 5, 1), add(2, 6, 3)]);
    }

    #[test]
    fn a_swap_tells_what_it_saw() {
        holds(&[set(1, 2, 1), swap(3, 9, 1, 2, true), swap(4, 8, 1, 3, false)]);
        fails(&[set(1, 2, 1), swap(3, 9, 1, 2, true), swap(4, 8, 1, 3, true)]);
        fails(&[set(1, 2, 1), swap(3, 4, 1, 2, false)]);
    }

    #[test]
    fn a_call_without_an_answer_was_done_once_or_never() {
        let history = |value| [set(1, 2, 1), lost(3, 4, Call::Set(2)), read(5, 6, Some(value))];
        holds(&history(1));
        holds(&history(2));
        fails(&history(3));
        fails(&[lost(1, 2, Call::Set(1)), read(3, 4, Some(1)), read(5, 6, None)]);
        fails(&[lost(1, 2, Call::Set(1)), read(3, 4, None), read(5, 6, Some(1))]);
        fails(&[lost(1, 2, Call::Increment(1)), add(3, 4, 3)]);
    }

    #[test]
    fn a_call_whose_end_nobody_knows_may_be_done_at_any_time_after() {
        let late = lost(1, u64::MAX, Call::Set(1));
        holds(&[late.clone(), read(3, 4, None), read(5, 6, Some(1))]);
        fails(&[late, read(3, 4, Some(1)), read(5, 6, None)]);
        fails(&[read(1, 2, Some(1)), lost(3, u64::MAX, Call::Set(1))]);
    }

    #[test]
    fn many_calls_that_were_lost_are_searched_in_time() {
        let mut history = Vec::new();
        for round in 0..200 {
            let from = round * 100;
            history.extend((0..10).map(|at| lost(from + at, from + 50, Call::Set(from + at))));
            history.push(read(from + 60, from + 61, Some(from + 7)));
        }
        holds(&history);
        history.push(read(30_000, 30_001, Some(0)));
        fails(&history);
    }
}
