//! The sorted keys of one tree node, leaf or inner.
//!
//! Each key's address is stored with its word: the eight bytes after a prefix that all
//! keys of the node share. Most comparisons are decided by the words, within the node,
//! without touching the arena.

use std::cmp::Ordering;

use super::arena::{Arena, EntryAddress};
use crate::cell::prefix::{common_prefix, first_word};

/// By how much the keys' own common prefix must exceed the one guaranteed by the fences
/// to be worth checking on every search.
const OWN_PREFIX_GAIN_MIN: usize = 4;

const WORDS_PER_LINE: usize = 64 / size_of::<u64>();

/// A node at the edge of the tree has no fences. At these sizes it computes the common
/// prefix of its own keys.
const REFIT_AT: [usize; 3] = [4, 16, 64];

#[repr(C, align(64))]
pub struct NodeKeys<const N: usize> {
    words: [u64; N],
    addresses: [EntryAddress; N],
    len: usize,
    /// The number of leading bytes that every key searched for in this node shares with
    /// its keys, because the fences of the node (the separators around it) share them.
    shared: usize,
    /// The offset of the words within the keys. If it exceeds `shared`, a searched key
    /// must be compared with the first key up to this offset.
    prefix: usize,
}

impl<const N: usize> NodeKeys<N> {
    pub fn new() -> Self {
        NodeKeys {
            len: 0,
            shared: 0,
            prefix: 0,
            words: [0; N],
            addresses: [EntryAddress::default(); N],
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_full(&self) -> bool {
        self.len == N
    }

    pub fn address(&self, at: usize) -> EntryAddress {
        self.addresses[..self.len][at]
    }

    /// Returns the number of keys before `key`.
    pub fn count_before(&self, arena: &Arena, key: &[u8]) -> usize {
        self.count(arena, key, Ordering::is_lt)
    }

    /// Returns the number of keys at or before `key`.
    pub fn count_through(&self, arena: &Arena, key: &[u8]) -> usize {
        self.count(arena, key, Ordering::is_le)
    }

    fn count(&self, arena: &Arena, key: &[u8], counts: impl Fn(Ordering) -> bool) -> usize {
        if self.prefix > self.shared && self.len > 0 {
            let own = &arena.key(self.addresses[0])[..self.prefix];
            match key[..key.len().min(self.prefix)].cmp(own) {
                Ordering::Less => return 0,
                Ordering::Equal => {}
                Ordering::Greater => return self.len,
            }
        }
        let word = word_of(key, self.prefix);
        let words = &self.words[..self.len];
        let first = count_below(words, word);
        if words.get(first) != Some(&word) {
            return first;
        }
        let equal = words[first..].partition_point(|&other| other == word);
        first
            + self.addresses[first..first + equal]
                .partition_point(|&address| counts(arena.key(address).cmp(key)))
    }

    /// Returns whether the key at `at` equals `key`.
    pub fn is_at(&self, arena: &Arena, at: usize, key: &[u8]) -> bool {
        at < self.len
            && self.words[at] == word_of(key, self.prefix)
            && arena.key(self.addresses[at]) == key
    }

    /// Returns whether `key` is certainly before the key at `at`, judging by words
    /// alone. `neighbour` is a key of this node.
    pub fn is_clearly_before(&self, at: usize, key: &[u8], neighbour: &[u8]) -> bool {
        key.get(..self.prefix) == neighbour.get(..self.prefix)
            && word_of(key, self.prefix) < self.words[at]
    }

    pub fn insert(&mut self, arena: &Arena, at: usize, key: &[u8], address: EntryAddress) {
        if REFIT_AT.contains(&self.len) {
            self.refit(arena, self.shared);
        }
        if self.prefix > self.shared && self.len > 0 {
            let common = common_prefix(key, arena.key(self.addresses[0]));
            if common < self.prefix {
                self.set_prefix(arena, common.max(self.shared));
            }
        }
        self.words.copy_within(at..self.len, at + 1);
        self.addresses.copy_within(at..self.len, at + 1);
        self.words[at] = word_of(key, self.prefix);
        self.addresses[at] = address;
        self.len += 1;
    }

    /// Moves the keys from `at` on into a new node. Both nodes must be refitted.
    pub fn split_off(&mut self, at: usize) -> Self {
        let mut right = NodeKeys::new();
        right.len = self.len - at;
        (right.shared, right.prefix) = (self.shared, self.prefix);
        right.words[..right.len].copy_from_slice(&self.words[at..self.len]);
        right.addresses[..right.len].copy_from_slice(&self.addresses[at..self.len]);
        self.len = at;
        right
    }

    /// Removes the last key.
    pub fn pop(&mut self) {
        self.len -= 1;
    }

    /// Recomputes the words for fences that share `shared` bytes.
    pub fn refit(&mut self, arena: &Arena, shared: usize) {
        self.shared = shared;
        let own = match self.len {
            0 => 0,
            len => common_prefix(arena.key(self.addresses[0]), arena.key(self.addresses[len - 1])),
        };
        let prefix = if own >= shared + OWN_PREFIX_GAIN_MIN { own } else { shared };
        if prefix != self.prefix {
            self.set_prefix(arena, prefix);
        }
    }

    fn set_prefix(&mut self, arena: &Arena, prefix: usize) {
        self.prefix = prefix;
        for (word, &address) in self.words.iter_mut().zip(&self.addresses[..self.len]) {
            *word = word_of(arena.key(address), prefix);
        }
    }
}

/// Returns the number of sorted words below `word`.
///
/// A binary search would wait for one cache line after another; this reads all lines of
/// a node at once.
fn count_below(words: &[u64], word: u64) -> usize {
    let lines = words.chunks_exact(WORDS_PER_LINE);
    let from = WORDS_PER_LINE * lines.filter(|line| line[WORDS_PER_LINE - 1] < word).count();
    let rest = words[from..].iter().take(WORDS_PER_LINE);
    from + rest.filter(|&&other| other < word).count()
}

/// Returns the word of a key: the eight bytes from `from` on.
fn word_of(key: &[u8], from: usize) -> u64 {
    first_word(key.get(from..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::MemoryBudget;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        let letter = prop::sample::select(vec![0u8, 1, b'a', 0xFF]);
        let tail = prop::collection::vec(letter, 0..12);
        (prop::sample::select(vec!["", "prefix", "prefix/shared"]), tail)
            .prop_map(|(start, tail)| [start.as_bytes(), &tail].concat())
    }

    proptest! {
        #[test]
        fn a_node_finds_keys_like_a_sorted_list(
            keys in prop::collection::btree_set(key(), 0..40),
            order in any::<u64>(),
            searched in prop::collection::vec(key(), 0..40),
        ) {
            let mut arena = Arena::new(&MemoryBudget::new(1 << 30));
            let mut node = NodeKeys::<40>::new();
            let mut model = BTreeSet::<Vec<u8>>::new();
            let mut shuffled: Vec<_> = keys.into_iter().collect();
            shuffled.sort_by_cached_key(|key| xxhash_rust::xxh3::xxh3_64_with_seed(key, order));
            for key in &shuffled {
                let at = node.count_before(&arena, key);
                prop_assert_eq!(at, model.range(..key.clone()).count());
                prop_assert!(!node.is_at(&arena, at, key));
                let address = arena.push(key, b"".as_slice().into());
                node.insert(&arena, at, key, address);
                model.insert(key.clone());
                prop_assert!(node.is_at(&arena, at, key));
            }
            for key in &searched {
                prop_assert_eq!(node.count_before(&arena, key), model.range(..key.clone()).count());
                prop_assert_eq!(node.count_through(&arena, key), model.range(..=key.clone()).count());
            }
        }
    }
}
