//! The `stele engine` tools as people and scripts use them: exit codes, JSON, readable
//! lines, and one clear sentence on errors.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use stele_engine::schema::{Family, Schema};
use stele_engine::world::World;
use stele_engine::{CommitBuilder, Durability, FoldId, Options, RowRange, Store, Txn};

use crate::support::command;

fn engine(args: &[&str]) -> Command {
    command(&[&["engine"], args].concat())
}

fn run(args: &[&str]) -> Output {
    engine(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns every line of JSON output.
fn lines(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Asserts that a command failed with code 2 and one sentence.
fn assert_one_sentence(output: &Output, says: &str) {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("stele: ") && text.contains(says), "{text}");
    assert!(!text.contains('{'), "a dump of a type, not a sentence: {text}");
}

struct Made {
    dir: tempfile::TempDir,
}

impl Made {
    /// Creates a closed store with one fragment, and a log that continues after it.
    fn new() -> Made {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options::default(), World::real()).unwrap();
        let schema = Schema::with_families([Family::new("f")]).unwrap();
        let table = store.create_table("orders", schema).unwrap();
        let apply = |commit: CommitBuilder| {
            store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap()
        };
        let mut commit = CommitBuilder::new();
        commit.table(table).delete_range(&RowRange::from("x"));
        commit.row(b"a\0").set(b"f", b"q", 5, b"hello").mark(b"f", b"gone", 6, b"");
        commit.row(b"b").delete_column(b"f", b"q").merge(FoldId::SUM, b"f", b"n", 1, &[0; 8]);
        apply(commit);
        store.flush(table).unwrap();
        let mut commit = CommitBuilder::new();
        commit.table(table).row(b"c").delete_row().set(b"f", b"late", 7, &[b'v'; 100]);
        apply(commit);
        store.close().unwrap();
        Made { dir }
    }

    fn path(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }

    fn only(&self, part: &str) -> PathBuf {
        let mut entries = fs::read_dir(self.dir.path().join(part)).unwrap();
        let first = entries.next().unwrap().unwrap().path();
        assert!(entries.next().is_none());
        first
    }
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[offset] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn verify_says_sound_with_code_0_and_damaged_with_code_1() {
    let made = Made::new();
    let output = run(&["verify", made.path()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = stdout(&output);
    assert!(text.lines().any(|line| line == "sound"), "{text}");
    assert!(text.contains("orders") && text.contains(".frag"), "{text}");

    let fragment = made.only("fragments");
    flip(&fragment, 10);
    let output = run(&["verify", made.path()]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    let damage =
        format!("DAMAGE: {}, byte 0: the checksum of a block is wrong", fragment.display());
    assert!(text.lines().any(|line| line == damage), "{text}");
    assert!(text.lines().any(|line| line == "damaged in 1 place"), "{text}");
}

#[test]
fn verify_as_json_is_one_object() {
    let made = Made::new();
    let reports = lines(&run(&["verify", made.path(), "--json"]));
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0]["sound"], true);
    assert_eq!(reports[0]["fragments"][0]["table"], "orders");
    assert_eq!(reports[0]["log"]["commits"], 2);
    assert_eq!(reports[0]["problems"], Value::Array(Vec::new()));
    let manifest = made.dir.path().join("manifest");
    flip(&manifest, 20);
    let output = run(&["verify", made.path(), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report = &lines(&output)[0];
    assert_eq!(report["sound"], false);
    assert_eq!(report["problems"][0]["path"], manifest.to_str().unwrap());
}

#[test]
fn dump_log_shows_records_and_mutations() {
    let made = Made::new();
    let output = run(&["dump-log", made.path(), "--cells", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines = lines(&output);
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
    assert_eq!((of("record"), of("mutation"), of("damage")), (3, 7, 0));
    let set = lines.iter().find(|line| line["kind"] == "set").unwrap();
    assert_eq!((&set["row"], &set["value_preview"]), (&"a\\x00".into(), &"hello".into()));
    let merge = lines.iter().find(|line| line["kind"] == "merge").unwrap();
    assert_eq!((&merge["fold"], &merge["value_bytes"]), (&1.into(), &8.into()));

    let segment = made.only("log");
    let text = stdout(&run(&["dump-log", segment.to_str().unwrap(), "--cells"]));
    assert!(text.contains("table 1 delete_range \"x\" to the end"), "{text}");
    assert!(text.contains("table 1 set \"a\\x00\" f:q @5 = \"hello\" (5 bytes)"), "{text}");
    assert!(text.lines().last().unwrap().contains("close"), "{text}");

    flip(&segment, 64 + 50);
    let output = run(&["dump-log", made.path()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains(", byte 64: record 1 is damaged"), "{output:?}");
}

#[test]
fn dump_fragment_shows_facts_blocks_and_entries() {
    let made = Made::new();
    let fragment = made.only("fragments");
    let file = fragment.to_str().unwrap();
    let output = run(&["dump-fragment", file, "--cells", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines = lines(&output);
    assert_eq!(lines[0]["type"], "fragment");
    assert_eq!(lines[0]["families"], serde_json::json!(["f"]));
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count() as u64;
    let entries = lines[0]["cells"].as_u64().unwrap() + lines[0]["tombstones"].as_u64().unwrap();
    assert_eq!((of("block"), of("entry")), (lines[0]["blocks"].as_u64().unwrap(), entries));
    let put = lines.iter().find(|line| line["value_preview"] == "hello").unwrap();
    assert_eq!((&put["kind"], &put["qualifier"]), (&"put".into(), &"q".into()));

    let text = stdout(&run(&["dump-fragment", file, "--cells"]));
    assert!(text.contains("rows \"a\\x00\" to \"b\""), "{text}");
    assert!(text.contains(" put = \"hello\" (5 bytes)"), "{text}");
    flip(&fragment, 3);
    let output = run(&["dump-fragment", file]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("DAMAGE: "), "{output:?}");
}

#[test]
fn failures_are_reported_in_one_sentence_with_code_2() {
    let made = Made::new();
    let missing = made.dir.path().join("missing");
    let missing = missing.to_str().unwrap();
    assert_one_sentence(&run(&["verify", missing]), "no store found in");
    assert_one_sentence(&run(&["dump-log", missing]), missing);
    assert_one_sentence(&run(&["dump-fragment", missing]), missing);
    assert_one_sentence(&run(&["bench", "--dir", missing]), "--dir");
    let open = Store::open(made.dir.path(), Options::default(), World::real()).unwrap();
    assert_one_sentence(&run(&["verify", made.path()]), "is in use by another process");
    drop(open);
    assert_eq!(run(&["verify"]).status.code(), Some(2));
    assert_eq!(run(&["polish", "."]).status.code(), Some(2));
    assert_eq!(run(&["--help"]).status.code(), Some(0));
}

#[test]
fn a_reader_that_has_seen_enough_ends_a_dump_quietly() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options::default(), World::real()).unwrap();
    let schema = Schema::with_families([Family::new("f")]).unwrap();
    let table = store.create_table("t", schema).unwrap();
    let mut commit = CommitBuilder::new();
    commit.table(table);
    for row in 0..20_000u32 {
        commit.row(&row.to_be_bytes()).set(b"f", b"q", 0, &[0; 40]);
    }
    store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
    store.close().unwrap();
    let mut child = engine(&["dump-log", dir.path().to_str().unwrap(), "--cells"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stderr, b"");
}

#[test]
fn bench_measures_every_phase_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    let output = run(&["bench", "--dir", place, "--keys", "500", "--seconds", "0.1", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let results = &lines(&output)[0];
    let run = &results["runs"][0];
    assert_eq!((&run["keys"], &run["value_bytes"]), (&500.into(), &100.into()));
    let phases = run["phases"].as_array().unwrap();
    let names: Vec<&str> = phases.iter().map(|phase| phase["phase"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["fill", "settle", "read", "scan", "put", "durable_batch", "durable_put", "durable_put_16"]
    );
    assert_eq!(phases[0]["ops"], 500);
    assert!(phases.iter().all(|phase| phase["ops"].as_u64().unwrap() > 0), "{run}");
    let syncs = phases[6]["syncs_per_op"].as_f64().unwrap();
    assert!(syncs >= 1.0, "one thread shares its syncs with nobody: {syncs}");
    assert!(run["disk_bytes_end"].as_u64().unwrap() > 0);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
