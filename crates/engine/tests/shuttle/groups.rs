//! Changes of groups under every schedule: families move between groups while others write,
//! flush, compact and read. A reader sees all families of a row as of one txn.

use std::sync::Arc;

use shuttle::thread::{self, JoinHandle};
use stele_engine::schema::{Family, Group, Schema};
use stele_engine::*;

use super::explore;
use super::machine::{Machine, small};

const ROWS: [&[u8]; 2] = [b"a", b"b"];
const FAMILIES: [&[u8]; 2] = [b"f", b"g"];
/// Commits before the threads start, each in its own fragment.
const BEFORE: u32 = 2;
const COMMITS: u32 = BEFORE + 3;

type Cells = Vec<(Vec<u8>, Vec<u8>, Vec<u8>, u32)>;

struct Grouped {
    machine: Machine,
    table: TableId,
}

/// Returns a schema with one group, or with one for each family.
fn schema(divided: bool) -> Schema {
    let [f, g] = FAMILIES.map(Family::new);
    let groups = match divided {
        true => vec![Group::new("x", [f]), Group::new("y", [g])],
        false => vec![Group::new("x", [f, g])],
    };
    Schema::new(groups).unwrap()
}

/// Returns commit number `number`, which overwrites a counter in every row and family, adds
/// a column and deletes the one before the last.
fn commit(table: TableId, number: u32) -> Commit {
    let mut builder = CommitBuilder::new();
    builder.table(table);
    for row in ROWS {
        builder.row(row);
        for family in FAMILIES {
            builder.set(family, b"counter", 1, &number.to_be_bytes());
            builder.set(family, &column(number), 1, &number.to_be_bytes());
            if number > 2 {
                builder.delete_column(family, &column(number - 2));
            }
        }
    }
    builder.finish()
}

fn column(number: u32) -> Vec<u8> {
    format!("n{number}").into_bytes()
}

/// Returns the cells of the table after `number` commits.
fn table_after(number: u32) -> Cells {
    let mut cells = Cells::new();
    for (row, family) in ROWS.into_iter().flat_map(|row| FAMILIES.map(|family| (row, family))) {
        let mut cell =
            |column: &[u8], of| cells.push((row.to_vec(), family.to_vec(), column.to_vec(), of));
        cell(b"counter", number);
        (number - 1..=number).for_each(|of| cell(&column(of), of));
    }
    cells
}

fn read(grouped: &Grouped, view: View) -> Cells {
    let mut cells = Cells::new();
    let spec = ScanSpec { view, ..ScanSpec::default() };
    let collect = |cell: &CellView<'_>| {
        let number = u32::from_be_bytes(cell.value.try_into().unwrap());
        cells.push((cell.row.to_vec(), cell.family.to_vec(), cell.qualifier.to_vec(), number));
    };
    grouped.machine.store.read(grouped.table, spec, collect).unwrap();
    cells
}

fn grouped() -> Arc<Grouped> {
    let machine = Machine::new(small(), None);
    let table = machine.store.create_table("grouped", schema(false)).unwrap();
    for number in 1..=BEFORE {
        machine.store.apply(&commit(table, number), Txn::MAX, Durability::Durable).unwrap();
        machine.store.flush(table).unwrap();
    }
    Arc::new(Grouped { machine, table })
}

fn write(grouped: &Grouped) {
    let waits = [Durability::Accepted, Durability::Written, Durability::Durable];
    for (number, wait) in (BEFORE + 1..=COMMITS).zip(waits) {
        let commit = commit(grouped.table, number);
        grouped.machine.store.apply(&commit, Txn::MAX, wait).unwrap();
    }
}

/// Divides the group and joins it again.
fn regroup(grouped: &Grouped) {
    for divided in [true, false] {
        grouped.machine.store.alter_table(grouped.table, schema(divided)).unwrap();
    }
}

fn flush(grouped: &Grouped) {
    grouped.machine.store.flush(grouped.table).unwrap();
}

fn compact(grouped: &Grouped) {
    grouped.machine.store.compact(grouped.table).unwrap();
}

/// Reads the whole table twice, each time as of one txn.
fn read_all(grouped: &Grouped) {
    let mut last = 0;
    for view in [View::Durable, View::Latest] {
        let cells = read(grouped, view);
        let number = cells[0].3;
        assert_eq!(cells, table_after(number));
        assert!(number >= last, "the reader ran back");
        last = number;
    }
}

fn spawn(grouped: &Arc<Grouped>, body: fn(&Grouped)) -> JoinHandle<()> {
    let grouped = grouped.clone();
    thread::spawn(move || body(&grouped))
}

#[test]
fn scale_6_4_families_move_while_others_write_flush_compact_and_read() {
    explore(600, || {
        let grouped = grouped();
        let bodies = [write, regroup, flush, compact, read_all];
        let threads = bodies.map(|body| spawn(&grouped, body));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(read(&grouped, View::Latest), table_after(COMMITS));
        let machine = &grouped.machine;
        assert_eq!(machine.fragments(), machine.named_fragments(), "replaced files are gone");
    });
}
