//! A member whose log is a list in memory, and whose clocks are set by tests.

use std::sync::Arc;

use bytes::Bytes;
use stele_engine::world::{Clock, World};
use stele_metastore::command::{
    Answer, Command, Delete, DeleteAnswer, KeyRange, PutAnswer, RangeQuery, Reply, Txn, TxnAnswer,
    encode,
};
use stele_metastore::consensus::{Committed, Machine};
use stele_metastore::machine::{self, MachineParts, MachineSettings};
use stele_metastore::state::{Floor, Identity, KeyView, RangeSummary};
use stele_metastore::watch::Event;
use stele_metastore::{Error, Result};
use tempfile::TempDir;

use crate::clock::TestClock;

pub struct Member {
    pub clock: Arc<TestClock>,
    pub settings: MachineSettings,
    parts: Option<MachineParts>,
    log: Vec<Vec<Bytes>>,
    dir: TempDir,
}

impl Member {
    pub fn new() -> Member {
        Member::with(MachineSettings::default())
    }

    pub fn with(settings: MachineSettings) -> Member {
        let dir = tempfile::tempdir().unwrap();
        let mut member =
            Member { clock: Arc::default(), settings, parts: None, log: Vec::new(), dir };
        member.open();
        member
    }

    fn open(&mut self) {
        let world = World { clock: self.clock.clone(), spawner: None, ..World::real() };
        let mut settings = self.settings.clone();
        settings.engine.memory.cache_bytes = 1 << 20;
        self.parts = Some(
            machine::open(self.dir.path(), settings, world, || Identity {
                cluster_id: 1,
                member_id: 2,
            })
            .unwrap(),
        );
        let from = self.parts().applier.applied().index as usize;
        assert_eq!(from as u64, self.parts().state.flushed());
        for at in from..self.log.len() {
            self.apply(at);
        }
    }

    pub fn parts(&self) -> &MachineParts {
        self.parts.as_ref().unwrap()
    }

    /// Closes and reopens the member: it is as of its last flush, and the log
    /// is replayed from there.
    pub fn restart(&mut self) {
        self.parts = None;
        self.open();
    }

    /// Flushes everything to disk.
    pub fn flush(&self) {
        let state = &self.parts().state;
        state.store().flush(state.tables.user).unwrap();
    }

    fn apply(&self, at: usize) -> Vec<Result<Answer>> {
        let proposals = self.log[at].clone();
        let entry = Committed { index: at as u64 + 1, term: 1, proposals, awaited: true };
        self.parts().applier.apply(entry).unwrap()
    }

    /// Applies one entry of raw proposals.
    pub fn entry_of_bytes(&mut self, proposals: Vec<Bytes>) -> Vec<Result<Answer>> {
        self.log.push(proposals);
        self.apply(self.log.len() - 1)
    }

    /// Applies one entry of several proposals.
    pub fn entry(&mut self, commands: &[Command]) -> Vec<Result<Answer>> {
        let time = self.clock.now_micros();
        self.entry_of_bytes(commands.iter().map(|command| encode(command, time)).collect())
    }

    pub fn propose(&mut self, command: Command) -> Result<Answer> {
        self.entry(&[command]).pop().unwrap()
    }

    pub fn put(&mut self, key: &'static str, value: &'static str) -> i64 {
        let put = stele_metastore::command::Put::new(key, value);
        self.propose(Command::Put(put)).unwrap().revision
    }

    pub fn put_with(&mut self, put: stele_metastore::command::Put) -> Result<PutAnswer> {
        match self.propose(Command::Put(put))?.reply {
            Reply::Put(answer) => Ok(answer),
            other => panic!("{other:?}"),
        }
    }

    pub fn delete(&mut self, range: KeyRange) -> DeleteAnswer {
        let delete = Delete { range, prev_kv: true };
        match self.propose(Command::Delete(delete)).unwrap().reply {
            Reply::Delete(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    pub fn txn(&mut self, txn: Txn) -> Result<(i64, TxnAnswer)> {
        let answer = self.propose(Command::Txn(txn))?;
        match answer.reply {
            Reply::Txn(txn) => Ok((answer.revision, txn)),
            other => panic!("{other:?}"),
        }
    }

    pub fn lease(&mut self, id: i64, ttl_seconds: i64) {
        self.propose(Command::LeaseGrant { id, ttl_seconds }).unwrap();
    }

    pub fn revision(&self) -> i64 {
        self.parts().state.revision()
    }

    /// Returns the keys and values that a query finds, and its summary.
    pub fn range(&self, query: &RangeQuery) -> Result<(Vec<(String, String)>, RangeSummary)> {
        self.range_down_to(query, Floor::Compacted)
    }

    pub fn range_down_to(
        &self,
        query: &RangeQuery,
        floor: Floor,
    ) -> Result<(Vec<(String, String)>, RangeSummary)> {
        let mut found = Vec::new();
        let summary = self.parts().state.range(query, floor, &mut |view: KeyView<'_>| {
            found.push((text(view.key), text(view.value())));
        })?;
        Ok((found, summary))
    }

    pub fn keys(&self, query: &RangeQuery) -> Vec<String> {
        self.range(query).unwrap().0.into_iter().map(|(key, _)| key).collect()
    }

    /// Returns all events of all keys from a revision on.
    pub fn events_from(&self, revision: i64) -> Result<Vec<Event>> {
        let mut cursor = self.parts().hub.cursor(revision);
        let mut events = Vec::new();
        while cursor.next() <= self.revision() {
            cursor.take(i64::MAX, &mut |_| true, &mut events)?;
        }
        Ok(events)
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn prefix(prefix: &'static str) -> RangeQuery {
    RangeQuery::new(KeyRange::prefix(prefix))
}

pub fn refused<T: std::fmt::Debug>(outcome: Result<T>) -> Error {
    outcome.expect_err("it should be refused")
}
