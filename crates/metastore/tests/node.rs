//! A node as the services see it: a group of one, its duties, its restarts.

mod old_logs;
mod times;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stele_engine::world::World;
use stele_engine::world::sim::{Operation, SimFiles, disk_full};
use stele_metastore::command::{
    Alarm, Command, Delete, Execute, KeyRange, Put, RangeQuery, Reply, Write,
};
use stele_metastore::node::{Attempt, NodeSettings, Retention};
use stele_metastore::{Error, Floor, Node};

use crate::clock::TestClock;

fn settings(dir: &Path, clock: &Arc<TestClock>) -> NodeSettings {
    let world = World { clock: clock.clone(), ..World::real() };
    let mut settings = NodeSettings::new(dir.to_path_buf(), world);
    settings.machine.engine.memory.cache_bytes = 1 << 20;
    settings
}

async fn open(dir: &Path, clock: &Arc<TestClock>) -> Node {
    Node::open(settings(dir, clock)).await.unwrap()
}

async fn put(node: &Node, key: &str, value: &str) -> i64 {
    let put = Put::new(key.to_string(), value.to_string());
    node.propose(Command::Put(put)).await.unwrap().revision
}

async fn put_leased(node: &Node, key: &str, lease: i64) {
    let put = Put { lease: Some(lease), ..Put::new(key.to_string(), "x") };
    node.propose(Command::Put(put)).await.unwrap();
}

fn all(node: &Node) -> Vec<(String, String)> {
    at(node, 0).unwrap()
}

fn at(node: &Node, revision: i64) -> Result<Vec<(String, String)>, Error> {
    let mut found = Vec::new();
    node.reader(Floor::Retained).range(
        &RangeQuery::new(KeyRange::all()).at(revision),
        &mut |view| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            found.push((text(view.key), text(view.value())));
        },
    )?;
    Ok(found)
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_restart() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let node = open(dir.path(), &clock).await;
    let identity = (node.status().cluster_id, node.status().member_id);
    put(&node, "a", "1").await;
    assert_eq!(put(&node, "b", "2").await, 3);
    node.close().await.unwrap();
    let node = open(dir.path(), &clock).await;
    assert_eq!((node.revision(), all(&node).len()), (3, 2));
    assert_eq!((node.status().cluster_id, node.status().member_id), identity);
    assert_eq!(node.status().leader_id, identity.1);
    put(&node, "a", "3").await;
    drop(node);
    let node = open(dir.path(), &clock).await;
    assert_eq!(all(&node), [("a".into(), "3".into()), ("b".into(), "2".into())]);
}

#[tokio::test]
async fn a_directory_of_another_cluster_or_member_is_refused_with_advice() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    open(dir.path(), &clock).await.close().await.unwrap();
    let wrong = NodeSettings { cluster_id: Some(7), ..settings(dir.path(), &clock) };
    let refusal = Node::open(wrong).await.err().unwrap().to_string();
    assert!(refusal.contains("belongs to cluster") && refusal.contains("name another directory"));
    let wrong = NodeSettings { member_id: Some(7), ..settings(dir.path(), &clock) };
    assert!(Node::open(wrong).await.err().unwrap().to_string().contains("belongs to member"));
}

