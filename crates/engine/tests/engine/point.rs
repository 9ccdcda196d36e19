//! A point read of a row returns the same cells as a scan of it.

use std::sync::Arc;

use stele_engine::schema::{Family, Schema};
use stele_engine::world::sim::SimFiles;
use stele_engine::world::{Disk, ManualClock, SeededRandom, World};
use stele_engine::*;

const ROW: &[u8] = b"row";
const FAMILIES: [&[u8]; 3] = [b"f", b"ff", b"g"];
const QUALIFIERS: [&[u8]; 5] = [b"", b"\0", b"a", b"a\0", b"b"];

/// Writes the row in four runs: each sets different cells, and deletes, at a different
/// level, what earlier runs had set.
fn write_row(store: &Store, table: TableId) {
    for run in 0..4 {
        let mut builder = CommitBuilder::new();
        builder.table(table);
        for row in [&b"qow"[..], ROW, b"row\0", b"sow"] {
            builder.row(row);
            match run {
                1 => builder.delete_row(),
                2 => builder.delete_family(b"ff"),
                3 => builder.delete_column(b"f", b"a").delete_column(b"g", b"b"),
                _ => &mut builder,
            };
            for (at, family) in FAMILIES.iter().enumerate() {
                for (number, qualifier) in QUALIFIERS.iter().enumerate() {
                    if (at + number) % 3 != run % 3 {
                        builder.set(family, qualifier, run as i64, &[run as u8]);
                    }
                }
            }
        }
        store.apply(&builder.finish(), Txn::MAX, Durability::Durable).unwrap();
        if run < 3 {
            store.flush(table).unwrap();
        }
    }
}

/// Returns the column selections to try for one family.
fn choices() -> Vec<Option<Vec<RowRange>>> {
    let one = |qualifier: &[u8]| RowRange::row(qualifier);
    vec![
        None,
        Some(vec![]),
        Some(vec![one(b"a")]),
        Some(vec![one(b"b"), one(b"")]),
        Some(vec![RowRange::new("\0", "a\0"), one(b"b")]),
        Some(vec![RowRange::from("a")]),
    ]
}

fn specs() -> Vec<ScanSpec> {
    let mut specs = vec![ScanSpec::row(ROW)];
    for first in FAMILIES {
        for second in FAMILIES {
            for wanted in choices() {
                for also in choices() {
                    let columns = Columns::Families(vec![
                        FamilyColumns { family: first.to_vec(), qualifiers: wanted.clone() },
                        FamilyColumns { family: second.to_vec(), qualifiers: also },
                    ]);
                    for (versions, cells_max) in
                        [(None, None), (Some(1), None), (Some(2), Some(3)), (None, Some(1))]
                    {
                        let columns = columns.clone();
                        specs.push(ScanSpec { columns, versions, cells_max, ..ScanSpec::row(ROW) });
                    }
                }
            }
        }
    }
    specs
}

type Cell = (Vec<u8>, Vec<u8>, i64);

fn keep(cells: &mut Vec<Cell>, cell: &CellView<'_>) {
    assert_eq!(cell.row, ROW);
    cells.push((cell.family.to_vec(), cell.qualifier.to_vec(), cell.timestamp));
}

#[test]
fn one_row_reads_the_same_the_short_way_and_by_a_scan() {
    let dir = tempfile::tempdir().unwrap();
    let world = World {
        clock: Arc::new(ManualClock::at(0)),
        files: Arc::new(Disk),
        random: Arc::new(SeededRandom::new(1)),
        spawner: None,
    };
    let store = Store::open(dir.path(), Options::default(), world).unwrap();
    let families = FAMILIES.map(Family::new);
    let table = store.create_table("t", Schema::with_families(families).unwrap()).unwrap();
    write_row(&store, table);
    let mut found = 0;
    for spec in specs() {
        let (mut short, mut scanned) = (Vec::new(), Vec::new());
        store.read_row(table, ROW, &spec, |cell| keep(&mut short, cell)).unwrap();
        let mut scan = store.scan(table, spec.clone()).unwrap();
        while !scan
            .next_batch(BatchLimits::default(), &mut |cell| keep(&mut scanned, cell))
            .unwrap()
            .done
        {}
        let ScanSpec { columns, versions, cells_max, .. } = &spec;
        assert_eq!(short, scanned, "{columns:?}, {versions:?}, {cells_max:?}");
        found += short.len();
    }
    assert!(found > 1_000, "{found} cells");
}

