//! Conditional commits under every schedule: a commit succeeds only if the row is still
//! as it was when it was read.

use std::sync::Arc;

use shuttle::thread;
use stele_engine::*;

use super::explore;
use super::machine::{Machine, small};

const THREADS: u32 = 3;
const INCREMENTS: u32 = 2;
const ROW: &[u8] = b"row";

/// Returns the number in the row, and the txn at which it was read.
fn read(machine: &Machine) -> (u32, Txn) {
    let spec = ScanSpec { view: View::Latest, ..ScanSpec::row(ROW) };
    let mut number = 0;
    let txn = machine.store.read(machine.table, spec, |cell| {
        number = u32::from_be_bytes(cell.value.try_into().unwrap());
    });
    (number, txn.unwrap())
}

fn increment(machine: &Machine) {
    loop {
        let (number, txn) = read(machine);
        let mut builder = CommitBuilder::new();
        builder.table(machine.table).row(ROW).set(b"f", b"n", 0, &(number + 1).to_be_bytes());
        match machine.store.apply(&builder.finish(), txn, Durability::Written) {
            Ok(_) => return,
            Err(Error::MutationConflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn read_modify_write_of_one_row_from_several_threads_loses_no_update() {
    explore(2_000, || {
        let machine = Arc::new(Machine::new(small(), None));
        let mut threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let machine = machine.clone();
                thread::spawn(move || (0..INCREMENTS).for_each(|_| increment(&machine)))
            })
            .collect();
        let worker = machine.clone();
        threads.push(thread::spawn(move || {
            for _ in 0..2 {
                worker.store.flush(worker.table).unwrap();
                worker.store.compact(worker.table).unwrap();
            }
        }));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(read(&machine).0, THREADS * INCREMENTS);
    });
}
