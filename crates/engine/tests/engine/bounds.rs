//! Tablets that the store itself splits and joins.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::schema::{Family, Group, Schema};
use stele_engine::world::sim::SimFiles;
use stele_engine::world::{ManualClock, SeededRandom, World};
use stele_engine::*;

const MINUTE: Duration = Duration::from_secs(60);
const VALUE_BYTES: usize = 1000;

/// A store on a simulated disk, and its clock.
struct Machine {
    clock: Arc<ManualClock>,
    store: Store,
}

impl Machine {
    fn new(options: Options) -> Machine {
        let (clock, world) = world();
        Machine { clock, store: Store::open(Path::new("/store"), options, world).unwrap() }
    }

    /// Creates a table with small blocks, so that its index tells rows apart.
    fn table(&self, splits: &[usize]) -> TableId {
        let splits = splits.iter().map(|&number| row(number)).collect();
        self.store.create_table_with_splits("t", schema(), splits).unwrap()
    }

    /// Does all background work.
    fn work(&self) {
        while self.store.step().unwrap() {}
    }

    fn tablets(&self, table: TableId) -> Vec<TabletInfo> {
        self.store.tablets(table).unwrap()
    }
}

fn world() -> (Arc<ManualClock>, World) {
    let clock = Arc::new(ManualClock::at(1_000_000));
    let world = World {
        clock: clock.clone(),
        files: Arc::new(SimFiles::new(1)),
        random: Arc::new(SeededRandom::new(1)),
        spawner: None,
    };
    (clock, world)
}

fn schema() -> Schema {
    let mut group = Group::new("default", [Family::new("f")]);
    group.block_bytes = Some(1024);
    Schema::new(vec![group]).unwrap()
}

/// Returns options by which a tablet is large with 60 rows, and two are small with 18 together.
fn small() -> Options {
    let mut options = Options::default();
    options.tablets.split_bytes = 60 * VALUE_BYTES as u64;
    options.tablets.join_bytes = 18 * VALUE_BYTES as u64;
    options
}

fn row(number: usize) -> Vec<u8> {
    format!("row{number:05}").into_bytes()
}

/// Returns bytes that do not compress.
fn noise(mut seed: u64, bytes: usize) -> Vec<u8> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn write(store: &Store, table: TableId, rows: impl Iterator<Item = usize>) {
    let mut commit = CommitBuilder::new();
    commit.table(table);
    for number in rows {
        commit.row(&row(number)).set(b"f", b"", 0, &noise(number as u64, VALUE_BYTES));
    }
    store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
}

fn count(store: &Store, table: TableId) -> usize {
    let mut cells = 0;
    store.read(table, ScanSpec::default(), |_| cells += 1).unwrap();
    cells
}

#[test]
fn scale_6_1_a_tablet_that_is_too_large_is_split_in_halves_once_a_minute() {
    let machine = Machine::new(small());
    let table = machine.table(&[]);
    write(&machine.store, table, 0..200);
    machine.store.flush(table).unwrap();
    machine.work();
    assert_eq!(machine.tablets(table).len(), 1, "it has had its rows for less than a minute");
    let files = machine.store.stats().fragments;
    let mut lengths = Vec::new();
    for _ in 0..4 {
        machine.clock.advance(MINUTE);
        machine.work();
        lengths.push(machine.tablets(table).len());
    }
    assert_eq!(lengths, [2, 4, 4, 4], "each half is split once, a minute later");
    for tablet in machine.tablets(table) {
        let rows = 200 * 1100 / 10..200 * 1100 / 2;
        assert!(rows.contains(&(tablet.disk_bytes as usize)), "{tablet:?}");
    }
    let stats = machine.store.stats();
    assert_eq!((stats.tablet_splits, stats.fragments), (3, files), "nothing is rewritten");
    assert_eq!(count(&machine.store, table), 200);
}

#[test]
fn scale_6_1_one_giant_row_is_never_split() {
    let machine = Machine::new(small());
    let table = machine.table(&[]);
    for round in 0..3 {
        let mut commit = CommitBuilder::new();
        commit.table(table).row(b"giant");
        for number in 0..100u64 {
            let qualifier = (round * 100 + number).to_be_bytes();
            commit.set(b"f", &qualifier, 0, &noise(number, VALUE_BYTES));
        }
        machine.store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
        machine.store.flush(table).unwrap();
        machine.clock.advance(MINUTE);
        machine.work();
        assert_eq!(machine.tablets(table).len(), 1);
    }
    // Rows beside it are divided from it once they are worth it.
    write(&machine.store, table, 0..300);
    machine.store.flush(table).unwrap();
    machine.clock.advance(MINUTE);
    machine.work();
    assert_eq!(machine.tablets(table).len(), 2);
    assert_eq!(count(&machine.store, table), 600);
}

