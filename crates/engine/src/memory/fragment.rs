//! A memory fragment: the tree under its latch, its range tombstones, its txns and its
//! memory accounting.

use std::sync::Arc;

use super::arena::MemoryValue;
use super::cursor::MemoryCursor;
use super::tree::Tree;
use crate::budget::{Charge, MemoryBudget};
use crate::cell::key::txn_of;
use crate::cell::range_tombstone::{RangeTombstoneLookup, RangeTombstoneMap, RangeTombstones};
use crate::cell::rows::RowRange;
use crate::sync::{MappedRwLockReadGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::txn::Txn;

/// The number of cells inserted before the latch is yielded to waiting readers.
const CELLS_PER_LATCH: usize = 32;

/// The cells of one (table, group) in memory. Grows while it is read; intended for one
/// writer at a time.
pub struct MemoryFragment {
    contents: RwLock<FragmentContents>,
}

/// Which kinds of entries a fragment holds.
pub struct Holds {
    pub cells: bool,
    pub range_tombstones: bool,
}

struct FragmentContents {
    /// Declared before the tree, so that the charge is released before the tree's
    /// chunks are offered to the pool of spare chunks.
    charge: Charge,
    tree: Tree,
    txns: Option<(Txn, Txn)>,
    cell_txn_max: Txn,
    range_tombstones: RangeTombstoneMap,
    /// Bytes of commits that shared values keep in memory in addition to their own.
    pinned_bytes: usize,
}

impl MemoryFragment {
    pub fn new(budget: &Arc<MemoryBudget>) -> MemoryFragment {
        let tree = Tree::new(budget);
        let charge = budget.charge(tree.bytes());
        MemoryFragment {
            contents: RwLock::new(FragmentContents {
                charge,
                tree,
                txns: None,
                cell_txn_max: Txn::ZERO,
                range_tombstones: RangeTombstoneMap::default(),
                pinned_bytes: 0,
            }),
        }
    }

    /// Adds cells by their encoded keys; fastest in key order. A key contains its txn,
    /// so a duplicate is a bug in the caller. The iterator runs under the latch and
    /// should do no work of its own.
    pub fn insert_all<'a>(&self, cells: impl Iterator<Item = (&'a [u8], MemoryValue<'a>)>) {
        let mut cells = cells.peekable();
        if cells.peek().is_none() {
            return;
        }
        let mut contents = self.contents.write();
        loop {
            for (key, value) in cells.by_ref().take(CELLS_PER_LATCH) {
                let new = contents.tree.insert(key, value);
                debug_assert!(new, "a cell with the key {} exists already", key.escape_ascii());
                contents.note_cell(txn_of(key));
            }
            contents.update_charge();
            if cells.peek().is_none() {
                return;
            }
            RwLockWriteGuard::bump(&mut contents);
        }
    }

    /// Adds a delete of a range of rows.
    pub fn insert_range_tombstone(&self, range: &RowRange, txn: Txn) {
        if range.is_empty() {
            return;
        }
        let mut contents = self.contents.write();
        contents.range_tombstones.insert(range, &[txn]);
        contents.note_txn(txn);
        contents.update_charge();
    }

    /// Charges bytes that values of the fragment keep in memory.
    pub fn pin(&self, bytes: usize) {
        let mut contents = self.contents.write();
        contents.pinned_bytes += bytes;
        contents.update_charge();
    }

    /// Returns a copy of the current range tombstones.
    pub fn range_tombstones(&self) -> RangeTombstones {
        self.contents.read().range_tombstones.to_list()
    }

    /// Returns which kinds of entries a reader has to consult.
    pub fn holds(&self) -> Holds {
        let contents = self.contents.read();
        Holds {
            cells: contents.tree.cells() > 0,
            range_tombstones: !contents.range_tombstones.is_empty(),
        }
    }

    /// Returns the bytes held and charged to the budget.
    pub fn bytes(&self) -> usize {
        self.contents.read().charge.bytes()
    }

    pub fn cells(&self) -> usize {
        self.contents.read().tree.cells()
    }

    /// Returns whether the fragment has neither cells nor range tombstones.
    pub fn is_empty(&self) -> bool {
        let holds = self.holds();
        !holds.cells && !holds.range_tombstones
    }

    /// Returns the oldest txn of a cell or range tombstone.
    pub fn txn_min(&self) -> Option<Txn> {
        self.contents.read().txns.map(|(min, _)| min)
    }

    /// Returns the newest txn of a cell or range tombstone.
    pub fn txn_max(&self) -> Option<Txn> {
        self.contents.read().txns.map(|(_, max)| max)
    }

    /// Returns the newest txn of a cell.
    pub fn cell_txn_max(&self) -> Txn {
        self.contents.read().cell_txn_max
    }

    pub fn cursor(self: &Arc<Self>) -> MemoryCursor {
        MemoryCursor::new(Arc::clone(self))
    }

    pub(super) fn read(&self) -> TreeLatch<'_> {
        RwLockReadGuard::map(self.contents.read(), |contents| &contents.tree)
    }
}

