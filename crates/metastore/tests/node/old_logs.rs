//! Logs that another version has written.

use bytes::Bytes;
use stele_metastore::command::{Answer, ROW_BYTES_MAX, VERSION, encode};
use stele_metastore::consensus::{self, Committed, Machine, Position};
use stele_metastore::machine;
use stele_metastore::state::Identity;

use super::*;

/// Stops at some proposals after their entry is in the log, as versions before
/// the limit on keys did when the engine refused a long row.
struct Stops {
    applier: Arc<machine::Applier>,
    at: fn(&Bytes) -> bool,
}

impl Machine for Stops {
    type Answer = Result<Answer, Error>;

    fn apply(&self, entry: Committed) -> Result<Vec<Self::Answer>, Error> {
        if entry.proposals.iter().any(self.at) {
            return Err(Error::Internal("this is not applied".into()));
        }
        self.applier.apply(entry)
    }

    fn applied(&self) -> Position {
        self.applier.applied()
    }

    fn flushed(&self) -> u64 {
        self.applier.flushed()
    }
}

/// Creates a directory in whose log the second proposal was not applied.
async fn stopped_at(dir: &Path, clock: &Arc<TestClock>, at: fn(&Bytes) -> bool, second: Bytes) {
    let settings = settings(dir, clock);
    let world = settings.world.clone();
    let identity = || Identity { cluster_id: 1, member_id: 2 };
    let state = dir.join("state");
    let opened = machine::open(&state, settings.machine.clone(), world.clone(), identity).unwrap();
    let of_group = consensus::GroupSettings::new(dir.join("log"), world, 2);
    let machine = Arc::new(Stops { applier: opened.applier.clone(), at });
    let group = consensus::RaftGroup::open(of_group, machine).await.unwrap();
    let logged = |put: Put| encode(&Command::Put(put), 1);
    group.propose(logged(Put::new("before", "1"))).await.unwrap().unwrap();
    group.propose(second).await.unwrap_err();
    assert!(group.propose(logged(Put::new("after", "3"))).await.is_err(), "the group has stopped");
}

#[tokio::test]
async fn a_directory_that_a_long_key_had_stopped_opens_again() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let long = encode(&Command::Put(Put::new(vec![b'k'; 5 << 20], "2")), 1);
    stopped_at(dir.path(), &clock, |proposal| proposal.len() > ROW_BYTES_MAX, long).await;
    for round in 0..2 {
        let node = open(dir.path(), &clock).await;
        put(&node, &format!("round {round}"), "").await;
        let keys: Vec<String> = all(&node).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys[0], "before");
        assert_eq!(keys.len(), round + 2);
        let long = Put::new(vec![b'k'; 5 << 20], "");
        let refused = node.propose(Command::Put(long)).await.unwrap_err();
        assert!(matches!(refused, Error::Limit { .. }), "{refused}");
    }
}

#[tokio::test]
async fn a_directory_with_an_entry_of_a_newer_version_is_refused_and_left_as_it_is() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let is_newer = |proposal: &Bytes| proposal[0] > VERSION;
    let mut newer = encode(&Command::Put(Put::new("k", "2")), 1).to_vec();
    newer[0] = VERSION + 1;
    stopped_at(dir.path(), &clock, is_newer, newer.into()).await;
    for _ in 0..2 {
        let refusal = Node::open(settings(dir.path(), &clock)).await.err().unwrap().to_string();
        assert!(refusal.contains("unknown version"), "{refusal}");
        assert!(refusal.contains("written by a newer version of stele"), "{refusal}");
    }
}
