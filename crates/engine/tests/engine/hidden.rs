//! Hidden families: only readers that name them see them, deletes of rows and ranges do
//! not cover them, and their group can be added to a table in use.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::schema::{Family, Group, Purge, Schema};
use stele_engine::verify;
use stele_engine::world::sim::SimFiles;
use stele_engine::world::{Files, ManualClock, SeededRandom, World};
use stele_engine::*;

use crate::support::power::Powered;

/// The age in microseconds at which cells of the hidden family are purged.
const AGE_MAX: i64 = 30 * 60 * 1_000_000;

struct Fixture {
    sim: SimFiles,
    clock: Arc<ManualClock>,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture { sim: SimFiles::new(1), clock: Arc::new(ManualClock::at(AGE_MAX)) }
    }

    fn world(&self, sim: &SimFiles) -> World {
        World {
            clock: self.clock.clone(),
            files: Arc::new(sim.clone()),
            random: Arc::new(SeededRandom::new(1)),
            spawner: None,
        }
    }

    fn open(&self) -> Store {
        Store::open(Path::new("/store"), Options::default(), self.world(&self.sim)).unwrap()
    }
}

fn visible() -> Schema {
    Schema::with_families([Family::new("f")]).unwrap()
}

/// Returns the schema of a table with a hidden family `h`.
fn hidden() -> Schema {
    let hidden = Family::hidden("h", Purge::MaxAge(AGE_MAX));
    let groups = [Group::new("default", [Family::new("f")]), Group::new("hidden", [hidden])];
    Schema::new(groups.to_vec()).unwrap()
}

fn apply(store: &Store, build: impl FnOnce(&mut CommitBuilder)) -> Txn {
    let mut commit = CommitBuilder::new();
    build(&mut commit);
    store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap()
}

/// Reads rows and qualifiers of `columns`, by a scan in each direction and row by row.
fn read(store: &Store, table: TableId, columns: Columns) -> Vec<(String, String)> {
    let name = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let scan = |reverse: bool| {
        let mut found = Vec::new();
        let spec = ScanSpec { columns: columns.clone(), reverse, ..ScanSpec::default() };
        let sink = |cell: &CellView<'_>| found.push((name(cell.row), name(cell.qualifier)));
        store.read(table, spec, sink).unwrap();
        found
    };
    let mut found = scan(false);
    let mut reversed = scan(true);
    reversed.sort();
    found.sort();
    assert_eq!(found, reversed);
    for row in found.iter().map(|(row, _)| row).collect::<std::collections::BTreeSet<_>>() {
        let spec = ScanSpec { columns: columns.clone(), ..ScanSpec::default() };
        let mut cells = 0;
        store.read_row(table, row.as_bytes(), &spec, |_| cells += 1).unwrap();
        assert_eq!(cells, found.iter().filter(|(of, _)| of == row).count());
    }
    found
}

fn of_hidden() -> Columns {
    Columns::Families(vec![FamilyColumns::all("h")])
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(row, qualifier)| (row.to_string(), qualifier.to_string())).collect()
}

fn check(sim: &SimFiles) {
    let files: Arc<dyn Files> = Arc::new(sim.clone());
    let report = verify::check(&files, Path::new("/store")).unwrap();
    let is_fragment =
        |garbage: &verify::Garbage| garbage.path.extension().is_some_and(|kind| kind == "frag");
    assert!(report.is_sound() && !report.garbage.iter().any(is_fragment), "{report:?}");
}

#[test]
fn scale_6_10_a_hidden_family_is_read_by_name_only_and_makes_no_row_exist() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let table = store.create_table("t", hidden()).unwrap();
    apply(&store, |commit| {
        commit.table(table).row(b"both").set(b"f", b"q", 1, b"v").set(b"h", b"token", 1, b"");
        commit.row(b"none").set(b"h", b"token", AGE_MAX, &[7; 1000]);
    });
    let check_reads = |store: &Store| {
        assert_eq!(read(store, table, Columns::All), pairs(&[("both", "q")]));
        let all = pairs(&[("both", "token"), ("none", "token")]);
        assert_eq!(read(store, table, of_hidden()), all);
        let first = store.read_first(table, b"none", &View::Latest, None, |_| panic!("a cell"));
        assert!(first.unwrap().place.is_none());
        let families = ["f", "h"].map(FamilyColumns::all).to_vec();
        let mixed = ScanSpec { columns: Columns::Families(families), ..ScanSpec::default() };
        let refused = store.read_row(table, b"both", &mixed, |_| ());
        assert!(matches!(refused, Err(Error::InvalidScan(_))), "{refused:?}");
        assert!(matches!(store.scan(table, mixed), Err(Error::InvalidScan(_))));
    };
    check_reads(&store);
    let memory_bytes = store.sizes(table).unwrap().memory_bytes();
    assert!(memory_bytes < store.memory_bytes(table).unwrap() as u64);
    store.flush(table).unwrap();
    check_reads(&store);
    let sizes = store.sizes(table).unwrap();
    let files = store.configs().unwrap().tables[&table].files().map(|f| f.share).sum::<u64>();
    let disk_bytes = sizes.disk_bytes(&RowRange::all());
    assert!(disk_bytes > 0 && disk_bytes < files, "{disk_bytes} of {files}");
    assert!(sizes.boundaries(&RowRange::all(), 1).iter().all(|row| row < &b"c".to_vec()));
    store.compact(table).unwrap();
    check_reads(&store);
    // Its cells are purged by age, those of other families are not.
    fixture.clock.advance(Duration::from_micros(AGE_MAX as u64 + 1));
    assert_eq!(read(&store, table, of_hidden()), pairs(&[]));
    assert_eq!(read(&store, table, Columns::All), pairs(&[("both", "q")]));
}

