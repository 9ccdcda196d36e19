//! Deletes collapse: earlier deletes of a row, column or range cost neither reads nor
//! rewrites.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use stele_engine::schema::{Family, Group, Schema};
use stele_engine::verify::FragmentDump;
use stele_engine::world::Files;
use stele_engine::world::sim::SimFiles;
use stele_engine::*;

use crate::simulated::open;

struct Fixture {
    files: SimFiles,
    store: Store,
    table: TableId,
}

impl Fixture {
    fn new() -> Fixture {
        let files = SimFiles::new(1);
        let store = open(&files, Options::default());
        let schema = Schema::with_families([Family::new("f"), Family::new("g")]).unwrap();
        let table = store.create_table("t", schema).unwrap();
        Fixture { files, store, table }
    }

    fn commit(&self, build: impl FnOnce(&mut CommitBuilder)) -> Txn {
        let mut builder = CommitBuilder::new();
        builder.table(self.table);
        build(&mut builder);
        self.store.apply(&builder.finish(), Txn::MAX, Durability::Accepted).unwrap()
    }

    fn flush(&self) {
        self.store.sync(Txn::MAX).unwrap();
        self.store.flush(self.table).unwrap();
    }

    /// Returns the number of cells and tombstones in the newest file.
    fn newest_entries(&self) -> (u64, u64) {
        let configs = self.store.configs().unwrap();
        let file = configs.tables[&self.table].tablets.first().chains[0].files.last().unwrap();
        let path = Path::new("/store").join(FRAGMENTS_DIR).join(file.name.to_string());
        let files: Arc<dyn Files> = Arc::new(self.files.clone());
        let dump = FragmentDump::open(&files, &path).unwrap();
        (dump.meta().cells, dump.meta().tombstones)
    }

    /// Returns the rows in scan order, and how many batches of `WORK` it took.
    fn scan(&self, spec: ScanSpec) -> (Vec<Vec<u8>>, usize) {
        let mut scan = self.store.scan(self.table, spec).unwrap();
        let limits = BatchLimits { work: WORK, ..BatchLimits::default() };
        let (mut rows, mut batches) = (Vec::new(), 0);
        loop {
            batches += 1;
            assert!(batches < 10_000, "the scan does not end");
            let end = scan.next_batch(limits, &mut |cell| rows.push(cell.row.to_vec())).unwrap();
            if end.done {
                return (rows, batches);
            }
        }
    }
}

const WORK: usize = 100;

fn row(number: usize) -> Vec<u8> {
    format!("row{number:06}").into_bytes()
}

type Delete = fn(&mut CommitBuilder, i64);

/// Deletes that cover everything that the previous ones covered.
const DELETES: [(&str, Delete); 4] = [
    ("row", |c, _| _ = c.delete_row()),
    ("family", |c, _| _ = c.delete_family(b"f")),
    ("column", |c, _| _ = c.delete_column(b"f", b"q")),
    ("times", |c, at| _ = c.delete_cells(b"f", b"q", TimeRange { min: 0, max: at })),
];

#[test]
fn a_row_overwritten_over_and_over_keeps_one_tombstone_per_snapshot() {
    for (name, delete) in DELETES {
        for snapshots in [0, 2] {
            let t = Fixture::new();
            t.commit(|c| _ = c.row(b"r").set(b"f", b"q", 1, b"oldest").set(b"g", b"q", 1, b""));
            t.flush();
            let mut held = Vec::new();
            for part in 0..=snapshots {
                for at in 0..1000 {
                    t.commit(|c| {
                        c.row(b"r");
                        delete(c, 1000 * part + at);
                        c.set(b"f", b"q", 1000 * part + at, b"new");
                    });
                }
                if part < snapshots {
                    t.store.sync(Txn::MAX).unwrap();
                    held.push(t.store.snapshot());
                }
            }
            t.flush();
            let stripes = snapshots as u64 + 1;
            assert_eq!(t.newest_entries(), (stripes, stripes), "{name}, {snapshots} snapshots");
            for (at, snapshot) in held.into_iter().enumerate() {
                let mut found = Vec::new();
                let spec = ScanSpec { view: View::At(snapshot), ..ScanSpec::row(b"r") };
                t.store.read(t.table, spec, |c| found.push((c.family[0], c.timestamp))).unwrap();
                found.retain(|cell| cell.0 == b'f');
                assert_eq!(found, [(b'f', 1000 * at as i64 + 999)], "{name}");
            }
        }
    }
}

