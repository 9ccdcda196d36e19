//! The tree of a memory fragment: an insert-only B+tree over an arena.
//!
//! Leaves are large and linked; nodes are identified by number and never removed, so a
//! reader that remembers a leaf can tell from its change count whether its position in
//! the leaf is still valid.

use std::sync::Arc;

use super::arena::{Arena, ArenaEntry, EntryAddress, MemoryValue};
use super::keys::NodeKeys;
use crate::budget::MemoryBudget;
use crate::cell::prefix::common_prefix;

const LEAF_KEYS: usize = 64;
const INNER_KEYS: usize = 127;
/// Inner nodes split in half, or at the end when keys are appended, so seven levels
/// hold more leaves than a `u32` can number.
const HEIGHT_MAX: usize = 8;
const NO_LEAF: u32 = u32::MAX;

struct Leaf {
    keys: NodeKeys<LEAF_KEYS>,
    next: u32,
    changes: u32,
}

/// Child `i + 1` contains the keys at or after key `i`.
struct Inner {
    keys: NodeKeys<INNER_KEYS>,
    children: [u32; INNER_KEYS + 1],
}

/// A position: entry `at` of a leaf, valid while the leaf has this change count. Past
/// the end of the last leaf there is no entry.
#[derive(Clone, Copy, Debug)]
pub struct TreePosition {
    leaf: u32,
    at: usize,
    changes: u32,
}

/// An inner node on the path to a leaf, and the separators around it.
#[derive(Clone, Copy, Default)]
struct Step {
    inner: u32,
    child: usize,
    fences: Fences,
}

/// The separators around a node; `None` at the edge of the tree.
#[derive(Clone, Copy, Default)]
struct Fences {
    lower: Option<EntryAddress>,
    upper: Option<EntryAddress>,
}

impl Fences {
    /// Returns the number of leading bytes that all keys between the fences share.
    fn shared(self, separators: &Arena) -> usize {
        match (self.lower, self.upper) {
            (Some(lower), Some(upper)) => {
                common_prefix(separators.key(lower), separators.key(upper))
            }
            _ => 0,
        }
    }

    fn below(self, separator: EntryAddress) -> Fences {
        Fences { upper: Some(separator), ..self }
    }

    fn above(self, separator: EntryAddress) -> Fences {
        Fences { lower: Some(separator), ..self }
    }
}

struct Path {
    steps: [Step; HEIGHT_MAX],
    leaf: u32,
    fences: Fences,
}

pub struct Tree {
    arena: Arena,
    /// The shortened keys of the inner nodes. Stored separately from the cells for
    /// locality.
    separators: Arena,
    #[expect(clippy::vec_box, reason = "a list that grows must not move its nodes")]
    leaves: Vec<Box<Leaf>>,
    #[expect(clippy::vec_box, reason = "as above")]
    inners: Vec<Box<Inner>>,
    /// The number of a leaf if `height` is zero, else of an inner node.
    root: u32,
    height: usize,
    cells: usize,
    /// Leaf and index of the most recent insert: cells tend to arrive in runs.
    newest: (u32, usize),
}

impl Tree {
    pub fn new(budget: &Arc<MemoryBudget>) -> Tree {
        let leaf = Leaf { keys: NodeKeys::new(), next: NO_LEAF, changes: 0 };
        Tree {
            arena: Arena::new(budget),
            separators: Arena::new(budget),
            leaves: vec![Box::new(leaf)],
            inners: Vec::new(),
            root: 0,
            height: 0,
            cells: 0,
            newest: (0, 0),
        }
    }

    pub fn cells(&self) -> usize {
        self.cells
    }

    pub fn bytes(&self) -> usize {
        self.arena.bytes() + self.separators.bytes() + self.node_bytes()
    }

    fn node_bytes(&self) -> usize {
        self.leaves.len() * size_of::<Leaf>()
            + self.inners.len() * size_of::<Inner>()
            + self.leaves.capacity() * size_of::<Box<Leaf>>()
            + self.inners.capacity() * size_of::<Box<Inner>>()
    }

    fn leaf(&self, number: u32) -> &Leaf {
        &self.leaves[number as usize]
    }

