//! A data block in memory: a short run of entries, laid out so that keys are rebuilt
//! and values are located without a search.
//!
//! ```text
//! values | keys | suffix | records | restarts | trailer
//! ```
//!
//! All records of a block have the same width: the value's end, timestamp, txn and kind
//! of an entry, side by side, so that a point read finds them in one cache line. The
//! structure is validated once, when a block is loaded; the cursor relies on it.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::cache::LastUse;
use crate::cell::key::{CELL_TAIL, Kind, TXN_TAIL};
use crate::cell::prefix::common_prefix;
use crate::fragment::index::IndexPartition;
use crate::fragment::slot::SlotGuard;
use crate::varint::{ByteReader, varint_at};

/// Every `RESTART_INTERVAL`th entry stores its key without a shared prefix.
pub const RESTART_INTERVAL: usize = 16;
pub const TRAILER_BYTES: usize = 40;
/// In the trailer: the kinds are listed, one byte per entry.
pub const KINDS_LISTED: u8 = 0;

/// A decompressed block with validated structure.
pub struct Block {
    raw: Vec<u8>,
    entries: usize,
    values_len: usize,
    keys_end: usize,
    suffix_end: usize,
    ends: Packed,
    /// Set if all values have this length; `ends` is then empty.
    value_len: Option<usize>,
    timestamps: Packed,
    timestamp_base: u64,
    txns: Packed,
    txn_base: u64,
    kinds: Packed,
    /// The kind of all entries, or `KINDS_LISTED`.
    kind: u8,
    restarts: Box<[Restart]>,
    /// The number of leading bytes that the heads at all restarts share.
    common_len: usize,
    last_use: LastUse,
    /// Set for blocks that are inserted into the cache.
    slot_guard: Option<SlotGuard>,
}

/// Every `RESTART_INTERVAL`th entry, stored contiguously so that a search touches one
/// or two cache lines instead of one per comparison.
#[derive(Clone, Copy, Default)]
struct Restart {
    /// The eight bytes of the key after the common ones, as a number.
    word: u64,
    /// The offset of its head.
    at: u32,
}

/// Little-endian numbers of one width, `stride` bytes apart. Eight bytes can be read at
/// each of them, because the trailer follows.
#[derive(Clone, Copy)]
struct Packed {
    at: usize,
    stride: usize,
    mask: u64,
}

impl Packed {
    fn new(at: usize, stride: usize, width: u8) -> Packed {
        let mask = match width {
            0 => 0,
            _ => u64::MAX >> (64 - 8 * u32::from(width)),
        };
        Packed { at, stride, mask }
    }

    #[inline(always)]
    fn get(self, raw: &[u8], index: usize) -> u64 {
        let at = self.at + index * self.stride;
        let word: [u8; 8] = raw[at..at + 8].try_into().expect("the slice has eight bytes");
        u64::from_le_bytes(word) & self.mask
    }
}

/// A stored head: `shared` bytes of the previous head, then its own bytes.
#[derive(Clone, Copy)]
pub struct KeyHead {
    pub shared: usize,
    pub start: usize,
    pub end: usize,
}

/// The inverted numbers and the kind that end a key.
pub struct KeyTail {
    bytes: [u8; CELL_TAIL],
    from: usize,
}

impl KeyTail {
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..]
    }
}

