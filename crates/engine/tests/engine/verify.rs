//! The offline check finds every kind of planted damage, with its location, and nothing
//! in a sound store.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stele_engine::config::{ConfigEdit, ConfigStore, Manifest, Splice};
use stele_engine::log::LogOptions;
use stele_engine::schema::{Family, Group, Schema};
use stele_engine::verify::{self, FragmentDump, LogDump, LogLine, Report};
use stele_engine::world::{Disk, Files, ManualClock, SeededRandom, World};
use stele_engine::*;

/// A closed store: two fragments in one chain, one in another, and commits that are
/// only in the log.
struct Closed {
    dir: tempfile::TempDir,
}

fn world() -> World {
    World {
        clock: Arc::new(ManualClock::at(0)),
        files: Arc::new(Disk),
        random: Arc::new(SeededRandom::new(1)),
        spawner: None,
    }
}

fn files() -> Arc<dyn Files> {
    Arc::new(Disk)
}

fn options() -> Options {
    let log = LogOptions { segment_bytes: 4 << 10, ..LogOptions::default() };
    Options { log, ..Options::default() }
}

impl Closed {
    fn new() -> Closed {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), options(), world()).unwrap();
        let mut hot = Group::new("hot", [Family::new("f")]);
        hot.block_bytes = Some(256);
        let schema = Schema::new(vec![hot, Group::new("cold", [Family::new("g")])]).unwrap();
        let table = store.create_table("orders", schema.clone()).unwrap();
        let pinned = store.create_table("pinned", schema).unwrap();
        let put = |table, row: &str, family: &[u8]| {
            let mut commit = CommitBuilder::new();
            commit.table(table).row(row.as_bytes()).set(family, b"q", 7, &[b'v'; 90]);
            store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
        };
        for n in 0..30 {
            put(table, &format!("row{n:03}"), b"f");
            put(pinned, &format!("row{n:03}"), b"g");
        }
        store.flush(table).unwrap();
        let mut commit = CommitBuilder::new();
        commit.table(table).delete_range(&RowRange::new("row000", "row010"));
        commit.row(b"row020").delete_row().set(b"g", b"", -1, b"\0");
        store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
        store.flush(table).unwrap();
        store.close().unwrap();
        Closed { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn check(&self) -> Report {
        verify::check(&files(), self.path()).unwrap()
    }

    /// Returns the files of a part of the store, in order.
    fn list(&self, part: &str) -> Vec<PathBuf> {
        let dir = self.path().join(part);
        Disk.list(&dir).unwrap().into_iter().map(|name| dir.join(name)).collect()
    }

    /// Returns the records of the log: segment file, offset, kind.
    fn records(&self) -> Vec<(PathBuf, u64, &'static str)> {
        let segments = self.list("log");
        let mut records = Vec::new();
        let read =
            LogDump::open(&files(), self.path()).unwrap().show::<Infallible>(false, &mut |line| {
                if let LogLine::Record(record) = line {
                    let start = format!("{:012}-", record.segment);
                    let named = |path: &&PathBuf| {
                        path.file_name().unwrap().to_str().unwrap().starts_with(&start)
                    };
                    let path = segments.iter().find(named).unwrap().clone();
                    records.push((path, record.offset, record.kind));
                }
                Ok(())
            });
        let Ok(()) = read;
        records
    }
}

fn flip(path: &Path, offset: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[offset as usize] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// Asserts exactly one problem, in this file and, if given, at this offset.
fn assert_one(report: &Report, path: &Path, offset: Option<u64>, what: &str) {
    let [problem] = &report.problems[..] else { panic!("{:?}", report.problems) };
    assert_eq!(problem.path, path);
    assert!(offset.is_none_or(|offset| problem.offset == offset), "{problem:?}");
    assert!(problem.what.contains(what), "{problem:?}");
}

#[test]
fn a_sound_store_is_reported_sound_with_what_it_holds() {
    let store = Closed::new();
    let before: Vec<_> = ["log", "fragments"].iter().flat_map(|part| store.list(part)).collect();
    let report = store.check();
    assert_eq!(report.problems, []);
    assert_eq!(report.garbage, []);
    assert_eq!((report.tables, report.tablets), (2, 2));
    assert_eq!(report.fragments.iter().map(|f| f.cells).sum::<u64>(), 31);
    assert!(report.fragments[0].blocks > 5);
    assert_eq!(report.log.commits, 61);
    assert!(report.log.segments > 2);
    assert_eq!((report.log.torn, report.manifest_torn), (None, None));
    let after: Vec<_> = ["log", "fragments"].iter().flat_map(|part| store.list(part)).collect();
    assert_eq!(before, after);
    Store::open(store.path(), options(), world()).unwrap();
}

#[test]
fn a_store_in_use_and_a_directory_without_a_store_are_refused() {
    let closed = Closed::new();
    let store = Store::open(closed.path(), options(), world()).unwrap();
    let refused = verify::check(&files(), closed.path());
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    drop(store);
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(verify::check(&files(), empty.path()), Err(Error::Io { .. })));
    assert_eq!(Disk.list(empty.path()).unwrap(), Vec::<PathBuf>::new(), "not even a lock");
}

