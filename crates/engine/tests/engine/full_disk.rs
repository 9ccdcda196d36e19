//! A full disk: a clear error, no loss, reads continue, and writes resume by themselves
//! once there is free space. On a simulated disk, and on a small real one.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use stele_engine::schema::{Family, Schema};
use stele_engine::world::sim::SimFiles;
use stele_engine::world::{SeededRandom, Threads, World};
use stele_engine::*;

use crate::simulated::world;

fn open(world: World) -> (Store, TableId) {
    let mut options = Options::default();
    options.log.segment_bytes = 256 << 10;
    options.memory.budget_bytes = 4 << 20;
    options.flush.fragment_bytes = 512 << 10;
    let store = Store::open(Path::new("/store"), options, world).unwrap();
    let table = match store.table("t") {
        Some(table) => table,
        None => {
            let schema = Schema::with_families([Family::new("f")]).unwrap();
            store.create_table("t", schema).unwrap()
        }
    };
    (store, table)
}

fn row(number: u64) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

/// Returns a commit of one row whose value does not compress.
fn commit(table: TableId, number: u64, value_bytes: usize) -> Commit {
    let random = SeededRandom::new(number);
    let value: Vec<u8> =
        (0..value_bytes).map(|_| stele_engine::world::Random::next_u64(&random) as u8).collect();
    let mut commit = CommitBuilder::new();
    commit.table(table).row(&row(number)).set(b"f", b"", 0, &value);
    commit.finish()
}

fn rows(store: &Store, table: TableId) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    store.read(table, ScanSpec::default(), |cell| found.push(cell.row.to_vec())).unwrap();
    found
}

fn used(sim: &SimFiles) -> u64 {
    sim.files().values().map(|bytes| bytes.len() as u64).sum()
}

fn is_full(outcome: &Result<Txn>) -> bool {
    matches!(outcome, Err(Error::DiskFull { .. }))
}

/// Commits until the disk is full; returns the number of the refused commit.
fn fill(store: &Store, table: TableId, mut number: u64, value_bytes: usize) -> u64 {
    loop {
        match store.apply(&commit(table, number, value_bytes), Txn::MAX, Durability::Durable) {
            Ok(_) => number += 1,
            Err(Error::DiskFull { .. }) => return number,
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_commit_without_space_is_refused_and_the_next_one_with_space_is_accepted() {
    for (seed, value_bytes) in [(1, 100), (2, 3_000), (3, 70_000)] {
        let sim = SimFiles::new(seed);
        let (store, table) = open(world(&sim));
        let mut next = 0;
        for round in 0..4 {
            sim.set_capacity(Some(used(&sim) + 700_000));
            let refused = fill(&store, table, next, value_bytes);
            assert!(refused > next, "nothing was taken in round {round}");
            next = refused;
            // Reads continue and return exactly the accepted commits.
            assert_eq!(rows(&store, table), (0..next).map(row).collect::<Vec<_>>());
            let text = store.apply(&commit(table, next, 900_000), Txn::MAX, Durability::Accepted);
            let text = text.unwrap_err().to_string();
            assert!(
                text.starts_with("the disk is full") && text.contains("free some space"),
                "{text}"
            );
        }
        sim.set_capacity(None);
        store.apply(&commit(table, next, value_bytes), Txn::MAX, Durability::Durable).unwrap();
        store.flush(table).unwrap();
        store.compact(table).unwrap();
        store.close().unwrap();
        let (store, table) = open(world(&sim));
        assert_eq!(rows(&store, table), (0..=next).map(row).collect::<Vec<_>>());
    }
}

#[test]
fn what_was_taken_before_the_disk_was_full_survives_every_crash_after() {
    for seed in 0..30 {
        let sim = SimFiles::new(seed);
        let (store, table) = open(world(&sim));
        sim.set_capacity(Some(used(&sim) + 200_000 + seed * 31_337));
        let taken = fill(&store, table, 0, 2_000);
        for number in taken..taken + 3 {
            assert!(is_full(&store.apply(
                &commit(table, number, 2_000),
                Txn::MAX,
                Durability::Accepted
            )));
        }
        let left = sim.crash();
        drop(store);
        left.set_capacity(None);
        let (store, table) = open(world(&left));
        assert_eq!(rows(&store, table), (0..taken).map(row).collect::<Vec<_>>(), "seed {seed}");
        store.apply(&commit(table, taken, 2_000), Txn::MAX, Durability::Durable).unwrap();
    }
}

/// An accepted commit has its disk space reserved: others may fill the disk at any
/// time, and everything accepted can still be written.
#[test]
fn a_commit_that_was_accepted_is_written_whatever_happens_to_the_disk() {
    for seed in 0..30u64 {
        let sim = SimFiles::new(seed);
        let (store, table) = open(world(&sim));
        let mut accepted = 0;
        for step in 0..60u64 {
            // Small ones, and ones that span several segments.
            let value_bytes = [50, 9_000, 400, 150_000, 90_000][(seed + step) as usize % 5];
            sim.set_capacity((!step.is_multiple_of(3)).then(|| used(&sim)));
            match store.apply(&commit(table, accepted, value_bytes), Txn::MAX, Durability::Accepted)
            {
                Ok(_) => accepted += 1,
                Err(Error::DiskFull { .. }) => {}
                Err(other) => panic!("{other}"),
            }
            sim.set_capacity(Some(used(&sim)));
            if (seed + step).is_multiple_of(4) {
                store.sync(Txn::MAX).unwrap();
            }
        }
        assert!(accepted >= 20);
        store.sync(Txn::MAX).unwrap();
        let left = sim.crash();
        drop(store);
        left.set_capacity(None);
        let (store, table) = open(world(&left));
        assert_eq!(rows(&store, table), (0..accepted).map(row).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn writers_that_wait_for_a_flush_without_space_are_refused_and_continue_when_there_is_space() {
    let sim = SimFiles::new(1);
    let world = World { spawner: Some(Arc::new(Threads)), ..World::real() };
    let (store, table) = open(World { files: Arc::new(sim.clone()), ..world });
    sim.set_capacity(Some(used(&sim) + (3 << 20)));
    let next = AtomicU64::new(0);
    let (refused, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    let write_until = |done: &dyn Fn() -> bool| {
        while !done() {
            let number = next.fetch_add(1, Ordering::SeqCst);
            match store.apply(&commit(table, number, 20_000), Txn::MAX, Durability::Durable) {
                Ok(_) => taken.fetch_add(1, Ordering::SeqCst),
                Err(Error::DiskFull { .. }) => refused.fetch_add(1, Ordering::SeqCst),
                Err(other) => panic!("{other}"),
            };
        }
    };
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| write_until(&|| refused.load(Ordering::SeqCst) >= 20));
        }
    });
    let before = taken.load(Ordering::SeqCst);
    assert_eq!(rows(&store, table).len() as u64, before);
    sim.set_capacity(None);
    // More than fits in memory, so flushes must resume by themselves too.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| write_until(&|| taken.load(Ordering::SeqCst) >= before + 400));
        }
    });
    assert!(store.stats().flushes > 0);
    assert_eq!(rows(&store, table).len() as u64, taken.load(Ordering::SeqCst));
}

