//! Limits: whatever is too large is refused with a clear error, and the defaults admit
//! a cell of 100 MiB and a commit of 256 MiB.

use stele_engine::world::World;
use stele_engine::*;

use super::fixture::*;

#[test]
fn what_is_too_large_is_refused_whole_with_the_limit() {
    let machine = Machine::new(1);
    let limits = Limits {
        row_bytes_max: 10,
        qualifier_bytes_max: 20,
        value_bytes_max: 300,
        commit_bytes_max: 1000,
    };
    let options = Options { limits, ..Options::default() };
    let store = machine.open_with(options);
    let table = store.create_table("t", schema()).unwrap();
    let refused = |commit: Commit, message: &str| {
        let error = store.apply(&commit, Txn::MAX, Durability::Durable).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(cells(&store, table, View::Latest), pairs(&[]));
    };
    let cell = |row: usize, qualifier: usize, value: usize| {
        let (qualifier, value) = (vec![b'q'; qualifier], vec![b'v'; value]);
        to_row(table, &vec![b'r'; row], |c| c.set(b"f", &qualifier, 1, &value))
    };
    refused(cell(11, 1, 1), "a row key of 11 bytes is over the limit of 10");
    refused(cell(1, 21, 1), "a qualifier of 21 bytes is over the limit of 20");
    refused(cell(1, 1, 301), "a value of 301 bytes is over the limit of 300");
    let commit = to_row(table, b"r", |c| {
        for qualifier in 0..4u8 {
            c.set(b"f", &[qualifier], 1, &[0; 250]);
        }
        c
    });
    let size = commit.bytes().len();
    refused(commit, &format!("a commit of {size} bytes is over the limit of 1000"));
    put(&store, &cell(10, 20, 300));
    put(&store, &cell(0, 0, 0));
    assert_eq!(cells(&store, table, View::Durable).len(), 2);
}

#[test]
fn a_commit_larger_than_the_memory_budget_is_taken_and_memory_falls_back() {
    let machine = Machine::new(1);
    let mut options = Options::default();
    options.memory.budget_bytes = 1 << 20;
    let store = machine.open_threaded(options);
    let table = store.create_table("t", schema()).unwrap();
    let large = "x".repeat(5 << 20);
    for row in ["a", "b", "c"] {
        put(&store, &set(table, row, &large));
    }
    let expected: Vec<_> = ["a", "b", "c"].map(|row| (row, large.as_str())).to_vec();
    assert_eq!(cells(&store, table, View::Durable), pairs(&expected));
    store.flush(table).unwrap();
    let stats = store.stats();
    assert!(stats.memory_used_bytes < stats.memory_limit_bytes, "{stats:?}");
}

#[test]
fn a_cell_of_100_mib_in_a_commit_of_256_mib_is_taken_and_read_back() {
    const MIB: usize = 1 << 20;
    let home = tempfile::tempdir().unwrap();
    let open = || Store::open(home.path(), Options::default(), World::real()).unwrap();
    let store = open();
    let table = store.create_table("t", schema()).unwrap();
    let row_values = [(b"a", 100 * MIB), (b"b", 100 * MIB), (b"c", 56 * MIB)];
    let value = |row: u8, length: usize| {
        let mut value = vec![row; length];
        (value[0], value[length - 1]) = (b'<', b'>');
        value
    };
    let mut commit = CommitBuilder::new();
    commit.table(table);
    for (row, length) in row_values {
        commit.row(row).set(b"f", b"q", 1, &value(row[0], length));
    }
    let commit = commit.finish();
    assert!(commit.bytes().len() >= 256 * MIB);
    put(&store, &commit);
    drop(commit);
    let check = |store: &Store| {
        for (row, length) in row_values {
            let mut found = 0;
            let read = store.read(table, ScanSpec::row(row), |cell| {
                assert!(cell.value == value(row[0], length), "a value came back changed");
                found += 1;
            });
            read.unwrap();
            assert_eq!(found, 1);
        }
    };
    check(&store);
    store.close().unwrap();
    let store = open();
    check(&store);
    store.flush(table).unwrap();
    check(&store);
}
