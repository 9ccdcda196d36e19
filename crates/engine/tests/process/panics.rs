//! A panic from which the store cannot recover aborts the process: state would be half
//! changed, or a caller would wait forever.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::cell::key::{self, Kind};
use stele_engine::memory::MemoryFragment;
use stele_engine::schema::{Family, Schema};
use stele_engine::world::sim::SimFiles;
use stele_engine::world::{Clock, SeededRandom, SystemClock, Threads, World};
use stele_engine::*;

use super::child;

const CASE: &str = "STELE_PANIC_CASE";
/// Longer than the parent waits.
const HANG_TIME: Duration = Duration::from_secs(120);

/// A clock that panics when a thread of this name reads it.
struct Bomb(Option<&'static str>);

impl Clock for Bomb {
    fn now_micros(&self) -> i64 {
        1_000_000
    }

    fn elapsed(&self) -> Duration {
        let current = std::thread::current();
        let name = current.name().unwrap_or_default();
        assert!(self.0.is_none_or(|thread| !name.starts_with(thread)), "a bug");
        Duration::ZERO
    }
}

fn open(clock: Arc<dyn Clock>) -> (Store, TableId) {
    let world = World {
        clock,
        files: Arc::new(SimFiles::new(1)),
        random: Arc::new(SeededRandom::new(1)),
        spawner: Some(Arc::new(Threads)),
    };
    let store = Store::open(Path::new("/store"), Options::default(), world).unwrap();
    let schema = Schema::with_families([Family::new("f")]).unwrap();
    let table = store.create_table("t", schema).unwrap();
    (store, table)
}

fn write(store: &Store, table: TableId) -> Txn {
    let mut commit = CommitBuilder::new();
    commit.table(table).row(b"r").set(b"f", b"", 0, b"v");
    store.apply(&commit.finish(), Txn::MAX, Durability::Accepted).unwrap()
}

/// Runs in the child process; returns only if the process was not aborted.
fn misbehave(case: &str) {
    match case {
        "worker" => {
            let (store, table) = open(Arc::new(Bomb(Some("stele-urgent"))));
            write(&store, table);
            std::thread::sleep(HANG_TIME);
        }
        "apply" => {
            let (store, table) = open(Arc::new(Bomb(Some("writer"))));
            let thread = std::thread::Builder::new().name("writer".to_string());
            std::thread::scope(|scope| {
                let _ = thread.spawn_scoped(scope, || write(&store, table)).unwrap().join();
            });
        }
        "callback" => {
            let (store, table) = open(Arc::new(SystemClock::new()));
            let txn = write(&store, table);
            let _ = std::thread::spawn(move || {
                store.on_durable(txn, |_| panic!("a bug"));
                let _ = store.sync(txn);
            })
            .join();
        }
        "latch" => {
            let fragment = MemoryFragment::new(&budget::MemoryBudget::new(1 << 20));
            let keys = [b"a", b"b", b"c"].map(|row| {
                let mut cell = Vec::new();
                key::push_column(&mut cell, row, b"f", b"");
                key::push_cell_tail(&mut cell, 0, Txn::from_raw(1).unwrap(), Kind::Put);
                cell
            });
            let cells = keys.iter().map(|cell| {
                assert!(*cell != keys[2], "a bug");
                (cell.as_slice(), b"v".as_slice().into())
            });
            let _ = std::thread::scope(|scope| scope.spawn(|| fragment.insert_all(cells)).join());
        }
        "none" => {
            let (store, table) = open(Arc::new(Bomb(None)));
            write(&store, table);
            let _ = std::panic::catch_unwind(|| panic!("outside of the store"));
            write(&store, table);
        }
        other => panic!("no case {other}"),
    }
}

#[test]
fn a_panic_inside_the_store_aborts_the_process_and_one_outside_does_not() {
    if let Ok(case) = std::env::var(CASE) {
        return misbehave(&case);
    }
    let fatal = ["worker", "apply", "callback", "latch"].map(|case| (case, true));
    for (case, aborts) in fatal.into_iter().chain([("none", false)]) {
        let test = "panics::a_panic_inside_the_store_aborts_the_process_and_one_outside_does_not";
        let status = child::run(test, CASE, case);
        assert_eq!(child::is_abort(status), aborts, "{case}: {status}");
        assert_eq!(status.success(), !aborts, "{case}: {status}");
    }
}