    /// Adds an entry; returns `false` if the key already exists.
    pub fn insert(&mut self, key: &[u8], value: MemoryValue<'_>) -> bool {
        if let Some((leaf, at)) = self.after_newest(key) {
            let address = self.arena.push(key, value);
            self.insert_in_leaf(leaf, at, key, address);
            return true;
        }
        let path = self.path_to(key);
        let keys = &self.leaf(path.leaf).keys;
        let at = keys.count_before(&self.arena, key);
        if keys.is_at(&self.arena, at, key) {
            return false;
        }
        let full = keys.is_full();
        let address = self.arena.push(key, value);
        if full {
            self.split_leaf(&path, at, key, address);
        } else {
            self.insert_in_leaf(path.leaf, at, key, address);
        }
        true
    }

    /// Returns the insert position if it is right after the most recent insert, in a
    /// leaf that is not full, and can be determined without a search.
    fn after_newest(&self, key: &[u8]) -> Option<(u32, usize)> {
        let (number, newest) = self.newest;
        let leaf = self.leaf(number);
        if leaf.keys.is_full() || newest >= leaf.keys.len() {
            return None;
        }
        let before = self.arena.key(leaf.keys.address(newest));
        if key <= before {
            return None;
        }
        let at = newest + 1;
        let fits = if at == leaf.keys.len() {
            leaf.next == NO_LEAF
        } else {
            leaf.keys.is_clearly_before(at, key, before)
        };
        fits.then_some((number, at))
    }

    fn insert_in_leaf(&mut self, number: u32, at: usize, key: &[u8], address: EntryAddress) {
        let leaf = &mut self.leaves[number as usize];
        leaf.keys.insert(&self.arena, at, key, address);
        leaf.changes = leaf.changes.wrapping_add(1);
        self.cells += 1;
        self.newest = (number, at);
    }

    fn path_to(&self, key: &[u8]) -> Path {
        let mut path = Path {
            steps: [Step::default(); HEIGHT_MAX],
            leaf: self.root,
            fences: Fences::default(),
        };
        for step in &mut path.steps[..self.height] {
            let inner = &self.inners[path.leaf as usize];
            let child = inner.keys.count_through(&self.separators, key);
            *step = Step { inner: path.leaf, child, fences: path.fences };
            if child > 0 {
                path.fences.lower = Some(inner.keys.address(child - 1));
            }
            if child < inner.keys.len() {
                path.fences.upper = Some(inner.keys.address(child));
            }
            path.leaf = inner.children[child];
        }
        path
    }

    /// Splits the full leaf at the end of the path and adds the new entry.
    fn split_leaf(&mut self, path: &Path, at: usize, key: &[u8], address: EntryAddress) {
        let number = self.leaves.len() as u32;
        assert!(number < NO_LEAF, "a memory fragment has too many leaves");
        let left = &mut self.leaves[path.leaf as usize];
        // Ascending keys are appended to a new leaf, which leaves the last one full.
        let appended = at == LEAF_KEYS && left.next == NO_LEAF;
        let middle = if appended { LEAF_KEYS } else { LEAF_KEYS / 2 };
        let last_left = self.arena.key(left.keys.address(middle - 1));
        let first_right = if appended { key } else { self.arena.key(left.keys.address(middle)) };
        let cut = &first_right[..=common_prefix(last_left, first_right)];
        let belongs_left = key < cut;
        let separator = self.separators.push(cut, MemoryValue::Borrowed(&[]));

        let mut right = Leaf { keys: left.keys.split_off(middle), next: left.next, changes: 0 };
        left.next = number;
        left.changes = left.changes.wrapping_add(1);
        let fences = path.fences;
        left.keys.refit(&self.arena, fences.below(separator).shared(&self.separators));
        right.keys.refit(&self.arena, fences.above(separator).shared(&self.separators));
        self.leaves.push(Box::new(right));
        self.insert_separator(path, separator, number);
        if belongs_left {
            self.insert_in_leaf(path.leaf, at, key, address);
        } else {
            self.insert_in_leaf(number, at - middle, key, address);
        }
    }

