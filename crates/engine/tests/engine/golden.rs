//! Stores written by earlier versions can be opened forever. Each directory in
//! `tests/golden` is one: the store as written, and its contents.
//!
//! `STELE_GOLDEN=<new directory> cargo test -p stele-engine --test engine golden` writes two
//! in the present formats: `own`, with its own log, and `external`, with an external
//! log.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use stele_engine::config::{FileName, Manifest};
use stele_engine::schema::{Compression, Family, Group, Purge, Schema};
use stele_engine::world::sim::{Operation, SimFiles, disk_full};
use stele_engine::world::{Disk, Files, ManualClock, SeededRandom, World};
use stele_engine::*;

fn world(files: impl Files + 'static) -> World {
    World {
        clock: Arc::new(ManualClock::at(1_000_000)),
        files: Arc::new(files),
        random: Arc::new(SeededRandom::new(7)),
        spawner: None,
    }
}

/// Returns everything visible to a reader, as text.
fn contents(store: &Store) -> String {
    let mut text = String::new();
    for (table, name) in store.tables() {
        writeln!(text, "table {} {name}", table.0).unwrap();
        let schema = store.schema(table).unwrap();
        let hidden = schema.groups()[schema.visible_groups()..].iter();
        let hidden = hidden.flat_map(|group| &group.families);
        let hidden = hidden.map(|family| FamilyColumns::all(family.name.clone())).collect();
        let mut line = |cell: &CellView<'_>| {
            let parts = [cell.row, cell.family, cell.qualifier, cell.value];
            let [row, family, qualifier, value] = parts.map(<[u8]>::escape_ascii);
            let marker = if cell.marker { "marker " } else { "" };
            let timestamp = cell.timestamp;
            writeln!(text, "{row} {family}:{qualifier} @{timestamp} {marker}{value}").unwrap();
        };
        for columns in [Columns::All, Columns::Families(hidden)] {
            let spec = ScanSpec { markers: true, columns, ..ScanSpec::default() };
            store.read(table, spec, &mut line).unwrap();
        }
    }
    for checkpoint in store.checkpoints().unwrap() {
        let files = checkpoint.files().count();
        writeln!(text, "checkpoint {} of {files} files", checkpoint.id).unwrap();
    }
    for backup in store.backups().unwrap() {
        let BackupInfo { name, source_name, txn, created_micros, expires_micros, .. } = backup;
        writeln!(
            text,
            "backup {name} of {source_name} at {txn}, {created_micros} to {expires_micros:?}"
        )
        .unwrap();
    }
    for deleted in store.deleted_tables().unwrap() {
        let DeletedInfo { id, name, deleted_micros, .. } = deleted;
        writeln!(text, "deleted table {} {name} at {deleted_micros}", id.0).unwrap();
    }
    text
}

/// Writes a store that covers everything: each mutation, each compression, a chain of
/// several runs, a compacted one, one with an interrupted compaction, tablets that were
/// split and joined, commits only in the log, a dropped table, a checkpoint,
/// backups, a restored table and a deleted one.
fn write_store(files: &SimFiles) -> String {
    let mut options = Options::default();
    options.log.segment_bytes = 8 << 10;
    options.compact.output_bytes = 1 << 10;
    let store = Store::open(Path::new("/store"), options, world(files.clone())).unwrap();
    let mut cold = Group::new("cold", [Family::new("c")]);
    cold.compression = Compression::Zstd;
    let mut raw = Group::new("raw", [Family::with_purge("r", Purge::MaxVersions(2))]);
    raw.compression = Compression::None;
    let hot = Group::new("hot", [Family::new("f"), Family::new("g")]);
    let wide = store.create_table("wide", Schema::new(vec![hot, cold, raw]).unwrap()).unwrap();
    let plain = Schema::with_families([Family::with_purge("f", Purge::Waterline(3))]).unwrap();
    let dropped = store.create_table("dropped", plain.clone()).unwrap();
    let plain = store.create_table("plain", plain).unwrap();
    let parts = Schema::with_families([Family::new("f")]).unwrap();
    let parts = store.create_table("parts", parts).unwrap();
    let apply = |build: &dyn Fn(&mut CommitBuilder)| {
        let mut commit = CommitBuilder::new();
        build(&mut commit);
        store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
    };
    for round in 0..4i64 {
        apply(&|commit| {
            commit.table(wide);
            for row in 0..20u8 {
                commit.row(&[b'a' + row / 4, 0, row]);
                commit.set(b"f", b"\0q", round, &[b'v'; 300]).set(b"c", b"", round, b"cold");
                commit.set(b"r", b"x", round, &round.to_be_bytes());
                commit.merge(FoldId::SUM, b"g", b"n", 0, &(i64::from(row) + round).to_be_bytes());
            }
            commit.table(dropped).row(b"gone").set(b"f", b"", 1, b"");
            commit.table(plain).row(b"k").set(b"f", b"", round, b"v");
        });
        store.flush(wide).unwrap();
    }
    store.flush(plain).unwrap();
    store.compact(plain).unwrap();
    store.checkpoint(&[plain]).unwrap();
    store.drop_table(dropped).unwrap();
    apply(&|commit| {
        commit.table(wide).delete_range(&RowRange::new("d", "e"));
        commit.row(b"a\0\0").delete_family(b"f");
        commit.row(b"a\0\x01").delete_cells(b"c", b"", TimeRange { min: 3, max: 3 });
        commit.row(b"b\0\x05").delete_row().set(b"f", b"new", 9, b"after");
        commit.table(plain).row(b"k").mark(b"f", b"", 5, b"erased");
    });
    store.flush(wide).unwrap();
    for round in 0..2u8 {
        apply(&|commit| {
            commit.table(parts).delete_range(&RowRange::new("f", "m"));
            for row in b'a'..=b'z' {
                let value: Vec<u8> = (0..100).map(|at| row.wrapping_mul(at | 1) ^ round).collect();
                commit.row(&[row]).set(b"f", b"", i64::from(row / (b'm' + round)), &value);
            }
        });
        store.flush(parts).unwrap();
    }
    let newest = store.configs().unwrap().files().map(|file| file.name).max().unwrap();
    let third = FileName { number: newest.number + 3, ..newest };
    files.fail_next(Operation::Create, &third.to_string(), disk_full());
    assert!(store.compact(parts).is_err(), "it is interrupted after two outputs");
    write_tablets(&store);
    write_kept_tables(&store);
    apply(&|commit| {
        commit.table(wide).row(b"z").set(b"f", b"logged", -1, b"only in the log");
    });
    let expected = contents(&store);
    store.close().unwrap();
    expected
}

