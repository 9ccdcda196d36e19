//! Any single file operation fails, once or permanently: no call exceeds its time
//! limit, none panics, and when the fault is gone everything acknowledged is there.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use stele_engine::schema::{Family, Group, Schema};
use stele_engine::world::sim::{Fault, Planned, SimFiles};
use stele_engine::world::{ManualClock, SeededRandom, Spawner, SystemClock, Threads, World};
use stele_engine::*;

/// Longer than one life of a store takes unless it hangs: its calls wait for at most
/// `WAIT_MAX`.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);
const WAIT_MAX: Duration = Duration::from_millis(300);
const COMMITS: u32 = 28;
/// A life ends after this many consecutive failures.
const FAILURES_MAX: u32 = 4;
/// With workers, a sweep ends after this many consecutive lives without a fault.
const MISSES_MAX: u32 = 8;
const FAULTS: [Fault; 3] = [Fault::Disk, Fault::OpenFiles, Fault::Full];

fn options() -> Options {
    let mut options = Options::default();
    options.memory.budget_bytes = 32 << 10;
    options.memory.conflict_slots = 16;
    options.log.segment_bytes = 16 << 10;
    options.flush.fragment_bytes = 4 << 10;
    options.compact.chain_min = 2;
    options.compact.chain_max = 3;
    options.compact.chain_slow = 4;
    options.compact.chain_stop = 6;
    options.compact.output_bytes = 8 << 10;
    options.admission.wait_max = WAIT_MAX;
    options
}

fn open(files: &SimFiles, spawner: Option<Arc<dyn Spawner>>) -> Result<Store> {
    let world = World {
        clock: match spawner {
            Some(_) => Arc::new(SystemClock::new()),
            None => Arc::new(ManualClock::at(1_000_000)),
        },
        files: Arc::new(files.clone()),
        random: Arc::new(SeededRandom::new(1)),
        spawner,
    };
    Store::open(Path::new("/store"), options(), world)
}

fn row(number: u32) -> Vec<u8> {
    // Neither ascending nor adjacent.
    format!("{:05}", number * 7919 % 1000).into_bytes()
}

fn commit(table: TableId, number: u32) -> Commit {
    let mut commit = CommitBuilder::new();
    commit.table(table).row(&row(number)).set(b"f", b"", 0, &[number as u8; 700]);
    commit.set(b"g", b"", 0, &number.to_be_bytes());
    commit.finish()
}

fn table(store: &Store) -> Result<TableId> {
    match store.table("t") {
        Some(table) => Ok(table),
        None => {
            let groups = ["f", "g"].map(|name| Group::new(name, [Family::new(name)]));
            store.create_table("t", Schema::new(groups.to_vec()).unwrap())
        }
    }
}

/// Runs one life of a store in which anything may fail. Returns the acknowledged
/// commits.
fn live(files: &SimFiles, spawner: Option<Arc<dyn Spawner>>) -> Vec<u32> {
    let threads = spawner.is_some();
    let (mut acknowledged, mut failures) = (Vec::new(), 0);
    let Ok(store) = open(files, spawner) else { return acknowledged };
    for number in 0..COMMITS {
        let Ok(table) = table(&store) else { continue };
        let wait = if number % 4 == 3 { Durability::Accepted } else { Durability::Durable };
        match store.apply(&commit(table, number), Txn::MAX, wait) {
            Ok(_) if wait == Durability::Durable => acknowledged.push(number),
            Ok(_) => {}
            Err(_) => failures += 1,
        }
        if failures > FAILURES_MAX {
            break;
        }
        if !threads {
            let _ = store.step();
        }
        match number {
            10 => drop(store.checkpoint(&[table])),
            15 => drop(store.compact(table)),
            20 => drop(store.release_checkpoint(1)),
            25 => drop(store.read(table, ScanSpec::default(), |_| ())),
            _ => {}
        }
    }
    let _ = store.close();
    acknowledged
}

fn check(files: &SimFiles, acknowledged: &[u32], case: &str) {
    let store = open(files, None).unwrap_or_else(|error| panic!("{case}: {error}"));
    let table = match store.table("t") {
        Some(table) => table,
        None if acknowledged.is_empty() => return,
        None => panic!("{case}: the table is gone"),
    };
    for &number in acknowledged {
        let mut found = 0;
        let spec = ScanSpec { view: View::Latest, ..ScanSpec::default() };
        let read = store.read_row(table, &row(number), &spec, |_| found += 1);
        read.unwrap_or_else(|error| panic!("{case}: commit {number}: {error}"));
        assert_eq!(found, 2, "{case}: commit {number} is lost");
    }
    // The store continues to work.
    store.apply(&commit(table, 999), Txn::MAX, Durability::Durable).unwrap();
    store.flush(table).unwrap();
    store.close().unwrap();
}

/// Runs cases one by one, each with a time limit.
fn watched(cases: impl FnOnce(&dyn Fn(String)) + Send + 'static) {
    let (begun, cases_begun) = mpsc::channel();
    let worker = thread::spawn(move || cases(&|case| begun.send(case).unwrap()));
    let mut last = "nothing has begun".to_string();
    loop {
        match cases_begun.recv_timeout(HANG_TIMEOUT) {
            Ok(case) => last = case,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs: {last}"),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    worker.join().unwrap_or_else(|_| panic!("the last case was {last}"));
}

/// Injects a fault at each operation in turn, until there are no more.
fn sweep(
    begun: &dyn Fn(String),
    fault: Fault,
    lasts: bool,
    step: usize,
    spawner: Option<Arc<dyn Spawner>>,
) {
    let mut missed = 0;
    for after in (0..).step_by(step) {
        let case = format!("{fault:?} at operation {after}, lasting: {lasts}");
        begun(case.clone());
        let files = SimFiles::new(after);
        files.plan_fault(Planned { fault, after, lasts });
        let acknowledged = live(&files, spawner.clone());
        let struck = files.has_fault_struck();
        let files = if after % 2 == 0 { files.crash() } else { files };
        files.clear_faults();
        check(&files, &acknowledged, &case);
        missed = if struck { 0 } else { missed + 1 };
        match &spawner {
            None if missed > 0 => {
                assert!(after > 50, "{case}: there are more operations than that");
                return;
            }
            // How often workers flush and compact depends on their speed.
            Some(_) if missed == MISSES_MAX => return,
            _ => {}
        }
    }
}

/// Returns 1 (every operation) with `STELE_LONG`, else `short`.
fn step(short: usize) -> usize {
    if std::env::var_os("STELE_LONG").is_some() { 1 } else { short }
}

#[test]
fn a_fault_at_any_one_file_operation_loses_nothing_and_stops_nothing_for_good() {
    watched(|begun| {
        for fault in FAULTS {
            sweep(begun, fault, false, step(11), None);
        }
    });
}

#[test]
fn faults_that_last_end_in_errors_and_everything_acknowledged_is_there_afterwards() {
    watched(|begun| {
        for fault in FAULTS {
            sweep(begun, fault, true, step(11), None);
        }
    });
}

#[test]
fn with_workers_no_call_waits_longer_than_its_bound_whatever_fails() {
    let step = step(151);
    watched(move |begun| {
        for fault in FAULTS {
            for lasts in [false, true] {
                sweep(begun, fault, lasts, step, Some(Arc::new(Threads)));
            }
        }
    });
}