/// Deletes that arrive during a read are newer than any reader's snapshot.
impl RangeTombstoneLookup for MemoryFragment {
    fn covering(&self, row: &[u8], snapshot: Txn) -> Option<Txn> {
        self.contents.read().range_tombstones.covering(row, snapshot)
    }

    fn covering_range(&self, row: &[u8], snapshot: Txn) -> Option<(RowRange, Txn)> {
        self.contents.read().range_tombstones.covering_range(row, snapshot)
    }
}

/// The tree under a read latch.
pub(super) type TreeLatch<'a> = MappedRwLockReadGuard<'a, Tree>;

impl FragmentContents {
    fn note_cell(&mut self, txn: Option<Txn>) {
        let Some(txn) = txn else { return };
        self.cell_txn_max = self.cell_txn_max.max(txn);
        self.note_txn(txn);
    }

    fn note_txn(&mut self, txn: Txn) {
        let (min, max) = self.txns.unwrap_or((txn, txn));
        self.txns = Some((min.min(txn), max.max(txn)));
    }

    fn update_charge(&mut self) {
        // The memory of the cells only grows, but a range tombstone that closes a gap
        // can shrink the list of range tombstones.
        let now = self.tree.bytes() + self.range_tombstones.bytes() + self.pinned_bytes;
        let charged = self.charge.bytes();
        if now > charged {
            self.charge.grow(now - charged);
        } else if now < charged {
            self.charge.shrink(charged - now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::key::{self, Kind};
    use bytes::Bytes;

    fn txn(number: u64) -> Txn {
        Txn::from_raw(number).unwrap()
    }

    fn cell_key(row: u32, number: u64) -> Vec<u8> {
        let mut out = Vec::new();
        key::push_column(&mut out, format!("row{row:08}").as_bytes(), b"f", b"q");
        key::push_cell_tail(&mut out, 7, txn(number), Kind::Put);
        out
    }

    #[test]
    fn txns_cover_cells_and_spans() {
        let fragment = MemoryFragment::new(&MemoryBudget::new(1 << 20));
        assert!(fragment.is_empty() && fragment.txn_min().is_none());
        let keys = [cell_key(1, 5), cell_key(2, 9)];
        fragment.insert_all(keys.iter().map(|key| (&key[..], b"v".as_slice().into())));
        assert_eq!((fragment.txn_min(), fragment.txn_max()), (Some(txn(5)), Some(txn(9))));
        fragment.insert_range_tombstone(&RowRange::new("b", "a"), txn(1));
        fragment.insert_range_tombstone(&RowRange::new("a", "b"), txn(3));
        fragment.insert_range_tombstone(&RowRange::new("c", "d"), txn(12));
        assert_eq!((fragment.txn_min(), fragment.txn_max()), (Some(txn(3)), Some(txn(12))));
        assert_eq!(fragment.cells(), 2);
    }

    #[test]
    fn a_fragment_with_only_a_span_is_not_empty() {
        let fragment = MemoryFragment::new(&MemoryBudget::new(1 << 20));
        let before = fragment.range_tombstones();
        fragment.insert_range_tombstone(&RowRange::row(b"x"), txn(4));
        assert!(!fragment.is_empty() && before.is_empty());
        assert_eq!(fragment.covering(b"x", Txn::MAX), Some(txn(4)));
    }

    #[test]
    fn the_next_fragment_gets_the_chunks_of_the_last() {
        let budget = MemoryBudget::new(8 << 20);
        let fragment = MemoryFragment::new(&budget);
        let keys: Vec<_> = (0..100_000).map(|row| cell_key(row, 5)).collect();
        fragment.insert_all(keys.iter().map(|key| (&key[..], b"v".as_slice().into())));
        assert!(budget.used() > budget.limit() / 2);
        drop(fragment);
        assert_eq!(budget.used(), 0);
        assert!(budget.take_spare_chunk().is_some_and(|chunk| chunk.is_empty()));
    }

    #[test]
    fn what_a_fragment_holds_is_charged_and_given_back() {
        let budget = MemoryBudget::new(1 << 30);
        let other = budget.charge(1000);
        let fragment = Arc::new(MemoryFragment::new(&budget));
        let large = Bytes::from(vec![1; 100_000]);
        let keys: Vec<_> = (0..20_000).map(|row| cell_key(row, 5)).collect();
        fragment.insert_all(keys.iter().zip(0..).map(|(key, number)| {
            let value = if number % 500 == 0 {
                large.clone().into()
            } else {
                MemoryValue::Borrowed(&key[..number % key.len()])
            };
            (&key[..], value)
        }));
        for row in 0..100u8 {
            fragment.insert_range_tombstone(&RowRange::new([row, 1], [row, 9]), txn(6));
        }
        let recount = fragment.contents.read().tree.recount() + fragment.range_tombstones().bytes();
        assert_eq!(fragment.bytes(), recount);
        assert_eq!(budget.used(), 1000 + recount);
        assert!(recount > 40 * 100_000 + keys.iter().map(Vec::len).sum::<usize>());
        let cursor = fragment.cursor();
        drop(fragment);
        assert_eq!(budget.used(), 1000 + recount, "a cursor keeps its fragment in memory");
        drop(cursor);
        assert_eq!(budget.used(), other.bytes());
    }
}
