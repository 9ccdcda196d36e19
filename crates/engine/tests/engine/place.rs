//! Reading a cell by its location returns the same cell as reading it without.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use stele_engine::schema::{Family, Purge, Schema};
use stele_engine::world::sim::SimFiles;
use stele_engine::world::{ManualClock, SeededRandom, World};
use stele_engine::*;

fn open(files: &SimFiles) -> (Store, TableId) {
    let world = World {
        clock: Arc::new(ManualClock::at(1_000_000)),
        files: Arc::new(files.clone()),
        random: Arc::new(SeededRandom::new(1)),
        spawner: None,
    };
    let store = Store::open("/store".as_ref(), Options::default(), world).unwrap();
    let table = store.table("t").unwrap_or_else(|| {
        let family = Family::with_purge("f", Purge::MaxVersions(1));
        store.create_table("t", Schema::with_families([family]).unwrap()).unwrap()
    });
    (store, table)
}

fn row(number: u8) -> Vec<u8> {
    // A zero byte is escaped in keys.
    vec![b'r', number % 3, number]
}

fn apply(store: &Store, table: TableId, fill: impl FnOnce(&mut CommitBuilder)) {
    let mut commit = CommitBuilder::new();
    fill(commit.table(table));
    store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
}

fn read(
    store: &Store,
    table: TableId,
    row: &[u8],
    place: Option<&Place>,
) -> (Option<Vec<u8>>, FirstCell) {
    let mut value = None;
    let first = store
        .read_first(table, row, &View::Durable, place, |cell| value = Some(cell.value.to_vec()))
        .unwrap();
    (value, first)
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    DeleteRange(u8, u8),
    Flush,
    Compact,
    Read(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let number = 0u8..24;
    prop_oneof![
        6 => (number.clone(), any::<u8>()).prop_map(|(row, value)| Step::Put(row, value)),
        2 => number.clone().prop_map(Step::Delete),
        1 => (number.clone(), number.clone()).prop_map(|(a, b)| Step::DeleteRange(a, b)),
        2 => Just(Step::Flush),
        1 => Just(Step::Compact),
        12 => number.prop_map(Step::Read),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_place_never_leads_to_another_cell_than_the_row_has(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let (store, table) = open(&SimFiles::new(1));
        let mut places: BTreeMap<u8, Place> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(number, value) => apply(&store, table, |commit| {
                    commit.row(&row(number)).set(b"f", b"", 0, &[value; 40]);
                }),
                Step::Delete(number) => apply(&store, table, |commit| {
                    commit.row(&row(number)).delete_row();
                }),
                Step::DeleteRange(a, b) => apply(&store, table, |commit| {
                    commit.delete_range(&RowRange::new(row(a), row(b)));
                }),
                Step::Flush => store.flush(table).unwrap(),
                Step::Compact => store.compact(table).unwrap(),
                Step::Read(number) => {
                    let (found, first) = read(&store, table, &row(number), None);
                    // A location of another row is not used.
                    for place in places.values() {
                        let (again, _) = read(&store, table, &row(number), Some(place));
                        prop_assert_eq!(&again, &found);
                    }
                    if let Some(place) = first.place {
                        places.insert(number, place);
                    }
                }
            }
        }
    }
}

#[test]
fn a_place_is_used_until_the_row_is_written_or_the_store_is_opened_anew() {
    let files = SimFiles::new(1);
    let (store, table) = open(&files);
    for number in 0..100 {
        apply(&store, table, |commit| {
            commit.row(&row(number)).set(b"f", b"", 0, &[number]);
        });
    }
    assert_eq!(read(&store, table, &row(7), None).1.place, None, "it is in memory");
    store.flush(table).unwrap();
    let (value, first) = read(&store, table, &row(7), None);
    let place = first.place.unwrap();
    assert_eq!((value, first.by_place), (Some(vec![7]), false));
    apply(&store, table, |commit| {
        commit.row(&row(8)).set(b"f", b"", 0, b"other");
    });
    let (value, first) = read(&store, table, &row(7), Some(&place));
    assert_eq!((value, first.by_place), (Some(vec![7]), true));
    apply(&store, table, |commit| {
        commit.row(&row(7)).set(b"f", b"", 0, b"new");
    });
    let (value, first) = read(&store, table, &row(7), Some(&place));
    assert_eq!((value, first.by_place), (Some(b"new".to_vec()), false));
    store.flush(table).unwrap();
    let place = read(&store, table, &row(7), None).1.place.unwrap();
    store.close().unwrap();
    let (store, table) = open(&files);
    let (value, first) = read(&store, table, &row(7), Some(&place));
    assert_eq!((value, first.by_place), (Some(b"new".to_vec()), false));
}

#[test]
fn a_scan_tells_the_places_of_the_rows_it_gives() {
    let (store, table) = open(&SimFiles::new(1));
    for number in 0..100 {
        apply(&store, table, |commit| {
            commit.row(&row(number)).set(b"f", b"", 0, &[number]).set(b"f", b"second", 0, b"x");
        });
    }
    store.flush(table).unwrap();
    apply(&store, table, |commit| {
        commit.row(&row(7)).set(b"f", b"", 0, b"new");
    });
    let snapshot = store.snapshot();
    for reverse in [false, true] {
        let spec = ScanSpec { reverse, view: View::At(snapshot.clone()), ..ScanSpec::default() };
        let mut found = Vec::new();
        let mut scan = store.scan(table, spec).unwrap();
        let limits = BatchLimits { cells: 7, ..BatchLimits::default() };
        while !scan
            .next_placed_batch(limits, |cell, place| {
                assert!(place.is_none() || cell.qualifier.is_empty(), "only the first of its row");
                if cell.qualifier.is_empty() {
                    found.push((cell.row.to_vec(), cell.value.to_vec(), place));
                }
            })
            .unwrap()
            .done
        {}
        assert_eq!(found.len(), 100);
        for (row, value, entry) in found {
            assert_eq!(entry.is_none(), value == b"new", "what is in memory has no place");
            let place = entry.map(|entry| Place { txn: snapshot.txn(), entry });
            let (read, first) = read(&store, table, &row, place.as_ref());
            assert_eq!((read, first.by_place), (Some(value), entry.is_some()));
        }
    }
}

#[test]
fn a_place_is_not_used_once_the_policy_asks_for_the_age_of_cells() {
    let (store, table) = open(&SimFiles::new(1));
    apply(&store, table, |commit| _ = commit.row(b"r").set(b"f", b"", 0, b"old"));
    store.flush(table).unwrap();
    let (found, first) = read(&store, table, b"r", None);
    assert!(found.is_some() && first.place.is_some());
    let aging = Family::with_purge("f", Purge::MaxAge(10));
    store.alter_table(table, Schema::with_families([aging]).unwrap()).unwrap();
    let (found, first) = read(&store, table, b"r", first.place.as_ref());
    assert_eq!((found, first.by_place), (None, false));
}
