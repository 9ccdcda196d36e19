//! A member for unit tests, which apply entries directly.

use stele_engine::world::World;
use tempfile::TempDir;

use super::{MachineParts, MachineSettings, open};
use crate::command::{Answer, Command, Execute, Put, Write, encode};
use crate::consensus::{Committed, Machine};
use crate::error::Result;
use crate::state::Identity;

pub struct Fixture {
    pub parts: MachineParts,
    index: std::cell::Cell<u64>,
    _dir: TempDir,
}

impl Fixture {
    pub fn new() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let world = World { spawner: None, ..World::real() };
        let identity = || Identity { cluster_id: 1, member_id: 2 };
        let parts = open(dir.path(), MachineSettings::default(), world, identity).unwrap();
        Fixture { parts, index: std::cell::Cell::new(0), _dir: dir }
    }

    pub fn propose(&self, command: Command) -> Result<Answer> {
        self.index.set(self.index.get() + 1);
        let proposals = vec![encode(&command, 0)];
        let entry = Committed { index: self.index.get(), term: 1, proposals, awaited: true };
        self.parts.applier.apply(entry).unwrap().pop().unwrap()
    }

    pub fn put(&self, key: &'static str, value: &'static str) -> i64 {
        self.propose(Command::Put(Put::new(key, value))).unwrap().revision
    }

    /// Puts many keys at one revision.
    pub fn put_all(&self, keys: impl Iterator<Item = String>) {
        let write = |key: String| Write { key: key.into(), value: Some("".into()), lease: 0 };
        let (read_revision, writes) = (self.parts.state.revision(), keys.map(write).collect());
        let execute = Execute { read_revision, writes, ..Execute::default() };
        self.propose(Command::Execute(execute)).unwrap();
    }

    /// Drops history below a revision, in the engine too.
    pub fn drop_history(&self, revision: i64) {
        self.propose(Command::Waterline { revision }).unwrap();
        let state = &self.parts.state;
        state.store().flush(state.tables.user).unwrap();
        self.parts.applier.sync_engine_waterline().unwrap();
    }
}
