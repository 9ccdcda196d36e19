//! Chains under every schedule: flush and compaction replace fragments during scans and
//! point reads. A reader sees each cell once, as of its txn, and its files stay until
//! it is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuttle::thread::{self, JoinHandle};
use stele_engine::config::RowFaults;
use stele_engine::*;

use super::explore;
use super::machine::{Machine, small};
use super::unsure::UNSURE;

const ROWS: [&[u8]; 3] = [b"a", b"b", b"c"];
/// Commits before the threads start, each in its own fragment.
const BEFORE: u32 = 2;
const COMMITS: u32 = BEFORE + 3;

type Cells = Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>;

/// Returns commit number `number`, which overwrites a counter in every row, adds a
/// column and deletes the one before the last, so that an extra, missing or outdated
/// cell is detected.
fn commit(table: TableId, number: u32) -> Commit {
    let mut builder = CommitBuilder::new();
    builder.table(table);
    for row in ROWS {
        builder.row(row).set(b"f", b"counter", 1, &number.to_be_bytes());
        builder.set(b"f", &column(number), 1, &number.to_be_bytes());
        if number > 2 {
            builder.delete_column(b"f", &column(number - 2));
        }
    }
    builder.finish()
}

fn column(number: u32) -> Vec<u8> {
    format!("n{number}").into_bytes()
}

/// Returns the cells of a row after `number` commits.
fn row_after(row: &[u8], number: u32) -> Cells {
    let cell = |qualifier: Vec<u8>, of: u32| (row.to_vec(), qualifier, of.to_be_bytes().to_vec());
    let mut cells = vec![cell(b"counter".to_vec(), number)];
    cells.extend((number - 1..=number).map(|of| cell(column(of), of)));
    cells
}

fn table_after(number: u32) -> Cells {
    ROWS.iter().flat_map(|row| row_after(row, number)).collect()
}

/// Returns the number of the commit with this txn: commits are numbered like their
/// txns.
fn number_of(txn: Txn) -> u32 {
    txn.counter()
}

