//! Feature levels, and what they bring: hashes of all keys and quotas of
//! prefixes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stele_engine::CommitBuilder;
use stele_engine::world::World;
use stele_metastore::command::{
    Alarm, Command, Delete, Execute, KeyRange, LEVEL_BASE, LEVEL_MAX, Op, Put, Quota, RangeQuery,
    Txn, Write, encode,
};
use stele_metastore::consensus::{Committed, Machine};
use stele_metastore::machine::{self, MachineSettings};
use stele_metastore::node::{Attempt, Compared, NodeSettings, Verified};
use stele_metastore::state::{Identity, VALUE};
use stele_metastore::{Code, Error, Floor, Node, Result};

use crate::clock::TestClock;

fn settings(dir: &Path) -> NodeSettings {
    settings_with(dir, &Arc::default())
}

fn settings_with(dir: &Path, clock: &Arc<TestClock>) -> NodeSettings {
    let world = World { clock: clock.clone(), ..World::real() };
    let mut settings = NodeSettings::new(dir.to_path_buf(), world);
    settings.machine.engine.memory.cache_bytes = 1 << 20;
    settings.sync = false;
    settings
}

async fn open(dir: &Path) -> Node {
    Node::open(settings(dir)).await.unwrap()
}

/// Opens a member whose group has not been raised.
async fn open_at_base(dir: &Path) -> Node {
    Node::open(NodeSettings { level_at_creation: LEVEL_BASE, ..settings(dir) }).await.unwrap()
}

async fn put(node: &Node, key: &str, value: &str) -> Result<i64> {
    let put = Put::new(key.to_string(), value.to_string());
    Ok(node.propose(Command::Put(put)).await?.revision)
}

async fn set_quota(node: &Node, prefix: &str, keys_max: i64, bytes_max: i64) -> Result<()> {
    let (prefix, quota) = (Bytes::from(prefix.to_string()), Some(Quota { keys_max, bytes_max }));
    node.propose(Command::SetQuota { prefix, quota }).await.map(drop)
}

/// Returns keys and bytes that a prefix uses.
fn used(node: &Node, prefix: &str) -> (i64, i64) {
    let quotas = node.quotas();
    let used = quotas.get(prefix.as_bytes()).unwrap();
    (used.keys, used.bytes)
}

#[tokio::test]
async fn a_new_group_is_at_the_newest_level_and_an_existing_one_stays_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir.path().join("new")).await;
    assert_eq!((node.level(), node.revision()), (LEVEL_MAX, 1));
    let old = dir.path().join("old");
    let node = open_at_base(&old).await;
    put(&node, "k", "v").await.unwrap();
    node.close().await.unwrap();
    let node = open(&old).await;
    assert_eq!((node.level(), node.level_spoken()), (LEVEL_BASE, LEVEL_MAX));
    node.close().await.unwrap();
}

#[tokio::test]
async fn a_new_command_is_refused_until_the_level_is_raised() {
    let dir = tempfile::tempdir().unwrap();
    let node = open_at_base(dir.path()).await;
    put(&node, "a/1", "v").await.unwrap();
    let refused = set_quota(&node, "a/", 2, 0).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.to_string().contains("stele metastore level --raise 2"), "{refused}");
    assert_eq!(node.verify().await.unwrap(), Verified::Skipped);
    let slow_member = node.raise_level(2, &[(7, 2), (8, 1)]).await.unwrap_err().to_string();
    assert!(slow_member.contains("member 8 speaks only level 1"), "{slow_member}");
    for unknown in [0, LEVEL_MAX + 1] {
        let unknown = node.raise_level(unknown, &[]).await.unwrap_err().to_string();
        assert!(unknown.contains("is unknown"), "{unknown}");
    }
    assert_eq!(node.level(), LEVEL_BASE);
    node.raise_level(2, &[(7, 2)]).await.unwrap();
    set_quota(&node, "a/", 2, 0).await.unwrap();
    assert_eq!(used(&node, "a/"), (1, 4));
    // The hashes count what was there before.
    assert_eq!(node.verify().await.unwrap(), Verified::Equal { revision: 2 });
    node.raise_level(1, &[]).await.unwrap();
    assert_eq!(node.level(), 2, "a level is never lowered");
    node.close().await.unwrap();
    assert_eq!(open(dir.path()).await.level(), 2);
}

