//! Logs and states as they were written by earlier versions, kept as files: every
//! later version opens them. `write_golden` writes those of the present version.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use stele_engine::world::World;
use stele_metastore::command::{
    Acquire, Command, Delete, KeyRange, LEVEL_MAX, LockMode, Op, Put, Quota, RangeQuery, Txn,
    encode,
};
use stele_metastore::consensus::{GroupSettings, RaftGroup};
use stele_metastore::machine::{self, MachineSettings};
use stele_metastore::node::{NodeSettings, Verified};
use stele_metastore::state::Identity;
use stele_metastore::{Floor, Node};

use crate::clock::TestClock;

const IDENTITY: Identity = Identity { cluster_id: 0xC0FFEE, member_id: 0x7E57 };

fn golden(level: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/level{level}"))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else if entry.file_name() != "lock" && entry.file_name() != "LOCK" {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The commands before and after the flush. Entries after it are only in the
/// log.
fn commands(level: u32) -> (Vec<Command>, Vec<Command>) {
    let put = |key: &'static str, value: &'static str| Command::Put(Put::new(key, value));
    let leased = Put { lease: Some(7), ..Put::new("leased", "while it lasts") };
    let txn = Txn {
        success: vec![Op::Put(Put::new("txn/1", "one")), Op::Put(Put::new("txn/2", "two"))],
        ..Txn::default()
    };
    let mut before = vec![
        Command::RaiseLevel { level },
        put("a", "1"),
        put("a", "2"),
        put("b", "1"),
        Command::LeaseGrant { id: 7, ttl_seconds: 1_000_000 },
        Command::Put(leased),
        Command::Txn(txn),
        Command::Sample { clock_micros: 60_000_000 },
    ];
    let key = Bytes::from_static(b"lock");
    let (session, mode) = (7, LockMode::Exclusive);
    let after = vec![
        Command::Delete(Delete::new(KeyRange::single("b"))),
        Command::Acquire(Acquire { key, session, mode, no_wait: false, call_id: 3 }),
        put("c", "after the flush"),
        Command::Compact { revision: 3 },
    ];
    if level >= 2 {
        let quota = Some(Quota { keys_max: 10, bytes_max: 0 });
        before.push(Command::SetQuota { prefix: "txn/".into(), quota });
    }
    if level >= 3 {
        let (clock_micros, deadlines) = (61_000_000, vec![(7, 1_000_061_000_000)]);
        before.push(Command::LeaseDeadlines { clock_micros, deadlines });
    }
    (before, after)
}

#[tokio::test]
#[ignore = "cargo test -p stele-metastore --test promises -- --ignored golden::write_golden"]
async fn write_golden() {
    let level = LEVEL_MAX;
    let dir = tempfile::tempdir().unwrap();
    let world = World { clock: Arc::new(TestClock::default()), ..World::real() };
    let settings = MachineSettings::default();
    let state = dir.path().join("state");
    let parts = machine::open(&state, settings, world.clone(), || IDENTITY).unwrap();
    let log = dir.path().join("log");
    let mut settings = GroupSettings::new(log, world, IDENTITY.member_id);
    settings.log.segment_bytes = 16 << 10;
    let group = RaftGroup::open(settings, parts.applier.clone()).await.unwrap();
    let (before, after) = commands(level);
    let mut time_micros = 1_700_000_000_000_000;
    for command in before {
        time_micros += 1_000_000;
        group.propose(encode(&command, time_micros)).await.unwrap().unwrap();
    }
    parts.state.store.flush(parts.state.tables.user).unwrap();
    for command in after {
        time_micros += 1_000_000;
        group.propose(encode(&command, time_micros)).await.unwrap().unwrap();
    }
    let _ = fs::remove_dir_all(golden(level));
    copy(dir.path(), &golden(level));
}

async fn opens(level: u32, hash: u32) {
    let dir = tempfile::tempdir().unwrap();
    copy(&golden(level), dir.path());
    let settings = NodeSettings::new(dir.path().to_path_buf(), World::real());
    let node = Node::open(NodeSettings { sync: false, ..settings }).await.unwrap();
    let status = node.status();
    assert_eq!((status.cluster_id, status.member_id), (IDENTITY.cluster_id, IDENTITY.member_id));
    assert_eq!((node.level(), node.revision(), node.compacted()), (level, 9, 3));
    let at = |revision| {
        let mut found = Vec::new();
        let query = RangeQuery::new(KeyRange::all()).at(revision);
        let read = node.reader(Floor::Compacted).range(&query, &mut |view| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            found.push(format!("{}={}@{}", text(view.key), text(view.value()), view.version()));
        });
        read.unwrap();
        found.join(" ")
    };
    let txn = "txn/1=one@1 txn/2=two@1";
    let leased = "leased=while it lasts@1";
    assert_eq!(at(0), format!("a=2@2 c=after the flush@1 {leased} {txn}"));
    assert_eq!(at(6), format!("a=2@2 b=1@1 {leased} {txn}"));
    assert_eq!(node.hash(0).await.unwrap().hash, hash);
    assert_eq!(node.leases().keys(7).unwrap(), ["leased"]);
    let lock = node.lock(b"lock").unwrap().unwrap();
    assert_eq!(lock.holder(7).unwrap().token, 8);
    assert_eq!(node.revision_at(1_700_000_000_000_000 + 2_500_000).unwrap(), 2);
    let verified = node.verify().await.unwrap();
    match level {
        1 => assert_eq!(verified, Verified::Skipped),
        _ => {
            assert_eq!(verified, Verified::Equal { revision: 9 });
            assert_eq!(node.quotas().get(b"txn/").map(|used| used.keys), Some(2));
        }
    }
    node.propose(Command::Put(Put::new("new", "v"))).await.unwrap();
    node.raise_level(2, &[]).await.unwrap();
    assert_eq!(node.verify().await.unwrap(), Verified::Equal { revision: 10 });
    node.close().await.unwrap();
}

#[tokio::test]
async fn a_log_and_state_of_level_1_are_read() {
    opens(1, 2_930_036_093).await;
}

#[tokio::test]
async fn a_log_and_state_of_level_2_are_read() {
    opens(2, 2_930_036_093).await;
}

#[tokio::test]
async fn a_log_and_state_of_level_3_are_read() {
    opens(3, 2_930_036_093).await;
}
