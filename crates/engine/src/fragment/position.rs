//! A position inside one block. It rebuilds the key of the current entry in its own
//! buffer; moving between entries does not allocate.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::cell::prefix::{common_prefix, first_word};
use crate::fragment::block::{Block, KeyHead, KeyTail, RESTART_INTERVAL};

/// The initial capacity for keys: large enough for most, so that the buffer rarely
/// grows.
const KEY_BYTES: usize = 128;

/// A position on one entry of a block, or unset.
#[derive(Default)]
pub struct Position {
    block: Option<Arc<Block>>,
    valid: bool,
    index: usize,
    /// The offset of the next entry's head.
    next_at: usize,
    /// The key is `key[..key_len]`: the head without the block's suffix (`head_len`
    /// bytes), the suffix, the tail.
    key: Vec<u8>,
    key_len: usize,
    /// `None` if the suffix in `key` is not this block's.
    head_len: Option<usize>,
}

impl Position {
    /// Enters a block and leaves the position unset.
    pub fn enter(&mut self, block: Arc<Block>) {
        self.block = Some(block);
        self.valid = false;
        self.head_len = None;
    }

    pub fn leave(&mut self) {
        self.block = None;
        self.valid = false;
    }

    pub fn in_block(&self) -> bool {
        self.block.is_some()
    }

    #[inline(always)]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// Returns the number of the entry within its block. Requires `valid`.
    pub fn index(&self) -> usize {
        self.index
    }

    #[inline(always)]
    pub fn key(&self) -> &[u8] {
        &self.key[..self.key_len]
    }

    #[inline(always)]
    pub fn value(&self) -> &[u8] {
        match &self.block {
            Some(block) if self.valid => block.value(self.index),
            _ => &[],
        }
    }

    pub fn first(&mut self) {
        self.go_to(0);
    }

    pub fn last(&mut self) {
        if let Some(entries) = self.block.as_ref().map(|block| block.entries()) {
            self.go_to(entries - 1);
        }
    }

    /// Moves to the next entry of the block; unset if there is none.
    #[inline]
    pub fn next(&mut self) {
        let Some(block) = self.block.as_deref() else { return };
        if !self.valid || self.index + 1 >= block.entries() {
            self.valid = false;
            return;
        }
        self.index += 1;
        let head = block.head_at(self.next_at);
        let tail = block.tail(self.index);
        self.next_at = head.end;
        let head_len = head.shared + (head.end - head.start);
        let suffix = block.suffix();
        let tail_at = head_len + suffix.len();
        self.key_len = tail_at + tail.bytes().len();
        if self.key.len() < self.key_len {
            self.key.resize(self.key_len, 0);
        }
        self.key[head.shared..head_len].copy_from_slice(&block.raw()[head.start..head.end]);
        if self.head_len != Some(head_len) {
            self.key[head_len..tail_at].copy_from_slice(suffix);
            self.head_len = Some(head_len);
        }
        self.key[tail_at..self.key_len].copy_from_slice(tail.bytes());
    }

    /// Moves to the first entry at or after `target`; unset if there is none.
    pub fn seek(&mut self, target: &[u8]) {
        let Some(block) = self.block.as_deref() else { return };
        let found = lower_bound(block, target);
        let Some((index, head)) = found else {
            self.valid = false;
            return;
        };
        self.key.clear();
        self.key.reserve(KEY_BYTES);
        // The search established that the head's shared bytes are also those of the
        // target.
        self.key.extend_from_slice(&target[..head.shared]);
        self.set_position(index, head);
    }

    /// Moves to the last entry before `target`; unset if there is none.
    pub fn seek_before(&mut self, target: &[u8]) {
        let Some(block) = self.block.as_deref() else { return };
        let at_or_after = lower_bound(block, target).map_or(block.entries(), |found| found.0);
        match at_or_after.checked_sub(1) {
            Some(index) => self.go_to(index),
            None => self.valid = false,
        }
    }

    /// Moves to entry `index`, which must exist.
    pub fn go_to(&mut self, index: usize) {
        let Some(block) = self.block.as_deref() else { return };
        let restart = index / RESTART_INTERVAL;
        self.key.clear();
        let mut head = block.head_at(block.restart_at(restart));
        for _ in restart * RESTART_INTERVAL..index {
            self.key.truncate(head.shared);
            self.key.extend_from_slice(&block.raw()[head.start..head.end]);
            head = block.head_at(head.end);
        }
        self.key.truncate(head.shared);
        self.set_position(index, head);
    }

    /// Completes `key`, which contains the bytes that `head` shares, and sets the
    /// position.
    fn set_position(&mut self, index: usize, head: KeyHead) {
        let Some(block) = self.block.as_deref() else { return };
        let tail: KeyTail = block.tail(index);
        self.key.extend_from_slice(&block.raw()[head.start..head.end]);
        self.head_len = Some(self.key.len());
        self.key.extend_from_slice(block.suffix());
        self.key.extend_from_slice(tail.bytes());
        self.key_len = self.key.len();
        self.next_at = head.end;
        self.index = index;
        self.valid = true;
    }
}

