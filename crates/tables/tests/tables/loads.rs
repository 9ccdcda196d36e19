//! Requests to tablets that are unloaded or being loaded.

use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use stele_engine::config::MANIFEST_FILE;
use stele_engine::schema::{Family, Schema};
use stele_engine::world::sim::{Operation, SimFiles, disk_full};
use stele_engine::world::{ManualClock, SeededRandom, World};
use stele_engine::{
    Commit, CommitBuilder, Error, Options, Result, RowRange, ScanSpec, TableId, TabletState, Txn,
};
use stele_tables::{Local, Placement, Tables};

/// Returns tables on a simulated disk: one of two tablets, which meet at row `m`.
fn open() -> (SimFiles, Tables, TableId) {
    let sim = SimFiles::new(1);
    let world = World {
        clock: Arc::new(ManualClock::at(1)),
        files: Arc::new(sim.clone()),
        random: Arc::new(SeededRandom::new(1)),
        spawner: None,
    };
    let tables = Tables::open(Path::new("/store"), Options::default(), world).unwrap();
    let schema = Schema::with_families([Family::new("f")]).unwrap();
    let table = tables.create_with_splits("t", schema, vec![b"m".to_vec()]).unwrap();
    (sim, tables, table)
}

fn local(tables: &Tables, table: TableId) -> Local<'_> {
    let Placement::Here(local) = tables.place(table, b"");
    local
}

fn set(table: TableId, row: &[u8]) -> Commit {
    let mut commit = CommitBuilder::new();
    commit.table(table).row(row).set(b"f", b"", 0, b"v");
    commit.finish()
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn read(tables: &Tables, table: TableId, row: &[u8]) -> Result<usize> {
    let mut cells = 0;
    let read = local(tables, table).read_row(row, &ScanSpec::default(), |_| cells += 1);
    tables.tenure().open(read).map(|_| cells)
}

#[test]
fn scale_7_6_an_unloaded_table_serves_nothing_until_it_is_loaded() {
    let (_, tables, table) = open();
    let write =
        |row: &[u8]| tables.tenure().open(local(&tables, table).apply_blocking(&set(table, row)));
    write(b"a").unwrap();
    write(b"z").unwrap();
    assert_eq!(tables.unload(table, &RowRange::row(b"z")).unwrap(), 1);
    assert_eq!(tables.unload(table, &RowRange::row(b"z")).unwrap(), 0);
    let states: Vec<u8> =
        tables.tablets(table).unwrap().iter().map(|tablet| tablet.state.number()).collect();
    assert_eq!(states, [5, 0]);
    let refused = [write(b"z").map(drop), read(&tables, table, b"z").map(drop)];
    for refused in refused.into_iter().chain([tables.drop_rows(table, &RowRange::all())]) {
        let Err(Error::TabletNotLoaded(tablet)) = refused else { panic!("{refused:?}") };
        assert_eq!((tablet.state, tablet.retry_after()), (TabletState::Unloaded, None));
    }
    // A request does not wait for a tablet that nobody loads.
    let commit = set(table, b"z");
    let mut admitted = pin!(local(&tables, table).admit(&commit));
    assert!(matches!(poll(admitted.as_mut()), Poll::Ready(Err(Error::TabletNotLoaded(_)))));
    assert!(local(&tables, table).is_restricted());
    assert!(local(&tables, table).check_write(b"z").is_err());
    assert!(local(&tables, table).check_write(b"a").is_ok());
    write(b"a").unwrap();
    assert_eq!(tables.load(table, &RowRange::all()).unwrap(), 1);
    assert_eq!(read(&tables, table, b"z").unwrap(), 1);
    assert!(!local(&tables, table).is_restricted());
}

#[test]
fn scale_7_6_writes_and_reads_of_a_loading_tablet_wait_and_get_an_answer_in_every_outcome() {
    for fails in [false, true] {
        let (sim, tables, table) = open();
        let local = local(&tables, table);
        tables.unload(table, &RowRange::all()).unwrap();
        let held = sim.hold(Operation::Write, MANIFEST_FILE, "loader");
        if fails {
            sim.fail_next(Operation::Write, MANIFEST_FILE, disk_full());
        }
        std::thread::scope(|scope| {
            let loader = std::thread::Builder::new().name("loader".into());
            let load = || tables.load(table, &RowRange::row(b"a"));
            let load = loader.spawn_scoped(scope, load).unwrap();
            held.wait_until_waiting();
            let (first, other) = (set(table, b"a"), set(table, b"z"));
            assert!(local.try_admit(&first).unwrap().is_none(), "it has to wait");
            let mut admitted = pin!(local.admit(&first));
            assert!(poll(admitted.as_mut()).is_pending());
            let mut loaded = pin!(local.loaded(b"a"));
            assert!(poll(loaded.as_mut()).is_pending());
            // The other tablet stays unloaded, and nobody waits for it.
            let mut refused = pin!(local.admit(&other));
            assert!(matches!(poll(refused.as_mut()), Poll::Ready(Err(Error::TabletNotLoaded(_)))));
            drop(held);
            assert_eq!(load.join().unwrap().is_err(), fails);
            assert!(matches!(poll(loaded.as_mut()), Poll::Ready(Ok(()))));
            match poll(admitted.as_mut()) {
                Poll::Ready(Ok(permit)) if !fails => {
                    tables.tenure().open(local.apply(permit, Txn::MAX)).unwrap();
                }
                Poll::Ready(Err(Error::TabletNotLoaded(_))) if fails => {}
                other => panic!("{}", other.map(|admitted| admitted.is_ok()).is_ready()),
            }
        });
        assert_eq!(read(&tables, table, b"a").is_ok(), !fails);
    }
}