/// A separate in-memory file system, unmounted at the end.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn tmpfs(bytes: u64) -> Result<Mounted, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let size = format!("size={bytes}");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(dir.path())
            .output()
            .map_err(|error| error.to_string())?;
        if !mount.status.success() {
            return Err(String::from_utf8_lossy(&mount.stderr).trim().to_string());
        }
        Ok(Mounted(dir))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("{} stays mounted", self.0.path().display());
        }
    }
}

#[test]
fn a_store_on_a_small_real_file_system_continues_when_there_is_space_again() {
    let mounted = match Mounted::tmpfs(16 << 20) {
        Ok(mounted) => mounted,
        Err(why) => {
            println!("skipped, because no file system can be mounted here: {why}");
            return;
        }
    };
    let dir = mounted.0.path().join("store");
    let options = || {
        let mut options = Options::default();
        options.log.segment_bytes = 2 << 20;
        options.flush.fragment_bytes = 1 << 20;
        options
    };
    let store = Store::open(&dir, options(), World::real()).unwrap();
    let table =
        store.create_table("t", Schema::with_families([Family::new("f")]).unwrap()).unwrap();
    let ballast = mounted.0.path().join("ballast");
    std::fs::write(&ballast, vec![1; 9 << 20]).unwrap();
    let taken = fill(&store, table, 0, 5_000);
    assert!(taken > 100, "{taken} commits in 7 MiB");
    assert_eq!(rows(&store, table), (0..taken).map(row).collect::<Vec<_>>());
    std::fs::remove_file(&ballast).unwrap();
    // The flush worker retries within about a second; until then memory may be
    // exhausted, but no other failure may occur.
    let mut next = taken;
    while next < taken + 200 {
        let outcome = store.apply(&commit(table, next, 5_000), Txn::MAX, Durability::Durable);
        assert!(outcome.is_ok() || is_full(&outcome), "{outcome:?}");
        next += u64::from(outcome.is_ok());
    }
    store.close().unwrap();
    let store = Store::open(&dir, options(), World::real()).unwrap();
    assert_eq!(rows(&store, table), (0..next).map(row).collect::<Vec<_>>());
    store.close().unwrap();
}
