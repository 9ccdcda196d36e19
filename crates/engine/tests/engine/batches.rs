//! Batches of a scan are limited by work as well as by output, survive slow readers,
//! and continue where the sink directs them.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::schema::{Family, Schema};
use stele_engine::world::sim::SimFiles;
use stele_engine::world::{ManualClock, SeededRandom, World};
use stele_engine::*;

struct Fixture {
    clock: Arc<ManualClock>,
    store: Store,
    table: TableId,
}

impl Fixture {
    fn new() -> Fixture {
        let clock = Arc::new(ManualClock::at(1_000_000));
        let world = World {
            clock: clock.clone(),
            files: Arc::new(SimFiles::new(1)),
            random: Arc::new(SeededRandom::new(1)),
            spawner: None,
        };
        let store = Store::open(Path::new("/store"), Options::default(), world).unwrap();
        let schema = Schema::with_families([Family::new("f"), Family::new("g")]).unwrap();
        let table = store.create_table("t", schema).unwrap();
        Fixture { clock, store, table }
    }

    fn commit(&self, build: impl FnOnce(&mut CommitBuilder)) {
        let mut builder = CommitBuilder::new();
        builder.table(self.table);
        build(&mut builder);
        self.store.apply(&builder.finish(), Txn::MAX, Durability::Durable).unwrap();
    }

    fn scan(&self, spec: ScanSpec) -> Scan {
        self.store.scan(self.table, spec).unwrap()
    }

    /// Reads batches to the end; returns the number of cells in each.
    fn cells_of_batches(&self, spec: ScanSpec, limits: BatchLimits) -> Vec<usize> {
        let mut scan = self.scan(spec);
        let mut batches = Vec::new();
        loop {
            let mut cells = 0;
            let end = scan.next_batch(limits, &mut |_| cells += 1).unwrap();
            batches.push(cells);
            if end.done {
                return batches;
            }
        }
    }
}

fn row(number: usize) -> Vec<u8> {
    format!("row{number:06}").into_bytes()
}

#[test]
fn a_batch_that_finds_nothing_ends_when_its_work_is_done() {
    const ROWS: usize = 2000;
    const WORK: usize = 100;
    let t = Fixture::new();
    t.commit(|c| {
        for number in 0..ROWS {
            c.row(&row(number)).set(b"f", b"q", 1, b"value");
        }
    });
    t.commit(|c| {
        for number in 0..ROWS {
            c.row(&row(number)).delete_row();
        }
    });
    for reverse in [false, true] {
        let spec = ScanSpec { reverse, ..ScanSpec::default() };
        let limits = BatchLimits { work: WORK, ..BatchLimits::default() };
        let batches = t.cells_of_batches(spec, limits);
        assert!(batches.iter().all(|&cells| cells == 0));
        // One tombstone and one cell of each row are examined.
        let expected = 2 * ROWS / WORK;
        assert!((expected..2 * expected + 2).contains(&batches.len()), "{}", batches.len());
    }
}

#[test]
fn large_values_that_are_not_returned_count_as_work() {
    const VALUE: usize = 256 << 10;
    let t = Fixture::new();
    for number in 0..20 {
        t.commit(|c| _ = c.row(&row(number)).set(b"f", b"q", 1, &[7; VALUE]));
    }
    t.commit(|c| {
        for number in 0..20 {
            c.row(&row(number)).delete_row();
        }
    });
    let limits = BatchLimits { work: (VALUE >> 12) * 4, ..BatchLimits::default() };
    let batches = t.cells_of_batches(ScanSpec::default(), limits);
    assert!((4..=8).contains(&batches.len()), "{}", batches.len());
}

#[test]
fn a_batch_over_many_absent_rows_ends_when_its_work_is_done() {
    let t = Fixture::new();
    t.commit(|c| _ = c.row(b"x").set(b"f", b"q", 1, b"value"));
    let rows = (0..20_000).map(|number| RowRange::row(&row(number))).collect();
    let spec = ScanSpec { rows, ..ScanSpec::default() };
    let batches = t.cells_of_batches(spec, BatchLimits::default());
    assert!(batches.len() >= 4, "{}", batches.len());
    assert_eq!(batches.iter().sum::<usize>(), 0);
}

