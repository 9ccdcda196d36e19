//! Fragments in an object store: what is promised when requests miss, fail or come too
//! late, and which files a collection deletes.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use stele_engine::config::FileName;
use stele_engine::schema::{Family, Schema};
use stele_engine::verify;
use stele_engine::world::sim::{ObjectFaults, Operation, SimFiles, SimObjects, disk_error};
use stele_engine::world::{Files, FragmentStore};
use stele_engine::*;

use crate::simulated::{open, world};

const ROWS: usize = 60;

fn options(objects: &SimObjects) -> Options {
    let mut options = Options::default();
    options.objects.store = Some(Arc::new(objects.clone()));
    // So that every block is read from the store.
    options.memory.cache_bytes = 0;
    options
}

struct Setup {
    sim: SimFiles,
    objects: SimObjects,
    store: Store,
    table: TableId,
}

fn setup() -> Setup {
    let (sim, objects) = (SimFiles::new(1), SimObjects::new(1));
    let store = open(&sim, options(&objects));
    let schema = Schema::with_families([Family::new("f")]).unwrap();
    let table = store.create_table("t", schema).unwrap();
    Setup { sim, objects, store, table }
}

impl Setup {
    /// Writes all rows and flushes them, as one file.
    fn write_file(&self, value: &str) {
        self.write(value);
        self.store.flush(self.table).unwrap();
    }

    fn write(&self, value: &str) {
        let mut commit = CommitBuilder::new();
        commit.table(self.table);
        for row in 0..ROWS {
            commit.row(format!("row{row:04}").as_bytes()).set(b"f", b"q", 1, value.as_bytes());
        }
        self.store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
    }

    fn names(&self) -> BTreeSet<FileName> {
        self.objects.files().into_keys().collect()
    }

    fn named(&self) -> BTreeSet<FileName> {
        self.store.configs().unwrap().files().map(|file| file.name).collect()
    }

    /// Reads the table in batches that fail at every miss. Returns the number of misses.
    fn check(&self, value: &str) -> usize {
        check(&self.store, self.table, value)
    }
}

fn check(store: &Store, table: TableId, value: &str) -> usize {
    let (mut misses, mut rows) = (0, Vec::new());
    let mut scan = store.scan(table, ScanSpec::default()).unwrap();
    loop {
        let end = scan.next_batch(BatchLimits::default(), &mut |cell: &CellView<'_>| {
            assert_eq!(cell.value, value.as_bytes());
            rows.push(cell.row.to_vec());
        });
        let end = end.unwrap();
        misses += usize::from(end.missed);
        if end.done {
            break;
        }
        assert_eq!(scan.miss().is_some(), end.missed);
        scan.miss().into_iter().for_each(|miss| miss.wait().unwrap());
    }
    let expected: Vec<_> = (0..ROWS).map(|row| format!("row{row:04}").into_bytes()).collect();
    assert_eq!(rows, expected);
    misses
}