#[test]
fn the_newest_version_is_read_without_a_look_at_those_behind_it() {
    let files = SimFiles::new(1);
    let world = World {
        clock: Arc::new(ManualClock::at(0)),
        files: Arc::new(files.clone()),
        random: Arc::new(SeededRandom::new(1)),
        spawner: None,
    };
    let store = Store::open("/store".as_ref(), Options::default(), world).unwrap();
    let schema = Schema::with_families([Family::new("f")]).unwrap();
    let table = store.create_table("t", schema).unwrap();
    let mut builder = CommitBuilder::new();
    builder.table(table).row(ROW);
    for timestamp in 0..1000 {
        let value: Vec<u8> = (0..200).map(|at| (timestamp * 31 + at * at) as u8).collect();
        builder.set(b"f", b"a", timestamp, &value);
    }
    store.apply(&builder.finish(), Txn::MAX, Durability::Durable).unwrap();
    store.flush(table).unwrap();

    let wanted = Some(vec![RowRange::row(b"a")]);
    let columns =
        Columns::Families(vec![FamilyColumns { family: b"f".into(), qualifiers: wanted }]);
    let limits = [(columns, Some(1), None), (Columns::All, None, Some(1))];
    for (columns, versions, cells_max) in limits {
        let before = files.counters().reads + store.stats().cache.hits;
        let spec = ScanSpec { columns, versions, cells_max, ..ScanSpec::row(ROW) };
        let mut found = Vec::new();
        store.read_row(table, ROW, &spec, |cell| keep(&mut found, cell)).unwrap();
        assert_eq!(found, [(b"f".to_vec(), b"a".to_vec(), 999)]);
        let after = files.counters().reads + store.stats().cache.hits;
        assert_eq!(after - before, 1, "blocks looked at");
    }
}

#[test]
fn a_read_that_must_not_take_long_ends_also_among_cells_that_it_does_not_return() {
    const CELLS: usize = 1000;
    let world = World {
        clock: Arc::new(ManualClock::at(1)),
        files: Arc::new(SimFiles::new(1)),
        random: Arc::new(SeededRandom::new(1)),
        spawner: None,
    };
    let store = Store::open("/store".as_ref(), Options::default(), world).unwrap();
    let schema = Schema::with_families([Family::new("f")]).unwrap();
    let table = store.create_table("t", schema).unwrap();
    let mut builder = CommitBuilder::new();
    builder.table(table).row(ROW);
    for at in 0..CELLS {
        builder.set(b"f", &at.to_be_bytes(), 0, b"v");
    }
    let written = store.apply(&builder.finish(), Txn::MAX, Durability::Durable).unwrap();
    let read = |work_max: usize, cells_max: Option<usize>| {
        let (spec, mut cells) = (ScanSpec { cells_max, ..ScanSpec::default() }, 0);
        let whole = store.try_read_row(table, ROW, &spec, work_max, |_| cells += 1).unwrap();
        (whole, cells)
    };
    assert_eq!(read(usize::MAX, None), (Some(written), CELLS));
    let (whole, cells) = read(100, None);
    assert!(whole.is_none() && (1..=100).contains(&cells), "{cells} cells");
    assert_eq!(read(CELLS, Some(10)), (Some(written), 10), "no more is wanted");
    let stopped = store.try_read_row(table, ROW, &ScanSpec::default(), 100, |_| Flow::Stop);
    assert_eq!(stopped.unwrap(), Some(written));

    let mut builder = CommitBuilder::new();
    builder.table(table).row(ROW).delete_row();
    let deleted = store.apply(&builder.finish(), Txn::MAX, Durability::Durable).unwrap();
    assert_eq!(read(100, None), (None, 0));
    assert_eq!(read(usize::MAX, None), (Some(deleted), 0));
}