#[tokio::test]
async fn renewals_write_nothing_to_the_log() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let node = open(dir.path(), &clock).await;
    let Reply::LeaseGrant { id, ttl_seconds } = node.lease_grant(0, 1).await.unwrap().reply else {
        panic!("a lease was requested")
    };
    assert!(id > 0 && ttl_seconds == 2, "a short TTL is raised");
    let (log_bytes, last) = (node.group().log_stats(), node.status().last);
    for _ in 0..10_000 {
        clock.run(Duration::from_secs(1));
        assert_eq!(node.leases().keep_alive(id), Some(2));
    }
    assert_eq!((node.group().log_stats(), node.status().last), (log_bytes, last));
    assert_eq!(node.leases().keep_alive(12345), None);
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_takes_its_keys_with_it_in_one_revision() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::<TestClock>::default());
    let node = open(dir.path(), &clock).await;
    for id in [1, 2] {
        node.lease_grant(id, 10).await.unwrap();
        put_leased(&node, &format!("a{id}"), id).await;
        put_leased(&node, &format!("b{id}"), id).await;
    }
    assert_eq!(node.leases().keys(1).unwrap(), ["a1", "b1"]);
    clock.run(Duration::from_secs(9));
    node.leases().keep_alive(2).unwrap();
    assert_eq!(node.leases().time_to_live(1).unwrap().ttl_seconds, 1);
    clock.run(Duration::from_secs(2));
    let before = node.revision();
    node.run_duties().await.unwrap();
    assert_eq!(node.revision(), before + 1);
    assert_eq!(all(&node).len(), 2);
    assert_eq!(node.leases().list(), [2]);
    assert!(node.leases().keep_alive(1).is_none() && node.leases().time_to_live(1).is_none());
    // After a restart the other lease has its full TTL again.
    clock.run(Duration::from_secs(7));
    node.close().await.unwrap();
    let node = open(dir.path(), &clock).await;
    assert_eq!(node.leases().time_to_live(2).unwrap().ttl_seconds, 10);
    clock.run(Duration::from_secs(11));
    node.run_duties().await.unwrap();
    assert_eq!(all(&node), []);
}

#[tokio::test]
async fn thousands_of_leases_run_out_in_a_few_entries() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::<TestClock>::default());
    let node = open(dir.path(), &clock).await;
    for id in 1..=2000 {
        let grant = Command::LeaseGrant { id, ttl_seconds: 5 };
        node.propose(grant).await.unwrap();
    }
    let before = node.status().last;
    clock.run(Duration::from_secs(10));
    // The node's own duties may run concurrently and have expired some.
    while !node.leases().list().is_empty() {
        node.run_duties().await.unwrap();
    }
    let entries = node.status().last - before;
    assert!(entries <= 8, "{entries} entries");
}

#[tokio::test]
async fn history_is_bounded_by_bytes_too() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::<TestClock>::default());
    let mut settings = settings(dir.path(), &clock);
    settings.retention = Retention { bytes_max: 100_000, ..Retention::default() };
    let node = Node::open(settings).await.unwrap();
    let value = "v".repeat(1000);
    for at in 0..300 {
        put(&node, "k", &format!("{at}{value}")).await;
        if at % 3 == 0 {
            node.run_duties().await.unwrap();
        }
    }
    let kept = node.revision() - node.waterline();
    assert!((90..=105).contains(&kept), "{kept} revisions of about 1000 bytes are kept");
}

