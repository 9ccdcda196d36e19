//! Locality groups: reads touch only the groups that they need, in-memory groups stay in
//! memory, and families move between groups while the table is read and written.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use stele_engine::schema::{Compression, Family, Group, Schema};
use stele_engine::verify;
use stele_engine::world::sim::SimFiles;
use stele_engine::world::{Files, Random, SeededRandom, SystemClock, Threads, World};
use stele_engine::*;

use crate::simulated::{open, world};
use crate::support::power::Powered;

/// Returns a schema of groups such as "x:a b" or "rest:*"; "x!:a" is an in-memory group.
fn schema(groups: &[&str]) -> Schema {
    let group = |text: &&str| {
        let (name, families) = text.split_once(':').unwrap();
        let listed = families.split_whitespace().filter(|name| *name != "*").map(Family::new);
        let mut group = Group::new(name.trim_end_matches('!'), listed.collect::<Vec<_>>());
        group.wildcard = families.contains('*');
        group.in_memory = name.ends_with('!');
        group.compression = Compression::None;
        group.block_bytes = Some(1024);
        group
    };
    Schema::new(groups.iter().map(group).collect()).unwrap()
}

fn apply(store: &Store, table: TableId, build: impl FnOnce(&mut CommitBuilder)) {
    let mut commit = CommitBuilder::new();
    commit.table(table);
    build(&mut commit);
    store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
}

/// Sets a cell of a row in some families, and counts in column `n` of each.
fn set(store: &Store, table: TableId, row: &str, families: &str, value: &str) {
    apply(store, table, |commit| {
        commit.row(row.as_bytes());
        for family in families.split_whitespace() {
            commit.merge(FoldId::SUM, family.as_bytes(), b"n", 0, &1i64.to_be_bytes());
            commit.set(family.as_bytes(), b"q", 0, value.as_bytes());
        }
    });
}

type Cells = BTreeMap<String, String>;

/// Returns the cells of a table as "row family qualifier" and value, after checking that
/// scans in both directions, scans of one family and point reads agree.
fn cells(store: &Store, table: TableId) -> Cells {
    let read = |spec: ScanSpec| {
        let mut found = Cells::new();
        let outcome = store.read(table, spec, |cell: &CellView<'_>| {
            let (key, value) = named(cell);
            assert!(found.insert(key.clone(), value).is_none(), "{key} comes twice");
        });
        outcome.unwrap();
        found
    };
    let all = read(ScanSpec::default());
    assert_eq!(read(ScanSpec { reverse: true, ..ScanSpec::default() }), all);
    let mut by_family = Cells::new();
    for family in ["a", "b", "c", "d", "w"] {
        let columns = Columns::Families(vec![FamilyColumns::all(family)]);
        by_family.extend(read(ScanSpec { columns, ..ScanSpec::default() }));
    }
    assert_eq!(by_family, all);
    let rows: std::collections::BTreeSet<&str> =
        all.keys().map(|key| key.split(' ').next().unwrap()).collect();
    let mut by_row = Cells::new();
    for row in rows {
        let read = store.read_row(table, row.as_bytes(), &ScanSpec::default(), |cell| {
            by_row.extend([named(cell)]);
        });
        read.unwrap();
    }
    assert_eq!(by_row, all);
    all
}

fn named(cell: &CellView<'_>) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let key = [cell.row, cell.family, cell.qualifier].map(text).join(" ");
    let value = match cell.qualifier {
        b"n" => i64::from_be_bytes(cell.value.try_into().unwrap()).to_string(),
        _ => text(cell.value),
    };
    (key, value)
}

fn assert_cells(store: &Store, table: TableId, expected: &[(&str, &str)]) {
    let expected: Cells = expected.iter().map(|&(k, v)| (k.to_string(), v.to_string())).collect();
    assert_eq!(cells(store, table), expected);
}