/// Applies entries without a node.
struct Bare {
    parts: machine::MachineParts,
    index: u64,
}

impl Bare {
    fn open(dir: &Path) -> Bare {
        let world = World { spawner: None, ..World::real() };
        let identity = || Identity { cluster_id: 1, member_id: 2 };
        let parts = machine::open(dir, MachineSettings::default(), world, identity).unwrap();
        Bare { parts, index: 0 }
    }

    fn apply(&mut self, proposals: Vec<Bytes>) -> Result<()> {
        self.index += 1;
        let entry = Committed { index: self.index, term: 1, proposals, awaited: true };
        self.parts.applier.apply(entry).map(drop)
    }
}

#[test]
fn an_entry_that_raises_the_level_too_high_stops_the_member_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut bare = Bare::open(dir.path());
    let put = |key: &'static str| encode(&Command::Put(Put::new(key, "v")), 1);
    bare.apply(vec![put("before")]).unwrap();
    let raise = encode(&Command::RaiseLevel { level: LEVEL_MAX + 1 }, 1);
    let stopped = bare.apply(vec![put("same entry"), raise]).unwrap_err();
    assert!(matches!(stopped, Error::UnknownEntry { index: 2, .. }), "{stopped}");
    let text = stopped.to_string();
    assert!(
        text.contains("feature level 4 is unknown") && text.contains("newer version"),
        "{text}"
    );
    assert_eq!((bare.parts.state.revision(), bare.parts.state.level()), (2, LEVEL_BASE));
    assert!(matches!(bare.apply(vec![put("after")]), Err(Error::Stopped)));
}

#[test]
fn an_unknown_command_stops_the_member_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut bare = Bare::open(dir.path());
    let put = encode(&Command::Put(Put::new("k", "v")), 1);
    let mut unknown = put.to_vec();
    unknown[9] = 250;
    let stopped = bare.apply(vec![put, unknown.into()]).unwrap_err().to_string();
    assert!(stopped.contains("log entry 1") && stopped.contains("unknown command"), "{stopped}");
    assert_eq!(bare.parts.state.revision(), 1);
}

#[tokio::test]
async fn a_put_beyond_the_quota_of_its_prefix_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path()).await;
    set_quota(&node, "a/", 2, 0).await.unwrap();
    set_quota(&node, "a/b/", 0, 12).await.unwrap();
    put(&node, "a/1", "one").await.unwrap();
    put(&node, "a/b/2", "two").await.unwrap();
    let revision = node.revision();
    let refused = put(&node, "a/3", "three").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(
        refused.to_string(),
        "etcdserver: quota of prefix \"a/\" exceeded: 3 keys is over the limit of 2: delete keys \
         with this prefix or raise its quota"
    );
    let refused = put(&node, "a/b/2", "two, but longer").await.unwrap_err().to_string();
    assert!(refused.contains("\"a/b/\"") && refused.contains("20 bytes"), "{refused}");
    assert_eq!(node.revision(), revision, "a refused put changes nothing");
    put(&node, "a/b/2", "2").await.unwrap();
    put(&node, "elsewhere", "unlimited").await.unwrap();
    assert_eq!((used(&node, "a/"), used(&node, "a/b/")), ((2, 12), (1, 6)));
    // A deletion makes room.
    node.propose(Command::Delete(Delete::new(KeyRange::single("a/1")))).await.unwrap();
    put(&node, "a/3", "3").await.unwrap();
    // Quotas and their usage survive a restart; a removed one limits nothing.
    node.close().await.unwrap();
    let node = open(dir.path()).await;
    assert_eq!(used(&node, "a/"), (2, 10));
    assert!(put(&node, "a/4", "").await.is_err());
    let remove = |prefix: &'static str| Command::SetQuota { prefix: prefix.into(), quota: None };
    node.propose(remove("a/")).await.unwrap();
    put(&node, "a/4", "").await.unwrap();
    assert!(node.propose(remove("a/")).await.is_err(), "it is gone");
    let nothing = set_quota(&node, "a/", 0, 0).await.unwrap_err().to_string();
    assert!(nothing.contains("neither keys nor bytes"), "{nothing}");
    node.close().await.unwrap();
}

