//! Operations of a cluster: hashes compared between members, leadership moved on
//! request, the status of all members, and the phases of requests.

use std::path::Path;
use std::time::Duration;

use stele_engine::CommitBuilder;
use stele_engine::world::World;
use stele_metastore::command::{Alarm, Command, KeyRange, LEVEL_MAX, Put, RangeQuery};
use stele_metastore::machine::{self, MachineSettings};
use stele_metastore::node::{Compared, Difference, NodeSettings};
use stele_metastore::state::Identity;
use stele_metastore::{Error, Floor, Node};

use crate::cluster::{NAMES, PATIENCE, members, open_with, put};

/// Samples often, and compares only when the test does.
fn settings(settings: &mut NodeSettings) {
    settings.retention.sample_every = Duration::from_millis(20);
    settings.verify_every = Duration::from_secs(3600);
    settings.slow_request = Duration::ZERO;
}

async fn open_all(home: &Path, members: &str) -> Vec<Node> {
    // Opening waits for a leader, and so for another member.
    let [a, b, c] = NAMES.map(|name| open_with(home, name, members, settings));
    let (a, b, c) = tokio::join!(a, b, c);
    vec![a, b, c]
}

/// Waits until a condition holds for a node.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{what}"));
}

fn leader(nodes: &[Node]) -> Option<&Node> {
    nodes.iter().find(|node| node.status().leader_id == node.status().member_id)
}

/// Writes a key, and compares the members at a sample that has it.
async fn compare(nodes: &[Node], key: &str) -> Compared {
    let revision = put(&nodes[0], key, "v").await;
    let mut compared = Compared::Skipped;
    until("the members are compared", async || {
        let Some(leader) = leader(nodes) else { return false };
        if leader.bucket_hashes(0).is_none_or(|hashes| hashes.revision < revision) {
            return false;
        }
        compared = leader.compare_members().await.unwrap();
        match &compared {
            // A member may not have connected yet.
            Compared::Equal { members, .. } => *members == nodes.len(),
            Compared::Differs { .. } => true,
            Compared::Skipped => false,
        }
    })
    .await;
    compared
}

/// Changes the hash of bucket 5 in the state of a member that is not running, as
/// if it had applied something else.
fn damage(state: &Path) {
    let identity = || Identity { cluster_id: 1, member_id: 2 };
    let parts = machine::open(state, MachineSettings::default(), World::real(), identity).unwrap();
    let (mut watermarks, _) = parts.applier.history();
    watermarks.buckets.0[5] ^= 1;
    let mut commit = CommitBuilder::new();
    parts.state.tables.push_meta(&mut commit, &watermarks, None, &[]);
    parts.state.store().apply_part(&commit.finish()).unwrap();
    parts.state.store().flush(parts.state.tables.user).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_keys_differ_is_named_and_nothing_is_served() {
    let (home, members) = (tempfile::tempdir().unwrap(), members().await);
    let mut nodes = open_all(home.path(), &members).await;
    let compared = compare(&nodes, "a").await;
    assert!(matches!(compared, Compared::Equal { members: 3, .. }), "{compared:?}");
    let damaged = nodes.remove(1);
    let member = damaged.status().member_id;
    damaged.close().await.unwrap();
    damage(&home.path().join(NAMES[1]).join("state"));
    nodes.insert(1, open_with(home.path(), NAMES[1], &members, settings).await);
    let Compared::Differs { members: differing, .. } = compare(&nodes, "b").await else {
        panic!("the difference was not noticed")
    };
    assert_eq!(differing, [Difference { member, buckets: vec![5] }]);
    for node in &nodes {
        let raised = async || node.alarms() == [(member, Alarm::Corrupt)];
        until("the alarm is raised everywhere", raised).await;
        let all = RangeQuery::new(KeyRange::all());
        let refused = node.reader(Floor::Compacted).range(&all, &mut |_| {}).unwrap_err();
        assert!(matches!(refused, Error::Corrupt), "{refused}");
        let refused = node.propose(Command::Put(Put::new("c", "v"))).await;
        assert!(matches!(refused, Err(Error::Corrupt)), "{refused:?}");
    }
    for node in nodes {
        node.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_moves_to_the_member_that_is_named_and_to_no_stranger() {
    let (home, members) = (tempfile::tempdir().unwrap(), members().await);
    let nodes = open_all(home.path(), &members).await;
    put(&nodes[0], "k", "v").await;
    let id = |node: &Node| node.status().member_id;
    // Asked at every member in turn, whether it leads or not.
    for asked in &nodes {
        for to in &nodes {
            asked.move_leader(Some(id(to))).await.unwrap();
            assert_eq!(asked.status().leader_id, id(to));
            until("the new leader knows", async || to.status().leader_id == id(to)).await;
        }
        let stranger = asked.move_leader(Some(1)).await.unwrap_err();
        assert!(matches!(stranger, Error::BadTransferee), "{stranger}");
        put(asked, "k", "after").await;
    }
    let before = nodes[0].status().leader_id;
    nodes[0].move_leader(None).await.unwrap();
    assert_ne!(nodes[0].status().leader_id, before);
    for node in nodes {
        node.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_of_the_cluster_has_every_member_and_why_one_does_not_answer() {
    let (home, members) = (tempfile::tempdir().unwrap(), members().await);
    let mut nodes = open_all(home.path(), &members).await;
    let revision = put(&nodes[0], "k", "v").await;
    until("every member answers and has applied the entry", async || {
        let status = nodes[2].cluster_status().await;
        status.iter().all(|member| member.error.is_empty() && member.revision == revision)
    })
    .await;
    let status = nodes[2].cluster_status().await;
    let mut ids: Vec<u64> = nodes.iter().map(|node| node.status().member_id).collect();
    ids.sort_unstable();
    assert_eq!(status.iter().map(|member| member.member_id).collect::<Vec<_>>(), ids);
    for member in &status {
        assert!(member.leader_id != 0 && member.term > 0, "{member:?}");
        assert_eq!(member.level, LEVEL_MAX, "{member:?}");
        assert!(member.applied_index > 0 && member.last_index >= member.applied_index);
        assert!(members.contains(&member.peer_url) && !member.version.is_empty(), "{member:?}");
    }
    let gone = nodes.remove(0);
    let gone_id = gone.status().member_id;
    gone.close().await.unwrap();
    let status = nodes[1].cluster_status().await;
    for member in status {
        assert_eq!(member.error.is_empty(), member.member_id != gone_id, "{member:?}");
    }
    // A member that is away cannot become the leader, and stays out of the way.
    until("there is a leader", async || leader(&nodes).is_some()).await;
    let refused = nodes[0].move_leader(Some(gone_id)).await.unwrap_err();
    assert!(matches!(refused, Error::Timeout), "{refused}");
    put(&nodes[0], "k", "after").await;
    for node in nodes {
        node.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_phase_of_a_request_is_measured_on_every_member() {
    let (home, members) = (tempfile::tempdir().unwrap(), members().await);
    let nodes = open_all(home.path(), &members).await;
    for node in &nodes {
        for number in 0..20 {
            put(node, &format!("k{number}"), "v").await;
        }
        let phases = node.group().phases();
        for (phase, times) in phases.histograms() {
            assert!(times.count() >= 20, "{phase}: {}", times.count());
        }
        assert!(phases.sync.seconds() > 0.0 && phases.apply.seconds() > 0.0);
        assert!(phases.replicate.seconds() > 0.0);
        assert!(node.slow_requests() >= 20);
    }
    for node in nodes {
        node.close().await.unwrap();
    }
}
