//! A whole store with its own workers under every schedule: writers who wait for
//! memory get on, and closing waits for nobody who waits for it.

use std::io;
use std::sync::Arc;

use shuttle::thread::{self, JoinHandle};
use stele_engine::world::{Joiner, Priority, Spawner};
use stele_engine::*;

use super::explore;
use super::machine::{Machine, small};

/// Threads of the schedule.
struct Scheduled;

struct Worker(JoinHandle<()>);

impl Spawner for Scheduled {
    fn spawn(
        &self,
        name: &str,
        _: Priority,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Box<dyn Joiner>> {
        let worker = thread::Builder::new().name(name.to_string()).spawn(body)?;
        Ok(Box::new(Worker(worker)))
    }
}

impl Joiner for Worker {
    fn join(self: Box<Self>) {
        self.0.join().unwrap();
    }
}

const WRITERS: u8 = 2;
const COMMITS: u8 = 4;
const VALUE_BYTES: usize = 5_000;

/// Room for little more than two commits.
fn tight() -> Options {
    let mut options = small();
    options.memory.budget_bytes = 16 << 10;
    options.compact.chain_min = 2;
    options
}

fn write(machine: &Machine, writer: u8) {
    for number in 0..COMMITS {
        let mut builder = CommitBuilder::new();
        builder.table(machine.table).row(&[writer, number]).set(
            b"f",
            b"q",
            1,
            &[number; VALUE_BYTES],
        );
        let wait = if number.is_multiple_of(2) { Wait::Accepted } else { Wait::Durable };
        machine.store.apply(&builder.finish(), Txn::MAX, wait).unwrap();
    }
}

#[test]
fn writers_who_wait_for_memory_get_on_and_the_store_closes() {
    explore(600, || {
        let machine = Machine::new(tight(), Some(Arc::new(Scheduled)));
        let machine = Arc::new(machine);
        let threads: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let machine = machine.clone();
                thread::spawn(move || write(&machine, writer))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut found = Vec::new();
        let spec = ScanSpec { view: View::Latest, ..ScanSpec::default() };
        let txn = machine.store.read(machine.table, spec, |cell| {
            assert_eq!(cell.value, [cell.row[1]; VALUE_BYTES]);
            found.push(cell.row.to_vec());
        });
        txn.unwrap();
        let rows =
            (0..WRITERS).flat_map(|writer| (0..COMMITS).map(move |number| vec![writer, number]));
        assert_eq!(found, rows.collect::<Vec<_>>());
        assert!(machine.store.stats().flushes > 0, "memory was tight");
        let machine = Arc::into_inner(machine).expect("all threads have ended");
        Arc::into_inner(machine.store).expect("nobody else has it").close().unwrap();
    });
}