#[tokio::test]
async fn the_puts_of_a_transaction_count_together_and_all_or_none_happen() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path()).await;
    set_quota(&node, "a/", 2, 0).await.unwrap();
    let puts = |count: usize| {
        let op = |at: usize| Op::Put(Put::new(format!("a/{at}"), "v"));
        Command::Txn(Txn { success: (0..count).map(op).collect(), ..Txn::default() })
    };
    let refused = node.propose(puts(3)).await.unwrap_err();
    assert!(matches!(refused, Error::PrefixQuota { .. }), "{refused}");
    assert_eq!((used(&node, "a/"), node.revision()), ((0, 0), 1));
    node.propose(puts(2)).await.unwrap();
    let write = |key: &'static str| Write { key: key.into(), value: Some("v".into()), lease: 0 };
    let execute = |writes| Execute { read_revision: 2, writes, ..Execute::default() };
    let attempt = Attempt { id: 1, age: Duration::ZERO };
    let refused = node.execute(execute(vec![write("a/9")]), attempt).await.unwrap_err();
    assert!(matches!(refused, Error::PrefixQuota { .. }), "{refused}");
    node.execute(execute(vec![write("a/1")]), attempt).await.unwrap();
    assert_eq!(used(&node, "a/"), (2, 8));
    node.close().await.unwrap();
}

#[tokio::test]
async fn usage_and_hashes_follow_large_deletions_leases_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path()).await;
    set_quota(&node, "k", 1_000_000, 0).await.unwrap();
    node.lease_grant(5, 600).await.unwrap();
    let write = |at: usize| Write {
        key: format!("k{at:05}").into(),
        value: Some(vec![at as u8; 100].into()),
        lease: if at.is_multiple_of(3) { 5 } else { 0 },
    };
    // More than one part of a deletion.
    for chunk in 0..4 {
        let writes = (chunk * 3000..(chunk + 1) * 3000).map(write).collect();
        let read_revision = node.revision();
        let execute = Execute { read_revision, writes, ..Execute::default() };
        node.propose(Command::Execute(execute)).await.unwrap();
    }
    assert_eq!(used(&node, "k"), (12_000, 12_000 * 106));
    node.by(None).lease_revoke(5).await.unwrap();
    assert_eq!(used(&node, "k").0, 8_000);
    node.propose(Command::Delete(Delete::new(KeyRange::prefix("k0")))).await.unwrap();
    let left = node.count(&KeyRange::prefix("k"), 0).unwrap();
    assert_eq!(used(&node, "k"), (left, left * 106));
    let equal = Verified::Equal { revision: node.revision() };
    assert_eq!(node.verify().await.unwrap(), equal);
    // Not closed: the log is replayed.
    drop(node);
    let node = open(dir.path()).await;
    assert_eq!(used(&node, "k"), (left, left * 106));
    assert_eq!(node.verify().await.unwrap(), equal);
    node.close().await.unwrap();
}

#[test]
fn the_hashes_of_a_replayed_log_are_those_of_the_first_time() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut one, mut other) = (Bare::open(one.path()), Bare::open(other.path()));
    let mut random = fastrand::Rng::with_seed(7);
    let mut proposals = vec![encode(&Command::RaiseLevel { level: 2 }, 1)];
    for at in 0..500 {
        let key = format!("k{}", random.u8(..40));
        let command = match random.u8(..4) {
            0 => Command::Delete(Delete::new(KeyRange::single(key))),
            _ => Command::Put(Put::new(key, format!("v{at}"))),
        };
        proposals.push(encode(&command, at));
    }
    // The same proposals in entries of different sizes.
    for proposal in &proposals {
        one.apply(vec![proposal.clone()]).unwrap();
    }
    for entry in proposals.chunks(17) {
        other.apply(entry.to_vec()).unwrap();
    }
    let state = |bare: &Bare| {
        let (watermarks, _) = bare.parts.applier.history();
        (watermarks.revision, watermarks.buckets)
    };
    assert_eq!(state(&one), state(&other));
    let (revision, buckets) = state(&one);
    let computed = one.parts.state.recompute_buckets(revision, &|| true).unwrap();
    assert_eq!(computed, Some(buckets));
    assert_eq!(one.parts.state.recompute_buckets(revision, &|| false).unwrap(), Some(buckets));
}