#[test]
fn scale_6_10_deletes_of_rows_and_ranges_do_not_cover_a_hidden_family() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let table = store.create_table("t", hidden()).unwrap();
    // In one commit, before and after the delete.
    apply(&store, |commit| {
        commit.table(table).row(b"a").set(b"f", b"q", 1, b"v").set(b"h", b"1", 1, b"");
        commit.delete_row().set(b"h", b"2", 1, b"");
        commit.row(b"b").set(b"f", b"q", 1, b"v").set(b"h", b"1", 1, b"");
        commit.row(b"c").set(b"h", b"1", 1, b"").set(b"h", b"2", 1, b"");
    });
    store.flush(table).unwrap();
    // In later commits: the row, a range, everything, and the family by name.
    apply(&store, |commit| {
        commit.table(table).row(b"b").delete_row().set(b"f", b"new", 1, b"v");
    });
    apply(&store, |commit| {
        commit.table(table).delete_range(&RowRange::new("b", "c"));
    });
    apply(&store, |commit| {
        commit.table(table).delete_range(&RowRange::all());
        commit.row(b"c").delete_row().delete_cells(b"h", b"2", TimeRange::ALL);
    });
    let left = pairs(&[("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")]);
    let check_reads = |store: &Store| {
        assert_eq!(read(store, table, Columns::All), pairs(&[]));
        assert_eq!(read(store, table, of_hidden()), left);
    };
    check_reads(&store);
    drop(store);
    let store = fixture.open();
    check_reads(&store);
    store.flush(table).unwrap();
    check_reads(&store);
    store.split(table, b"b").unwrap();
    store.compact(table).unwrap();
    check_reads(&store);
    store.join(table, b"b").unwrap();
    store.close().unwrap();
    check(&fixture.sim);
    check_reads(&fixture.open());
    // A delete of the hidden family by name is an ordinary delete.
    let store = fixture.open();
    apply(&store, |commit| {
        commit.table(table).row(b"a").delete_family(b"h");
    });
    assert_eq!(read(&store, table, of_hidden()), pairs(&[("b", "1"), ("c", "1")]));
}

#[test]
fn scale_6_10_a_hidden_group_is_added_to_a_table_in_use_and_to_no_other_kind_of_group() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let splits = [b"b".to_vec(), b"c".to_vec()].to_vec();
    let table = store.create_table_with_splits("t", visible(), splits).unwrap();
    let set = |store: &Store, row: &str| {
        apply(store, |commit| {
            commit.table(table).row(row.as_bytes()).set(b"f", b"q", 1, b"v");
        });
    };
    set(&store, "a");
    store.flush(table).unwrap();
    set(&store, "b");
    // A commit of before the change, applied afterwards, is refused as outdated.
    let outdated = store.schema(table).unwrap();
    store.alter_table(table, hidden()).unwrap();
    let mut commit = CommitBuilder::new();
    commit.table(table).row(b"a").delete_row().set(b"h", b"1", 1, b"");
    let commit = commit.finish();
    let permit = store.try_admit(&commit).unwrap().unwrap();
    let refused = store.apply_under_schema(permit, &commit, Txn::MAX, table, &outdated);
    assert!(matches!(refused, Err(Error::SchemaChanged { .. })), "{refused:?}");
    store.apply(&commit, Txn::MAX, Durability::Durable).unwrap();
    let (rows, tokens) = (pairs(&[("b", "q")]), pairs(&[("a", "1")]));
    let check_reads = |store: &Store| {
        assert_eq!(read(store, table, Columns::All), rows);
        assert_eq!(read(store, table, of_hidden()), tokens);
        let configs = store.configs().unwrap();
        let tablets = configs.tables[&table].tablets.iter();
        assert!(tablets.map(|tablet| tablet.chains.len()).all(|chains| chains == 2));
    };
    check_reads(&store);
    let groups = [Group::new("default", [Family::new("f")]), Group::new("g", [Family::new("g")])];
    let other = store.alter_table(table, Schema::new(groups.to_vec()).unwrap());
    assert!(matches!(other, Err(Error::InvalidSchema(_))), "{other:?}");
    assert!(store.alter_table(table, visible()).is_err(), "a group cannot be removed");
    drop(store);
    let store = fixture.open();
    check_reads(&store);
    let backup = store.checkpoint(&[table]).unwrap();
    set(&store, "c");
    store.compact(table).unwrap();
    drop(store);
    let world = fixture.world(&fixture.sim);
    let (dir, source) = (Path::new("/copy"), Path::new("/store"));
    let copy = Store::open_from(dir, &backup, source, Options::default(), world).unwrap();
    check_reads(&copy);
    check(&fixture.sim);
}