/// Writes backups of a table that was dropped, a table restored from one of them, and a
/// table that was deleted.
fn write_kept_tables(store: &Store) {
    let schema = Schema::with_families([Family::new("f")]).unwrap();
    let splits = vec![b"m".to_vec()];
    let source = store.create_table_with_splits("source", schema.clone(), splits).unwrap();
    let put = |table: TableId, row: &[u8]| {
        let mut commit = CommitBuilder::new();
        commit.table(table).row(row).set(b"f", b"", 1, b"kept");
        store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
    };
    put(source, b"a");
    store.create_backup(source, "forever", None).unwrap();
    put(source, b"z");
    store.create_backup(source, "a year", Some(31_536_000_000_000)).unwrap();
    store.drop_table(source).unwrap();
    let restored = store.restore_table("a year", "restored").unwrap();
    put(restored, b"n");
    let deleted = store.create_table("deleted", schema).unwrap();
    put(deleted, b"d");
    store.delete_table(deleted).unwrap();
}

/// Writes a table of tablets that share a file, one of which refers to a part of it,
/// with a hidden family.
fn write_tablets(store: &Store) {
    let apply = |build: &dyn Fn(&mut CommitBuilder)| {
        let mut commit = CommitBuilder::new();
        build(&mut commit);
        store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
    };
    let schema = Schema::with_families([Family::new("f")]).unwrap();
    let rows = [b"h".to_vec(), b"p".to_vec()].to_vec();
    let table = store.create_table_with_splits("tablets", schema, rows).unwrap();
    for round in 0..2u8 {
        apply(&|commit| {
            commit.table(table);
            for row in b'a'..=b'z' {
                commit.row(&[row]).set(b"f", b"", i64::from(round), &[row, round]);
            }
        });
        store.flush(table).unwrap();
    }
    store.split(table, b"d").unwrap();
    apply(&|commit| {
        commit.table(table).row(b"e").delete_row();
    });
    store.flush(table).unwrap();
    // Only the first and the last tablet refer to this file.
    apply(&|commit| {
        commit.table(table).row(b"a").set(b"f", b"", 3, b"both");
        commit.row(b"z").set(b"f", b"", 3, b"ends");
    });
    store.flush(table).unwrap();
    store.split(table, b"t").unwrap();
    store.join(table, b"d").unwrap();
    store.join(table, b"p").unwrap();
    let configs = store.configs().unwrap();
    assert!(configs.tables[&table].files().any(|file| file.rows.is_some()));
    // Before the last commits the table gets a hidden family.
    let groups = [
        Group::new("default", [Family::new("f")]),
        Group::new("hidden", [Family::hidden("h", Purge::MaxAge(1_000_000))]),
    ];
    store.alter_table(table, Schema::new(groups.to_vec()).unwrap()).unwrap();
    apply(&|commit| {
        commit.table(table).row(b"b").delete_row().set(b"h", b"token", 1_000_000, b"");
        commit.row(b"x").set(b"h", b"token", 1_000_000, b"of no row");
    });
    store.flush(table).unwrap();
    apply(&|commit| {
        commit.table(table).delete_range(&RowRange::from("x"));
        commit.row(b"c").set(b"f", b"", 7, b"only in the log").set(b"h", b"logged", 999_999, b"");
    });
}

