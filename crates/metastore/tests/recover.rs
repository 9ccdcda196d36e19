//! The recovery of a member whose group is gone.

use std::path::Path;

use stele_engine::world::World;
use stele_metastore::command::{Command, KeyRange, Put};
use stele_metastore::node::{NodeSettings, inspect_member, recover_member};
use stele_metastore::{Error, Node};

async fn open(dir: &Path) -> Node {
    let settings = NodeSettings::new(dir.to_path_buf(), World::real());
    Node::open(NodeSettings { sync: false, ..settings }).await.unwrap()
}

#[tokio::test]
async fn a_recovered_member_has_everything_in_its_log_and_a_new_cluster_id() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path()).await;
    for at in 0..10 {
        node.propose(Command::Put(Put::new(format!("k{at}"), "v"))).await.unwrap();
    }
    let status = node.status();
    // Not closed: the last entries are only in the log.
    drop(node);
    let found = inspect_member(dir.path(), World::real()).unwrap();
    assert_eq!(found.identity.cluster_id, status.cluster_id);
    assert_eq!((found.last.index, found.voters.clone()), (status.last, vec![status.member_id]));
    assert_eq!(found.entries_not_applied(), status.last - found.applied.index);
    assert!(found.entries_not_applied() >= 10 && found.new_cluster_id.is_none());
    assert_eq!(inspect_member(dir.path(), World::real()).unwrap(), found, "nothing was changed");
    let recovered = recover_member(dir.path(), World::real()).unwrap();
    let new_id = recovered.new_cluster_id.unwrap();
    assert_ne!(new_id, status.cluster_id);
    // Interrupted or run twice, it gives a member that works.
    let again = recover_member(dir.path(), World::real()).unwrap();
    assert_eq!(again.last.index, found.last.index + 1);
    let node = open(dir.path()).await;
    assert_eq!(node.status().cluster_id, again.new_cluster_id.unwrap());
    assert_eq!(node.status().member_id, status.member_id);
    assert_eq!(node.count(&KeyRange::all(), 0).unwrap(), 10);
    node.propose(Command::Put(Put::new("after", "v"))).await.unwrap();
    node.close().await.unwrap();
    assert_eq!(open(dir.path()).await.revision(), 12);
}

#[tokio::test]
async fn a_directory_without_a_member_or_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = inspect_member(dir.path(), World::real()).unwrap_err().to_string();
    assert!(refused.contains("has no metastore"), "{refused}");
    let node = open(dir.path()).await;
    let refused = recover_member(dir.path(), World::real()).unwrap_err();
    assert!(matches!(refused, Error::Engine(_)), "{refused}");
    node.close().await.unwrap();
}
