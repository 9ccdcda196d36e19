//! A panic while a log entry is applied and answered, or under a lock, aborts
//! the process: the state in memory may be inconsistent, and every later
//! proposal would wait forever.

#[path = "../../engine/tests/support/child.rs"]
mod child;
#[expect(dead_code, reason = "only the world is needed here")]
#[path = "consensus/machine.rs"]
mod machine;

use std::sync::Arc;

use bytes::Bytes;
use machine::{block_on, settings};
use stele_engine::world::World;
use stele_engine::world::sim::SimFiles;
use stele_metastore::consensus::{Committed, Group, Machine, Position};
use stele_metastore::{Error, Node, node};

const CASE: &str = "STELE_PANIC_CASE";

/// Panics at a proposal, or answers it twice.
struct Bomb {
    answers_twice: bool,
}

impl Machine for Bomb {
    type Answer = ();

    fn apply(&self, entry: Committed) -> Result<Vec<()>, Error> {
        assert!(self.answers_twice || entry.proposals.is_empty(), "a bug");
        Ok(vec![(); 2 * entry.proposals.len()])
    }

    fn applied(&self) -> Position {
        Position::default()
    }

    fn flushed(&self) -> u64 {
        0
    }
}

fn propose(answers_twice: bool) {
    block_on(async {
        let bomb = Arc::new(Bomb { answers_twice });
        let group = Group::open(settings(SimFiles::new(1)), bomb).await.unwrap();
        let _ = group.propose(Bytes::from_static(b"proposal")).await;
    });
}

/// Runs a test of this file in a process of its own, which must abort.
fn assert_aborts(test: &str) {
    let status = child::run(test, CASE, test);
    assert!(child::is_abort(status), "{status}");
}

fn is_child() -> bool {
    std::env::var(CASE).is_ok()
}

#[test]
fn a_panic_in_apply_aborts_the_process() {
    match is_child() {
        true => propose(false),
        false => assert_aborts("a_panic_in_apply_aborts_the_process"),
    }
}

#[test]
fn a_panic_while_an_entry_is_answered_aborts_the_process() {
    match is_child() {
        true => propose(true),
        false => assert_aborts("a_panic_while_an_entry_is_answered_aborts_the_process"),
    }
}

#[test]
fn a_panic_under_a_lock_outside_apply_aborts_the_process() {
    if !is_child() {
        return assert_aborts("a_panic_under_a_lock_outside_apply_aborts_the_process");
    }
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let settings = node::Settings::new(dir.path().to_path_buf(), World::real());
        let node = Node::open(settings).await.unwrap();
        // Without the abort, the call would fail with INTERNAL and release its
        // lock.
        let leases = std::panic::AssertUnwindSafe(node.leases());
        let _ = std::panic::catch_unwind(|| leases.choose_id(|| panic!("a bug")));
    });
}