fn collect(cells: &mut Cells) -> impl FnMut(&CellView<'_>) + '_ {
    |cell| cells.push((cell.row.to_vec(), cell.qualifier.to_vec(), cell.value.to_vec()))
}

/// Where the tablets meet: there is one, or there are five.
const SPLITS: [&[&[u8]]; 2] = [&[], &[b"a\0", b"b", b"b\0", b"c"]];

/// Returns a machine with chains of two fragments and nothing in memory.
fn machine(splits: &[&[u8]]) -> Arc<Machine> {
    machine_with(splits, RowFaults::default())
}

/// Like `machine`, with changes of tablets that get lost.
fn machine_with(splits: &[&[u8]], rates: RowFaults) -> Arc<Machine> {
    let machine = Machine::unsure(small(), None, splits, rates);
    for number in 1..=BEFORE {
        let commit = commit(machine.table, number);
        let txn = machine.store.apply(&commit, Txn::MAX, Durability::Durable).unwrap();
        assert_eq!(number_of(txn), number);
        machine.store.flush(machine.table).unwrap();
    }
    Arc::new(machine)
}

fn spawn(machine: &Arc<Machine>, body: impl Fn(&Machine) + Send + 'static) -> JoinHandle<()> {
    let machine = machine.clone();
    thread::spawn(move || body(&machine))
}

/// Commits at every level: accepted commits that are not durable are ahead of what most
/// readers may see.
fn write(machine: &Machine) {
    let waits = [Durability::Accepted, Durability::Written, Durability::Durable];
    for (number, wait) in (BEFORE + 1..=COMMITS).zip(waits) {
        machine.store.apply(&commit(machine.table, number), Txn::MAX, wait).unwrap();
    }
}

fn flush(machine: &Machine) {
    for _ in 0..2 {
        machine.store.flush(machine.table).unwrap();
    }
}

/// Splits a tablet and joins it again, twice.
fn split_and_join(machine: &Machine) {
    for _ in 0..2 {
        assert!(machine.store.split(machine.table, b"b").unwrap());
        machine.store.join(machine.table, b"b").unwrap();
    }
}

/// Joins two tablets and splits them again, twice.
fn join_and_split(machine: &Machine) {
    for _ in 0..2 {
        machine.store.join(machine.table, b"b").unwrap();
        assert!(machine.store.split(machine.table, b"b").unwrap());
    }
}

fn compact(machine: &Machine) {
    for _ in 0..2 {
        machine.store.compact(machine.table).unwrap();
    }
}

/// Scans a few cells at a time, all at one snapshot.
fn scan_snapshot(machine: &Machine) {
    let snapshot = machine.store.snapshot();
    let view = View::At(snapshot.clone());
    let spec = ScanSpec { view, ..ScanSpec::default() };
    let mut scan = machine.store.scan(machine.table, spec).unwrap();
    let mut cells = Cells::new();
    let limits = BatchLimits { cells: 2, ..BatchLimits::default() };
    while !scan.next_batch(limits, &mut collect(&mut cells)).unwrap().done {}
    assert_eq!(cells, table_after(number_of(snapshot.txn())));
}

/// Scans the latest state, from the last row to the first.
fn scan_reverse(machine: &Machine) {
    let spec = ScanSpec { view: View::Latest, reverse: true, ..ScanSpec::default() };
    let mut cells = Cells::new();
    let txn = machine.store.read(machine.table, spec, collect(&mut cells)).unwrap();
    let rows = ROWS.iter().rev();
    let expected: Cells = rows.flat_map(|row| row_after(row, number_of(txn))).collect();
    assert_eq!(cells, expected);
}

/// Scans one cell at a time, each row as of its own txn, which never decreases.
fn scan_rows(machine: &Machine) {
    let mut scan = machine.store.scan(machine.table, ScanSpec::default()).unwrap();
    let limits = BatchLimits { cells: 1, ..BatchLimits::default() };
    let (mut cells, mut last) = (Cells::new(), Txn::ZERO);
    for row in ROWS {
        let mut numbers = Vec::new();
        for _ in 0..row_after(row, BEFORE).len() {
            let end = scan.next_batch(limits, &mut collect(&mut cells)).unwrap();
            assert!(end.txn >= last, "the scan ran back");
            last = end.txn;
            numbers.push(number_of(end.txn));
        }
        assert!(numbers.iter().all(|number| *number == numbers[0]), "a row at two txns");
        assert_eq!(cells.split_off(0), row_after(row, numbers[0]));
    }
}

/// Reads one row, in the durable and in the latest view.
fn read_row(machine: &Machine) {
    for view in [View::Durable, View::Latest, View::Durable] {
        let spec = ScanSpec { view, ..ScanSpec::default() };
        let mut cells = Cells::new();
        let row = ROWS[1];
        let read = machine.store.read_row(machine.table, row, &spec, collect(&mut cells));
        assert_eq!(cells, row_after(row, number_of(read.unwrap())));
    }
}

/// Joins the threads, then checks the final state.
fn finish(machine: &Machine, threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut cells = Cells::new();
    let spec = ScanSpec { view: View::Latest, ..ScanSpec::default() };
    machine.store.read(machine.table, spec, collect(&mut cells)).unwrap();
    assert_eq!(cells, table_after(COMMITS));
    assert_eq!(machine.fragments(), machine.named_fragments(), "replaced files are gone");
}

#[test]
fn scans_see_each_cell_once_and_as_of_their_txn_while_chains_are_swapped() {
    for splits in SPLITS {
        explore(600, move || {
            let machine = machine(splits);
            let bodies = [write, flush, compact, scan_snapshot, scan_reverse];
            let threads = bodies.map(|body| spawn(&machine, body));
            finish(&machine, threads.into());
        });
    }
}

#[test]
fn rows_are_read_whole_and_as_of_their_txn_while_chains_are_swapped() {
    for splits in SPLITS {
        explore(600, move || {
            let machine = machine(splits);
            let bodies = [write, flush, compact, scan_rows, read_row];
            let threads = bodies.map(|body| spawn(&machine, body));
            finish(&machine, threads.into());
        });
    }
}

#[test]
fn scale_6_2_tablets_split_and_join_while_others_write_flush_compact_and_scan() {
    explore(1_000, || {
        let machine = machine(&[]);
        let bodies = [write, flush, compact, split_and_join, scan_rows, scan_reverse];
        let threads = bodies.map(|body| spawn(&machine, body));
        finish(&machine, threads.into());
        let tablets = machine.store.tablets(machine.table).unwrap();
        assert_eq!(tablets.len(), 1);
        assert_eq!(
            tablets[0].id,
            TabletId { incarnation: 1, number: 1 },
            "the upper tablet keeps its id"
        );
    });
}

/// Unloads the tablet of the second row and loads it again, twice.
fn unload_and_load(machine: &Machine) {
    let rows = [RowRange::row(ROWS[1])];
    for _ in 0..2 {
        assert_eq!(machine.store.unload(machine.table, &rows).unwrap(), 1);
        assert_eq!(machine.store.load(machine.table, &rows).unwrap(), 1);
    }
}

/// Returns whether an outcome is that of a row that is not loaded.
fn is_unloaded<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::TabletNotLoaded(_)))
}

