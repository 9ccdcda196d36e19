//! Dropping history immediately: Compact with `physical`, as in etcd.

use std::path::Path;

use stele_engine::world::World;
use stele_metastore::command::{Command, Delete, KeyRange, Put, RangeQuery};
use stele_metastore::node::NodeSettings;
use stele_metastore::{Error, Floor, Node};

const KEYS: usize = 20;
const ROUNDS: usize = 40;

async fn open(dir: &Path) -> Node {
    let settings = NodeSettings::new(dir.to_path_buf(), World::real());
    Node::open(NodeSettings { sync: false, ..settings }).await.unwrap()
}

/// Returns bytes that do not compress, and differ from round to round.
fn value(key: usize, round: usize) -> Vec<u8> {
    let seed = (key * ROUNDS + round) as u64 + 1;
    let bits = |at: u64| (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ at).wrapping_mul(at | 1);
    (0..1024).flat_map(|at| bits(at * seed + 1).to_le_bytes()).collect()
}

async fn write_rounds(node: &Node) -> i64 {
    for round in 0..ROUNDS {
        for key in 0..KEYS {
            let put = Put::new(format!("key{key:02}"), value(key, round));
            node.propose(Command::Put(put)).await.unwrap();
        }
    }
    node.revision()
}

fn read(node: &Node, revision: i64) -> Result<usize, Error> {
    let mut found = 0;
    let query = RangeQuery::new(KeyRange::all()).at(revision);
    node.reader(Floor::Retained).range(&query, &mut |view| {
        let key: usize = std::str::from_utf8(&view.key[3..]).unwrap().parse().unwrap();
        assert_eq!(view.value(), value(key, ROUNDS - 1));
        found += 1;
    })?;
    Ok(found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_physical_compaction_returns_when_the_space_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path()).await;
    let newest = write_rounds(&node).await;
    node.compact(newest - 1, false).await.unwrap();
    let before = node.usage();
    let history = (KEYS * (ROUNDS - 1) * 8192) as i64;
    assert!(before.stored_bytes > history, "a logical one keeps what native readers see");
    assert!(node.waterline() < 0);
    node.compact(newest, true).await.unwrap();
    let after = node.usage();
    assert!(after.stored_bytes < 2 * after.live_bytes, "{before:?} became {after:?}");
    assert_eq!(node.waterline(), newest);
    assert_eq!(read(&node, newest).unwrap(), KEYS);
    assert!(matches!(read(&node, newest - 1), Err(Error::TooOld { .. } | Error::Compacted { .. })));
    drop(node);
    let node = open(dir.path()).await;
    assert_eq!((node.waterline(), read(&node, 0).unwrap()), (newest, KEYS));
}

#[tokio::test]
async fn a_physical_compaction_keeps_what_reads_and_watches_from_it_on_see() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path()).await;
    for value in ["1", "2"] {
        node.propose(Command::Put(Put::new("kept", value))).await.unwrap();
        node.propose(Command::Put(Put::new("gone", value))).await.unwrap();
    }
    let gone = Command::Delete(Delete::new(KeyRange::single("gone")));
    let deleted = node.propose(gone).await.unwrap().revision;
    node.propose(Command::Put(Put::new("kept", "3"))).await.unwrap();
    node.compact(deleted, true).await.unwrap();
    let at = |revision| {
        let mut found = Vec::new();
        let query = RangeQuery::new(KeyRange::all()).at(revision);
        node.reader(Floor::Retained)
            .range(&query, &mut |view| found.push(view.value().to_vec()))
            .unwrap();
        found
    };
    assert_eq!((at(deleted), at(deleted + 1)), (vec![b"2".to_vec()], vec![b"3".to_vec()]));
    let mut events = Vec::new();
    let mut cursor = node.watch().cursor(deleted);
    cursor.take(i64::MAX, &mut |_| true, &mut events).unwrap();
    assert_eq!(events.len(), 2, "the deletion at the line and the put after it");
    let again = node.compact(deleted, true).await.unwrap_err();
    assert!(matches!(again, Error::Compacted { compacted } if compacted == deleted));
}