#[tokio::test]
async fn the_quota_is_on_live_bytes_and_its_alarm_clears_itself() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let settings = NodeSettings { quota_bytes: 10_000, ..settings(dir.path(), &clock) };
    let node = Node::open(settings).await.unwrap();
    let value = Bytes::from(vec![b'v'; 1000]);
    // History does not count.
    for _ in 0..50 {
        node.propose(Command::Put(Put::new("same", value.clone()))).await.unwrap();
    }
    let mut key = 0;
    let refusal = loop {
        key += 1;
        let put = Command::Put(Put::new(format!("k{key}"), value.clone()));
        if let Err(error) = node.propose(put).await {
            break error;
        }
    };
    assert!(matches!(refusal, Error::NoSpace) && key > 5);
    assert_eq!(node.alarms(), [(node.status().member_id, Alarm::NoSpace)]);
    let small = Command::Put(Put::new("s", ""));
    assert!(matches!(node.propose(small.clone()).await, Err(Error::NoSpace)));
    assert!(matches!(node.lease_grant(0, 5).await, Err(Error::NoSpace)));
    let delete = |key: &'static str| Command::Delete(Delete::new(KeyRange::prefix(key)));
    node.propose(delete("k")).await.unwrap();
    node.run_duties().await.unwrap();
    assert_eq!(node.alarms(), []);
    node.propose(small).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_64_clients_that_increment_one_key_none_starves_and_no_update_is_lost() {
    const CLIENTS: u64 = 64;
    let dir = tempfile::tempdir().unwrap();
    let node = NodeSettings::new(dir.path().to_path_buf(), World::real());
    let node = Arc::new(Node::open(node).await.unwrap());
    put(&node, "counter", "0").await;
    let clients = (1..=CLIENTS).map(|id| {
        let node = node.clone();
        tokio::spawn(async move {
            let begun = std::time::Instant::now();
            let mut attempts = 0;
            loop {
                attempts += 1;
                let read_revision = node.revision();
                let counter: u64 = at(&node, read_revision).unwrap()[0].1.parse().unwrap();
                tokio::task::yield_now().await;
                let value = Some((counter + 1).to_string().into());
                let execute = Execute {
                    read_revision,
                    reads: vec![KeyRange::single("counter")],
                    writes: vec![Write { key: "counter".into(), value, lease: 0 }],
                    locks: vec![],
                };
                let attempt = Attempt { id, age: begun.elapsed() };
                match node.execute(execute, attempt).await {
                    Ok(_) => return attempts,
                    Err(Error::Conflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    let mut most = 0;
    for client in clients {
        let attempts = tokio::time::timeout(Duration::from_secs(60), client).await;
        most = most.max(attempts.expect("every client finishes within a minute").unwrap());
    }
    assert_eq!(all(&node)[0].1, CLIENTS.to_string());
    assert!(most <= 2 * CLIENTS, "one client needed {most} attempts");
}

/// Flushes fail for a while, so that the engine has no memory for entries that
/// are already in the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_too_full_to_apply_refuses_writes_serves_reads_and_recovers_by_itself() {
    let sim = SimFiles::new(1);
    for _ in 0..2 {
        sim.fail_next(Operation::Create, "fragments", disk_full());
    }
    let opened = |files| {
        let world = World { files: Arc::new(files), ..World::real() };
        let mut settings = NodeSettings::new("/meta".into(), world);
        settings.machine.engine.memory.budget_bytes = 1 << 20;
        settings.machine.engine.memory.cache_bytes = 1 << 20;
        Node::open(settings)
    };
    let node = Arc::new(opened(sim.clone()).await.unwrap());
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let node = node.clone();
            tokio::spawn(async move {
                let mut stored = Vec::new();
                for at in 0..40 {
                    let key = format!("{writer}/{at}");
                    let put = Put::new(key.clone(), vec![0; 32 << 10]);
                    match node.propose(Command::Put(put)).await {
                        Ok(_) => stored.push(key),
                        Err(error) => assert_full(&error),
                    }
                }
                stored
            })
        })
        .collect();
    // Requests keep arriving, each in a task of its own.
    let mut others = Vec::new();
    while writers.iter().any(|writer| !writer.is_finished()) {
        let node = node.clone();
        others.push(tokio::spawn(async move {
            node.barrier().await.unwrap();
            assert_eq!(node.count(&KeyRange::single("none"), 0).unwrap(), 0);
            node.propose(Command::Put(Put::new("other", "small"))).await.map(drop)
        }));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut refused = 0;
    for other in others {
        if let Err(error) = other.await.unwrap() {
            assert_full(&error);
            refused += 1;
        }
    }
    assert!(refused > 0, "nothing was applied for a while");
    let mut stored = Vec::new();
    for writer in writers {
        stored.extend(writer.await.unwrap());
    }
    put(&node, "after", "all").await;
    let count = |node: &Node, key: &str| node.count(&KeyRange::single(key.to_string()), 0).unwrap();
    assert!(stored.iter().all(|key| count(&node, key) == 1));
    Arc::into_inner(node).unwrap().close().await.unwrap();
    let node = opened(sim.crash()).await.unwrap();
    assert!(stored.iter().all(|key| count(&node, key) == 1));
}

fn assert_full(error: &Error) {
    assert!(error.to_string().contains("disk is full"), "{error}");
}

#[tokio::test]
async fn a_member_is_closed_while_a_purge_goes_on_without_its_caller() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let node = Arc::new(open(dir.path(), &clock).await);
    for value in 0..50 {
        put(&node, "a", &value.to_string()).await;
    }
    let purging = node.clone();
    let revision = node.revision();
    let mut purge = Box::pin(async move { purging.compact(revision, true).await });
    // Until the work is on another thread, or done.
    for _ in 0..1000 {
        tokio::select! {
            biased;
            _ = &mut purge => break,
            () = tokio::task::yield_now() => {}
        }
    }
    drop(purge);
    let node = Arc::into_inner(node).expect("the purge does not hold the node");
    node.close().await.unwrap();
}