#[test]
fn every_damaged_block_is_found_with_its_place() {
    let store = Closed::new();
    let path = store.check().fragments[0].path.clone();
    let dump = FragmentDump::open(&files(), &path).unwrap();
    let offsets: Vec<u64> = dump.blocks().map(|block| block.unwrap().offset).collect();
    flip(&path, offsets[1] + 3);
    flip(&path, offsets[3] + 3);
    let report = store.check();
    let found: Vec<_> = report.problems.iter().map(|problem| problem.offset).collect();
    assert_eq!(found, [offsets[1], offsets[3]], "{:?}", report.problems);
    assert!(report.problems.iter().all(|problem| problem.path == path));
    let sound: Vec<bool> = report.fragments.iter().map(|fragment| fragment.sound).collect();
    assert_eq!(sound.iter().filter(|sound| !**sound).count(), 1);
}

#[test]
fn a_flip_anywhere_in_a_fragment_is_found() {
    let store = Closed::new();
    let path = store.check().fragments.iter().min_by_key(|f| f.bytes).unwrap().path.clone();
    for offset in 0..fs::metadata(&path).unwrap().len() {
        flip(&path, offset);
        let report = store.check();
        assert!(!report.is_sound(), "byte {offset}");
        assert!(report.problems.iter().all(|problem| problem.path == path));
        flip(&path, offset);
    }
    assert!(store.check().is_sound());
}

#[test]
fn a_missing_fragment_is_found_and_one_that_nobody_names_is_garbage() {
    let store = Closed::new();
    let path = store.list("fragments")[0].clone();
    let stray = path.with_file_name("00000099-00000001.frag");
    fs::copy(&path, &stray).unwrap();
    let report = store.check();
    assert!(report.is_sound());
    assert_eq!(report.garbage.len(), 1);
    assert_eq!(report.garbage[0].path, stray);
    assert_eq!(report.garbage[0].bytes, fs::metadata(&path).unwrap().len());
    fs::remove_file(&path).unwrap();
    assert_one(&store.check(), &path, None, "missing");
}

#[test]
fn a_fragment_in_the_place_of_another_is_found() {
    let store = Closed::new();
    let report = store.check();
    let (first, second) = (&report.fragments[0].path, &report.fragments[1].path);
    fs::copy(first, second).unwrap();
    let problems = store.check().problems;
    assert!(problems.iter().all(|problem| problem.path == *second), "{problems:?}");
    assert!(problems.iter().any(|problem| problem.what.contains("txns")), "{problems:?}");
}

#[test]
fn a_chain_out_of_order_is_found() {
    let store = Closed::new();
    let manifest = Manifest::open(files(), store.path()).unwrap().unwrap();
    let configs = manifest.read().unwrap();
    let table = configs.table_named("orders").unwrap();
    let chain = table.tablets[0].chains[0].files.clone();
    assert_eq!(chain.len(), 2);
    let swap = ConfigEdit::Splice(Splice {
        table: table.id,
        tablet: 0,
        group: 0,
        remove: chain.iter().map(|file| file.name).collect(),
        add: chain.iter().rev().cloned().collect(),
        flushed_through: None,
    });
    manifest.edit(configs.revision, &[swap]).unwrap();
    drop(manifest);
    assert_one(&store.check(), &store.path().join("manifest"), None, "out of order");
}

#[test]
fn a_file_named_for_rows_that_it_does_not_have_is_found() {
    let store = Closed::new();
    let manifest = Manifest::open(files(), store.path()).unwrap().unwrap();
    let configs = manifest.read().unwrap();
    let table = configs.table_named("orders").unwrap();
    let mut file = table.tablets[0].chains[0].files[0].clone();
    let name = file.name;
    file.rows = RowRange::new("row005", "row900");
    let widen = ConfigEdit::Splice(Splice {
        table: table.id,
        tablet: 0,
        group: 0,
        remove: vec![name],
        add: vec![file],
        flushed_through: None,
    });
    manifest.edit(configs.revision, &[widen]).unwrap();
    drop(manifest);
    let path = store.path().join("fragments").join(name.to_string());
    assert_one(&store.check(), &path, None, "does not have");
}

