//! The Snapshot method, and members restored from its snapshots.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use stele_engine::world::World;
use stele_metastore::command::{Command, Delete, KeyRange, Kv, Put, RangeQuery, Restore};
use stele_metastore::etcd::Options;
use stele_metastore::node::NodeSettings;
use stele_metastore::snapshot::{
    BLOCK_BYTES, DIGEST_BYTES, MAGIC, Reader, Record, record, restore,
};
use stele_metastore::{Error, Floor, Node, client};

use crate::etcd::server;

async fn open(dir: &Path) -> Arc<Node> {
    let settings = NodeSettings::new(dir.to_path_buf(), World::real());
    Arc::new(Node::open(NodeSettings { sync: false, ..settings }).await.unwrap())
}

async fn put(node: &Node, key: &str, value: Vec<u8>, lease: i64) {
    let put = Put { lease: Some(lease), ..Put::new(key.to_string(), value) };
    node.propose(Command::Put(put)).await.unwrap();
}

fn all(node: &Node) -> Vec<(Bytes, Bytes)> {
    let mut found = Vec::new();
    node.reader(Floor::Compacted)
        .range(&RangeQuery::new(KeyRange::all()), &mut |view| {
            found.push((Bytes::copy_from_slice(view.key), Bytes::copy_from_slice(view.tail)));
        })
        .unwrap();
    found
}

/// Fetches a snapshot over a socket, as the command line does.
async fn snapshot(node: &Arc<Node>) -> Vec<u8> {
    let (address, serving) = server::serve(node.clone(), Options::default()).await;
    let client = client::Client::connect(&format!("http://{address}")).await.unwrap();
    let mut file = Vec::new();
    let bytes = client.save_snapshot(&mut file).await.unwrap();
    assert_eq!(bytes, file.len() as u64);
    serving.abort();
    file
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_member_has_every_key_as_it_was_and_its_leases() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir.path().join("old")).await;
    node.lease_grant(77, 600).await.unwrap();
    for number in 0..700 {
        // Enough for more than one part of a restore, some of them with a
        // lease.
        let lease = if number % 10 == 0 { 77 } else { 0 };
        put(&node, &format!("key{number:04}"), vec![number as u8; 4000], lease).await;
    }
    for number in (0..700).step_by(3) {
        put(&node, &format!("key{number:04}"), Vec::new(), 0).await;
    }
    let some = Command::Delete(Delete::new(KeyRange::prefix("key01")));
    node.propose(some).await.unwrap();
    let file = snapshot(&node).await;

    let target = dir.path().join("new");
    let restored = restore(Cursor::new(&file), &target, Some(0xCAFE), 1).await.unwrap();
    assert_eq!((restored.keys, restored.leases, restored.cluster_id), (600, 1, 0xCAFE));
    assert_eq!(restored.revision, node.revision() + 1);
    let again = open(&target).await;
    assert_eq!((all(&again), again.revision()), (all(&node), restored.revision));
    assert_eq!(again.count(&KeyRange::all(), 0).unwrap(), 600);
    assert_eq!(again.usage().live_bytes, node.usage().live_bytes);
    assert_eq!(again.leases().keys(77).unwrap(), node.leases().keys(77).unwrap());
    assert_eq!(again.leases().time_to_live(77).unwrap().granted_seconds, 600);
    // History begins here: earlier revisions cannot be read.
    assert_eq!(again.compacted(), restored.revision);
    let past = RangeQuery::new(KeyRange::all()).at(restored.revision - 1);
    assert!(matches!(
        again.reader(Floor::Compacted).range(&past, &mut |_| {}),
        Err(Error::Compacted { .. })
    ));
    // The member continues to work, also after a restart.
    put(&again, "key0999", b"later".to_vec(), 0).await;
    let kept = all(&again);
    Arc::into_inner(again).unwrap().close().await.unwrap();
    let again = open(&target).await;
    assert_eq!((all(&again), again.revision()), (kept, restored.revision + 1));
    again.propose(Command::LeaseRevoke { id: 77 }).await.unwrap();
    assert!(all(&again).len() < 600, "keys still go with their lease");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_member_is_restored_too_and_no_directory_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let file = snapshot(&open(&dir.path().join("old")).await).await;
    let target = dir.path().join("new");
    let restored = restore(Cursor::new(&file), &target, None, 100).await.unwrap();
    assert_eq!((restored.keys, restored.revision), (0, 101));
    assert_eq!(open(&target).await.revision(), 101);
    let refused = restore(Cursor::new(&file), &target, None, 1).await.unwrap_err();
    assert!(refused.to_string().contains("already exists"), "{refused}");
    let refused = restore(Cursor::new(&file), &dir.path().join("x"), None, 0).await.unwrap_err();
    assert!(refused.to_string().contains("raise the revision"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_snapshot_leaves_no_member_behind() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir.path().join("old")).await;
    put(&node, "k", b"v".to_vec(), 0).await;
    let mut file = snapshot(&node).await;
    let middle = file.len() / 2;
    file[middle] ^= 1;
    let target = dir.path().join("new");
    let refused = restore(Cursor::new(&file), &target, None, 1).await.unwrap_err();
    assert!(refused.to_string().contains("checksum"), "{refused}");
    assert!(!target.exists() && !dir.path().join("new.restoring").exists());
}