/// Returns a scan that stopped inside a row with the given number of cells.
fn inside_a_row(t: &Fixture, cells: usize) -> Scan {
    t.commit(|c| {
        c.row(b"r");
        for number in 0..cells {
            c.set(b"f", &row(number), 1, b"old");
        }
    });
    let mut scan = t.scan(ScanSpec::default());
    let limits = BatchLimits { cells: 1, ..BatchLimits::default() };
    assert!(!scan.next_batch(limits, &mut |_| ()).unwrap().done);
    assert!(scan.mid_row());
    // From now on only the pin preserves the row as it was.
    t.commit(|c| _ = c.row(b"r").delete_row());
    scan
}

fn rewrite(t: &Fixture) {
    t.store.flush(t.table).unwrap();
    t.store.compact(t.table).unwrap();
}

#[test]
fn a_large_row_is_read_to_its_end_however_slow_the_reader_makes_progress() {
    const CELLS: usize = 20;
    let t = Fixture::new();
    let mut scan = inside_a_row(&t, CELLS);
    let limits = BatchLimits { cells: 1, ..BatchLimits::default() };
    for read in 1..CELLS {
        t.clock.advance(Duration::from_secs(50));
        rewrite(&t);
        let mut found = 0;
        let end = scan.next_batch(limits, &mut |cell| {
            assert_eq!(cell.value, b"old");
            found += 1;
        });
        assert_eq!((end.unwrap().done, found), (false, 1), "cell {read}");
    }
    assert!(
        scan.next_batch(limits, &mut |_| -> Flow { panic!("the row has no more") }).unwrap().done
    );
}

#[test]
fn an_idle_reader_loses_its_row_and_so_does_one_that_takes_half_an_hour() {
    let limits = BatchLimits { cells: 1, ..BatchLimits::default() };
    let expired = |result: Result<BatchEnd>| matches!(result, Err(Error::SnapshotExpired { .. }));

    let t = Fixture::new();
    let mut scan = inside_a_row(&t, 5);
    t.clock.advance(Duration::from_secs(121));
    assert!(expired(scan.next_batch(limits, &mut |_| ())));

    let t = Fixture::new();
    let mut scan = inside_a_row(&t, 40);
    let mut minutes = 0;
    while !expired(scan.next_batch(limits, &mut |_| ())) {
        t.clock.advance(Duration::from_secs(60));
        minutes += 1;
    }
    assert_eq!(minutes, 31);
}

#[test]
fn a_sink_stops_a_read_of_a_row() {
    let t = Fixture::new();
    t.commit(|c| {
        c.row(b"r");
        for number in 0..100 {
            c.set(b"f", &row(number), 1, b"value");
        }
    });
    let mut seen = 0;
    let sink = |_: &CellView<'_>| {
        seen += 1;
        if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    t.store.read_row(t.table, b"r", &ScanSpec::default(), sink).unwrap();
    assert_eq!(seen, 3);
}

#[test]
fn a_stopped_scan_is_done() {
    let t = Fixture::new();
    t.commit(|c| {
        for number in 0..500 {
            c.row(&row(number)).set(b"f", b"q", 2, b"").set(b"f", b"q", 1, b"");
        }
    });
    for reverse in [false, true] {
        let mut scan = t.scan(ScanSpec { reverse, ..ScanSpec::default() });
        let mut seen = 0;
        let end = scan.next_batch(BatchLimits::default(), &mut |_| {
            seen += 1;
            if seen == 7 { Flow::Stop } else { Flow::Continue }
        });
        assert_eq!((seen, end.unwrap().done), (7, true));
        assert!(
            scan.next_batch(BatchLimits::default(), &mut |_| -> Flow { panic!("done") })
                .unwrap()
                .done
        );
    }
}

/// Returns a pseudo-random reply of the sink to a cell.
fn verdict(cell: &(Vec<u8>, Vec<u8>, Vec<u8>, i64), salt: usize) -> Flow {
    let sum = cell.0.iter().chain(&cell.1).chain(&cell.2).map(|&b| usize::from(b)).sum::<usize>();
    match (sum * 7 + cell.3 as usize * 3 + salt) % 6 {
        0 => Flow::NextRow,
        1 | 2 => Flow::NextColumn,
        _ => Flow::Continue,
    }
}

