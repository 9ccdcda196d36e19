//! S6.8, S6.9: backups, restored and deleted tables through `Tables`.

use std::time::Duration;

use stele_engine::world::World;
use stele_engine::{Error, Options, ScanSpec, TableId};
use stele_tables::Tables;

use crate::fixture::{rows, schema, write};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn open(dir: &std::path::Path) -> Tables {
    let world = World { spawner: None, ..World::real() };
    Tables::open(dir, Options::default(), world).unwrap().keeping_deleted(DAY)
}

fn all(tables: &Tables, table: TableId) -> Vec<String> {
    rows(tables, table, ScanSpec::default())
}

#[test]
fn scale_6_9_a_backup_outlives_its_table_and_is_restored_twice() {
    let dir = tempfile::tempdir().unwrap();
    let tables = open(dir.path());
    let table = tables.create("t", schema()).unwrap();
    write(&tables, table, "a");
    let backup = tables.create_backup(table, "b", None).unwrap();
    write(&tables, table, "late");
    tables.drop_table(table).unwrap();
    drop(tables);
    let tables = open(dir.path());
    assert_eq!(tables.backups().unwrap(), std::slice::from_ref(&backup));
    assert_eq!(tables.backup("b").unwrap(), backup);
    let first = tables.restore("b", "t").unwrap();
    write(&tables, first, "b");
    let second = tables.restore("b", "u").unwrap();
    assert_eq!(
        (all(&tables, first), all(&tables, second)),
        (vec!["a".to_string(), "b".to_string()], vec!["a".to_string()],)
    );
    tables.delete_backup("b").unwrap();
    assert!(matches!(tables.restore("b", "v"), Err(Error::UnknownBackup(_))));
    drop(tables);
    let tables = open(dir.path());
    assert_eq!(all(&tables, first), ["a", "b"]);
    assert_eq!(all(&tables, second), ["a"]);
}

#[test]
fn scale_6_8_the_table_that_was_deleted_last_is_undeleted_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let tables = open(dir.path());
    for row in ["first", "second"] {
        let table = tables.create("t", schema()).unwrap();
        write(&tables, table, row);
        tables.delete(table).unwrap();
    }
    let deleted = tables.deleted().unwrap();
    assert_eq!(deleted.iter().map(|table| table.name.as_str()).collect::<Vec<_>>(), ["t", "t"]);
    let day = i64::try_from(DAY.as_micros()).unwrap();
    assert_eq!(tables.removed_at(&deleted[0]), deleted[0].deleted_micros + day);
    assert_eq!(tables.remove_expired().unwrap(), (0, 0));
    let back = tables.undelete("t").unwrap();
    assert_eq!(all(&tables, back), ["second"]);
    assert!(matches!(tables.undelete("t"), Err(Error::TableExists(_))));
    assert!(matches!(tables.undelete("u"), Err(Error::UnknownDeletedTable(_))));
}

#[test]
fn scale_6_8_tables_are_kept_only_as_long_as_the_server_keeps_them() {
    let dir = tempfile::tempdir().unwrap();
    let tables = open(dir.path());
    let table = tables.create("t", schema()).unwrap();
    write(&tables, table, "a");
    tables.delete(table).unwrap();
    // A shorter time holds for tables that are deleted already.
    let tables = tables.keeping_deleted(Duration::ZERO);
    assert_eq!(tables.remove_expired().unwrap(), (0, 1));
    let table = tables.create("t", schema()).unwrap();
    tables.delete(table).unwrap();
    assert_eq!(tables.deleted().unwrap(), [], "removed at once");
}