/// Returns the snapshot without its only lease, with a new checksum.
fn without_lease(file: &[u8]) -> Vec<u8> {
    let end_of_record = |at: usize| at + 2 + usize::from(file[at + 1]);
    let lease = end_of_record(MAGIC.len());
    assert_eq!(file[lease], record::LEASE << 3 | 2);
    let content = &file[end_of_record(lease)..file.len() - DIGEST_BYTES];
    let mut sealed = [&file[..lease], content].concat();
    sealed.resize(sealed.len().next_multiple_of(BLOCK_BYTES), 0);
    let digest = ring::digest::digest(&ring::digest::SHA256, &sealed);
    sealed.extend_from_slice(digest.as_ref());
    sealed
}

#[tokio::test]
async fn a_key_whose_lease_ended_while_the_snapshot_was_taken_goes_soon() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir.path().join("old")).await;
    node.lease_grant(5, 600).await.unwrap();
    put(&node, "k", b"v".to_vec(), 5).await;
    let file = without_lease(&snapshot(&node).await);
    let mut reader = Reader::open(Cursor::new(&file)).unwrap();
    let Some(Record::Key(kv)) = reader.next_record().unwrap() else { panic!("a key is first") };
    assert_eq!(reader.next_record().unwrap(), None);
    let target = dir.path().join("new");
    restore(Cursor::new(&file), &target, None, 1).await.unwrap();
    let again = open(&target).await;
    assert_eq!(again.leases().time_to_live(5).unwrap().granted_seconds, 2);
    assert_eq!(again.leases().keys(5).unwrap(), ["k"]);
    // The store itself refuses a key whose lease it does not know.
    let fresh = open(&dir.path().join("fresh")).await;
    let part = Restore { revision: 9, leases: Vec::new(), kvs: vec![kv] };
    let refused = fresh.propose(Command::Restore(part)).await.unwrap_err();
    assert!(refused.to_string().contains("lease of a key is missing"), "{refused}");
}

#[tokio::test]
async fn a_store_that_was_written_to_takes_no_restore() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path()).await;
    put(&node, "k", b"v".to_vec(), 0).await;
    let kvs = vec![Kv { key: "a".into(), tail: Bytes::from_static(&[16, 1, 24, 1, 32, 1]) }];
    let part = Restore { revision: 50, leases: Vec::new(), kvs };
    let refused = node.propose(Command::Restore(part)).await.unwrap_err();
    assert!(refused.to_string().contains("has been written to"), "{refused}");
    assert_eq!((node.revision(), all(&node).len()), (2, 1));
}
