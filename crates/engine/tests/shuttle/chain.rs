//! Chains under every schedule: flush and compaction replace fragments during scans and
//! point reads. A reader sees each cell once, as of its txn, and its files stay until
//! it is done.

use std::sync::Arc;

use shuttle::thread::{self, JoinHandle};
use stele_engine::*;

use super::explore;
use super::machine::{Machine, small};

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

/// Returns a machine with a chain of two fragments and nothing in memory.
fn machine() -> Arc<Machine> {
    let machine = Machine::new(small(), None);
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
    explore(1_000, || {
        let machine = machine();
        let bodies = [write, flush, compact, scan_snapshot, scan_reverse];
        let threads = bodies.map(|body| spawn(&machine, body));
        finish(&machine, threads.into());
    });
}

#[test]
fn rows_are_read_whole_and_as_of_their_txn_while_chains_are_swapped() {
    explore(1_000, || {
        let machine = machine();
        let bodies = [write, flush, compact, scan_rows, read_row];
        let threads = bodies.map(|body| spawn(&machine, body));
        finish(&machine, threads.into());
    });
}

#[test]
fn a_dropped_table_leaves_no_files_whoever_is_at_work_on_it() {
    explore(1_000, || {
        let machine = machine();
        let at_work = |body: fn(&Machine) -> Result<()>| {
            spawn(&machine, move |machine| match body(machine) {
                Ok(()) | Err(Error::UnknownTable(_)) => {}
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
            at_work(|machine| machine.store.drop_table(machine.table)),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(machine.fragments(), Vec::<String>::new());
    });
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
