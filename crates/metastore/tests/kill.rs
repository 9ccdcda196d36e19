//! A member in a process of its own, killed under load: all acknowledged writes
//! are there after a restart, each once, in its writer's order, and every
//! transaction is whole. The child runs this same test, selected by an
//! environment variable.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::sync::Arc;

use stele_engine::world::{Random, SystemRandom, World};
use stele_metastore::command::{Command, KeyRange, Op, Put, RangeQuery, Txn};
use stele_metastore::{Floor, Node, node};

/// Holds the directory of the member that a child opens.
const CHILD: &str = "STELE_KILL_CHILD";
const TEST: &str = "kill::what_a_killed_member_answered_is_there_when_it_comes_back";
const WRITERS: u64 = 8;
const ROUNDS: u64 = 5;

async fn open(dir: &Path) -> Node {
    let mut settings = node::NodeSettings::new(dir.to_path_buf(), World::real());
    // Makes flushes frequent, so that kills hit them too.
    settings.machine.engine.flush.fragment_bytes = 64 << 10;
    Node::open(settings).await.unwrap()
}

/// Returns the number that each writer has reached, in both of its keys.
fn counts(node: &Node) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let range = KeyRange::prefix("w/");
    node.reader(Floor::Compacted)
        .range(&RangeQuery::new(range), &mut |view| {
            let key = String::from_utf8(view.key.to_vec()).unwrap();
            let (writer, side) = key[2..].split_once('/').unwrap();
            let value: u64 = std::str::from_utf8(view.value()).unwrap().parse().unwrap();
            // Each write made one version: none was lost, none was applied twice.
            assert_eq!(view.version() as u64, value, "{key}");
            let other = found.insert(writer.to_string(), value);
            assert!(side == "a" || other == Some(value), "half a transaction: {key}");
        })
        .unwrap();
    found
}

fn both_sides(writer: u64, number: u64) -> Command {
    let put = |side: &str| Op::Put(Put::new(format!("w/{writer}/{side}"), number.to_string()));
    Command::Txn(Txn { success: vec![put("a"), put("b")], ..Txn::default() })
}

/// Writes until it is killed, and prints the acknowledged writes.
async fn write_for_ever(dir: &Path) {
    let node = Arc::new(open(dir).await);
    let counts = counts(&node);
    let mut writing = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let node = node.clone();
        let first = counts.get(&writer.to_string()).copied().unwrap_or(0) + 1;
        writing.spawn(async move {
            for number in first.. {
                node.propose(both_sides(writer, number)).await.unwrap();
                println!("ack {writer} {number}");
            }
        });
    }
    writing.join_all().await;
}

#[test]
fn what_a_killed_member_answered_is_there_when_it_comes_back() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Some(dir) = std::env::var_os(CHILD) {
        return runtime.block_on(write_for_ever(Path::new(&dir)));
    }
    let home = tempfile::tempdir().unwrap();
    let dir = &home.path().join("member");
    let random = SystemRandom::new();
    let mut answered: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut child = Process::new(std::env::current_exe().unwrap())
            .args([TEST, "--exact", "--nocapture"])
            .env(CHILD, dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let line_count = 20 + random.next_u64() as usize % 400;
        let mut lines: Vec<String> = output.by_ref().take(line_count).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        lines.extend(output);
        for line in &lines {
            // The last line may be truncated, and the test harness prints lines
            // too.
            let words: Vec<&str> = line.split(' ').collect();
            if let ["ack", writer, number] = words[..]
                && let Ok(number) = number.parse::<u64>()
            {
                let newest = answered.entry(writer.to_string()).or_default();
                *newest = number.max(*newest);
            }
        }
        let counts = runtime.block_on(async { counts(&open(dir).await) });
        for (writer, number) in &answered {
            let found = counts.get(writer).copied().unwrap_or(0);
            let expected = *number..=number + 1;
            assert!(expected.contains(&found), "round {round}, writer {writer}: {found}");
        }
    }
    assert!(answered.values().sum::<u64>() > ROUNDS * 20, "too few to prove anything");
}
