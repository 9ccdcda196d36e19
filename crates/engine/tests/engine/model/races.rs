//! Concurrent conditional commits: a commit succeeds only if the row is still as it was
//! when it was read.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use stele_engine::schema::{Family, Schema};
use stele_engine::world::World;
use stele_engine::*;

const THREADS: usize = 32;

fn with_store(options: Options, body: impl FnOnce(&Store, TableId)) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options, World::real()).unwrap();
    let schema = Schema::with_families([Family::new("f")]).unwrap();
    let table = store.create_table("t", schema).unwrap();
    body(&store, table);
    store.close().unwrap();
}

/// Small enough that memory is flushed and chains are compacted during the test.
fn small() -> Options {
    let mut options = Options::default();
    options.flush.fragment_bytes = 16 << 10;
    options.compact.chain_min = 2;
    // A sync per commit would only take time.
    options.log.sync = false;
    options
}

/// Returns the value of the only cell of a row, and the txn at which it was read.
fn read(store: &Store, table: TableId, row: &[u8]) -> (Option<Vec<u8>>, Txn) {
    let spec = ScanSpec { view: View::Latest, ..ScanSpec::row(row) };
    let mut scan = store.scan(table, spec).unwrap();
    let mut value = None;
    let end = scan
        .next_batch(BatchLimits::default(), &mut |cell| value = Some(cell.value.to_vec()))
        .unwrap();
    assert!(end.done);
    (value, end.txn)
}

fn write(store: &Store, table: TableId, row: &[u8], value: &[u8], most: Txn) -> Result<Txn> {
    let mut builder = CommitBuilder::new();
    builder.table(table).row(row).set(b"f", b"n", 0, value);
    store.apply(&builder.finish(), most, Durability::Written)
}

fn number(value: Option<Vec<u8>>) -> u64 {
    value.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()))
}

#[test]
fn thirty_two_threads_of_read_modify_write_lose_no_increment() {
    const INCREMENTS: u64 = 60;
    const ROWS: [&[u8]; 3] = [b"a", b"b", b"c"];
    with_store(small(), |store, table| {
        let conflicts = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let conflicts = &conflicts;
                scope.spawn(move || {
                    for round in 0..INCREMENTS {
                        let row = ROWS[(thread + round as usize) % ROWS.len()];
                        loop {
                            let (value, txn) = read(store, table, row);
                            let next = (number(value) + 1).to_be_bytes();
                            match write(store, table, row, &next, txn) {
                                Ok(_) => break,
                                Err(Error::MutationConflict { .. }) => {
                                    conflicts.fetch_add(1, Ordering::Relaxed);
                                }
                                Err(error) => panic!("{error}"),
                            }
                        }
                    }
                });
            }
        });
        let sum: u64 = ROWS.iter().map(|row| number(read(store, table, row).0)).sum();
        assert_eq!(sum, THREADS as u64 * INCREMENTS, "{conflicts:?} conflicts");
    });
}

#[test]
fn of_thirty_two_inserts_into_an_absent_row_exactly_one_wins() {
    const ROUNDS: usize = 40;
    with_store(small(), |store, table| {
        for round in 0..ROUNDS {
            let row = format!("row {round}").into_bytes();
            let (start, row) = (&Barrier::new(THREADS), &row);
            let wins: Vec<usize> = std::thread::scope(|scope| {
                let insert = |thread: usize| {
                    start.wait();
                    // An existing row is left unchanged.
                    let (found, txn) = read(store, table, row);
                    if found.is_some() {
                        return None;
                    }
                    match write(store, table, row, &thread.to_be_bytes(), txn) {
                        Ok(_) => Some(thread),
                        Err(Error::MutationConflict { .. }) => None,
                        Err(error) => panic!("{error}"),
                    }
                };
                let threads: Vec<_> =
                    (0..THREADS).map(|thread| scope.spawn(move || insert(thread))).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(wins.len(), 1, "{wins:?} won");
            assert_eq!(read(store, table, row).0, Some(wins[0].to_be_bytes().to_vec()));
        }
    });
}
