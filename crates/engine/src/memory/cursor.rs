//! A cursor over a memory fragment that may grow while it is read.
//!
//! A cursor copies entries in batches under the fragment's latch: one entry after a
//! seek, since most seeks need only one, then increasingly large batches while it
//! advances. If its leaf is unchanged it continues there; otherwise it searches for its
//! last key.

use std::sync::Arc;

use bytes::Bytes;

use super::arena::ArenaEntry;
use super::fragment::MemoryFragment;
use super::tree::{Tree, TreePosition};
use crate::error::Result;
use crate::merge::Cursor;
use crate::txn::Txn;

const BATCH_ENTRIES_MAX: usize = 64;
const BATCH_GROWTH: usize = 4;
/// A batch ends once it has copied this much.
const BATCH_BYTES: usize = 64 << 10;

pub struct MemoryCursor {
    fragment: Arc<MemoryFragment>,
    batch: Batch,
    /// The current entry within the batch.
    at: usize,
    /// The position after the last entry of the batch.
    position: Option<TreePosition>,
    /// The number of entries in the next batch.
    next_entries: usize,
}

/// Copied entries, stored contiguously.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    entries: Vec<BatchEntry>,
}

struct BatchEntry {
    key_start: usize,
    key_end: usize,
    value_end: usize,
    shared: Option<Bytes>,
}

impl Batch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    fn push(&mut self, entry: &ArenaEntry<'_>) {
        let key_start = self.bytes.len();
        self.bytes.extend_from_slice(entry.bytes);
        self.entries.push(BatchEntry {
            key_start,
            key_end: key_start + entry.key_len,
            value_end: self.bytes.len(),
            shared: entry.shared.cloned(),
        });
    }

    fn key(&self, at: usize) -> &[u8] {
        let entry = &self.entries[at];
        &self.bytes[entry.key_start..entry.key_end]
    }

    fn value(&self, at: usize) -> &[u8] {
        let entry = &self.entries[at];
        match &entry.shared {
            Some(value) => value,
            None => &self.bytes[entry.key_end..entry.value_end],
        }
    }

    /// Copies entries starting at `position` and advances `position` past them.
    fn fill(&mut self, tree: &Tree, position: &mut TreePosition, entries: usize) {
        while self.entries.len() < entries && self.bytes.len() < BATCH_BYTES {
            let Some(entry) = tree.take_next(position) else { return };
            self.push(&entry);
        }
    }
}

impl MemoryCursor {
    pub(super) fn new(fragment: Arc<MemoryFragment>) -> MemoryCursor {
        MemoryCursor { fragment, batch: Batch::default(), at: 0, position: None, next_entries: 1 }
    }

    fn start(&mut self, find: impl FnOnce(&Tree) -> Option<TreePosition>) {
        self.batch.clear();
        self.at = 0;
        let tree = self.fragment.read();
        self.position = find(&tree);
        if let Some(position) = &mut self.position {
            self.batch.fill(&tree, position, 1);
        }
        self.next_entries = BATCH_GROWTH;
    }

    fn refill(&mut self) {
        let tree = self.fragment.read();
        let mut position = self.position.expect("a positioned cursor was sought");
        if !tree.is_current(position) {
            position = tree.find_after(self.batch.key(self.batch.entries.len() - 1));
        }
        self.batch.clear();
        self.at = 0;
        self.batch.fill(&tree, &mut position, self.next_entries);
        self.position = Some(position);
        self.next_entries = (self.next_entries * BATCH_GROWTH).min(BATCH_ENTRIES_MAX);
    }
}