#[test]
fn scale_4_3_a_point_read_that_misses_succeeds_with_what_it_missed() {
    let setup = setup();
    setup.write_file("v");
    let mut held = Vec::new();
    let mut values = Vec::new();
    loop {
        values.clear();
        let keep = |cell: &CellView<'_>| values.push(cell.value.to_vec());
        match setup.store.read_row(setup.table, b"row0001", &ScanSpec::default(), keep) {
            Ok(_) => break,
            Err(Error::NotLocal(miss)) => {
                miss.wait().unwrap();
                held.push(miss);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(values, [b"v".to_vec()]);
    // Metadata and one block, each once, although nothing is cached.
    assert!((1..=4).contains(&held.len()), "{held:?}");
}

#[test]
fn scale_4_3_a_miss_ends_a_batch_and_the_scan_goes_on_after_it() {
    let setup = setup();
    setup.write_file("old");
    setup.write_file("v");
    assert!(setup.check("v") >= 2);
    setup.objects.set_hit_rate(1.0);
    assert_eq!(setup.check("v"), 0);
}

#[test]
fn scale_4_1_a_checkpoint_is_restored_from_an_object_store_and_into_one() {
    let setup = setup();
    setup.write_file("v");
    let checkpoint = setup.store.checkpoint(&[setup.table]).unwrap();
    setup.write_file("later");
    let source: Arc<dyn FragmentStore> = Arc::new(setup.objects.clone());
    let target = SimObjects::new(2);
    for (number, options) in [(1, Options::default()), (2, options(&target))] {
        let sim = SimFiles::new(number);
        let files = CheckpointFiles::Store(&source);
        let dir = Path::new("/store");
        let restored = Store::open_from(dir, &checkpoint, files, options, world(&sim)).unwrap();
        check(&restored, setup.table, "v");
        let local = sim.list(&dir.join(FRAGMENTS_DIR)).unwrap().len();
        assert_eq!((local, target.files().len()), if number == 1 { (1, 0) } else { (0, 1) });
    }
}

#[test]
fn files_in_an_object_store_are_verified_while_it_is_closed() {
    let Setup { sim, objects, store, table } = setup();
    let setup = Setup { sim: sim.clone(), objects: objects.clone(), store, table };
    setup.write_file("v");
    let name = *setup.names().first().unwrap();
    let unused = FileName { incarnation: 0, number: 7 };
    objects.put(unused, b"left by a crash");
    setup.store.close().unwrap();
    let files: Arc<dyn Files> = Arc::new(sim);
    let remote: Arc<dyn FragmentStore> = Arc::new(objects.clone());
    let verify = || verify::check_with(&files, Path::new("/store"), Some(&remote)).unwrap();
    let report = verify();
    assert!(report.is_sound(), "{:?}", report.problems);
    assert_eq!((report.fragments.len(), report.fragments[0].rows), (1, ROWS as u64));
    let garbage: Vec<_> = report.garbage.iter().map(|file| (file.bytes, file.why)).collect();
    assert_eq!(garbage, [(15, "not in the manifest")]);
    objects.damage(name, true);
    assert!(!verify().is_sound(), "a damaged object is found");
    objects.lose(name);
    let report = verify();
    assert!(report.problems.iter().any(|problem| problem.what.contains("missing")), "{report:?}");
}

#[test]
fn a_flush_that_fails_keeps_the_memory_and_succeeds_later() {
    let setup = setup();
    setup.write("v");
    for faults in [
        ObjectFaults { put: 1.0, ..ObjectFaults::default() },
        ObjectFaults { applied_put: 1.0, ..ObjectFaults::default() },
        ObjectFaults { late_put: 1.0, ..ObjectFaults::default() },
    ] {
        setup.objects.set_faults(faults);
        assert!(setup.store.flush(setup.table).is_err());
        assert!(setup.named().is_empty());
        setup.check("v");
    }
    setup.objects.set_faults(ObjectFaults::default());
    setup.objects.set_capacity(Some(10));
    assert!(matches!(setup.store.flush(setup.table), Err(Error::DiskFull { .. })));
    setup.objects.set_capacity(None);
    setup.store.flush(setup.table).unwrap();
    assert_eq!(setup.named().len(), 1);
    setup.check("v");
    let Setup { sim, objects, store, table } = setup;
    drop(store);
    let store = open(&sim.crash(), options(&objects));
    check(&store, table, "v");
}

#[test]
fn a_damaged_copy_is_fetched_again_and_a_damaged_file_is_data_loss() {
    let setup = setup();
    setup.write_file("v");
    let [name] = setup.names().into_iter().collect::<Vec<_>>()[..] else { panic!("one file") };
    setup.objects.damage(name, false);
    setup.check("v");
    assert!(setup.objects.requests().forgotten > 0);
    let Setup { sim, objects, store, table } = setup;
    drop(store);
    objects.reconnect();
    objects.damage(name, true);
    let store = open(&sim.crash(), options(&objects));
    let read = store.read(table, ScanSpec::default(), |_| ());
    assert!(matches!(read, Err(Error::DataLoss { .. })), "{read:?}");
}

#[test]
fn a_table_in_an_object_store_is_verified_while_it_is_in_use() {
    let setup = setup();
    setup.write_file("v");
    let verify = || {
        let mut check = setup.store.check_table(setup.table).unwrap();
        check.check_next().unwrap().expect("one file")
    };
    assert!(verify().report.sound, "{:?}", verify().problems);
    let [name] = setup.names().into_iter().collect::<Vec<_>>()[..] else { panic!("one file") };
    setup.objects.damage(name, true);
    assert!(!verify().report.sound);
}

#[test]
fn a_missing_file_is_data_loss_and_a_store_that_is_down_is_not() {
    let setup = setup();
    setup.write_file("v");
    let [name] = setup.names().into_iter().collect::<Vec<_>>()[..] else { panic!("one file") };
    setup.objects.set_faults(ObjectFaults { get: 1.0, ..ObjectFaults::default() });
    let read = || setup.store.read(setup.table, ScanSpec::default(), |_| ());
    assert!(matches!(read(), Err(Error::Io { .. })), "{:?}", read());
    setup.objects.set_faults(ObjectFaults::default());
    setup.check("v");
    setup.objects.lose(name);
    assert!(matches!(read(), Err(Error::DataLoss { .. })), "{:?}", read());
}

#[test]
fn scale_4_6_an_unused_file_is_deleted_by_the_second_round_that_finds_it() {
    let setup = setup();
    setup.write_file("a");
    setup.write_file("b");
    setup.store.compact(setup.table).unwrap();
    assert_eq!((setup.names().len(), setup.named().len()), (3, 1), "nothing is deleted at once");
    let dry = || setup.store.collect(true).unwrap().unwrap();
    for _ in 0..3 {
        let found = dry();
        assert_eq!((found.listed, found.used, found.deleted), (3, 1, 0));
        assert!(found.unused.iter().all(|file| !file.marked), "a dry run marks nothing");
    }
    let first = setup.store.collect(false).unwrap().unwrap();
    assert_eq!((first.unused.len(), first.deleted), (2, 0));
    assert!(dry().unused.iter().all(|file| file.marked));
    let second = setup.store.collect(false).unwrap().unwrap();
    assert_eq!((second.unused.len(), second.deleted, second.failed), (2, 2, 0));
    assert_eq!(setup.names(), setup.named());
    setup.check("b");
}

#[test]
fn scale_4_6_a_file_that_may_yet_be_named_is_never_deleted() {
    let setup = setup();
    setup.write_file("v");
    let incarnation = setup.store.configs().unwrap().incarnation;
    // As if another thread were writing it, and a file of a later incarnation.
    let pending = FileName { incarnation, number: 1000 };
    let later = FileName { incarnation: incarnation + 1, number: 1 };
    let earlier = FileName { incarnation: incarnation - 1, number: 1 };
    for name in [pending, later, earlier] {
        setup.objects.put(name, b"x");
    }
    for _ in 0..3 {
        assert_eq!(setup.store.collect(false).unwrap().unwrap().pending, 2);
    }
    let names = setup.names();
    assert!(names.contains(&pending) && names.contains(&later) && !names.contains(&earlier));
}

#[test]
fn scale_4_6_a_listing_or_a_config_that_cannot_be_read_deletes_nothing() {
    let setup = setup();
    setup.write_file("a");
    setup.write_file("b");
    setup.store.compact(setup.table).unwrap();
    setup.store.collect(false).unwrap();
    let before = setup.names();
    setup.objects.set_faults(ObjectFaults { list: 1.0, ..ObjectFaults::default() });
    let error = setup.store.collect(false).unwrap_err();
    assert!(error.to_string().contains("sim://objects"), "{error}");
    assert_eq!(setup.names(), before);
    setup.objects.set_faults(ObjectFaults::default());
    // The manifest fails: what it names is no longer known.
    for operation in [Operation::Write, Operation::Sync, Operation::Create] {
        setup.sim.fail_next(operation, "manifest", disk_error());
    }
    let schema = || Schema::with_families([Family::new("f")]).unwrap();
    assert!(setup.store.create_table("u", schema()).is_err());
    for _ in 0..2 {
        assert!(setup.store.collect(false).is_err(), "the config has failed");
    }
    assert_eq!(setup.names(), before);
}

#[test]
fn scale_4_6_a_deletion_that_fails_is_repeated() {
    let setup = setup();
    setup.write_file("a");
    setup.write_file("b");
    setup.store.compact(setup.table).unwrap();
    setup.store.collect(false).unwrap();
    setup.objects.set_faults(ObjectFaults { delete: 1.0, ..ObjectFaults::default() });
    assert_eq!(setup.store.collect(false).unwrap().unwrap().failed, 2);
    setup.objects.set_faults(ObjectFaults::default());
    assert_eq!(setup.store.collect(false).unwrap().unwrap().deleted, 2);
    assert_eq!(setup.names(), setup.named());
}

#[test]
fn scale_4_6_files_of_checkpoints_and_readers_are_used() {
    let setup = setup();
    setup.write_file("a");
    let checkpoint = setup.store.checkpoint(&[setup.table]).unwrap();
    setup.write_file("b");
    // A row that is being read keeps its snapshot, and its batch the files.
    setup.store.compact(setup.table).unwrap();
    for _ in 0..3 {
        setup.store.collect(false).unwrap();
    }
    let kept: BTreeSet<_> = checkpoint.files().map(|file| file.name).collect();
    assert!(setup.names().is_superset(&kept));
    setup.store.release_checkpoint(checkpoint.id).unwrap();
    assert!(setup.names().is_superset(&kept), "a release deletes nothing by itself");
    for _ in 0..2 {
        setup.store.collect(false).unwrap();
    }
    assert_eq!(setup.names(), setup.named());
    setup.check("b");
}

/// Crashes before and after every request to the store during `work`. Nothing is lost,
/// and collections delete what is left over.
fn crash_at_every_request(prepare: impl Fn(&Setup), work: impl Fn(&Setup) -> Result<()>) {
    for applied in [false, true] {
        for requests in 0.. {
            let setup = setup();
            setup.write_file("old");
            setup.write("v");
            prepare(&setup);
            setup.objects.cut_after(requests, applied);
            let outcome = work(&setup);
            let was_cut = setup.objects.is_cut();
            let Setup { sim, objects, store, table } = setup;
            drop(store);
            objects.reconnect();
            let sim = sim.crash();
            let store = open(&sim, options(&objects));
            let again = Setup { sim, objects, store, table };
            again.check("v");
            for _ in 0..3 {
                again.store.collect(false).unwrap();
            }
            assert_eq!(again.names(), again.named());
            again.check("v");
            if !was_cut {
                outcome.unwrap();
                assert!(requests > 0, "the work makes requests");
                break;
            }
        }
    }
}

#[test]
fn a_crash_at_any_request_of_a_flush_loses_nothing() {
    crash_at_every_request(|_| (), |setup| setup.store.flush(setup.table));
}

#[test]
fn a_crash_at_any_request_of_a_compaction_loses_nothing() {
    let prepare = |setup: &Setup| setup.store.flush(setup.table).unwrap();
    crash_at_every_request(prepare, |setup| setup.store.compact(setup.table));
}

#[test]
fn a_crash_at_any_request_of_a_collection_loses_nothing() {
    let prepare = |setup: &Setup| {
        setup.store.flush(setup.table).unwrap();
        setup.store.compact(setup.table).unwrap();
    };
    let collect = |setup: &Setup| {
        setup.store.collect(false)?;
        // A deletion that fails is left to a later round.
        setup.store.collect(false).map(drop)
    };
    crash_at_every_request(prepare, collect);
}

#[test]
fn a_directory_with_fragments_is_not_opened_with_an_object_store() {
    let sim = SimFiles::new(1);
    let store = open(&sim, Options::default());
    let schema = Schema::with_families([Family::new("f")]).unwrap();
    let table = store.create_table("t", schema).unwrap();
    let mut commit = CommitBuilder::new();
    commit.table(table).row(b"r").set(b"f", b"q", 1, b"v");
    store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
    store.flush(table).unwrap();
    store.close().unwrap();
    let objects = SimObjects::new(1);
    let opened = Store::open(Path::new("/store"), options(&objects), world(&sim));
    let error = opened.err().expect("its fragments are local");
    assert!(matches!(error, Error::LocalFragments { .. }), "{error}");
    assert!(open(&sim, Options::default()).read(table, ScanSpec::default(), |_| ()).is_ok());
}

#[test]
fn scale_4_5_a_sequential_scan_reads_ahead_in_growing_steps() {
    let setup = setup();
    let mut commit = CommitBuilder::new();
    commit.table(setup.table);
    let mut value = vec![0; 64 << 10];
    for row in 0..400_u32 {
        // Not compressible.
        let mut state = u64::from(row) + 1;
        value.iter_mut().for_each(|byte| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = (state >> 33) as u8;
        });
        commit.row(&row.to_be_bytes()).set(b"f", b"q", 1, &value);
    }
    setup.store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
    setup.store.flush(setup.table).unwrap();
    let before = setup.objects.requests();
    let mut rows = 0;
    setup.store.read(setup.table, ScanSpec::default(), |_| rows += 1).unwrap();
    assert_eq!(rows, 400);
    let after = setup.objects.requests();
    let fetches = after.prefetches - before.prefetches;
    let bytes = after.prefetched_bytes - before.prefetched_bytes;
    let file = setup.objects.files().into_values().next().unwrap().len() as u64;
    assert!(bytes > file * 9 / 10 && bytes <= file, "{bytes} of {file} bytes");
    // 0.25 + 0.5 + 1 + 2 + 4 + 4 ... MiB of 25 MiB.
    assert!((8..=12).contains(&fetches), "{fetches} fetches");
    let before = setup.objects.requests().prefetches;
    setup.store.read(setup.table, ScanSpec::row(&7_u32.to_be_bytes()), |_| ()).unwrap();
    assert_eq!(setup.objects.requests().prefetches, before, "a single row is not read ahead");
}
