//! A panic while a log entry is applied and answered, or under a lock, aborts
//! the process: the state in memory may be inconsistent, and every later
//! proposal would wait forever.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use stele_engine::world::World;
use stele_engine::world::sim::SimFiles;
use stele_metastore::consensus::{Committed, Machine, Position, RaftGroup};
use stele_metastore::{Error, Node, node};

use crate::consensus::recorder::{block_on, settings};

const CASE: &str = "STELE_PANIC_CASE";
const TIMEOUT: Duration = Duration::from_secs(60);

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
        let group = RaftGroup::open(settings(SimFiles::new(1)), bomb).await.unwrap();
        let _ = group.propose(Bytes::from_static(b"proposal")).await;
    });
}

/// Runs a test of this file in a process of its own, which must abort.
fn assert_aborts(test: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CASE, test)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > TIMEOUT {
            child.kill().unwrap();
            panic!("the process did not abort in time");
        }
        std::thread::yield_now();
    };
    const SIGABRT: i32 = 6;
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(SIGABRT), "{status}");
}

fn is_child() -> bool {
    std::env::var(CASE).is_ok()
}

#[test]
fn a_panic_in_apply_aborts_the_process() {
    match is_child() {
        true => propose(false),
        false => assert_aborts("panics::a_panic_in_apply_aborts_the_process"),
    }
}

#[test]
fn a_panic_while_an_entry_is_answered_aborts_the_process() {
    match is_child() {
        true => propose(true),
        false => assert_aborts("panics::a_panic_while_an_entry_is_answered_aborts_the_process"),
    }
}

#[test]
fn a_panic_under_a_lock_outside_apply_aborts_the_process() {
    if !is_child() {
        return assert_aborts("panics::a_panic_under_a_lock_outside_apply_aborts_the_process");
    }
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let settings = node::NodeSettings::new(dir.path().to_path_buf(), World::real());
        let node = Node::open(settings).await.unwrap();
        // Without the abort, the call would fail with INTERNAL and release its
        // lock.
        let leases = std::panic::AssertUnwindSafe(node.leases());
        let _ = std::panic::catch_unwind(|| leases.choose_id(|| panic!("a bug")));
    });
}