impl Block {
    /// Parses the bytes of a block; `Err` describes the damage.
    pub fn parse(raw: Vec<u8>) -> Result<Block, &'static str> {
        let (mut block, restarts) =
            Block::parse_trailer(raw).ok_or("the trailer of a block is damaged")?;
        block.check_values().ok_or("the value ends of a block are damaged")?;
        block.check_keys(restarts).ok_or("the keys of a block are damaged")?;
        block.gather_words();
        Ok(block)
    }

    fn parse_trailer(raw: Vec<u8>) -> Option<(Block, Packed)> {
        let trailer_at = raw.len().checked_sub(TRAILER_BYTES)?;
        let mut trailer = ByteReader::new(&raw[trailer_at..]);
        let entries = trailer.u32()? as usize;
        let values_len = trailer.u32()? as usize;
        let keys_end = values_len + trailer.u32()? as usize;
        let suffix_end = keys_end + trailer.u32()? as usize;
        let timestamp_base = trailer.u64()?;
        let txn_base = trailer.u64()?;
        let [ends, timestamps, txns, kind, restarts, 0, 0, 0] = trailer.array::<8>()? else {
            return None;
        };
        // A key takes at least two bytes, so this bounds every product below.
        if entries == 0 || entries > raw.len() / 2 {
            return None;
        }
        if [ends, timestamps, txns, restarts].iter().any(|&width| width > 8) {
            return None;
        }
        let value_len = (ends == 0).then_some(values_len / entries);
        let kinds = u8::from(kind == KINDS_LISTED);
        let stride = usize::from(ends + timestamps + txns + kinds);
        let mut at = suffix_end;
        let mut field = |width: u8| {
            let packed = Packed::new(at, stride, width);
            at += usize::from(width);
            packed
        };
        let (ends, timestamps) = (field(ends), field(timestamps));
        let (txns, kinds) = (field(txns), field(kinds));
        let restarts_at = suffix_end + stride * entries;
        let restart_count = entries.div_ceil(RESTART_INTERVAL);
        let restarts_end = restarts_at + usize::from(restarts) * restart_count;
        if restarts_end != trailer_at {
            return None;
        }
        let restarts = Packed::new(restarts_at, usize::from(restarts), restarts);
        let block = Block {
            raw,
            entries,
            values_len,
            keys_end,
            suffix_end,
            ends,
            value_len,
            timestamps,
            timestamp_base,
            txns,
            txn_base,
            kinds,
            kind,
            restarts: vec![Restart::default(); restart_count].into(),
            common_len: 0,
            last_use: LastUse::default(),
            slot_guard: None,
        };
        Some((block, restarts))
    }

    fn check_values(&self) -> Option<()> {
        if let Some(len) = self.value_len {
            return (len * self.entries == self.values_len).then_some(());
        }
        let mut last = 0;
        for index in 0..self.entries {
            let end = self.ends.get(&self.raw, index);
            if end < last {
                return None;
            }
            last = end;
        }
        (last == self.values_len as u64).then_some(())
    }

    /// Validates all heads in one pass and records the positions of the restarts.
    fn check_keys(&mut self, restarts: Packed) -> Option<()> {
        let keys = &self.raw[..self.keys_end];
        let mut at = self.values_len;
        let mut head_len = 0;
        for index in 0..self.entries {
            let head = checked_head(keys, at)?;
            if head.shared > head_len || head.end > keys.len() {
                return None;
            }
            if index % RESTART_INTERVAL == 0 {
                let number = index / RESTART_INTERVAL;
                let stored = restarts.get(&self.raw, number);
                if stored != (at - self.values_len) as u64 || head.shared != 0 {
                    return None;
                }
                self.restarts[number].at = u32::try_from(at).ok()?;
            }
            head_len = head.shared + (head.end - head.start);
            at = head.end;
        }
        (at == self.keys_end).then_some(())
    }

    fn gather_words(&mut self) {
        let head_of = |restart: &Restart| {
            let head = self.head_at(restart.at as usize);
            &self.raw[head.start..head.end]
        };
        let first = head_of(&self.restarts[0]);
        let common = |restart| common_prefix(first, head_of(restart));
        self.common_len = self.restarts.iter().map(common).min().unwrap_or_default();
        for number in 0..self.restarts.len() {
            let head = self.head_at(self.restarts[number].at as usize);
            let tail = self.tail(number * RESTART_INTERVAL);
            let own = &self.raw[head.start + self.common_len..head.end];
            let key = own.iter().chain(self.suffix()).chain(tail.bytes());
            let mut word = [0; 8];
            word.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
            self.restarts[number].word = u64::from_be_bytes(word);
        }
    }

    /// Sets the slot through which readers find the block while it is cached.
    pub fn attach_to_slot(&mut self, partition: &Arc<IndexPartition>, number: usize) {
        self.slot_guard = Some(SlotGuard::new(partition, number));
    }

    #[inline(always)]
    pub fn last_use(&self) -> &LastUse {
        &self.last_use
    }

    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Returns the size of this block in memory.
    pub fn bytes(&self) -> usize {
        size_of::<Block>() + self.raw.len() + size_of_val(&*self.restarts)
    }

    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    pub fn restarts(&self) -> usize {
        self.restarts.len()
    }

    /// Returns the offset of the first head.
    #[inline(always)]
    pub fn keys_start(&self) -> usize {
        self.values_len
    }

    /// Returns the offset of the head of entry `restart * RESTART_INTERVAL`.
    #[inline(always)]
    pub fn restart_at(&self, restart: usize) -> usize {
        self.restarts[restart].at as usize
    }

    /// Returns the number of leading bytes that the words of the restarts omit.
    #[inline(always)]
    pub fn common_len(&self) -> usize {
        self.common_len
    }

    /// Returns how many restarts have a word below `word`, and how many have one at or
    /// below it.
    #[inline]
    pub fn restarts_around(&self, word: u64) -> (usize, usize) {
        let before = self.restarts.partition_point(|restart| restart.word < word);
        let same = self.restarts[before..].iter().take_while(|restart| restart.word == word);
        (before, before + same.count())
    }

    #[inline(always)]
    pub fn head_at(&self, at: usize) -> KeyHead {
        let (shared, own) = (self.raw[at], self.raw[at + 1]);
        if shared | own < 0x80 {
            let start = at + 2;
            return KeyHead { shared: shared.into(), start, end: start + usize::from(own) };
        }
        checked_head(&self.raw, at).expect("keys were checked when the block was loaded")
    }

    /// Returns the suffix that all heads of the block share, stored once.
    #[inline(always)]
    pub fn suffix(&self) -> &[u8] {
        &self.raw[self.keys_end..self.suffix_end]
    }

    #[inline(always)]
    pub fn tail(&self, index: usize) -> KeyTail {
        let kind = match self.kind {
            KINDS_LISTED => self.kinds.get(&self.raw, index) as u8,
            kind => kind,
        };
        let txn = !self.txn_base.wrapping_add(self.txns.get(&self.raw, index));
        let timestamp = !self.timestamp_base.wrapping_add(self.timestamps.get(&self.raw, index));
        let mut bytes = [0; CELL_TAIL];
        bytes[..8].copy_from_slice(&timestamp.to_be_bytes());
        bytes[8..16].copy_from_slice(&txn.to_be_bytes());
        bytes[16] = kind;
        KeyTail {
            bytes,
            from: if kind == Kind::Tombstone.to_byte() { CELL_TAIL - TXN_TAIL } else { 0 },
        }
    }

    #[inline(always)]
    pub fn value(&self, index: usize) -> &[u8] {
        let (start, end) = match self.value_len {
            Some(len) => (index * len, index * len + len),
            None => {
                let start = match index {
                    0 => 0,
                    _ => self.ends.get(&self.raw, index - 1),
                };
                (start as usize, self.ends.get(&self.raw, index) as usize)
            }
        };
        &self.raw[start..end]
    }

    /// Compares the key of entry `index` with `target`, both from the same offset on.
    /// `own` contains the head's bytes from that offset.
    #[inline]
    pub fn compare(&self, index: usize, own: &[u8], target: &[u8]) -> Ordering {
        match strip_part(own, target) {
            Ok(rest) => self.compare_end(index, rest),
            Err(order) => order,
        }
    }

    /// Compares what follows the head of entry `index` with `target`.
    #[inline]
    pub fn compare_end(&self, index: usize, target: &[u8]) -> Ordering {
        let compare = || -> Result<&[u8], Ordering> {
            let rest = strip_part(self.suffix(), target)?;
            strip_part(self.tail(index).bytes(), rest)
        };
        match compare() {
            Ok([]) => Ordering::Equal,
            Ok(_) => Ordering::Less,
            Err(order) => order,
        }
    }
}

/// Returns the rest of `target` after `part`, or how a key that continues with `part`
/// compares with it.
#[inline(always)]
fn strip_part<'a>(part: &[u8], target: &'a [u8]) -> Result<&'a [u8], Ordering> {
    let len = part.len().min(target.len());
    match part[..len].cmp(&target[..len]) {
        Ordering::Equal if len == part.len() => Ok(&target[len..]),
        Ordering::Equal => Err(Ordering::Greater),
        order => Err(order),
    }
}

fn checked_head(bytes: &[u8], at: usize) -> Option<KeyHead> {
    let (shared, at) = varint_at(bytes, at)?;
    let (own, start) = varint_at(bytes, at)?;
    let end = start.checked_add(usize::try_from(own).ok()?)?;
    Some(KeyHead { shared: usize::try_from(shared).ok()?, start, end })
}