impl Cursor for MemoryCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.start(|tree| Some(tree.find(key)));
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.start(|tree| tree.find_before(key));
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.start(Tree::find_last);
        Ok(())
    }

    fn rewind(&mut self) -> Result<()> {
        let key = self.key().to_vec();
        self.start(|tree| Some(tree.leaf_start(&key)));
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        assert!(self.valid(), "an unpositioned cursor has no next entry");
        self.at += 1;
        if self.at == self.batch.entries.len() {
            self.refill();
        }
        Ok(())
    }

    fn valid(&self) -> bool {
        self.at < self.batch.entries.len()
    }

    fn key(&self) -> &[u8] {
        self.batch.key(self.at)
    }

    fn value(&self) -> &[u8] {
        self.batch.value(self.at)
    }

    fn txn_max(&self) -> Txn {
        self.fragment.cell_txn_max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::MemoryBudget;
    use crate::cell::commit::SHARED_VALUE_BYTES_MIN;
    use crate::memory::MemoryValue;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    #[derive(Clone, Debug)]
    enum Action {
        Insert(Vec<(Vec<u8>, usize)>),
        Seek(Vec<u8>),
        SeekBefore(Vec<u8>),
        Walk(usize),
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xFF]), 0..5),
            (0u32..400).prop_map(|number| format!("a/shared/prefix/{number:05}").into_bytes()),
        ]
    }

    fn value_len() -> impl Strategy<Value = usize> {
        prop_oneof![20 => 0usize..30, 1 => SHARED_VALUE_BYTES_MIN - 1..SHARED_VALUE_BYTES_MIN + 2]
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            3 => prop::collection::vec((key(), value_len()), 0..80).prop_map(Action::Insert),
            1 => key().prop_map(Action::Seek),
            1 => key().prop_map(Action::SeekBefore),
            4 => (1usize..120).prop_map(Action::Walk),
        ]
    }

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    /// Advances from the current entry. Every entry present at the seek must appear;
    /// entries inserted later may.
    fn walk(cursor: &mut MemoryCursor, model: &Model, sought: &BTreeSet<Vec<u8>>, steps: usize) {
        for _ in 0..steps {
            if !cursor.valid() {
                return;
            }
            let before = cursor.key().to_vec();
            assert_eq!(Some(cursor.value()), model.get(&before).map(Vec::as_slice));
            cursor.next().unwrap();
            let after = [&before[..], b"\0"].concat();
            let must = sought.range(after..).next();
            if cursor.valid() {
                assert!(cursor.key() > &before[..]);
                assert!(must.is_none_or(|must| cursor.key() <= &must[..]), "an entry was skipped");
            } else {
                assert_eq!(must, None, "the walk ended early");
            }
        }
    }

    proptest! {
        #[test]
        fn a_cursor_on_a_growing_fragment_reads_like_a_sorted_map(
            actions in prop::collection::vec(action(), 1..40),
        ) {
            let fragment = Arc::new(MemoryFragment::new(&MemoryBudget::new(1 << 30)));
            let mut cursor = fragment.cursor();
            let (mut model, mut sought) = (Model::new(), BTreeSet::new());
            for action in actions {
                match action {
                    Action::Insert(cells) => {
                        let new: Model = cells
                            .into_iter()
                            .filter(|(key, _)| !model.contains_key(key))
                            .map(|(key, len)| (key, vec![len as u8; len]))
                            .collect();
                        fragment.insert_all(new.iter().map(|(k, v)| (&k[..], v[..].into())));
                        model.extend(new);
                    }
                    Action::Seek(key) => {
                        cursor.seek(&key).unwrap();
                        sought = model.keys().cloned().collect();
                        let expected = model.range(key..).next().map(|(key, _)| &key[..]);
                        prop_assert_eq!(cursor.valid().then(|| cursor.key()), expected);
                    }
                    Action::SeekBefore(key) => {
                        cursor.seek_before(&key).unwrap();
                        sought = model.keys().cloned().collect();
                        let expected = model.range(..key).next_back().map(|(key, _)| &key[..]);
                        prop_assert_eq!(cursor.valid().then(|| cursor.key()), expected);
                    }
                    Action::Walk(steps) => walk(&mut cursor, &model, &sought, steps),
                }
                prop_assert_eq!(fragment.cells(), model.len());
            }
        }
    }

    /// Returns a scattered key: consecutive numbers yield keys that are not neighbours
    /// in key order.
    fn scattered(number: u64) -> [u8; 8] {
        number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
    }

    #[test]
    fn readers_beside_a_writer_see_all_that_was_there_in_order() {
        const CELLS: u64 = 60_000;
        let fragment = Arc::new(MemoryFragment::new(&MemoryBudget::new(1 << 30)));
        let inserted = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                for from in (0..CELLS).step_by(50) {
                    let keys: Vec<_> = (from..from + 50).map(scattered).collect();
                    let values = keys.iter().map(|key| (&key[..], MemoryValue::Borrowed(key)));
                    fragment.insert_all(values);
                    inserted.store(from + 50, Ordering::Release);
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut cursor = fragment.cursor();
                    loop {
                        let there = inserted.load(Ordering::Acquire);
                        let mut due: Vec<_> = (0..there).map(scattered).collect();
                        due.sort_unstable();
                        let mut due = due.into_iter().peekable();
                        let mut last: Option<Vec<u8>> = None;
                        cursor.seek(b"").unwrap();
                        while cursor.valid() {
                            assert!(last.as_deref().is_none_or(|last| last < cursor.key()));
                            assert_eq!(cursor.key(), cursor.value());
                            due.next_if(|due| due == cursor.key());
                            assert!(due.peek().is_none_or(|due| &due[..] > cursor.key()));
                            last = Some(cursor.key().to_vec());
                            cursor.next().unwrap();
                        }
                        assert_eq!(due.next(), None);
                        if there == CELLS {
                            return;
                        }
                    }
                });
            }
        });
        assert_eq!(fragment.cells(), CELLS as usize);
    }

    #[test]
    fn a_new_cursor_and_one_past_the_end_stand_nowhere() {
        let fragment = Arc::new(MemoryFragment::new(&MemoryBudget::new(1 << 20)));
        let mut cursor = fragment.cursor();
        assert!(!cursor.valid());
        cursor.seek(b"").unwrap();
        assert!(!cursor.valid());
        cursor.seek_before(b"x").unwrap();
        assert!(!cursor.valid());
        fragment.insert_all([(b"".as_slice(), b"".as_slice().into())].into_iter());
        cursor.seek_before(b"").unwrap();
        assert!(!cursor.valid());
        cursor.seek(b"").unwrap();
        assert_eq!((cursor.key(), cursor.value()), (&b""[..], &b""[..]));
        cursor.next().unwrap();
        assert!(!cursor.valid());
    }
}