/// Like `write`, and repeats each commit until it is accepted.
fn write_despite_unloads(machine: &Machine) {
    for number in BEFORE + 1..=COMMITS {
        let commit = commit(machine.table, number);
        loop {
            let applied = machine.store.apply(&commit, Txn::MAX, Durability::Accepted);
            if !is_unloaded(&applied) {
                // A commit that was refused took no txn.
                assert_eq!(number_of(applied.unwrap()), number);
                break;
            }
            thread::yield_now();
        }
    }
}

/// Scans the latest state: all of it, or only the rows before those that are not loaded.
fn scan_despite_unloads(machine: &Machine) {
    let spec = ScanSpec { view: View::At(machine.store.snapshot()), ..ScanSpec::default() };
    let View::At(snapshot) = &spec.view else { unreachable!() };
    let expected = table_after(number_of(snapshot.txn()));
    let mut cells = Cells::new();
    let read = machine.store.read(machine.table, spec, collect(&mut cells));
    let length = if is_unloaded(&read) { row_after(ROWS[0], BEFORE).len() } else { expected.len() };
    assert!(is_unloaded(&read) || read.is_ok());
    assert_eq!(cells, expected[..length]);
}

#[test]
fn scale_7_6_tablets_unload_and_load_while_others_write_flush_compact_and_scan() {
    explore(1_000, || {
        let machine = machine(&[b"b", b"c"]);
        let bodies = [write_despite_unloads, flush, compact, unload_and_load, scan_despite_unloads];
        let threads = bodies.map(|body| spawn(&machine, body));
        finish(&machine, threads.into());
        let store = &machine.store;
        assert_eq!(store.tablets(machine.table).unwrap()[1].load, 3);
        // Nothing of an unloaded tablet has to be replayed.
        let last = store.progress().1;
        store.unload(machine.table, &[RowRange::all()]).unwrap();
        let flushed = &store.configs().unwrap().tables[&machine.table].flushed;
        assert!(flushed.iter().all(|txn| *txn >= last));
    });
}

