//! Members that are added, promoted, updated and removed, over TCP.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::world::World;
use stele_metastore::consensus::{Member, PeerSettings};
use stele_metastore::node::{ClusterSettings, NodeSettings};
use stele_metastore::peer::{PeerTransport, Roster, discover};
use stele_metastore::{Error, Node};
use tokio::net::TcpListener;

use crate::cluster::{NAMES, PATIENCE, members, open_all, open_tuned, published, put, read};

/// Waits until a condition holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn list(node: &Node) -> Arc<Vec<Member>> {
    node.members().unwrap()
}

/// Waits until all members have published what they are, as this one sees it.
async fn all_started(node: &Node) {
    until("all members are started", async || {
        list(node).iter().all(|member| member.record.is_started())
    })
    .await;
}

/// Returns an address that nobody listens on.
async fn free_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// Starts a member that was added to a cluster, in an empty directory.
async fn join(home: &Path, name: &str, members: &str) -> Node {
    let roster = Roster::parse_existing(name, members).unwrap();
    let address = (roster.url().host.clone(), roster.url().port);
    let listener = TcpListener::bind(address).await.unwrap();
    let found = discover(&roster, None).await.unwrap();
    let id = found.id_of_new(&roster).unwrap();
    let transport = PeerTransport::new(found.cluster_id, id, listener, None);
    let mut peers = PeerSettings::new(found.addresses(), Arc::new(transport));
    (peers.joining, peers.published) = (true, Some(published(name)));
    let mut settings = NodeSettings::new(home.join(name), World::real());
    settings.machine.engine.memory.cache_bytes = 1 << 20;
    (settings.cluster_id, settings.member_id) = (Some(found.cluster_id), Some(id));
    settings.cluster = Some(ClusterSettings::new(peers));
    Node::open(settings).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_gets_a_snapshot_over_tcp() {
    let (home, members) = (tempfile::tempdir().unwrap(), members().await);
    let mut nodes = Vec::new();
    for name in NAMES {
        let tune = |peers: &mut PeerSettings| {
            (peers.log_kept_bytes, peers.log_kept_entries) = (1 << 10, 100);
            peers.purge_interval = Duration::from_millis(50);
        };
        nodes.push(open_tuned(home.path(), name, &members, tune, |_| {}).await);
    }
    for number in 0..300 {
        put(&nodes[0], &format!("k/{number}"), &"x".repeat(4000)).await;
    }
    all_started(&nodes[0]).await;
    let purged = |node: &Node| {
        node.flush().unwrap();
        node.group().purged() > 1
    };
    until("the logs are purged", async || nodes.iter().all(purged)).await;
    let url = free_url().await;
    let id = nodes[0].add_member(vec![url.clone()], true).await.unwrap();
    let joined = join(home.path(), "d", &format!("{members},d={url}")).await;
    until("the learner is promoted", async || nodes[0].promote_member(id).await.is_ok()).await;
    assert!(home.path().join("d/current").exists(), "it got a snapshot");
    assert_eq!(read(&joined, "k/").await.len(), 300);
    let same = || joined.status().applied == nodes[0].status().applied;
    until("it has applied what the others have", async || same()).await;
    assert_eq!(joined.hash_now().unwrap(), nodes[0].hash_now().unwrap());
    // What it has got is there after a restart.
    let found = joined.status();
    joined.close().await.unwrap();
    let kept = home.path().join("d");
    let stored = stele_metastore::node::stored_identity(&kept, World::real()).unwrap().unwrap();
    assert_eq!((stored.cluster_id, stored.member_id), (found.cluster_id, id));
    for node in nodes {
        node.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_added_promoted_and_removed_while_the_others_work() {
    let (home, members) = (tempfile::tempdir().unwrap(), members().await);
    let mut nodes = open_all(home.path(), &members).await;
    put(&nodes[0], "k/before", "x").await;
    for (name, node) in NAMES.iter().zip(&nodes) {
        all_started(node).await;
        let mine = list(node).iter().find(|member| member.record.name == *name).cloned().unwrap();
        assert_eq!(mine.record.client_urls, published(name).client_urls);
        assert!(!mine.learner && !node.is_learner());
    }
    // Through a follower, as through any member.
    let leader = nodes[0].status().leader_id;
    let follower = nodes.iter().position(|node| node.status().member_id != leader).unwrap();
    let url = free_url().await;
    let id = nodes[follower].add_member(vec![url.clone()], true).await.unwrap();
    assert!(list(&nodes[follower]).iter().any(|member| member.id == id && member.learner));
    let text = |refused: Result<(), Error>| refused.unwrap_err().to_string();
    let again = nodes[0].add_member(vec![url.clone()], true).await.map(drop);
    assert_eq!(text(again), "etcdserver: Peer URLs already exists");
    let other = nodes[0].add_member(vec!["http://127.0.0.1:1".into()], true).await.map(drop);
    assert_eq!(text(other), "etcdserver: too many learner members in cluster");
    let bad = nodes[0].add_member(vec!["127.0.0.1:1".into()], true).await.map(drop);
    assert_eq!(text(bad), "etcdserver: given member URLs are invalid");
    let early = "etcdserver: can only promote a learner member which is in sync with leader";
    assert_eq!(text(nodes[0].promote_member(id).await), early);
    assert_eq!(text(nodes[0].promote_member(7).await), "etcdserver: member not found");

    let joined = join(home.path(), "d", &format!("{members},d={url}")).await;
    assert!(joined.is_learner());
    until("the learner is promoted", async || match nodes[0].promote_member(id).await {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.to_string(), early);
            false
        }
    })
    .await;
    assert_eq!(
        text(nodes[0].promote_member(id).await),
        "etcdserver: can only promote a learner member"
    );
    until("the new member votes", async || !joined.is_learner()).await;
    all_started(&joined).await;
    nodes.push(joined);
    put(&nodes[3], "k/through", "the new one").await;
    assert_eq!(read(&nodes[3], "k/").await.len(), 2);

    // The leader can be removed, too: it hands over first, and stops.
    let leader = nodes[0].status().leader_id;
    let at = nodes.iter().position(|node| node.status().member_id == leader).unwrap();
    let removed = nodes.remove(at);
    until("the leader is removed", async || nodes[0].remove_member(leader).await.is_ok()).await;
    assert_eq!(text(nodes[0].remove_member(leader).await), "etcdserver: member not found");
    until("the removed member stops", async || {
        let failure = removed.group().failure();
        matches!(failure, Some(Error::Removed { member }) if member == leader)
    })
    .await;
    for node in &nodes {
        put(node, "k/after", "x").await;
        assert_eq!(read(node, "k/").await.len(), 3);
        assert_eq!(list(node).len(), 3);
    }
    drop(removed);
    for node in nodes {
        node.close().await.unwrap();
    }
}