#[test]
fn scale_6_1_small_neighbours_are_joined_after_ten_minutes() {
    for automatic in [true, false] {
        let mut options = small();
        options.tablets.automatic = automatic;
        let machine = Machine::new(options);
        let table = machine.table(&[10, 20, 30, 40]);
        write(&machine.store, table, (0..60).filter(|number| number % 10 < 2 || *number >= 40));
        machine.store.flush(table).unwrap();
        machine.clock.advance(9 * MINUTE);
        machine.work();
        assert_eq!(machine.tablets(table).len(), 5);
        machine.clock.advance(2 * MINUTE);
        machine.work();
        let joined = machine.tablets(table);
        // Each joined tablet has changed just now, so it waits for ten more minutes.
        assert_eq!(joined.len(), if automatic { 3 } else { 5 }, "{joined:?}");
        machine.clock.advance(11 * MINUTE);
        machine.work();
        let joined = machine.tablets(table);
        assert_eq!(joined.len(), if automatic { 2 } else { 5 }, "one is too large: {joined:?}");
        assert_eq!(machine.store.stats().tablet_joins, if automatic { 3 } else { 0 });
        assert_eq!(count(&machine.store, table), 28);
    }
}

#[test]
fn scale_6_1_a_thousand_small_tablets_are_joined_a_few_at_a_time() {
    let machine = Machine::new(small());
    let splits: Vec<usize> = (1..1000).collect();
    let table = machine.table(&splits);
    let rounds = (0..40).take_while(|_| {
        machine.clock.advance(11 * MINUTE);
        machine.work();
        machine.tablets(table).len() > 1
    });
    let rounds = rounds.count();
    assert!(rounds < 40, "{} are left", machine.tablets(table).len());
    assert_eq!(machine.store.stats().tablet_joins, 999);
}

#[test]
fn scale_8_8_a_table_that_is_not_splittable_and_an_external_store_are_left_alone() {
    let machine = Machine::new(small());
    let table = machine.store.create_table("t", schema().splittable(false)).unwrap();
    write(&machine.store, table, 0..300);
    machine.store.flush(table).unwrap();
    machine.clock.advance(2 * MINUTE);
    machine.work();
    assert_eq!(machine.tablets(table).len(), 1);
    assert!(matches!(machine.store.split(table, b"row00100"), Err(Error::InvalidSplit(_))));

    let (clock, world) = world();
    let store = Store::open_external(Path::new("/store"), small(), world).unwrap();
    let table = store.create_table("t", schema()).unwrap();
    let mut commit = CommitBuilder::new();
    commit.table(table);
    for number in 0..300 {
        commit.row(&row(number)).set(b"f", b"", 0, &noise(number as u64, VALUE_BYTES));
    }
    store.apply_at(&commit.finish(), 1).unwrap();
    store.flush(table).unwrap();
    clock.advance(2 * MINUTE);
    while store.step().unwrap() {}
    assert_eq!(store.tablets(table).unwrap().len(), 1);
    assert!(matches!(store.unload(table, &[RowRange::all()]), Err(Error::HasExternalLog)));
}

/// Reads rows for seventy seconds.
fn read_for_a_while(machine: &Machine, table: TableId, rows: std::ops::Range<usize>) {
    for second in 0..70 {
        for number in 0..640 {
            let row = row(rows.start + (second * 640 + number) % rows.len());
            machine.store.read_row(table, &row, &ScanSpec::default(), |_| ()).unwrap();
        }
        machine.clock.advance(Duration::from_secs(1));
    }
}

#[test]
fn scale_6_1_a_busy_tablet_is_split_where_it_is_busy() {
    let mut options = Options::default();
    options.tablets.busy_percent_min = 0;
    let machine = Machine::new(options);
    let table = machine.table(&[]);
    write(&machine.store, table, 0..1000);
    machine.store.flush(table).unwrap();
    machine.clock.advance(MINUTE);
    read_for_a_while(&machine, table, 100..301);
    machine.work();
    let tablets = machine.tablets(table);
    let [lower, _] = &tablets[..] else { panic!("{tablets:?}") };
    let at = lower.rows.end.clone().unwrap();
    assert!((row(130)..row(270)).contains(&at), "split at {}", at.escape_ascii());
    // Both halves stay busy, and are split again; then none takes a quarter.
    for _ in 0..3 {
        read_for_a_while(&machine, table, 100..301);
        machine.work();
    }
    let busy = machine.tablets(table).len();
    assert!((4..=8).contains(&busy), "{busy} tablets");
    // Quiet tablets are joined.
    machine.clock.advance(11 * MINUTE);
    machine.work();
    assert!(machine.tablets(table).len() < busy);
}

#[test]
fn scale_6_1_a_busy_row_is_no_reason_to_split_nor_is_a_store_that_is_hardly_busy() {
    for busy_percent_min in [0, 10] {
        let mut options = Options::default();
        options.tablets.busy_percent_min = busy_percent_min;
        let machine = Machine::new(options);
        let table = machine.table(&[]);
        write(&machine.store, table, 0..10);
        machine.clock.advance(MINUTE);
        // The clock stands still during an operation: each takes next to no time.
        let rows = if busy_percent_min == 0 { 5..6 } else { 0..10 };
        for _ in 0..3 {
            read_for_a_while(&machine, table, rows.clone());
            machine.work();
        }
        assert_eq!(machine.tablets(table).len(), 1);
    }
}