#[test]
fn a_flip_anywhere_in_the_manifest_is_found_or_tears_its_last_edit() {
    let store = Closed::new();
    let path = store.path().join("manifest");
    let length = fs::metadata(&path).unwrap().len();
    let mut torn = 0;
    for offset in 0..length {
        flip(&path, offset);
        let report = store.check();
        match &report.manifest_torn {
            // The edit before the last named other files and another log.
            Some(torn_write) if offset >= torn_write.offset => torn += 1,
            _ => assert_one(&report, &path, None, ""),
        }
        flip(&path, offset);
    }
    assert!(torn > 0 && torn < length);
    fs::remove_file(&path).unwrap();
    assert_one(&store.check(), &path, None, "missing");
}

#[test]
fn every_damaged_log_record_is_found_with_its_place() {
    let store = Closed::new();
    let records = store.records();
    let commits = store.check().log.commits;
    for at in [3, 9, records.len() - 4] {
        flip(&records[at].0, records[at].1 + 50);
    }
    let report = store.check();
    let found: Vec<_> =
        report.problems.iter().map(|problem| (&problem.path, problem.offset)).collect();
    let expected: Vec<_> =
        [3, 9, records.len() - 4].iter().map(|&at| (&records[at].0, records[at].1)).collect();
    assert_eq!(found, expected, "{:?}", report.problems);
    assert_eq!(report.log.commits, commits - 3, "the others were read all the same");
}

#[test]
fn a_torn_tail_is_distinguished_from_damage() {
    let store = Closed::new();
    let (path, offset, kind) = store.records().pop().unwrap();
    assert_eq!(kind, "close");
    flip(&path, offset);
    let report = store.check();
    assert!(report.is_sound(), "{:?}", report.problems);
    let torn = report.log.torn.unwrap();
    assert_eq!((torn.path, torn.offset), (path, offset));
}

#[test]
fn a_missing_or_damaged_segment_is_found() {
    let store = Closed::new();
    let segments = store.list("log");
    let bytes = fs::read(&segments[1]).unwrap();
    flip(&segments[1], 20);
    assert_one(&store.check(), &segments[1], Some(0), "checksum of the segment header");
    fs::remove_file(&segments[1]).unwrap();
    assert_one(&store.check(), &segments[2], Some(0), "is missing");
    fs::write(&segments[1], bytes).unwrap();
    assert!(store.check().is_sound());
}

#[test]
fn a_log_that_is_gone_is_found_and_not_taken_for_an_empty_one() {
    let store = Closed::new();
    for segment in store.list("log") {
        fs::remove_file(segment).unwrap();
    }
    assert_one(&store.check(), &store.path().join("log"), None, "is missing");
    let opened = Store::open(store.path(), options(), world());
    assert!(matches!(opened.err(), Some(Error::DataLoss { .. })));
}

#[test]
fn a_dump_shows_every_mutation_and_every_entry() {
    let store = Closed::new();
    let mut mutations = Vec::new();
    let read =
        LogDump::open(&files(), store.path()).unwrap().show::<Infallible>(true, &mut |line| {
            match line {
                LogLine::Mutation { mutation, .. } => {
                    let row = mutation.row.escape_ascii().to_string();
                    mutations.push((mutation.table, mutation.kind, row));
                }
                LogLine::Record(_) => {}
                other => panic!("{other:?}"),
            }
            Ok(())
        });
    let Ok(()) = read;
    assert_eq!(mutations.len(), 63);
    assert_eq!(mutations[0], (1, "set", "row000".into()));
    let last: Vec<_> = mutations[60..].iter().map(|mutation| mutation.1).collect();
    assert_eq!(last, ["delete_range", "delete_row", "set"]);

    let mut entries = Vec::new();
    for fragment in store.check().fragments {
        let dump = FragmentDump::open(&files(), &fragment.path).unwrap();
        let read = dump.entries::<Infallible>(&mut |entry| {
            let entry = entry.unwrap();
            entries.push((entry.kind, entry.row, entry.timestamp, entry.value.map(<[u8]>::len)));
            Ok(())
        });
        let Ok(()) = read;
        assert_eq!(dump.range_tombstones().iter().count() as u64, fragment.range_tombstones);
    }
    assert_eq!(entries[0], ("put", b"row000".to_vec(), Some(7), Some(90)));
    assert!(entries.contains(&("row_tombstone", b"row020".to_vec(), None, None)));
    assert!(entries.contains(&("put", b"row020".to_vec(), Some(-1), Some(1))));
}
