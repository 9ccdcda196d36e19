//! A sorted list of keys or rows, searched through an array of eight-byte words.

use crate::cell::prefix::{common_prefix, first_word};

/// Sorted byte strings. The word of each holds the eight bytes after the common prefix
/// of all, so that most searches touch only the words.
#[derive(Default)]
pub struct Separators {
    common_len: usize,
    words: Vec<u64>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Separators {
    /// Takes strictly ascending strings; `None` if they are not.
    pub fn new(bytes: Vec<u8>, ends: Vec<usize>) -> Option<Separators> {
        let mut list = Separators { common_len: 0, words: Vec::new(), bytes, ends };
        let ascending = (1..list.len()).all(|index| list.get(index - 1) < list.get(index));
        if !ascending {
            return None;
        }
        if let Some(last) = list.len().checked_sub(1) {
            list.common_len = common_prefix(list.get(0), list.get(last));
        }
        list.words =
            (0..list.len()).map(|index| first_word(&list.get(index)[list.common_len..])).collect();
        Some(list)
    }

    /// Takes strictly ascending strings, one by one; `None` if they are not.
    pub fn of<'s>(strings: impl Iterator<Item = &'s [u8]>) -> Option<Separators> {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for string in strings {
            bytes.extend_from_slice(string);
            ends.push(bytes.len());
        }
        Separators::new(bytes, ends)
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    /// Returns the size of this list in memory.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.len() * (size_of::<u64>() + size_of::<usize>())
    }

    /// Returns the number of strings at or before `target`.
    pub fn count_to(&self, target: &[u8]) -> usize {
        self.count(target, |separator, rest| separator <= rest)
    }

    /// Returns the number of strings before `target`.
    pub fn count_before(&self, target: &[u8]) -> usize {
        self.count(target, |separator, rest| separator < rest)
    }

    #[inline]
    fn count(&self, target: &[u8], counts: impl Fn(&[u8], &[u8]) -> bool) -> usize {
        if self.words.is_empty() {
            return 0;
        }
        let common = &self.get(0)[..self.common_len];
        let Some(rest) = target.strip_prefix(common) else {
            return if target < common { 0 } else { self.len() };
        };
        let sought = first_word(rest);
        let from = self.words.partition_point(|&word| word < sought);
        if self.words.get(from) != Some(&sought) {
            return from;
        }
        // Strings with equal words can differ only after those eight bytes.
        let (mut low, mut high) =
            (from, from + self.words[from..].partition_point(|&word| word == sought));
        while low < high {
            let middle = (low + high) / 2;
            if counts(&self.get(middle)[self.common_len..], rest) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn string() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop::sample::select(vec![0u8, 1, b'a', 0xFF]);
        (0usize..3, prop::collection::vec(byte, 0..12))
            .prop_map(|(shared, tail)| [&b"prefix shared by many"[..shared * 10], &tail].concat())
    }

    proptest! {
        #[test]
        fn a_search_counts_like_a_walk(
            list in prop::collection::btree_set(string(), 0..30),
            targets in prop::collection::vec(string(), 1..10),
        ) {
            let list: BTreeSet<Vec<u8>> = list;
            let separators = Separators::of(list.iter().map(|string| &string[..])).unwrap();
            for target in targets.iter().chain(&list) {
                prop_assert_eq!(separators.count_to(target), list.range(..=target.clone()).count());
                prop_assert_eq!(separators.count_before(target), list.range(..target.clone()).count());
            }
        }
    }

    #[test]
    fn a_list_that_does_not_ascend_is_refused() {
        assert!(Separators::new(b"ba".to_vec(), vec![1, 2]).is_none());
        assert!(Separators::new(b"aa".to_vec(), vec![1, 2]).is_none());
    }
}