#[test]
fn a_scan_skips_the_columns_and_rows_that_its_sink_leaves() {
    let t = Fixture::new();
    for part in 0..3 {
        t.commit(|c| {
            for number in (0..60).filter(|number| number % 3 != part) {
                c.row(&row(number));
                for family in [b"f", b"g"] {
                    for qualifier in [&b""[..], b"a", b"b\0", b"c"] {
                        for timestamp in (0..4).filter(|at| at % 2 == part as i64 % 2) {
                            c.set(family, qualifier, timestamp, b"v");
                        }
                        c.merge(FoldId::SUM, family, qualifier, 9, &1i64.to_be_bytes());
                    }
                }
            }
        });
        if part < 2 {
            t.store.flush(t.table).unwrap();
        }
    }
    let owned = |cell: &CellView<'_>| {
        (cell.row.to_vec(), cell.family.to_vec(), cell.qualifier.to_vec(), cell.timestamp)
    };
    for reverse in [false, true] {
        let spec = ScanSpec { reverse, ..ScanSpec::default() };
        let mut all = Vec::new();
        t.store.read(t.table, spec.clone(), |cell| all.push(owned(cell))).unwrap();
        for salt in 0..6 {
            let mut expected = Vec::new();
            let mut at = 0;
            while let Some(cell) = all.get(at) {
                expected.push(cell.clone());
                let left = match verdict(cell, salt) {
                    Flow::NextColumn => all[at..]
                        .iter()
                        .take_while(|c| (&c.0, &c.1, &c.2) == (&cell.0, &cell.1, &cell.2))
                        .count(),
                    Flow::NextRow => all[at..].iter().take_while(|c| c.0 == cell.0).count(),
                    _ => 1,
                };
                at += left;
            }
            for (cells, work) in [(usize::MAX, usize::MAX), (1, 50), (7, 3), (300, 2000)] {
                let limits =
                    BatchLimits { cells, work, bytes: usize::MAX, ..BatchLimits::default() };
                let mut scan = t.scan(spec.clone());
                let mut found = Vec::new();
                let mut sink = |cell: &CellView<'_>| {
                    found.push(owned(cell));
                    verdict(found.last().unwrap(), salt)
                };
                while !scan.next_batch(limits, &mut sink).unwrap().done {}
                assert_eq!(found, expected, "reverse {reverse}, salt {salt}, {limits:?}");
            }
        }
    }
}

#[test]
fn a_batch_ends_before_a_value_that_its_limits_do_not_allow_for() {
    let t = Fixture::new();
    let long = vec![b'v'; 10_000];
    t.commit(|c| {
        c.row(b"a long one first").set(b"f", b"b", 0, &long);
        for number in 0..4 {
            let row = row(number);
            let row = c.row(&row).set(b"f", b"a", 0, b"short").set(b"f", b"b", 0, &long);
            row.set(b"g", b"c", 0, b"short");
        }
    });
    for flushed in [false, true] {
        for reverse in [false, true] {
            let mut scan = t.scan(ScanSpec { reverse, ..ScanSpec::default() });
            let limits = BatchLimits { value_bytes: 5_000, ..BatchLimits::default() };
            let (mut lengths, mut refused, mut allowed) = (Vec::new(), 0, limits.value_bytes);
            loop {
                let limits = BatchLimits { value_bytes: allowed, ..limits };
                let end = scan.next_batch(limits, &mut |cell: &CellView<'_>| {
                    assert!(cell.value.len() <= allowed);
                    lengths.push(cell.value.len());
                });
                let end = end.unwrap();
                refused += usize::from(end.long_value.is_some());
                allowed = end.long_value.unwrap_or(5_000);
                if end.done {
                    break;
                }
            }
            let rows = [5, 10_000, 5].repeat(4);
            let first = vec![10_000];
            let expected = if reverse { [rows, first] } else { [first, rows] }.concat();
            assert_eq!(lengths, expected, "reverse: {reverse}");
            assert!(refused >= 1, "reverse: {reverse}, flushed: {flushed}");
        }
        t.store.flush(t.table).unwrap();
    }
    // Values of families that are not selected do not matter.
    let columns = Columns::Families(vec![FamilyColumns::all("g")]);
    let mut scan = t.scan(ScanSpec { columns, ..ScanSpec::default() });
    let limits = BatchLimits { value_bytes: 5_000, ..BatchLimits::default() };
    let end = scan.next_batch(limits, &mut |_: &CellView<'_>| ()).unwrap();
    assert_eq!((end.done, end.long_value), (true, None));
}
