//! S1.5: tables are created, altered, dropped, backed up and restored through `Tables`.

use stele_engine::schema::{Family, Schema};
use stele_engine::world::World;
use stele_engine::{Error, Options, RowRange, ScanSpec, Txn};
use stele_tables::Tables;

use crate::fixture::{at, rows, schema, set, write};

fn world() -> World {
    World { spawner: None, ..World::real() }
}

fn open(dir: &std::path::Path) -> Tables {
    Tables::open(dir, Options::default(), world()).unwrap()
}

fn all(tables: &Tables, name: &str) -> Vec<String> {
    rows(tables, tables.table(name).unwrap(), ScanSpec::default())
}

#[test]
fn scale_1_5_created_and_dropped_tables_outlive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let tables = open(dir.path());
    let (a, b) = (tables.create("a", schema()).unwrap(), tables.create("b", schema()).unwrap());
    assert!(matches!(tables.create("a", schema()), Err(Error::TableExists(_))));
    write(&tables, a, "r");
    tables.drop_table(b).unwrap();
    let id = tables.store_id().unwrap();
    drop(tables);
    let tables = open(dir.path());
    assert_eq!(tables.all(), [(a, "a".to_string())]);
    assert_eq!((tables.table("a"), tables.table("b")), (Some(a), None));
    assert_eq!(tables.store_id().unwrap(), id);
    assert_eq!(all(&tables, "a"), ["r"]);
}

#[test]
fn scale_1_5_an_altered_table_refuses_commits_checked_under_its_old_schema() {
    let dir = tempfile::tempdir().unwrap();
    let tables = open(dir.path());
    let table = tables.create("t", schema()).unwrap();
    write(&tables, table, "r");
    let old = tables.schema(table).unwrap();
    let both = Schema::with_families([Family::new("f"), Family::new("g")]).unwrap();
    tables.alter(table, both.clone(), &[]).unwrap();
    assert_eq!(all(&tables, "t"), ["r"]);

    let (local, commit) = (at(&tables, table, b"r"), set(table, "s", 1));
    let apply = |schema| {
        let permit = local.try_admit(&commit).unwrap().unwrap();
        tables.tenure().open(local.apply_under_schema(permit, Txn::MAX, schema))
    };
    assert!(matches!(apply(&old), Err(Error::SchemaChanged { .. })));
    apply(&tables.schema(table).unwrap()).unwrap();
    tables.alter(table, both, &[b"f"]).unwrap();
    assert!(all(&tables, "t").is_empty(), "its family was emptied");
}

#[test]
fn scale_1_5_the_rows_of_a_range_are_dropped_durably() {
    let dir = tempfile::tempdir().unwrap();
    let tables = open(dir.path());
    let table = tables.create("t", schema()).unwrap();
    for row in ["a1", "a2", "b1"] {
        write(&tables, table, row);
    }
    tables.drop_rows(table, &RowRange::prefix(b"a")).unwrap();
    assert_eq!(all(&tables, "t"), ["b1"]);
}

#[test]
fn scale_1_5_a_checkpoint_is_opened_as_it_was_until_it_is_released() {
    let dir = tempfile::tempdir().unwrap();
    let (home, away) = (dir.path().join("home"), dir.path().join("away"));
    let tables = open(&home);
    let table = tables.create("t", schema()).unwrap();
    write(&tables, table, "a");
    let checkpoint = tables.checkpoint(&[table]).unwrap();
    write(&tables, table, "b");
    tables.drop_table(table).unwrap();
    assert_eq!(tables.checkpoints().unwrap(), std::slice::from_ref(&checkpoint));
    let restored =
        Tables::open_from(&away, &checkpoint, &home, Options::default(), world()).unwrap();
    assert_eq!(all(&restored, "t"), ["a"]);
    tables.release_checkpoint(checkpoint.id).unwrap();
    assert!(tables.checkpoints().unwrap().is_empty());
}

#[test]
fn scale_6_2_tablets_are_listed_split_and_joined_without_a_change_of_rows() {
    let dir = tempfile::tempdir().unwrap();
    let tables = open(dir.path());
    let splits = [b"h".to_vec(), b"p".to_vec()].to_vec();
    let table = tables.create_with_splits("t", schema(), splits).unwrap();
    ["a", "k", "z"].iter().for_each(|row| write(&tables, table, row));
    let starts = |tables: &Tables| -> Vec<Vec<u8>> {
        tables.tablets(table).unwrap().into_iter().map(|tablet| tablet.rows.start).collect()
    };
    assert_eq!(starts(&tables), [&b""[..], b"h", b"p"]);
    assert!(tables.split(table, b"k").unwrap());
    assert!(!tables.split(table, b"p").unwrap(), "a tablet begins there");
    tables.join(table, b"h").unwrap();
    assert!(tables.join(table, b"h").is_err(), "no tablets meet there any more");
    assert_eq!(starts(&tables), [&b""[..], b"k", b"p"]);
    assert_eq!(all(&tables, "t"), ["a", "k", "z"]);
    drop(tables);
    let tables = open(dir.path());
    assert_eq!(starts(&tables), [&b""[..], b"k", b"p"]);
    assert_eq!(all(&tables, "t"), ["a", "k", "z"]);
}