/// Writes a store with an external log: two tables with history below a waterline,
/// flushed at one index, flushed again, compacted, and then a commit that only the
/// external log would have.
fn write_external_store(files: &SimFiles) -> String {
    let options = Options::default();
    let store = Store::open_external(Path::new("/store"), options, world(files.clone())).unwrap();
    let group = |name: &str, family: &str| Group {
        purge: Purge::Waterline(4),
        ..Group::new(name, [Family::new(family)])
    };
    let keys = Schema::new(vec![group("values", "v"), group("locks", "l")]).unwrap();
    let keys = store.create_table("keys", keys).unwrap();
    let notes = Schema::with_families([Family::new("d")]).unwrap().annotated(b"whose".to_vec());
    let notes = store.create_table("notes", notes).unwrap();
    let apply = |index: u64| {
        let revision = index as i64;
        let mut commit = CommitBuilder::new();
        commit.table(keys);
        for row in 0..10u8 {
            commit.row(&[b'k', row]);
            match (u64::from(row) + index) % 4 {
                0 => commit.mark(b"v", b"", revision, b""),
                _ => commit.set(b"v", b"", revision, &[b'a' + row; 40]),
            };
            commit.set(b"l", b"", revision, &index.to_le_bytes());
        }
        commit.table(notes).delete_range(&RowRange::new("n0", "n3"));
        commit.row(format!("n{index}").as_bytes()).set(b"d", b"", 0, b"note");
        store.apply_at(&commit.finish(), index).unwrap();
    };
    (1..=3).for_each(apply);
    store.flush(keys).unwrap();
    (5..=8).for_each(apply);
    store.flush(keys).unwrap();
    store.compact(keys).unwrap();
    let expected = contents(&store);
    assert_eq!(store.flushed_index(), 8);
    apply(9);
    assert_ne!(contents(&store), expected);
    store.close().unwrap();
    expected
}

/// The golden stores with an external log.
const EXTERNAL: &[&str] = &["3", "5", "7", "9"];
/// The last entry of that log in their files.
const FLUSHED_INDEX: u64 = 8;

/// Copies the files of a simulated disk to a real one.
fn write_out(files: &SimFiles, dir: &Path) {
    for (path, bytes) in files.files() {
        let target = dir.join(path.strip_prefix("/").unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, bytes).unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_store_of_every_earlier_format_opens_and_holds_what_it_held() {
    if let Some(dir) = std::env::var_os("STELE_GOLDEN") {
        type Write = fn(&SimFiles) -> String;
        let own: Write = write_store;
        let external: Write = write_external_store;
        for (name, write) in [("own", own), ("external", external)] {
            let (dir, files) = (Path::new(&dir).join(name), SimFiles::new(1));
            let expected = write(&files);
            write_out(&files, &dir);
            fs::write(dir.join("expected.txt"), expected).unwrap();
        }
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut opened = 0;
    for entry in fs::read_dir(golden).unwrap() {
        let golden = entry.unwrap().path();
        let expected = fs::read_to_string(golden.join("expected.txt")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        copy(&golden.join("store"), dir.path());
        let files: Arc<dyn Files> = Arc::new(Disk);
        let report = verify::check(&files, dir.path()).unwrap();
        assert!(report.is_sound(), "{:?}", report.problems);
        let external = EXTERNAL.iter().any(|name| golden.ends_with(name));
        let open = if external { Store::open_external } else { Store::open };
        // Units were inferred before version 4; all but the first have an interrupted
        // compaction.
        let configs = Manifest::load(&Disk, dir.path()).unwrap().unwrap();
        let unfinished = configs.files().any(|file| file.unit != 0);
        assert_eq!(unfinished, ["2", "4", "6", "8"].iter().any(|name| golden.ends_with(name)));
        assert!(configs.tables.values().all(|table| table.tablets.first().id.number > 0));
        for _ in 0..2 {
            let store = open(dir.path(), Options::default(), world(Disk)).unwrap();
            assert_eq!(store.flushed_index(), if external { FLUSHED_INDEX } else { 0 });
            assert_eq!(contents(&store), expected, "{}", golden.display());
            for (table, _) in store.tables() {
                store.flush(table).unwrap();
                store.compact(table).unwrap();
            }
            let header = fs::read(dir.path().join("manifest")).unwrap()[8..12].to_vec();
            assert_eq!(header, 6u32.to_le_bytes(), "scale_2_15: the manifest was upgraded");
            assert_eq!(contents(&store), expected, "compacted: {}", golden.display());
        }
        opened += 1;
    }
    assert!(opened > 0, "no golden store was found");
}

#[test]
fn what_is_written_today_reads_like_the_golden_store_of_today() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/8/expected.txt");
    assert_eq!(write_store(&SimFiles::new(1)), fs::read_to_string(golden).unwrap());
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/9/expected.txt");
    assert_eq!(write_external_store(&SimFiles::new(1)), fs::read_to_string(golden).unwrap());
}