#[test]
fn a_read_skips_the_tombstones_that_a_newer_one_covers() {
    for (name, delete) in &DELETES[..3] {
        for count in [1000, 2000] {
            let t = Fixture::new();
            t.commit(|c| _ = c.row(b"r").set(b"f", b"q", 1, b"oldest"));
            t.store.sync(Txn::MAX).unwrap();
            let old = t.store.snapshot();
            for at in 0..count {
                t.commit(|c| {
                    c.row(b"r");
                    delete(c, at);
                    c.set(b"f", b"q", 7, b"new");
                });
            }
            t.store.sync(Txn::MAX).unwrap();
            let (rows, batches) = t.scan(ScanSpec::default());
            assert_eq!((rows.len(), batches), (1, 1), "{name}, {count} deletes");
            // Tombstones newer than the snapshot are skipped as well; cells are not.
            let spec = ScanSpec { view: View::At(old), ..ScanSpec::default() };
            let (rows, batches) = t.scan(spec);
            assert_eq!(rows.len(), 1);
            assert!(batches <= count as usize / WORK + 2, "{name}: {batches} batches");
        }
    }
}

#[test]
fn a_scan_passes_a_deleted_range_of_older_runs_in_a_few_steps() {
    const ROWS: usize = 5000;
    for flushed in [false, true] {
        let t = Fixture::new();
        t.commit(|c| {
            for number in 0..ROWS {
                c.row(&row(number)).set(b"f", b"q", 1, b"value");
            }
        });
        t.flush();
        let (all, batches) = t.scan(ScanSpec::default());
        assert!(all.len() == ROWS && batches >= ROWS / WORK);
        t.commit(|c| _ = c.delete_range(&RowRange::new(row(10), row(ROWS - 10))));
        t.commit(|c| _ = c.row(&row(2000)).set(b"f", b"q", 1, b"again"));
        t.store.sync(Txn::MAX).unwrap();
        if flushed {
            t.flush();
        }
        let mut expected: Vec<_> = (0..10).chain([2000]).chain(ROWS - 10..ROWS).map(row).collect();
        for reverse in [false, true] {
            let (found, batches) = t.scan(ScanSpec { reverse, ..ScanSpec::default() });
            assert_eq!(found, expected, "reverse: {reverse}");
            assert!(batches <= 8, "{batches} batches, reverse: {reverse}, flushed: {flushed}");
            expected.reverse();
        }
    }
}

#[test]
fn a_scan_passes_an_open_ended_deleted_range() {
    let t = Fixture::new();
    t.commit(|c| {
        for number in 0..3000 {
            c.row(&row(number)).set(b"f", b"q", 1, b"value");
        }
    });
    t.flush();
    t.commit(|c| _ = c.delete_range(&RowRange::from(row(5))));
    t.store.sync(Txn::MAX).unwrap();
    for reverse in [false, true] {
        let (found, batches) = t.scan(ScanSpec { reverse, ..ScanSpec::default() });
        assert!(found.len() == 5 && batches <= 3, "{} rows, {batches} batches", found.len());
    }
}

