//! The memory fragment under every schedule: a reader that knows of a commit finds all
//! of it, however the tree grows meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;

use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;
use stele_engine::budget::MemoryBudget;
use stele_engine::cell::key::{self, Kind};
use stele_engine::memory::MemoryFragment;
use stele_engine::merge::Cursor;
use stele_engine::{RowRange, Txn};

use super::explore;

/// More than are inserted under one latch, so that readers see partial commits, and
/// enough in total that leaves split during reads.
const CELLS: u64 = 40;
const WRITERS: u64 = 2;
const COMMITS: u64 = 2 * WRITERS;

fn txn(number: u64) -> Txn {
    Txn::from_raw(number).unwrap()
}

/// Returns the key of a commit's cell. The rows of all commits interleave.
fn cell_key(cell: u64, commit: u64) -> Vec<u8> {
    let mut key = Vec::new();
    key::push_column(&mut key, format!("row{:03}", cell * 7 % CELLS).as_bytes(), b"f", b"q");
    key::push_cell_tail(&mut key, 1, txn(commit), Kind::Put);
    key
}

/// Returns a value unique to this key.
fn value_of(key: &[u8]) -> Vec<u8> {
    key.iter().rev().map(|byte| !byte).collect()
}

fn insert(fragment: &MemoryFragment, commit: u64) {
    fragment.insert_range_tombstone(&RowRange::row(&commit.to_be_bytes()), txn(commit));
    let mut keys: Vec<_> = (0..CELLS).map(|cell| cell_key(cell, commit)).collect();
    keys.sort();
    let cells: Vec<_> = keys.into_iter().map(|key| (value_of(&key), key)).collect();
    fragment.insert_all(cells.iter().map(|(value, key)| (&key[..], value.as_slice().into())));
}

/// Returns all keys of the fragment in order.
fn walk(fragment: &Arc<MemoryFragment>) -> Vec<Vec<u8>> {
    let mut cursor = fragment.cursor();
    let mut keys = Vec::new();
    cursor.seek(b"").unwrap();
    while cursor.valid() {
        assert_eq!(cursor.value(), value_of(cursor.key()), "a torn cell");
        keys.push(cursor.key().to_vec());
        cursor.next().unwrap();
    }
    keys
}

/// Like `walk`, but backwards, key by key.
fn walk_back(fragment: &Arc<MemoryFragment>) -> Vec<Vec<u8>> {
    let mut cursor = fragment.cursor();
    let mut keys = Vec::new();
    cursor.seek_last().unwrap();
    while cursor.valid() {
        let key = cursor.key().to_vec();
        assert_eq!(cursor.value(), value_of(&key), "a torn cell");
        cursor.seek_before(&key).unwrap();
        keys.push(key);
    }
    keys.reverse();
    keys
}

/// Checks what a reader that knows of all commits up to `through` must find.
fn check(fragment: &MemoryFragment, keys: &[Vec<u8>], through: u64) {
    assert!(keys.is_sorted_by(|a, b| a < b), "keys rise");
    let found: BTreeSet<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let spans = fragment.range_tombstones();
    for commit in 1..=through {
        let missing = (0..CELLS).find(|&cell| !found.contains(&cell_key(cell, commit)[..]));
        assert_eq!(missing, None, "a cell of commit {commit} of {through} is not there");
        let span = spans.covering(&commit.to_be_bytes(), txn(through));
        assert_eq!(span, Some(txn(commit)), "its range tombstone too");
    }
    let known: BTreeSet<Vec<u8>> = (1..=COMMITS)
        .flat_map(|commit| (0..CELLS).map(move |cell| cell_key(cell, commit)))
        .collect();
    assert!(keys.iter().all(|key| known.contains(key)), "nothing is there that nobody wrote");
}

fn readers_and_writers(walk: fn(&Arc<MemoryFragment>) -> Vec<Vec<u8>>) {
    let budget = MemoryBudget::new(1 << 30);
    let fragment = Arc::new(MemoryFragment::new(&budget));
    // As in the store: commits are inserted one by one and then published.
    let last = Arc::new(Mutex::new(0));
    let inserted = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for _ in 0..WRITERS {
        let (fragment, last, inserted) = (fragment.clone(), last.clone(), inserted.clone());
        threads.push(thread::spawn(move || {
            for _ in 0..COMMITS / WRITERS {
                let mut last = last.lock().unwrap();
                *last += 1;
                insert(&fragment, *last);
                inserted.store(*last, Ordering::SeqCst);
            }
        }));
    }
    for _ in 0..2 {
        let (fragment, inserted) = (fragment.clone(), inserted.clone());
        threads.push(thread::spawn(move || {
            let through = inserted.load(Ordering::SeqCst);
            check(&fragment, &walk(&fragment), through);
        }));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let keys = walk(&fragment);
    check(&fragment, &keys, COMMITS);
    assert_eq!(keys.len() as u64, COMMITS * CELLS, "nothing is lost");
    assert_eq!(fragment.bytes(), budget.used());
}

#[test]
fn a_walk_over_a_growing_fragment_has_every_announced_commit_whole_and_in_order() {
    explore(2_000, || readers_and_writers(walk));
}

#[test]
fn a_walk_backwards_over_a_growing_fragment_misses_nothing_either() {
    explore(1_000, || readers_and_writers(walk_back));
}
