//! Long operations do not block other calls, and closing a node waits for them.

use std::pin::Pin;
use std::sync::Arc;

use stele_engine::world::World;
use stele_engine::world::sim::{Hold, Operation, SimFiles};
use stele_metastore::command::{
    Command, Compare, Execute, KeyRange, Op, Operand, Put, RangeQuery, Relation, Target, Txn, Write,
};
use stele_metastore::machine::COMPARED_KEYS_MAX;
use stele_metastore::node::{Attempt, NodeSettings};
use stele_metastore::{Error, Floor, Node, Result};

/// More keys than are counted on the runtime's thread.
const KEYS: usize = 9_000;

async fn open(files: &SimFiles) -> Result<Node> {
    let world = World { files: Arc::new(files.clone()), ..World::real() };
    let mut settings = NodeSettings::new("/metastore".into(), world);
    settings.machine.engine.memory.cache_bytes = 1 << 20;
    Node::open(settings).await
}

async fn fill(node: &Node, keys: usize) {
    for from in (0..keys).step_by(3000) {
        let write = |at| Write { key: format!("{at:06}").into(), value: Some("".into()), lease: 0 };
        let writes = (from..keys.min(from + 3000)).map(write).collect();
        let execute = Execute { read_revision: node.revision(), writes, ..Execute::default() };
        let attempt = Attempt { id: 1, age: std::time::Duration::ZERO };
        node.execute(execute, attempt).await.unwrap();
    }
}

/// Creates a store with keys only on disk, and changes after the revision that
/// it returns.
async fn filled(files: &SimFiles) -> i64 {
    let node = open(files).await.unwrap();
    fill(&node, KEYS).await;
    let revision = node.revision();
    node.propose(Command::Put(Put::new("later", ""))).await.unwrap();
    node.close().await.unwrap();
    revision
}

/// Blocks the next thread that reads a fragment.
fn hold_next_read(files: &SimFiles) -> Hold {
    files.hold_first(Operation::Read, "/fragments/", "")
}

type Work = Pin<Box<dyn Future<Output = i64> + Send>>;

/// Runs work on the only thread of the runtime. While it waits for the disk,
/// another task must be able to run, which unblocks the disk.
async fn others_run_during(work: impl FnOnce(Arc<Node>, i64) -> Work) -> i64 {
    let files = SimFiles::new(1);
    let revision = filled(&files).await;
    let node = Arc::new(open(&files).await.unwrap());
    let hold = hold_next_read(&files);
    let working = tokio::spawn(work(node, revision));
    hold.wait_until_waiting();
    tokio::spawn(async move { drop(hold) });
    working.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_hash_keeps_no_other_call_waiting() {
    let hash = |node: Arc<Node>, _| -> Work {
        Box::pin(async move { i64::from(node.hash(0).await.unwrap().hash) })
    };
    assert_ne!(others_run_during(hash).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_sorted_range_keeps_no_other_call_waiting() {
    let sorted = |node: Arc<Node>, _| -> Work {
        Box::pin(async move {
            let query = RangeQuery { target: Target::Mod, ..RangeQuery::new(KeyRange::all()) };
            let mut found = 0;
            node.reader(Floor::Compacted).range(&query, &mut |_| found += 1).unwrap();
            found
        })
    };
    assert_eq!(others_run_during(sorted).await, KEYS as i64 + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_count_of_many_keys_at_an_older_revision_keeps_no_other_call_waiting() {
    let count = |node: Arc<Node>, revision| -> Work {
        Box::pin(async move { node.count(&KeyRange::all(), revision).unwrap() })
    };
    assert_eq!(others_run_during(count).await, KEYS as i64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_whose_compares_would_read_very_many_keys_is_not_proposed() {
    let node = open(&SimFiles::new(1)).await.unwrap();
    fill(&node, COMPARED_KEYS_MAX + 1).await;
    let txn = |operand, relation| {
        let compares = vec![Compare { range: KeyRange::all(), relation, operand }];
        Command::Txn(Txn { compares, success: vec![Op::Put(Put::new("k", ""))], failure: vec![] })
    };
    let before = node.revision();
    let refused = node.propose(txn(Operand::Mod(i64::MAX), Relation::Less)).await.unwrap_err();
    assert!(matches!(refused, Error::Limit { .. }), "{refused}");
    // One key decides this, however many there are.
    node.propose(txn(Operand::Version(0), Relation::Equal)).await.unwrap();
    assert_eq!(node.revision(), before);
    node.close().await.unwrap();
}

async fn put(node: &Node, values: std::ops::Range<usize>) {
    for value in values {
        node.propose(Command::Put(Put::new("k", value.to_string()))).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_closed_when_nothing_uses_its_directory_any_more() {
    let files = SimFiles::new(1);
    let node = open(&files).await.unwrap();
    put(&node, 0..50).await;
    node.close().await.unwrap();
    let node = Arc::new(open(&files).await.unwrap());
    put(&node, 50..100).await;
    let (purging, revision) = (node.clone(), node.revision());
    // A purge flushes, and then reads what it compacts.
    let hold = hold_next_read(&files);
    let caller = tokio::spawn(async move { purging.compact(revision, true).await });
    hold.wait_until_waiting();
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    let node = Arc::into_inner(node).expect("the cancelled caller has released the node");
    let mut closing = tokio::spawn(node.close());
    for _ in 0..10_000 {
        tokio::select! {
            biased;
            closed = &mut closing => panic!("{closed:?} while a purge is under way"),
            () = tokio::task::yield_now() => {}
        }
    }
    drop(hold);
    closing.await.unwrap().unwrap();
    let node = open(&files).await.expect("nothing uses the directory any more");
    assert_eq!(node.revision(), revision);
    node.close().await.unwrap();
}