/// Returns the first entry at or after `target`. The bytes that its head shares with
/// the previous one are then also a prefix of `target`.
fn lower_bound(block: &Block, target: &[u8]) -> Option<(usize, KeyHead)> {
    let restart = match block.restarts() {
        1 => 0,
        many => {
            restart_by_word(block, target).unwrap_or_else(|| last_before(block, 0, many, target))
        }
    };
    let mut at = match restart {
        0 => block.keys_start(),
        _ => block.restart_at(restart),
    };
    // How many bytes the previous head, which is below the target, shares with the
    // target.
    let mut matched = 0;
    for index in restart * RESTART_INTERVAL..block.entries() {
        let head = block.head_at(at);
        // A head that keeps the byte at which the previous one fell below the target is
        // below it too.
        if head.shared <= matched {
            let own = &block.raw()[head.start..head.end];
            let rest = target.get(head.shared..)?;
            let same = common_prefix(own, rest);
            let order = match (own.get(same), rest.get(same)) {
                (None, _) => block.compare_end(index, &rest[same..]),
                (Some(_), None) => Ordering::Greater,
                (Some(byte), Some(sought)) => byte.cmp(sought),
            };
            if order != Ordering::Less {
                return Some((index, head));
            }
            matched = head.shared + same;
        }
        at = head.end;
    }
    None
}

/// Returns the restart to start from, found by words; `None` if the target does not
/// start with the restarts' common prefix.
#[inline]
fn restart_by_word(block: &Block, target: &[u8]) -> Option<usize> {
    let (common, rest) = target.split_at_checked(block.common_len())?;
    let (before, through) = block.restarts_around(first_word(rest));
    let restart = match before == through {
        true => before.saturating_sub(1),
        false => last_before(block, before, through, target),
    };
    let head = block.head_at(block.restart_at(restart));
    block.raw()[head.start..head.end].starts_with(common).then_some(restart)
}

/// Returns the last restart before `target`, or the first one if there is none. The
/// restarts below `low` must be before `target` and those from `high` on must not.
fn last_before(block: &Block, mut low: usize, mut high: usize, target: &[u8]) -> usize {
    while low < high {
        let middle = (low + high) / 2;
        let head = block.head_at(block.restart_at(middle));
        let own = &block.raw()[head.start..head.end];
        match block.compare(middle * RESTART_INTERVAL, own, target) {
            Ordering::Less => low = middle + 1,
            Ordering::Equal | Ordering::Greater => high = middle,
        }
    }
    low.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::cell::key::KeyParts;
    use crate::fragment::builder::BlockBuilder;
    use crate::fragment::testing::{entries, key};

    fn block_of(entries: &BTreeMap<Vec<u8>, Vec<u8>>) -> Arc<Block> {
        let mut builder = BlockBuilder::default();
        let mut before: &[u8] = &[];
        for (key, value) in entries {
            let parts = KeyParts::parse(key).unwrap();
            builder.add(key, &parts, common_prefix(before, key), value);
            before = key;
        }
        Arc::new(Block::parse(builder.finish().to_vec()).unwrap())
    }

    fn here(position: &Position) -> Option<(Vec<u8>, Vec<u8>)> {
        position.valid().then(|| (position.key().to_vec(), position.value().to_vec()))
    }

    fn owned(entry: Option<(&Vec<u8>, &Vec<u8>)>) -> Option<(Vec<u8>, Vec<u8>)> {
        entry.map(|(key, value)| (key.clone(), value.clone()))
    }

    proptest! {
        #[test]
        fn a_block_answers_like_a_sorted_map(
            entries in entries(1..60),
            targets in prop::collection::vec(key(), 1..20),
        ) {
            let mut position = Position::default();
            position.enter(block_of(&entries));
            position.first();
            for (key, value) in &entries {
                prop_assert_eq!(here(&position), Some((key.clone(), value.clone())));
                position.next();
            }
            prop_assert!(!position.valid());
            position.last();
            prop_assert_eq!(here(&position), owned(entries.last_key_value()));
            let cut = targets.iter().map(|key| &key[..key.len() / 2]);
            for target in targets.iter().map(Vec::as_slice).chain(cut).chain(entries.keys().map(Vec::as_slice)) {
                let mut after = entries.range(target.to_vec()..);
                position.seek(target);
                prop_assert_eq!(here(&position), owned(after.next()));
                if position.valid() {
                    position.next();
                    prop_assert_eq!(here(&position), owned(after.next()));
                }
                position.seek_before(target);
                prop_assert_eq!(here(&position), owned(entries.range(..target.to_vec()).next_back()));
            }
        }

        #[test]
        fn arbitrary_bytes_are_refused_or_walked_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..120),
        ) {
            walk_if_sound(bytes);
        }

        #[test]
        fn a_changed_block_is_refused_or_walked_without_a_panic(
            entries in entries(1..40),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut bytes = block_of(&entries).raw().to_vec();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            walk_if_sound(bytes);
        }
    }

    fn walk_if_sound(bytes: Vec<u8>) {
        let Ok(block) = Block::parse(bytes) else { return };
        let mut position = Position::default();
        position.enter(Arc::new(block));
        position.first();
        while position.valid() {
            position.value();
            position.next();
        }
        position.seek(b"a\0\0\x02f");
        position.seek_before(b"b\0\0\x02f\0");
        position.last();
    }
}
