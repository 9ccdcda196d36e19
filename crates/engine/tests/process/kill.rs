//! Real processes on a real disk: killed under load, and excluded by a lock. The child
//! is this test binary again, with its role in an environment variable.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use stele_engine::schema::{Family, Group, Schema};
use stele_engine::world::{Random, SystemRandom, World};
use stele_engine::*;

use super::child;

/// The variable with the directory of the store that a child opens.
const CHILD: &str = "STELE_KILL_CHILD";
const WRITERS: u64 = 4;
const ROUNDS: u64 = 15;
const TABLES: [&str; 2] = ["a", "b"];

fn options() -> Options {
    let mut options = Options::default();
    options.log.segment_bytes = 64 << 10;
    options.flush.fragment_bytes = 96 << 10;
    options
}

fn open(dir: &Path) -> Result<Store> {
    Store::open(dir, options(), World::real())
}

/// Runs the named test of this binary in a child process.
fn spawn(test: &str, dir: &Path) -> Child {
    child::command(test)
        .env(CHILD, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn row(writer: u64, number: i64) -> Vec<u8> {
    format!("{writer}/{number:08}").into_bytes()
}

/// Returns a commit of one writer, which increments counters in both tables and groups.
fn commit(tables: &[TableId], writer: u64, number: i64) -> Commit {
    let mut commit = CommitBuilder::new();
    for &table in tables {
        commit.table(table).row(&row(writer, number)).set(b"f", b"", 0, &[7; 200]);
        commit.row(format!("{writer}=").as_bytes());
        for family in [b"f", b"g"] {
            commit.merge(FoldId::SUM, family, b"count", 0, &1i64.to_be_bytes());
        }
    }
    commit.finish()
}

/// Returns the count of each writer, checked against its rows and the sums of both
/// groups in each table.
fn counts(store: &Store) -> Vec<i64> {
    let mut all = Vec::new();
    for name in TABLES {
        let table = store.table(name).unwrap();
        let mut rows: BTreeMap<u64, i64> = BTreeMap::new();
        let mut sums: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
        let read = store.read(table, ScanSpec::default(), |cell| {
            let text = std::str::from_utf8(cell.row).unwrap();
            match text.split_once('/') {
                Some((writer, number)) => {
                    let seen = rows.entry(writer.parse().unwrap()).or_default();
                    assert_eq!(*seen, number.parse::<i64>().unwrap(), "a row is missing");
                    *seen += 1;
                }
                None => {
                    let writer = text.trim_end_matches('=').parse().unwrap();
                    let sum = i64::from_be_bytes(cell.value.try_into().unwrap());
                    sums.entry(writer).or_default().push(sum);
                }
            }
        });
        read.unwrap();
        for writer in 0..WRITERS {
            let count = rows.get(&writer).copied().unwrap_or(0);
            let sum = sums.get(&writer).cloned().unwrap_or_else(|| vec![0, 0]);
            assert_eq!(sum, [count, count], "writer {writer} in table {name}");
            all.push(count);
        }
    }
    let (a, b) = all.split_at(WRITERS as usize);
    assert_eq!(a, b, "a commit is in one table and not in the other");
    a.to_vec()
}

/// Writes until killed, and prints what was acknowledged and what was read.
fn write_for_ever(dir: &Path) {
    let store = &open(dir).unwrap();
    let tables = &TABLES.map(|name| store.table(name).unwrap());
    let counts = counts(store);
    std::thread::scope(|scope| {
        for (writer, &first) in (0u64..).zip(&counts) {
            scope.spawn(move || {
                for number in first.. {
                    let (wait, level) = match number as u64 % 3 {
                        0 => (Durability::Accepted, "accepted"),
                        1 => (Durability::Written, "written"),
                        _ => (Durability::Durable, "durable"),
                    };
                    let commit = commit(tables, writer, number);
                    let txn = store.apply(&commit, Txn::MAX, wait).unwrap().raw();
                    println!("ack {writer} {number} {txn} {level}");
                }
            });
        }
        scope.spawn(move || {
            loop {
                for writer in 0..WRITERS {
                    let (start, end) = (row(writer, 0), format!("{writer}0"));
                    let newest = ScanSpec {
                        rows_max: Some(1),
                        reverse: true,
                        ..ScanSpec::range(RowRange::new(start, end))
                    };
                    let mut seen = None;
                    let read = store.read(tables[1], newest, |cell| seen = Some(cell.row.to_vec()));
                    read.unwrap();
                    if let Some(seen) = seen.filter(|seen| seen.contains(&b'/')) {
                        let text = String::from_utf8(seen).unwrap();
                        let number: i64 = text.split_once('/').unwrap().1.parse().unwrap();
                        println!("seen {writer} {number} .");
                    }
                }
            }
        });
    });
}

struct Ack {
    writer: usize,
    number: i64,
    txn: u64,
    promised: bool,
}

#[test]
fn what_a_killed_process_acknowledged_is_there_and_is_a_prefix() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return write_for_ever(Path::new(&dir));
    }
    let home = tempfile::tempdir().unwrap();
    let dir = &home.path().join("store");
    let store = open(dir).unwrap();
    for name in TABLES {
        let groups = vec![Group::new("f", [Family::new("f")]), Group::new("g", [Family::new("g")])];
        store.create_table(name, Schema::new(groups).unwrap()).unwrap();
    }
    store.close().unwrap();
    let random = SystemRandom::new();
    let mut promises = 0;
    for round in 0..ROUNDS {
        let mut child =
            spawn("kill::what_a_killed_process_acknowledged_is_there_and_is_a_prefix", dir);
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map_while(|l| l.ok());
        let enough = 20 + random.next_u64() as usize % 3000;
        let mut lines: Vec<String> = output.by_ref().take(enough).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        lines.extend(output);
        let counts = counts(&open(dir).unwrap());
        promises += check(&lines, &counts, round);
    }
    assert!(promises > ROUNDS as usize, "only {promises} commits were promised");
}

