//! S1.6: a commit waits for admission in a future, for a bounded time; after that it is
//! applied without waiting.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use stele_engine::world::sim::Operation;
use stele_engine::{Error, Options, StoreStats, Txn};

use crate::fixture::{Fixture, block_on};

const VALUE_BYTES: usize = 300_000;

fn options() -> Options {
    let mut options = Options::default();
    options.memory.budget_bytes = 1 << 20;
    options.flush.fragment_bytes = 64 << 20;
    options.compact.chain_min = 2;
    options.compact.chain_slow = 3;
    options.compact.chain_stop = 3;
    // What waits fails instead of hanging.
    options.admission.wait_max = Duration::from_secs(2);
    options
}

/// Writes until a commit of this size has to wait for memory.
fn fill(fixture: &Fixture) {
    let commit = fixture.set("filler", VALUE_BYTES);
    let free = |stats: StoreStats| stats.memory_limit_bytes.saturating_sub(stats.memory_used_bytes);
    while free(fixture.store.stats()) > VALUE_BYTES + 1000 {
        fixture.tables.tenure().open(fixture.local().apply_blocking(&commit)).unwrap();
    }
}

/// Polls once, without waiting for a wake-up.
fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn scale_1_6_a_commit_with_a_permit_is_applied_without_waiting_for_memory() {
    let fixture = Fixture::new(options());
    let commit = fixture.set("permitted", VALUE_BYTES);
    let permit = block_on(fixture.local().admit(&commit)).unwrap();
    fill(&fixture);
    fixture.tables.tenure().open(fixture.local().apply(permit, Txn::MAX)).unwrap();
    assert_eq!(fixture.rows(), ["filler", "permitted"]);
}

#[test]
fn scale_1_6_a_commit_with_a_permit_is_applied_without_waiting_for_log_or_chains() {
    let mut options = options();
    options.memory.log_queue_bytes_max = 1000;
    let fixture = Fixture::new(options);
    let commit = fixture.set("permitted", 10);
    let permit = block_on(fixture.local().admit(&commit)).unwrap();
    for row in ["a", "b", "c"] {
        let commit = fixture.set(row, 10);
        fixture.tables.tenure().open(fixture.local().apply_blocking(&commit)).unwrap();
        fixture.store.flush(fixture.table).unwrap();
    }
    let others = pin!(fixture.local().admit(&commit));
    assert!(poll_once(others).is_pending(), "the chain is long");
    // The log cannot write now.
    let _held = fixture.sim.hold(Operation::Write, "log", "");
    fixture.tables.tenure().open(fixture.local().apply(permit, Txn::MAX)).unwrap();
    assert_eq!(fixture.rows(), ["a", "b", "c", "permitted"]);
}

#[test]
fn scale_1_6_a_dropped_permit_returns_its_reservation() {
    let fixture = Fixture::new(options());
    let (commit, other) = (fixture.set("held", VALUE_BYTES), fixture.set("other", VALUE_BYTES));
    let before = fixture.store.stats().memory_used_bytes;
    let permit = block_on(fixture.local().admit(&commit)).unwrap();
    assert!(fixture.store.stats().memory_used_bytes >= before + VALUE_BYTES);
    drop(permit);
    assert_eq!(fixture.store.stats().memory_used_bytes, before);

    let permit = block_on(fixture.local().admit(&commit)).unwrap();
    fill(&fixture);
    let mut waiting = pin!(fixture.local().admit(&other));
    assert!(poll_once(waiting.as_mut()).is_pending());
    drop(permit);
    let permit = block_on(waiting).unwrap();
    fixture.tables.tenure().open(fixture.local().apply(permit, Txn::MAX)).unwrap();
    assert_eq!(fixture.rows(), ["filler", "other"]);
}

#[test]
fn scale_1_6_the_longest_wait_ends_admission_with_an_error() {
    let mut options = options();
    options.admission.wait_max = Duration::from_millis(200);
    let fixture = Fixture::new(options);
    fill(&fixture);
    let outcome = block_on(fixture.local().admit(&fixture.set("r", VALUE_BYTES))).map(drop);
    assert!(matches!(outcome, Err(Error::Overloaded { .. })), "{outcome:?}");
}

#[test]
fn scale_1_6_a_call_that_ends_at_its_deadline_leaves_the_queue() {
    let mut options = options();
    options.admission.waiters_max = 1;
    let fixture = Fixture::new(options);
    fill(&fixture);
    let commit = fixture.set("r", VALUE_BYTES);
    let used = fixture.store.stats().memory_used_bytes;
    {
        let mut first = pin!(fixture.local().admit(&commit));
        assert!(poll_once(first.as_mut()).is_pending());
        let refused = poll_once(pin!(fixture.local().admit(&commit)));
        let refused = refused.map(|outcome| outcome.map(drop));
        assert!(matches!(refused, Poll::Ready(Err(Error::Overloaded { .. }))), "{refused:?}");
        // The deadline of a call drops its future.
    }
    assert_eq!(fixture.store.stats().memory_used_bytes, used);
    let mut next = pin!(fixture.local().admit(&commit));
    assert!(poll_once(next.as_mut()).is_pending(), "there is a place in the queue again");
    fixture.store.flush(fixture.table).unwrap();
    let permit = block_on(next).unwrap();
    fixture.tables.tenure().open(fixture.local().apply(permit, Txn::MAX)).unwrap();
}

#[test]
fn scale_1_6_an_invalid_commit_is_refused_before_it_waits() {
    let fixture = Fixture::new(options());
    fill(&fixture);
    fixture.tables.drop_table(fixture.table).unwrap();
    let outcome = block_on(fixture.local().admit(&fixture.set("r", VALUE_BYTES))).map(drop);
    assert!(matches!(outcome, Err(Error::UnknownTable(_))), "{outcome:?}");
}