#[test]
fn large_cells_are_read_backwards_one_row_at_a_time() {
    let t = Fixture::new();
    for number in 0..12 {
        let bytes = if number % 3 == 0 { 3 << 20 } else { 100 };
        t.commit(|c| _ = c.row(&row(number)).set(b"f", b"q", 1, &vec![number as u8; bytes]));
        if number == 7 {
            t.flush();
        }
    }
    t.store.sync(Txn::MAX).unwrap();
    let spec = ScanSpec { reverse: true, ..ScanSpec::default() };
    let mut found = Vec::new();
    let mut scan = t.store.scan(t.table, spec).unwrap();
    let mut sink = |cell: &CellView<'_>| {
        assert!(cell.value.iter().all(|&byte| byte == cell.value[0]));
        found.push((cell.row.to_vec(), cell.value.len()));
    };
    while !scan.next_batch(BatchLimits::default(), &mut sink).unwrap().done {}
    let expected = (0..12).rev().map(|at| (row(at), if at % 3 == 0 { 3 << 20 } else { 100 }));
    assert_eq!(found, expected.collect::<Vec<_>>());
}

struct Append;

impl Fold for Append {
    fn check(&self, _: &[u8]) -> std::result::Result<(), String> {
        Ok(())
    }

    fn fold(&self, older: &[u8], newer: &[u8]) -> Vec<u8> {
        [older, newer].concat()
    }
}

#[test]
fn operands_of_an_unknown_fold_survive_rewrites_and_fail_reads() {
    const APPEND: FoldId = FoldId(9);
    let knowing = || {
        let mut options = Options::default();
        options.folds.register(APPEND, Arc::new(Append));
        options
    };
    let files = SimFiles::new(1);
    let store = open(&files, knowing());
    let schema = Schema::with_families([Family::new("f")]).unwrap();
    let table = store.create_table("t", schema).unwrap();
    for (at, operand) in [b"b", b"c", b"d"].iter().enumerate() {
        let mut commit = CommitBuilder::new();
        commit.table(table).row(b"r");
        if at == 0 {
            commit.set(b"f", b"based", 1, b"a");
        } else {
            commit.merge(APPEND, b"f", b"based", 1, *operand);
        }
        commit.merge(APPEND, b"f", b"free", 1, *operand);
        store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
        store.flush(table).unwrap();
    }
    store.close().unwrap();

    let store = open(&files, Options::default());
    let read = |store: &Store| {
        let mut found = Vec::new();
        let result = store.read(table, ScanSpec::default(), |c| found.push(c.value.to_vec()));
        result.map(|_| found)
    };
    assert!(matches!(read(&store), Err(Error::UnknownFold(9))));
    store.compact(table).unwrap();
    assert!(matches!(read(&store), Err(Error::UnknownFold(9))));
    store.close().unwrap();

    let store = open(&files, knowing());
    assert_eq!(read(&store).unwrap(), [b"acd", b"bcd"]);
    store.compact(table).unwrap();
    assert_eq!(read(&store).unwrap(), [b"acd", b"bcd"]);
}

#[test]
fn a_value_keeps_a_commit_in_memory_only_if_it_is_most_of_it() {
    let store = open(&SimFiles::new(1), Options::default());
    let group = |name: &str| Group::new(name, vec![Family::new(name)]);
    let schema = Schema::new(vec![group("a"), group("b")]).unwrap();
    let table = store.create_table("t", schema).unwrap();
    let apply = |small: usize, large: usize| {
        let mut builder = CommitBuilder::new();
        builder.table(table).row(b"r");
        for number in 0..small {
            builder.set(b"a", &row(number), 1, &[1; 3 << 10]);
        }
        builder.set(b"b", b"q", 1, &vec![2; large]);
        let bytes: Bytes = builder.finish().bytes().clone();
        let before = store.memory_bytes(table).unwrap();
        let commit = Commit::from_bytes(bytes.clone());
        store.apply(&commit, Txn::MAX, Durability::Durable).unwrap();
        drop(commit);
        let charged = store.memory_bytes(table).unwrap() - before;
        (bytes.is_unique(), bytes.len(), charged)
    };
    let (released, _, _) = apply(300, 4 << 10);
    assert!(released, "a small part of the commit keeps all of it in memory");
    let (released, len, charged) = apply(10, 200 << 10);
    assert!(!released && charged >= len, "{charged} bytes charged for {len}");
}