/// Compares the child's output with the contents. Returns the number of acknowledged
/// commits.
fn check(lines: &[String], counts: &[i64], round: u64) -> usize {
    let mut acks = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["ack", writer, number, txn, level @ ("accepted" | "written" | "durable")] => {
                acks.push(Ack {
                    writer: writer.parse().unwrap(),
                    number: number.parse().unwrap(),
                    txn: txn.parse().unwrap(),
                    promised: level != "accepted",
                });
            }
            ["seen", writer, number, "."] => {
                let writer: usize = writer.parse().unwrap();
                let number: i64 = number.parse().unwrap();
                assert!(counts[writer] > number, "round {round}: lost what was seen: {line}");
            }
            // The test harness prints too, and the last line may be truncated.
            _ => {}
        }
    }
    let kept = |ack: &&Ack| counts[ack.writer] > ack.number;
    let newest = acks.iter().filter(kept).map(|ack| ack.txn).max().unwrap_or(0);
    for ack in &acks {
        let there = kept(&ack);
        let Ack { writer, number, txn, .. } = ack;
        assert!(there || !ack.promised, "round {round}: lost {number} of writer {writer}");
        assert!(there || *txn > newest, "round {round}: {txn} is lost and {newest} is not");
    }
    acks.iter().filter(|ack| ack.promised).count()
}

#[test]
fn a_directory_is_locked_against_a_second_process() {
    if let Some(dir) = std::env::var_os(CHILD) {
        let _held = open(Path::new(&dir)).unwrap();
        println!("open");
        // Ends when the parent closes its end of the pipe.
        std::io::stdin().lines().for_each(drop);
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let dir = &home.path().join("store");
    let mut child = spawn("kill::a_directory_is_locked_against_a_second_process", dir);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("open")));
    let error = open(dir).err().expect("the directory is taken");
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    assert!(error.to_string().ends_with("store is in use by another process"));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    open(dir).unwrap();
}

#[test]
fn a_newer_format_is_refused_with_a_sentence_and_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let dir = &home.path().join("store");
    open(dir).unwrap().close().unwrap();
    let path = dir.join("manifest");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8..12].copy_from_slice(&7u32.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..12]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    std::fs::File::create(&path).unwrap().write_all(&bytes).unwrap();
    let error = open(dir).err().expect("the format is newer");
    assert!(matches!(error, Error::NewerFormat { found: 7, known: 6, .. }), "{error}");
    assert!(
        error.to_string().ends_with(
            "manifest has format version 7, this program reads up to 6: use a newer stele"
        )
    );
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}
