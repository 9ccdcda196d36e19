//! A machine that records the entries it applies, and its world.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use stele_engine::world::{Files, ManualClock, SeededRandom, World};
use stele_metastore::Error;
use stele_metastore::consensus::{Committed, GroupSettings, Machine, Position};

pub const DIR: &str = "/raft";

pub fn settings(files: impl Files + 'static) -> GroupSettings {
    let world = World {
        clock: Arc::new(ManualClock::at(1_000_000)),
        files: Arc::new(files),
        random: Arc::new(SeededRandom::new(9)),
        spawner: None,
    };
    let mut settings = GroupSettings::new(PathBuf::from(DIR), world, 1);
    settings.log.segment_bytes = 64 << 10;
    settings
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Answers each proposal with itself.
#[derive(Default)]
pub struct Recorder {
    state: Mutex<RecordedEntries>,
    gate: Arc<Gate>,
}

#[derive(Clone, Default)]
struct RecordedEntries {
    entries: Vec<Vec<Bytes>>,
    applied: Position,
    /// The number of entries on disk outside the log.
    flushed: usize,
    flushed_position: Position,
}

/// Blocks the machine.
#[derive(Default)]
pub struct Gate {
    /// Whether the gate is shut, and whether a thread waits at it.
    state: Mutex<(bool, bool)>,
    moved: Condvar,
}

impl Gate {
    pub fn wait_until_held(&self) {
        let mut state = self.state.lock();
        while !state.1 {
            self.moved.wait(&mut state);
        }
    }

    pub fn open(&self) {
        *self.state.lock() = (false, false);
        self.moved.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        while state.0 {
            state.1 = true;
            self.moved.notify_all();
            self.moved.wait(&mut state);
        }
    }
}

impl Recorder {
    /// Makes the next entry wait in `apply` until the gate is opened.
    pub fn hold(&self) -> Arc<Gate> {
        *self.gate.state.lock() = (true, false);
        self.gate.clone()
    }

    /// Makes everything applied so far survive without the log.
    pub fn flush(&self) {
        let mut state = self.state.lock();
        state.flushed = state.entries.len();
        state.flushed_position = state.applied;
    }

    /// Returns the machine as a crash leaves it.
    pub fn as_of_flush(&self) -> Recorder {
        let mut state = self.state.lock().clone();
        state.entries.truncate(state.flushed);
        state.applied = state.flushed_position;
        Recorder { state: Mutex::new(state), gate: Arc::default() }
    }

    pub fn set_applied(&mut self, applied: Position) {
        self.state.get_mut().applied = applied;
    }

    pub fn applied_index(&self) -> u64 {
        self.state.lock().applied.index
    }

    pub fn applied_term(&self) -> u64 {
        self.state.lock().applied.term
    }

    /// Returns the number of proposals of each entry.
    pub fn sizes(&self) -> Vec<usize> {
        self.state.lock().entries.iter().map(Vec::len).collect()
    }

    /// Returns the proposed numbers, in order.
    pub fn names(&self) -> Vec<u64> {
        let state = self.state.lock();
        let proposals = state.entries.iter().flatten();
        let number = |proposal: &Bytes| {
            let text = std::str::from_utf8(proposal).unwrap().trim_start_matches('0');
            text.parse().unwrap_or(0)
        };
        proposals.map(number).collect()
    }
}

impl Machine for Recorder {
    type Answer = String;

    fn apply(&self, entry: Committed) -> Result<Vec<String>, Error> {
        self.gate.pass();
        let mut state = self.state.lock();
        assert_eq!(entry.index, state.applied.index + 1, "every entry once, in order");
        assert!(entry.term >= state.applied.term);
        if entry.proposals.iter().any(|proposal| proposal == "fail") {
            return Err(Error::Internal("this entry fails".to_string()));
        }
        state.applied = Position { index: entry.index, term: entry.term };
        state.entries.push(entry.proposals.clone());
        let text = |proposal: &Bytes| String::from_utf8(proposal.to_vec()).unwrap();
        Ok(entry.proposals.iter().map(text).collect())
    }

    fn applied(&self) -> Position {
        self.state.lock().applied
    }

    fn flushed(&self) -> u64 {
        self.state.lock().flushed_position.index
    }
}
