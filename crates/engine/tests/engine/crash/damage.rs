//! Bit rot and missing files: damaged data is never served, and undamaged data still
//! is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use stele_engine::schema::{Family, Group, Schema};
use stele_engine::world::Files;
use stele_engine::world::sim::SimFiles;
use stele_engine::*;

use crate::support::die::Die;
use crate::support::power::Powered;

const DIR: &str = "/store";
const FLIPS: u64 = 700;
const ROWS: u64 = 90;

type Rows = BTreeMap<(TableId, Vec<u8>), Vec<(Vec<u8>, Vec<u8>)>>;
type Image = BTreeMap<PathBuf, Vec<u8>>;

fn open(sim: &SimFiles) -> Result<Store> {
    Store::open(Path::new(DIR), options(), Powered::new(sim.clone()).world(1))
}

fn options() -> Options {
    let mut options = Options::default();
    options.log.segment_bytes = 4 << 10;
    options.log.recycle_max = 1;
    options
}

/// Returns the files of a closed store with two tables, several fragments and a log,
/// and its rows.
fn closed_store() -> (Image, Rows) {
    let sim = SimFiles::new(1);
    let store = open(&sim).unwrap();
    let mut rows = Rows::new();
    let tables = ["a", "b"].map(|name| {
        let mut groups =
            vec![Group::new("f", [Family::new("f")]), Group::new("g", [Family::new("g")])];
        groups[0].block_bytes = Some(1024);
        store.create_table(name, Schema::new(groups).unwrap()).unwrap()
    });
    for number in 0..ROWS {
        let row = format!("row{number:03}").into_bytes();
        let mut commit = CommitBuilder::new();
        for table in tables {
            let value = format!("{} {number} ", table.0).repeat(5 + number as usize % 9);
            commit.table(table).row(&row);
            let mut cells = Vec::new();
            for family in [b"f", b"g"] {
                commit.set(family, b"q", 5, value.as_bytes());
                cells.push((family.to_vec(), value.clone().into_bytes()));
            }
            rows.insert((table, row.clone()), cells);
        }
        store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
        // The last rows of both tables remain in the log.
        match number % 30 {
            14 => store.flush(tables[0]).unwrap(),
            19 => store.flush(tables[1]).unwrap(),
            _ => {}
        }
    }
    store.close().unwrap();
    (sim.files(), rows)
}

/// Returns a machine with these files on its disk.
fn machine_with(image: &Image) -> SimFiles {
    let sim = SimFiles::new(1);
    for (path, bytes) in image {
        sim.create_dir_all(path.parent().unwrap()).unwrap();
        let file = sim.create(path).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file.sync_data().unwrap();
    }
    sim
}

/// Reads every row on its own, and both tables in both directions. Returns how many
/// rows are served and how many are lost.
fn served(store: &Store, rows: &Rows) -> (usize, usize) {
    let (mut good, mut lost) = (0, 0);
    for ((table, row), expected) in rows {
        let mut cells = Vec::new();
        let read = store.read(*table, ScanSpec::row(row), |cell| {
            cells.push((cell.family.to_vec(), cell.value.to_vec()));
        });
        match read {
            Ok(_) => {
                assert_eq!(&cells, expected, "row {} is wrong", row.escape_ascii());
                good += 1;
            }
            Err(Error::DataLoss { .. }) => lost += 1,
            Err(other) => panic!("{other}"),
        }
    }
    for (table, _) in store.tables() {
        for reverse in [false, true] {
            let spec = ScanSpec { reverse, ..ScanSpec::default() };
            let read = store.read(table, spec, |cell| {
                let expected = &rows[&(table, cell.row.to_vec())];
                assert!(expected.contains(&(cell.family.to_vec(), cell.value.to_vec())));
            });
            match read {
                Ok(_) => {}
                Err(Error::DataLoss { .. }) => assert!(lost > 0, "a scan lost what rows have"),
                Err(other) => panic!("{other}"),
            }
        }
    }
    (good, lost)
}

#[test]
fn a_flipped_bit_is_never_served_and_spoils_only_what_it_is_in() {
    let (image, rows) = closed_store();
    let paths: Vec<&PathBuf> = image.keys().filter(|path| !path.ends_with("lock")).collect();
    let die = Die::new(7);
    let (mut refused, mut whole, mut partly) = (0, 0, 0);
    for _ in 0..FLIPS {
        let path = paths[die.below(paths.len() as u64) as usize];
        let bits = image[path].len() as u64 * 8;
        let bit = die.below(bits);
        let sim = machine_with(&image);
        sim.flip_bit(path, bit).unwrap();
        let store = match open(&sim) {
            Ok(store) => store,
            Err(Error::DataLoss { path: at, .. }) => {
                assert_eq!(at, *path, "the wrong file is blamed for bit {bit}");
                assert!(!path.starts_with("/store/fragments"), "one fragment stops the store");
                refused += 1;
                continue;
            }
            Err(other) => panic!("{} bit {bit}: {other}", path.display()),
        };
        let (good, lost) = served(&store, &rows);
        if lost == 0 {
            whole += 1;
        } else {
            assert!(path.starts_with("/store/fragments"), "{} lost {lost}", path.display());
            assert!(good > 0, "all is lost with {}", path.display());
            partly += 1;
        }
        // Compaction encounters the damage and must not propagate it.
        for (table, _) in store.tables() {
            let compacted = store.compact(table);
            assert!(matches!(compacted, Ok(()) | Err(Error::DataLoss { .. })), "{compacted:?}");
        }
        let (good_after, _) = served(&store, &rows);
        assert!(good_after >= good, "compaction lost {} rows", good - good_after);
    }
    println!("{refused} refused to open, {whole} served all, {partly} lost some");
    assert!(refused > 20 && whole > 20 && partly > 20);
}

#[test]
fn only_the_rows_of_a_missing_fragment_are_lost() {
    let (image, rows) = closed_store();
    let fragments: Vec<&PathBuf> =
        image.keys().filter(|path| path.starts_with("/store/fragments")).collect();
    assert!(fragments.len() > 4);
    for gone in fragments {
        let sim = machine_with(&image);
        sim.remove(gone).unwrap();
        let store = open(&sim).unwrap();
        let configs = store.configs().unwrap();
        let named = |file: &&config::FileConfig| gone.ends_with(file.name.to_string());
        let inside = configs.files().find(named).unwrap().rows.clone();
        let (_, lost) = served(&store, &rows);
        let expected = rows.keys().filter(|(_, row)| inside.contains(row)).count() / 2;
        assert_eq!(lost, expected, "without {}", gone.display());
        assert!(lost > 0 && lost < rows.len() / 2);
        drop(store);
        // The loss persists: a later open must not forget what is missing.
        assert_eq!(served(&open(&sim).unwrap(), &rows).1, expected);
    }
}