/// Writes a row together with its token, in a table that gains the hidden family on the
/// way, and deletes rows meanwhile. Each row `rN` is written and deleted by commits with
/// tokens `rN` and `dN`.
fn life(store: &Store, table: TableId) -> Result<()> {
    let commit = |number: usize, deletes: bool| {
        let row = format!("r{number}");
        let token = format!("{}{number}", if deletes { "d" } else { "r" });
        let mut commit = CommitBuilder::new();
        commit.table(table).row(row.as_bytes());
        if deletes {
            commit.delete_row();
        } else {
            commit.set(b"f", b"q", 1, b"v");
        }
        commit.set(b"h", token.as_bytes(), AGE_MAX, b"");
        store.apply(&commit.finish(), Txn::MAX, Durability::Durable).map(drop)
    };
    if store.schema(table)?.groups().len() == 1 {
        store.alter_table(table, hidden())?;
    }
    for round in 0..4 {
        commit(round, false)?;
        if round % 2 == 0 {
            store.flush(table)?;
        }
        commit(round, true)?;
        if round == 2 {
            store.split(table, b"r2")?;
        }
        commit(round + 10, false)?;
    }
    store.flush(table)?;
    store.join(table, b"r2")?;
    store.compact(table)
}

/// Runs `life` until the power fails after some changes, and checks what survived.
/// Returns whether it lasted, and the number of tokens.
fn cut_off(changes: u64, crash: fn(&SimFiles) -> SimFiles) -> (bool, usize) {
    let sim = SimFiles::new(changes);
    let power = Powered::new(sim.clone());
    let open = |power: &Powered| {
        Store::open(Path::new("/store"), Options::default(), power.world(1)).unwrap()
    };
    let store = open(&power);
    let table = store.create_table("t", visible()).unwrap();
    power.cut_after(changes);
    let lasted = life(&store, table).is_ok();
    let survived = crash(&sim);
    drop(store);
    let store = open(&Powered::new(survived.clone()));
    let has_group = store.schema(table).unwrap().groups().len() == 2;
    let tokens = if has_group { read(&store, table, of_hidden()) } else { Vec::new() };
    // A row is there if it was written and not deleted.
    let deleted = |row: &String| tokens.contains(&(row.clone(), format!("d{}", &row[1..])));
    let written = tokens.iter().filter(|(_, token)| token.starts_with('r'));
    let expected: Vec<&String> = written.map(|(row, _)| row).filter(|row| !deleted(row)).collect();
    let rows = read(&store, table, Columns::All);
    assert_eq!(rows.iter().map(|(row, _)| row).collect::<Vec<_>>(), expected, "cut {changes}");
    // It goes on from there.
    store.flush(table).unwrap();
    store.compact(table).unwrap();
    assert_eq!(read(&store, table, Columns::All), rows);
    store.close().unwrap();
    check(&survived);
    (lasted, tokens.len())
}

#[test]
fn scale_6_10_a_row_and_its_token_survive_a_crash_at_any_change_together_or_not_at_all() {
    for crash in [SimFiles::crash, SimFiles::crash_keeping_writes] {
        let mut seen = std::collections::BTreeSet::new();
        for changes in 0.. {
            let (lasted, tokens) = cut_off(changes, crash);
            seen.insert(tokens);
            if lasted {
                break;
            }
        }
        assert_eq!(seen.len(), 13, "each commit was the last to survive: {seen:?}");
    }
}

#[test]
fn scale_6_10_a_row_with_many_tokens_is_read_without_them() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let table = store.create_table("t", hidden()).unwrap();
    for round in 0..2 {
        apply(&store, |commit| {
            commit.table(table).row(b"hot").set(b"f", b"q", 1, b"v");
            for token in 0..2000 {
                commit.set(b"h", format!("{round}{token:08}").as_bytes(), AGE_MAX, b"");
            }
        });
        if round == 0 {
            store.flush(table).unwrap();
        }
    }
    // The work of a read is bounded by what the visible families hold.
    let mut cells = 0;
    let whole = store.try_read_row(table, b"hot", &ScanSpec::default(), 16, |_| cells += 1);
    assert!(whole.unwrap().is_some() && cells == 1);
    // A token is found among the others without reading them.
    let one = |token: &str| {
        let qualifiers = Some(vec![RowRange::row(token.as_bytes())]);
        let family = FamilyColumns { family: b"h".to_vec(), qualifiers };
        let columns = Columns::Families(vec![family]);
        let spec = ScanSpec { columns, ..ScanSpec::default() };
        let mut cells = 0;
        let whole = store.try_read_row(table, b"hot", &spec, 16, |_| cells += 1).unwrap();
        assert!(whole.is_some());
        cells
    };
    assert_eq!((one("100001234"), one("000001234"), one("000009999")), (1, 1, 0));
}