    /// Adds `child`, split off at `separator`, to the inner nodes of a path, from the
    /// lowest up.
    fn insert_separator(&mut self, path: &Path, separator: EntryAddress, child: u32) {
        let (mut separator, mut child) = (separator, child);
        for step in path.steps[..self.height].iter().rev() {
            if !self.inners[step.inner as usize].keys.is_full() {
                self.insert_in_inner(step.inner, step.child, separator, child);
                return;
            }
            (separator, child) = self.split_inner(step, separator, child);
        }
        assert!(self.height < HEIGHT_MAX, "the tree is too high");
        let mut root = Inner { keys: NodeKeys::new(), children: [0; INNER_KEYS + 1] };
        root.children[0] = self.root;
        self.root = self.inners.len() as u32;
        self.inners.push(Box::new(root));
        self.height += 1;
        self.insert_in_inner(self.root, 0, separator, child);
    }

    fn insert_in_inner(&mut self, number: u32, at: usize, separator: EntryAddress, child: u32) {
        let inner = &mut self.inners[number as usize];
        let len = inner.keys.len();
        let key = self.separators.key(separator);
        inner.keys.insert(&self.separators, at, key, separator);
        inner.children.copy_within(at + 1..len + 1, at + 2);
        inner.children[at + 1] = child;
    }

    /// Splits a full inner node and adds the new child. Returns the separator that
    /// moves up and the number of the new node.
    fn split_inner(
        &mut self,
        step: &Step,
        separator: EntryAddress,
        child: u32,
    ) -> (EntryAddress, u32) {
        let number = self.inners.len() as u32;
        let left = &mut self.inners[step.inner as usize];
        let appended = step.child == INNER_KEYS && step.fences.upper.is_none();
        let middle = if appended { INNER_KEYS - 1 } else { INNER_KEYS / 2 };
        let risen = left.keys.address(middle);
        let mut right =
            Inner { keys: left.keys.split_off(middle + 1), children: [0; INNER_KEYS + 1] };
        left.keys.pop();
        let moved = &left.children[middle + 1..];
        right.children[..moved.len()].copy_from_slice(moved);
        left.keys.refit(&self.separators, step.fences.below(risen).shared(&self.separators));
        right.keys.refit(&self.separators, step.fences.above(risen).shared(&self.separators));
        self.inners.push(Box::new(right));
        if step.child <= middle {
            self.insert_in_inner(step.inner, step.child, separator, child);
        } else {
            self.insert_in_inner(number, step.child - (middle + 1), separator, child);
        }
        (risen, number)
    }

    /// Returns the first entry at or after the key.
    pub fn find(&self, key: &[u8]) -> TreePosition {
        let leaf = self.leaf_of(key);
        self.position(leaf, self.leaf(leaf).keys.count_before(&self.arena, key))
    }

    /// Returns the first entry after the key.
    pub fn find_after(&self, key: &[u8]) -> TreePosition {
        let leaf = self.leaf_of(key);
        self.position(leaf, self.leaf(leaf).keys.count_through(&self.arena, key))
    }

    /// Returns the last entry before the key.
    pub fn find_before(&self, key: &[u8]) -> Option<TreePosition> {
        let path = self.path_to(key);
        let at = self.leaf(path.leaf).keys.count_before(&self.arena, key);
        if at > 0 {
            return Some(self.position(path.leaf, at - 1));
        }
        // The last entry of the nearest subtree to the left.
        let turn = path.steps[..self.height].iter().rposition(|step| step.child > 0)?;
        let step = &path.steps[turn];
        let node = self.inners[step.inner as usize].children[step.child - 1];
        self.last_under(node, turn + 1)
    }

    /// Returns the first entry of the leaf that `key` belongs to.
    pub fn leaf_start(&self, key: &[u8]) -> TreePosition {
        self.position(self.leaf_of(key), 0)
    }

    /// Returns the last entry of the tree.
    pub fn find_last(&self) -> Option<TreePosition> {
        self.last_under(self.root, 0)
    }

    /// Returns the last entry under a node that is `depth` levels below the root.
    fn last_under(&self, mut node: u32, depth: usize) -> Option<TreePosition> {
        for _ in depth..self.height {
            let inner = &self.inners[node as usize];
            node = inner.children[inner.keys.len()];
        }
        let len = self.leaf(node).keys.len();
        Some(self.position(node, len.checked_sub(1)?))
    }