#[tokio::test]
async fn a_key_that_no_entry_wrote_raises_the_alarm_and_stops_reads() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let node = open(dir.path()).await;
    put(&node, "k", "v").await.unwrap();
    put(&node, "l", "v").await.unwrap();
    node.close().await.unwrap();
    // Change the state behind the member's back.
    {
        let world = World::real();
        let identity = || Identity { cluster_id: 1, member_id: 2 };
        let parts = machine::open(&state, MachineSettings::default(), world, identity).unwrap();
        let mut commit = CommitBuilder::new();
        commit.table(parts.state.tables.user).row(b"rogue").set(VALUE, b"", 2, b"tail");
        parts.state.store.apply_part(&commit.finish()).unwrap();
        parts.state.store.flush(parts.state.tables.user).unwrap();
    }
    let node = open(dir.path()).await;
    let member = node.status().member_id;
    let Verified::Differs { revision: 3, buckets } = node.verify().await.unwrap() else {
        panic!("the key was not noticed")
    };
    assert_eq!(buckets.len(), 1);
    assert_eq!(node.alarms(), [(member, Alarm::Corrupt)]);
    let all = RangeQuery::new(KeyRange::all());
    let refused = node.reader(Floor::Compacted).range(&all, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, Error::Corrupt), "{refused}");
    assert!(matches!(put(&node, "m", "v").await, Err(Error::Corrupt)));
    node.close().await.unwrap();
}

#[tokio::test]
async fn members_that_differ_at_one_entry_are_told_apart() {
    let clock: Arc<TestClock> = Arc::default();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let one = Node::open(settings_with(dirs[0].path(), &clock)).await.unwrap();
    let other = Node::open(settings_with(dirs[1].path(), &clock)).await.unwrap();
    one.run_duties().await.unwrap();
    other.run_duties().await.unwrap();
    for node in [&one, &other] {
        put(node, "k", "v").await.unwrap();
    }
    clock.run(Duration::from_secs(61));
    one.run_duties().await.unwrap();
    other.run_duties().await.unwrap();
    let theirs = other.bucket_hashes(0).expect("a sample was taken");
    assert_eq!(one.compare_hashes(9, &theirs).await.unwrap(), Compared::Equal);
    put(&one, "k", "new").await.unwrap();
    put(&other, "k", "neW").await.unwrap();
    clock.run(Duration::from_secs(61));
    one.run_duties().await.unwrap();
    other.run_duties().await.unwrap();
    assert_eq!(one.compare_hashes(9, &theirs).await.unwrap(), Compared::Equal, "at the old entry");
    let theirs = other.bucket_hashes(0).unwrap();
    let compared = one.compare_hashes(9, &theirs).await.unwrap();
    assert!(matches!(compared, Compared::Differs { buckets } if buckets.len() == 1));
    assert_eq!(one.alarms(), [(9, Alarm::Corrupt)]);
    assert!(other.alarms().is_empty());
    assert_eq!(other.bucket_hashes(99_999), None);
}

#[tokio::test]
async fn every_phase_of_a_request_is_measured_and_slow_ones_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = NodeSettings::new(dir.path().to_path_buf(), World::real());
    settings.slow_request = Duration::ZERO;
    let node = Node::open(settings).await.unwrap();
    let before = node.slow_requests();
    for at in 0..10 {
        put(&node, &format!("k{at}"), "v").await.unwrap();
    }
    for (phase, times) in node.group().phases().histograms() {
        assert!(times.count() >= 10, "{phase}: {}", times.count());
    }
    assert!(node.group().phases().sync.seconds() > 0.0);
    assert!(node.slow_requests() >= before + 10);
    node.close().await.unwrap();
}

#[tokio::test]
async fn the_oldest_readable_revision_and_its_time_are_known() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::<TestClock>::default());
    clock.set_wall(1_000_000);
    let node = Node::open(settings_with(dir.path(), &clock)).await.unwrap();
    assert_eq!(node.history_reach().unwrap().oldest_micros, None);
    put(&node, "k", "1").await.unwrap();
    clock.set_wall(5_000_000);
    put(&node, "k", "2").await.unwrap();
    put(&node, "k", "3").await.unwrap();
    let history = node.history_reach().unwrap();
    assert_eq!((history.oldest_revision, history.oldest_micros), (1, Some(1_000_000)));
    node.compact(3, true).await.unwrap();
    let history = node.history_reach().unwrap();
    assert_eq!((history.oldest_revision, history.oldest_micros), (3, Some(5_000_000)));
    node.close().await.unwrap();
}
