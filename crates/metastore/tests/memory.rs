//! Data larger than its memory budget, with transactions and restarts: nothing
//! holds all keys in memory.

use std::path::Path;

use stele_engine::world::World;
use stele_metastore::command::{Command, KeyRange, Put, RangeQuery};
use stele_metastore::node::NodeSettings;
use stele_metastore::{Floor, Node};

const BUDGET_BYTES: usize = 2 << 20;
const KEYS: usize = 12_000;
const VALUE_BYTES: usize = 1000;

async fn open(dir: &Path) -> Node {
    let mut settings = NodeSettings::new(dir.to_path_buf(), World::real());
    settings.sync = false;
    settings.machine.ring_bytes_max = 64 << 10;
    let engine = &mut settings.machine.engine;
    engine.memory.budget_bytes = BUDGET_BYTES;
    engine.memory.cache_bytes = 1 << 20;
    engine.flush.fragment_bytes = BUDGET_BYTES / 8;
    Node::open(settings).await.unwrap()
}

fn key(number: usize) -> String {
    format!("key{:06}", number * 7919 % KEYS)
}

fn value(key: &[u8]) -> Vec<u8> {
    key.iter().cycle().take(VALUE_BYTES).copied().collect()
}

fn check_all(node: &Node) {
    let mut found = 0;
    let all = RangeQuery::new(KeyRange::all());
    let read = node.reader(Floor::Compacted).range(&all, &mut |view| {
        assert!(view.value() == value(view.key), "{}", view.key.escape_ascii());
        found += 1;
    });
    assert_eq!((read.unwrap().count, found), (KEYS as i64, KEYS));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_larger_than_memory_is_written_read_and_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path()).await;
    for number in 0..KEYS {
        let key = key(number);
        let value = value(key.as_bytes());
        node.propose(Command::Put(Put::new(key, value))).await.unwrap();
    }
    assert!(node.usage().live_bytes as usize > 5 * BUDGET_BYTES);
    check_all(&node);
    drop(node);
    let node = open(dir.path()).await;
    check_all(&node);
    assert_eq!(node.count(&KeyRange::prefix("key000"), 0).unwrap(), 1000);
}