    fn leaf_of(&self, key: &[u8]) -> u32 {
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = &self.inners[node as usize];
            node = inner.children[inner.keys.count_through(&self.separators, key)];
        }
        node
    }

    fn position(&self, leaf: u32, at: usize) -> TreePosition {
        TreePosition { leaf, at, changes: self.leaf(leaf).changes }
    }

    /// Returns whether an earlier position is still valid.
    pub fn is_current(&self, position: TreePosition) -> bool {
        self.leaf(position.leaf).changes == position.changes
    }

    /// Returns the entry at `position` and advances `position` past it; `None` at the end. The
    /// position must still be valid.
    pub fn take_next(&self, position: &mut TreePosition) -> Option<ArenaEntry<'_>> {
        let mut leaf = self.leaf(position.leaf);
        if position.at == leaf.keys.len() {
            if leaf.next == NO_LEAF {
                return None;
            }
            *position = self.position(leaf.next, 0);
            leaf = self.leaf(position.leaf);
        }
        let address = leaf.keys.address(position.at);
        position.at += 1;
        Some(self.arena.entry(address))
    }
}

#[cfg(test)]
impl Tree {
    /// Recomputes `bytes` with the arena counted from scratch.
    pub fn recount(&self) -> usize {
        self.arena.recount() + self.separators.recount() + self.node_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn all_keys(tree: &Tree) -> Vec<Vec<u8>> {
        let mut position = tree.find(b"");
        std::iter::from_fn(|| tree.take_next(&mut position))
            .map(|entry| entry.bytes[..entry.key_len].to_vec())
            .collect()
    }

    fn key_at(tree: &Tree, position: TreePosition) -> Option<Vec<u8>> {
        let entry = tree.take_next(&mut { position })?;
        Some(entry.bytes[..entry.key_len].to_vec())
    }

    /// Generates runs of consecutive numbers under a few prefixes, which cause splits
    /// at the end and in the middle, with fences that share much or nothing.
    fn runs() -> impl Strategy<Value = Vec<(usize, u32, u32, bool)>> {
        prop::collection::vec((0usize..4, 0u32..50_000, 1u32..600, any::<bool>()), 1..24)
    }

    fn keys_of(runs: &[(usize, u32, u32, bool)]) -> Vec<Vec<u8>> {
        const PREFIXES: [&str; 4] = ["", "a", "a/long/shared/prefix/", "z"];
        let mut keys = Vec::new();
        for &(prefix, from, count, ascending) in runs {
            for step in 0..count {
                let number = if ascending { from + step } else { from + count - step };
                keys.push(format!("{}{number:06}", PREFIXES[prefix]).into_bytes());
            }
        }
        keys
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn a_tree_holds_and_finds_what_a_sorted_set_does(runs in runs()) {
            let mut tree = Tree::new(&MemoryBudget::new(1 << 30));
            let mut model = BTreeSet::new();
            for key in keys_of(&runs) {
                prop_assert_eq!(tree.insert(&key, b"v".as_slice().into()), model.insert(key));
            }
            prop_assert_eq!(tree.cells(), model.len());
            prop_assert_eq!(tree.bytes(), tree.recount());
            let keys = all_keys(&tree);
            prop_assert!(keys.iter().eq(model.iter()));
            for key in model.iter().step_by(7) {
                let after = [&key[..], b"\0"].concat();
                let (here, next) = (tree.find(key), tree.find_after(key));
                prop_assert_eq!(key_at(&tree, here), Some(key.clone()));
                prop_assert_eq!(key_at(&tree, next), model.range(after..).next().cloned());
                let before = tree.find_before(key).and_then(|position| key_at(&tree, position));
                prop_assert_eq!(before.as_ref(), model.range(..key.clone()).next_back());
            }
        }
    }

    #[test]
    fn ascending_keys_fill_their_leaves() {
        let mut tree = Tree::new(&MemoryBudget::new(1 << 30));
        let count = 300_000u32;
        for number in 0..count {
            assert!(tree.insert(&number.to_be_bytes(), b"".as_slice().into()));
        }
        assert_eq!(tree.leaves.len(), (count as usize).div_ceil(LEAF_KEYS));
        assert_eq!(all_keys(&tree).len(), count as usize);
        assert_eq!(tree.height, 2);
    }
}