#[test]
fn scale_7_6_two_threads_that_load_and_unload_the_same_tablets_take_turns() {
    explore(600, || {
        let machine = machine(&[b"b", b"c"]);
        let moved = |machine: &Machine| {
            let rows = [RowRange::all()];
            for _ in 0..2 {
                let unloaded = machine.store.unload(machine.table, &rows).unwrap();
                let loaded = machine.store.load(machine.table, &rows).unwrap();
                assert!(
                    unloaded.is_multiple_of(3) && loaded.is_multiple_of(3),
                    "a list is changed as a whole"
                );
            }
        };
        let threads = [spawn(&machine, moved), spawn(&machine, moved), spawn(&machine, flush)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        machine.store.load(machine.table, &[RowRange::all()]).unwrap();
        let mut cells = Cells::new();
        machine.store.read(machine.table, ScanSpec::default(), collect(&mut cells)).unwrap();
        assert_eq!(cells, table_after(BEFORE));
    });
}

#[test]
fn scale_3_2_tablets_split_flush_compact_and_are_scanned_although_outcomes_are_unknown() {
    let lost = Arc::new(AtomicU64::new(0));
    for splits in SPLITS {
        let lost = lost.clone();
        explore(600, move || {
            let machine = machine_with(splits, UNSURE);
            let bounds = if splits.is_empty() { split_and_join } else { join_and_split };
            let bodies = [write, flush, compact, bounds, scan_rows, scan_reverse];
            let threads = bodies.map(|body| spawn(&machine, body));
            finish(&machine, threads.into());
            let tablets = machine.store.tablets(machine.table).unwrap();
            assert_eq!(tablets.len(), splits.len() + 1);
            lost.fetch_add(machine.rows.counts().lost, Ordering::Relaxed);
        });
    }
    assert!(lost.load(Ordering::Relaxed) > 600);
}

#[test]
fn a_dropped_table_leaves_no_files_whoever_is_at_work_on_it() {
    for splits in SPLITS {
        explore(600, move || dropped_while_at_work(&machine(splits)));
        explore(200, move || dropped_while_at_work(&machine_with(splits, UNSURE)));
    }
}

fn dropped_while_at_work(machine: &Arc<Machine>) {
    let at_work = |body: fn(&Machine) -> Result<()>| {
        spawn(machine, move |machine| match body(machine) {
            Ok(()) | Err(Error::UnknownTable(_) | Error::TabletNotLoaded(_)) => {}
            Err(error) => panic!("{error}"),
        })
    };
    let threads = [
        at_work(|machine| {
            let commit = commit(machine.table, BEFORE + 1);
            machine.store.apply(&commit, Txn::MAX, Durability::Durable)?;
            machine.store.flush(machine.table)
        }),
        at_work(|machine| machine.store.compact(machine.table)),
        at_work(|machine| {
            let mut cells = Cells::new();
            let spec = ScanSpec::default();
            let txn = machine.store.read(machine.table, spec, collect(&mut cells))?;
            assert_eq!(cells, table_after(number_of(txn)));
            Ok(())
        }),
        at_work(|machine| {
            machine.store.unload(machine.table, &[RowRange::all()])?;
            machine.store.load(machine.table, &[RowRange::all()]).map(drop)
        }),
        at_work(|machine| machine.store.drop_table(machine.table)),
    ];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(machine.fragments(), Vec::<String>::new());
}

/// Each run has its own rows, so they can be joined without a rewrite.
#[test]
fn runs_are_joined_while_others_flush_and_read() {
    const RUNS: u8 = 4;
    explore(600, || {
        let mut options = small();
        options.compact.chain_min = 2;
        // No file is too small to be kept.
        options.compact.output_bytes = 64;
        let machine = Arc::new(Machine::new(options, None));
        let put = |machine: &Machine, number: u8| {
            let mut builder = CommitBuilder::new();
            builder.table(machine.table).row(&[number]).set(b"f", b"q", 1, &[number]);
            machine.store.apply(&builder.finish(), Txn::MAX, Durability::Durable).unwrap();
            machine.store.flush(machine.table).unwrap();
        };
        let rows = |machine: &Machine| {
            let mut rows = Vec::new();
            machine
                .store
                .read(machine.table, ScanSpec::default(), |cell| rows.push(cell.row[0]))
                .unwrap();
            rows
        };
        (0..2).for_each(|number| put(&machine, number));
        let threads = vec![
            spawn(&machine, move |machine| (2..RUNS).for_each(|number| put(machine, number))),
            spawn(&machine, |machine| while machine.store.step().unwrap() {}),
            spawn(&machine, |machine| while machine.store.step().unwrap() {}),
            spawn(&machine, move |machine| {
                let seen = rows(machine);
                assert_eq!(seen, (0..seen.len() as u8).collect::<Vec<_>>());
                assert!(seen.len() >= 2);
            }),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        while machine.store.step().unwrap() {}
        assert_eq!(rows(&machine), (0..RUNS).collect::<Vec<_>>());
        let stats = machine.store.stats();
        assert!(stats.joins > 0 && stats.compaction_parts == 0, "{stats:?}");
        assert_eq!(machine.fragments(), machine.named_fragments());
    });
}
