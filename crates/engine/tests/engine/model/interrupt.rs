//! Compactions that are interrupted after some of their outputs are installed.

use std::path::{Path, PathBuf};

use stele_engine::config::FileName;
use stele_engine::world::Files;
use stele_engine::world::sim::{Operation, SimFiles, disk_full};
use stele_engine::*;

/// Compacts a table until the disk is full for its second output. Returns whether it
/// got that far.
pub fn interrupt_compaction(store: &Store, files: &SimFiles, table: TableId) -> bool {
    let second = path_after_next(files);
    files.fail_next(Operation::Create, &second.to_string_lossy(), disk_full());
    let outcome = store.compact(table);
    // A fault that did not occur must not hit a later operation.
    if files.create(&second).is_err() {
        outcome.expect("nothing was in its way");
        return false;
    }
    files.remove(&second).expect("it was just created");
    let error = outcome.expect_err("an output could not be created");
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    true
}

/// Returns the path of the fragment after the next.
fn path_after_next(files: &SimFiles) -> PathBuf {
    let fragments = Path::new("/store").join(FRAGMENTS_DIR);
    let names = files.list(&fragments).expect("the store has a directory of fragments");
    let newest = names.iter().filter_map(|name| FileName::parse(name.to_str()?)).max();
    let FileName { incarnation, number } = newest.unwrap_or(FileName { incarnation: 1, number: 0 });
    fragments.join(FileName { incarnation, number: number + 2 }.to_string())
}
