//! Checkpoints preserve tables as they were at one txn.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use stele_engine::schema::{Family, Group, Schema};
use stele_engine::world::World;
use stele_engine::*;

fn stepped() -> World {
    World { spawner: None, ..World::real() }
}

fn schema() -> Schema {
    let groups = ["f", "g"].map(|name| Group::new(name, [Family::new(name)]));
    Schema::new(groups.into()).unwrap()
}

fn put(store: &Store, table: TableId, row: &str, value: &str) {
    let mut commit = CommitBuilder::new();
    commit.table(table).row(row.as_bytes());
    commit.set(b"f", b"", 0, value.as_bytes()).set(b"g", b"", 0, value.as_bytes());
    store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
}

fn cells(store: &Store, table: TableId) -> Vec<String> {
    let mut found = Vec::new();
    let mut keep = |cell: &CellView<'_>| {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        found.push(format!("{}:{}={}", text(cell.row), text(cell.family), text(cell.value)));
    };
    store.read(table, ScanSpec::default(), &mut keep).unwrap();
    found
}

fn fragments(dir: &Path) -> BTreeSet<String> {
    let listed = std::fs::read_dir(dir.join(FRAGMENTS_DIR)).unwrap();
    listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_checkpoint_outlives_overwrites_compaction_restarts_and_the_table_itself() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let store = Store::open(&home, Options::default(), stepped()).unwrap();
    let table = store.create_table("t", schema()).unwrap();
    let other = store.create_table("other", schema()).unwrap();
    put(&store, table, "a", "1");
    put(&store, table, "b", "1");
    put(&store, other, "x", "not pinned");
    let before = cells(&store, table);
    let checkpoint = store.checkpoint(&[table]).unwrap();
    assert!(checkpoint.files().count() == 2, "one file for each group");

    put(&store, table, "a", "2");
    store.flush(table).unwrap();
    store.compact(table).unwrap();
    drop(store);
    let store = Store::open(&home, Options::default(), stepped()).unwrap();
    assert_eq!(cells(&store, table), ["a:f=2", "a:g=2", "b:f=1", "b:g=1"]);
    store.drop_table(table).unwrap();
    drop(store);
    let store = Store::open(&home, Options::default(), stepped()).unwrap();
    assert_eq!(store.checkpoints().unwrap(), std::slice::from_ref(&checkpoint));

    let sent = Checkpoint::decode(&checkpoint.encode()).unwrap();
    assert_eq!(sent, checkpoint);
    let away = dir.path().join("away");
    let restored = Store::open_from(&away, &sent, &home, Options::default(), stepped()).unwrap();
    assert_eq!(cells(&restored, table), before);
    assert_eq!(restored.tables(), [(table, "t".to_string())]);
    let stale = {
        let mut commit = CommitBuilder::new();
        commit.table(table).row(b"a").delete_row();
        restored.apply(&commit.finish(), checkpoint.txn, Durability::Durable)
    };
    assert!(matches!(stale, Err(Error::MutationConflict { .. })), "txns of the source are old");
    put(&restored, table, "c", "3");
    drop(restored);
    let restored = Store::open(&away, Options::default(), stepped()).unwrap();
    assert_eq!(cells(&restored, table).len(), 6);
}

#[test]
fn released_files_go_unless_a_table_or_another_checkpoint_needs_them() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options::default(), stepped()).unwrap();
    let table = store.create_table("t", schema()).unwrap();
    put(&store, table, "a", "1");
    let first = store.checkpoint(&[table]).unwrap();
    let second = store.checkpoint(&[table]).unwrap();
    put(&store, table, "a", "2");
    let third = store.checkpoint(&[table]).unwrap();
    store.compact(table).unwrap();
    assert_eq!(fragments(dir.path()).len(), 6, "pinned files and compacted ones");

    store.release_checkpoint(third.id).unwrap();
    store.release_checkpoint(first.id).unwrap();
    assert_eq!(fragments(dir.path()).len(), 4);
    for path in store.checkpoint_paths(&second) {
        assert!(path.exists());
    }
    store.release_checkpoint(second.id).unwrap();
    assert_eq!(fragments(dir.path()).len(), 2);
    assert_eq!(cells(&store, table), ["a:f=2", "a:g=2"]);
    let again = store.release_checkpoint(second.id);
    assert!(matches!(again, Err(Error::UnknownCheckpoint(id)) if id == second.id));
}

#[test]
fn a_store_is_never_made_over_another() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options::default(), stepped()).unwrap();
    let table = store.create_table("t", schema()).unwrap();
    let checkpoint = store.checkpoint(&[table]).unwrap();
    let over = Store::open_from(dir.path(), &checkpoint, dir.path(), Options::default(), stepped());
    assert!(matches!(over, Err(Error::DirectoryInUse { .. })));
}

#[test]
fn a_checkpoint_under_load_cuts_all_tables_at_the_same_commit() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let mut options = Options::default();
    options.flush.fragment_bytes = 64 << 10;
    let store = Store::open(&home, options.clone(), World::real()).unwrap();
    let tables = ["t", "u"].map(|name| store.create_table(name, schema()).unwrap());
    let stop = AtomicBool::new(false);
    let checkpoints: Vec<Checkpoint> = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let mut commit = CommitBuilder::new();
                for table in tables {
                    commit.table(table).row(&number.to_be_bytes());
                    commit.set(b"f", b"", 0, &[7; 100]).set(b"g", b"", 0, &[7; 100]);
                }
                store.apply(&commit.finish(), Txn::MAX, Durability::Accepted).unwrap();
            }
        });
        let checkpoints = (0..5).map(|_| store.checkpoint(&tables).unwrap()).collect();
        stop.store(true, Ordering::Relaxed);
        checkpoints
    });
    for (number, checkpoint) in checkpoints.iter().enumerate() {
        let away = dir.path().join(format!("away-{number}"));
        let options = Options::default();
        let restored = Store::open_from(&away, checkpoint, &home, options, stepped()).unwrap();
        let mut rows = Vec::new();
        for table in tables {
            for family in ["f", "g"] {
                let columns = Columns::Families(vec![FamilyColumns::all(family)]);
                let mut found = 0u64;
                let mut newest = Txn::ZERO;
                let spec = ScanSpec { columns, ..ScanSpec::default() };
                let count = |cell: &CellView<'_>| {
                    assert_eq!(cell.row, found.to_be_bytes(), "a prefix without holes");
                    found += 1;
                    newest = newest.max(cell.txn);
                };
                restored.read(table, spec, count).unwrap();
                assert!(newest <= checkpoint.txn);
                rows.push(found);
            }
        }
        assert!(rows.iter().all(|&found| found == rows[0]), "{rows:?}");
    }
}
