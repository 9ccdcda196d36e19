//! A panic while an entry of the log is applied ends the process: the state of
//! the machine may be half changed, and every later proposal would wait for ever.

#[expect(dead_code, reason = "only the world is needed here")]
#[path = "consensus/machine.rs"]
mod machine;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use machine::{block_on, settings};
use stele_engine::world::sim::SimFiles;
use stele_metastore::Error;
use stele_metastore::consensus::{Committed, Group, Machine, Position};

const CASE: &str = "STELE_PANIC_CASE";
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Panics at a proposal.
struct Bomb;

impl Machine for Bomb {
    type Answer = ();

    fn apply(&self, entry: Committed) -> Result<Vec<()>, Error> {
        assert!(entry.proposals.is_empty(), "a bug");
        Ok(Vec::new())
    }

    fn applied(&self) -> Position {
        Position::default()
    }

    fn flushed(&self) -> u64 {
        0
    }
}

#[test]
fn a_panic_in_apply_aborts_the_process() {
    if std::env::var(CASE).is_ok() {
        block_on(async {
            let group = Group::open(settings(SimFiles::new(1)), Arc::new(Bomb)).await.unwrap();
            let _ = group.propose(Bytes::from_static(b"proposal")).await;
        });
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_panic_in_apply_aborts_the_process", "--nocapture"])
        .env(CASE, "apply")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > FORGOTTEN {
            child.kill().unwrap();
            panic!("the process goes on");
        }
        std::thread::yield_now();
    };
    const SIGABRT: i32 = 6;
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(SIGABRT), "{status}");
}