fn assert_sound(sim: &SimFiles) {
    let files: Arc<dyn Files> = Arc::new(sim.clone());
    let report = verify::check(&files, Path::new("/store")).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

/// Number of references that are restricted to some families.
fn restricted(store: &Store) -> usize {
    let configs = store.configs().unwrap();
    configs.files().filter(|file| file.families.is_some()).count()
}

#[test]
fn tablets_1_10_2_a_file_that_was_compacted_into_another_group_does_not_come_back() {
    let sim = SimFiles::new(1);
    let store = open(&sim, Options::default());
    let table = store.create_table("t", schema(&["x:a b", "y:c d"])).unwrap();
    for (families, value) in [("a c", "1"), ("a b", "2"), ("c d", "3")] {
        set(&store, table, "r", families, value);
        store.flush(table).unwrap();
    }
    store.alter_table(table, schema(&["x:a b c", "y:d"])).unwrap();
    store.compact_tablet(table, b"").unwrap();
    let expected = [
        ("r a n", "2"),
        ("r a q", "2"),
        ("r b n", "1"),
        ("r b q", "2"),
        ("r c n", "2"),
        ("r c q", "3"),
        ("r d n", "1"),
        ("r d q", "3"),
    ];
    assert_cells(&store, table, &expected);
    store.alter_table(table, schema(&["x:a", "y:b c d"])).unwrap();
    assert_cells(&store, table, &expected);
    drop(store);
    assert_sound(&sim);
    assert_cells(&open(&sim, Options::default()), table, &expected);
}

#[test]
fn tablets_1_10_2_a_cell_that_was_erased_does_not_return_after_a_rooted_compaction() {
    let sim = SimFiles::new(1);
    let store = open(&sim, Options::default());
    let table = store.create_table("t", schema(&["x:a b", "y:c d"])).unwrap();
    for families in ["a c", "a b", "c d"] {
        set(&store, table, "r", families, "v");
        store.flush(table).unwrap();
    }
    apply(&store, table, |commit| {
        commit.row(b"r").delete_family(b"c");
    });
    store.flush(table).unwrap();
    store.alter_table(table, schema(&["x:a b c", "y:d"])).unwrap();
    store.compact_tablet(table, b"").unwrap();
    store.alter_table(table, schema(&["x:a", "y:b c d"])).unwrap();
    for _ in 0..2 {
        let found = cells(&store, table);
        assert!(found.keys().all(|key| !key.starts_with("r c")), "{found:?}");
        assert_eq!(found.len(), 6);
        store.compact_tablet(table, b"").unwrap();
    }
    assert_eq!(restricted(&store), 0, "everything was rewritten");
}

#[test]
fn deletes_of_rows_and_ranges_cover_families_wherever_they_move() {
    let groups: [&[&str]; 5] =
        [&["x:a b", "y:c"], &["x:a", "y:b c"], &["all:a b c"], &["rest:*"], &["x:b", "rest:*"]];
    let sim = SimFiles::new(1);
    let store = open(&sim, Options::default());
    let table = store.create_table("t", schema(groups[0])).unwrap();
    let mut step = 0;
    for next in groups.iter().cycle().take(12) {
        step += 1;
        for row in ["r1", "r2", "r3"] {
            set(&store, table, row, "a b c", "old");
        }
        if step % 2 == 0 {
            store.flush(table).unwrap();
        }
        apply(&store, table, |commit| {
            commit.delete_range(&RowRange::row(b"r2"));
            commit.row(b"r1").delete_row();
        });
        if step % 3 == 0 {
            store.flush(table).unwrap();
        }
        store.alter_table(table, schema(next)).unwrap();
        let found = cells(&store, table);
        assert!(found.keys().all(|key| key.starts_with("r3 ")), "step {step}: {found:?}");
        assert_eq!(found.len(), 6);
        assert_eq!(found["r3 b n"], step.to_string(), "an operand counts once");
        if step % 4 == 0 {
            store.compact_tablet(table, b"").unwrap();
        }
        set(&store, table, "r1", "b", "new");
        apply(&store, table, |commit| {
            commit.row(b"r1").delete_row();
        });
    }
    drop(store);
    assert_sound(&sim);
}

#[test]
fn naming_a_family_that_a_wildcard_group_holds_keeps_its_cells() {
    let sim = SimFiles::new(1);
    let store = open(&sim, Options::default());
    let table = store.create_table("t", schema(&["x:a", "rest:*"])).unwrap();
    set(&store, table, "r", "a b w", "1");
    store.flush(table).unwrap();
    set(&store, table, "r", "w", "2");
    let expected = [
        ("r a n", "1"),
        ("r a q", "1"),
        ("r b n", "1"),
        ("r b q", "1"),
        ("r w n", "2"),
        ("r w q", "2"),
    ];
    for next in [&["x:a w", "rest:*"][..], &["x:a", "y:w", "z:b"], &["rest:*"]] {
        store.alter_table(table, schema(next)).unwrap();
        assert_cells(&store, table, &expected);
    }
    // What is dropped does not come back with a new wildcard group.
    store.alter_table(table, schema(&["x:a"])).unwrap();
    store.alter_table(table, schema(&["x:a", "rest:*"])).unwrap();
    assert_cells(&store, table, &expected[..2]);
    set(&store, table, "r", "w", "3");
    assert_cells(&store, table, &[expected[0], expected[1], ("r w n", "1"), ("r w q", "3")]);
}

#[test]
fn an_invalid_schema_is_refused_and_the_table_keeps_its_own() {
    let sim = SimFiles::new(1);
    let store = open(&sim, Options::default());
    let table = store.create_table("t", schema(&["x:a b"])).unwrap();
    let before = store.schema(table).unwrap();
    assert!(Schema::new(vec![Group::new("x", [Family::new("a")]); 2]).is_err());
    let hidden = Group::new("h", [Family::hidden("b", stele_engine::schema::Purge::Never)]);
    let hides = Schema::new(vec![Group::new("x", [Family::new("a")]), hidden]).unwrap();
    let refused = store.alter_table(table, hides);
    assert!(matches!(refused, Err(Error::InvalidSchema(_))), "{refused:?}");
    assert_eq!(*store.schema(table).unwrap(), *before);
    set(&store, table, "r", "a b", "v");
}

#[test]
fn a_store_without_its_own_log_refuses_to_regroup() {
    let sim = SimFiles::new(1);
    let store = Store::open_external(Path::new("/store"), Options::default(), world(&sim)).unwrap();
    let table = store.create_table("t", schema(&["x:a b"])).unwrap();
    let refused = store.alter_table(table, schema(&["x:a", "y:b"]));
    assert!(matches!(refused, Err(Error::InvalidSchema(_))), "{refused:?}");
    store.alter_table(table, schema(&["x:a"])).unwrap();
}

#[test]
fn tablets_1_6_8_a_scan_of_one_family_reads_the_bytes_of_its_group_alone() {
    let sim = SimFiles::new(1);
    let mut options = Options::default();
    // Space for the indexes alone: without it each batch of a scan reads them again.
    options.memory.cache_bytes = 160 << 10;
    let store = open(&sim, options);
    let groups = ["x:a", "y:b", "z:c"];
    let table = store.create_table("t", schema(&groups)).unwrap();
    // Values that do not compress, so that the files consist of data and not of indexes.
    let random = SeededRandom::new(1);
    for number in 0..2_000 {
        let value: String = (0..16).map(|_| format!("{:016x}", random.next_u64())).collect();
        set(&store, table, &format!("{number:04}"), "a b c", &value);
    }
    store.flush(table).unwrap();
    let bytes = |columns: Columns| {
        let before = sim.counters().read_bytes;
        let mut cells = 0;
        let spec = ScanSpec { columns, ..ScanSpec::default() };
        store.read(table, spec, |_: &CellView<'_>| cells += 1).unwrap();
        (sim.counters().read_bytes - before, cells)
    };
    bytes(Columns::All);
    let (all, all_cells) = bytes(Columns::All);
    let (one, one_cells) = bytes(Columns::Families(vec![FamilyColumns::all("b")]));
    assert_eq!((all_cells, one_cells), (12_000, 4_000));
    assert!((one * 3).abs_diff(all) * 100 < all, "{one} of {all} bytes are not a third");
}

#[test]
fn tablets_1_9_9_the_second_scan_of_an_in_memory_group_reads_nothing() {
    let sim = SimFiles::new(1);
    let mut options = Options::default();
    options.memory.cache_bytes = 400 << 10;
    let store = open(&sim, options);
    let table = store.create_table("t", schema(&["hot!:a", "cold:b"])).unwrap();
    let value = "v".repeat(400);
    for number in 0..2000 {
        let families = if number % 20 == 0 { "a b" } else { "b" };
        set(&store, table, &format!("{number:04}"), families, &value);
    }
    store.flush(table).unwrap();
    let scan = |family: &str| {
        let before = sim.counters().reads;
        let columns = Columns::Families(vec![FamilyColumns::all(family)]);
        store.read(table, ScanSpec { columns, ..ScanSpec::default() }, |_| ()).unwrap();
        sim.counters().reads - before
    };
    assert!(scan("a") > 0);
    assert!(scan("b") > 0 && scan("b") > 0, "the other group does not fit");
    assert_eq!(scan("a"), 0);
    // What is compacted stays in memory, and what is no longer in memory does not.
    store.compact_tablet(table, b"").unwrap();
    scan("a");
    scan("b");
    assert_eq!(scan("a"), 0);
    store.alter_table(table, schema(&["hot:a", "cold:b"])).unwrap();
    scan("b");
    scan("b");
    assert!(scan("a") > 0);
    let stats = store.stats();
    assert!(stats.cache.bytes <= 400 << 10, "{:?}", stats.cache);
}

#[test]
fn a_crash_before_or_after_any_write_of_a_regroup_loses_nothing() {
    for keeps_writes in [false, true] {
        let cuts = (0..).take_while(|&cut| regroup_and_crash(cut, keeps_writes)).count();
        assert!(cuts > 5, "a regroup writes more than {cuts} times");
    }
}

/// Cuts the power after some writes of a regroup. Returns whether it had more of them.
fn regroup_and_crash(cut: u64, keeps_writes: bool) -> bool {
    let power = Powered::new(SimFiles::new(cut));
    let store = Store::open(Path::new("/store"), Options::default(), power.world(1)).unwrap();
    let splits = vec![b"r2".to_vec()];
    let groups = schema(&["x:a b", "rest:*"]);
    let table = store.create_table_with_splits("t", groups, splits).unwrap();
    for row in ["r1", "r2", "r3"] {
        set(&store, table, row, "a b c", "1");
    }
    store.flush(table).unwrap();
    apply(&store, table, |commit| {
        commit.row(b"r3").delete_row();
    });
    set(&store, table, "r1", "b", "2");
    let expected = cells(&store, table);
    power.cut_after(cut);
    let altered = store.alter_table(table, schema(&["x:a", "y:b c", "rest:*"]));
    let is_out = power.is_out();
    assert!(altered.is_ok() || is_out, "{altered:?}");
    drop(store);
    let sim = power.sim;
    let sim = if keeps_writes { sim.crash_keeping_writes() } else { sim.crash() };
    let store = open(&sim, Options::default());
    assert_eq!(cells(&store, table), expected, "cut {cut}");
    store.alter_table(table, schema(&["all:*"])).unwrap();
    assert_eq!(cells(&store, table), expected, "cut {cut}");
    store.compact_tablet(table, b"").unwrap();
    assert_eq!(cells(&store, table), expected, "cut {cut}");
    drop(store);
    assert_sound(&sim);
    is_out
}

#[test]
fn writers_and_readers_go_on_while_families_move() {
    const WRITERS: usize = 3;
    const ROUNDS: usize = 12;
    let world = World {
        clock: Arc::new(SystemClock::new()),
        spawner: Some(Arc::new(Threads)),
        ..world(&SimFiles::new(1))
    };
    let mut options = Options::default();
    options.flush.fragment_bytes = 16 << 10;
    options.compact.chain_min = 2;
    let store = Store::open(Path::new("/store"), options, world).unwrap();
    let groups: [&[&str]; 4] =
        [&["x:a b", "y:c"], &["x:a", "y:b c"], &["all!:*"], &["x:c", "rest:*"]];
    let splits = vec![b"w1".to_vec(), b"w2".to_vec()];
    let table = store.create_table_with_splits("t", schema(groups[0]), splits).unwrap();
    let stop = AtomicBool::new(false);
    let written: Vec<u64> = thread::scope(|scope| {
        let write = |writer: usize| {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let row = format!("w{writer}");
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    set(store, table, &row, "a b c", &count.to_string());
                    count += 1;
                    // What was acknowledged is there, once, in every family.
                    let mut found = Vec::new();
                    let read =
                        store.read_row(table, row.as_bytes(), &ScanSpec::default(), |cell| {
                            found.push(named(cell).1);
                        });
                    read.unwrap();
                    let both = [count.to_string(), (count - 1).to_string()];
                    assert_eq!(found, [&both[..], &both[..], &both[..]].concat());
                }
                count
            })
        };
        let writers: Vec<_> = (0..WRITERS).map(write).collect();
        for next in groups.iter().cycle().take(ROUNDS) {
            store.alter_table(table, schema(next)).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    store.compact(table).unwrap();
    let found = cells(&store, table);
    for (writer, count) in written.into_iter().enumerate().filter(|(_, count)| *count > 0) {
        for family in ["a", "b", "c"] {
            assert_eq!(found[&format!("w{writer} {family} n")], count.to_string());
        }
    }
}
