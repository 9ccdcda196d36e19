//! Lays out entries as a data block. Called by the writer with keys in order.

use crate::cell::key::{CELL_TAIL, KeyParts, Level, TXN_TAIL};
use crate::fragment::block::{KINDS_LISTED, RESTART_INTERVAL};
use crate::varint::push_varint;

/// The cost of an entry in addition to its value and the unshared part of its head.
const ENTRY_OVERHEAD_BYTES: usize = 10;

/// Collects the entries of one block. Its buffers are reused for the next block.
#[derive(Default)]
pub struct BlockBuilder {
    /// The values while collecting; the whole block once finished.
    raw: Vec<u8>,
    ends: Vec<u64>,
    heads: Vec<u8>,
    head_ends: Vec<usize>,
    /// The number of bytes each head shares with the previous one.
    shared: Vec<usize>,
    shared_total: usize,
    /// The length of the suffix that all heads so far share.
    suffix_len: usize,
    /// `None` for a tombstone.
    timestamps: Vec<Option<u64>>,
    txns: Vec<u64>,
    kinds: Vec<u8>,
}

/// Values stored once for all records of a block.
struct Bases {
    timestamp: u64,
    txn: u64,
    /// The kind of all entries, or `KINDS_LISTED`.
    kind: u8,
}

/// The widths of a record's fields in bytes.
struct Widths {
    end: u8,
    timestamp: u8,
    txn: u8,
}

impl BlockBuilder {
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    pub fn entries(&self) -> usize {
        self.kinds.len()
    }

    /// Returns the approximate size of the block if it were finished now.
    pub fn bytes(&self) -> usize {
        self.raw.len() + self.heads.len() - self.shared_total
            + self.entries() * ENTRY_OVERHEAD_BYTES
    }

    /// Adds an entry. `shared` is the length of the common prefix of the whole key and
    /// the previous key, even if that is in another block.
    pub fn add(&mut self, key: &[u8], parts: &KeyParts, shared: usize, value: &[u8]) {
        let tail_len = if parts.level == Level::Cell { CELL_TAIL } else { TXN_TAIL };
        let head = &key[..key.len() - tail_len];
        let first_len = self.head_ends.first().copied();
        self.suffix_len = match first_len {
            None => head.len(),
            Some(len) => common_suffix(&self.heads[..len], head, self.suffix_len),
        };
        let before_len = match self.head_ends[..] {
            [] => 0,
            [only] => only,
            [.., start, end] => end - start,
        };
        let shared = shared.min(head.len()).min(before_len);
        self.shared.push(shared);
        self.shared_total += shared;
        self.heads.extend_from_slice(head);
        self.head_ends.push(self.heads.len());
        self.raw.extend_from_slice(value);
        self.ends.push(self.raw.len() as u64);
        self.timestamps.push((parts.level == Level::Cell).then(|| ordered(parts.timestamp)));
        self.txns.push(parts.txn.raw());
        self.kinds.push(parts.kind.to_byte());
    }

    /// Returns the finished block. Call `clear` before adding the next entry.
    pub fn finish(&mut self) -> &[u8] {
        assert!(!self.is_empty(), "a block holds at least one entry");
        let values_len = self.raw.len();
        let restarts = self.push_keys();
        let keys_len = self.raw.len() - values_len;
        let first = &self.heads[..self.head_ends[0]];
        self.raw.extend_from_slice(&first[first.len() - self.suffix_len..]);

        let (bases, widths) = self.measure(values_len as u64);
        self.push_records(&bases, &widths);
        let restarts_width = width(keys_len as u64);
        for restart in restarts {
            push_packed(&mut self.raw, restart, restarts_width);
        }

        for number in [self.kinds.len(), values_len, keys_len, self.suffix_len] {
            let number = u32::try_from(number).expect("the writer bounds the size of an entry");
            self.raw.extend_from_slice(&number.to_le_bytes());
        }
        self.raw.extend_from_slice(&bases.timestamp.to_le_bytes());
        self.raw.extend_from_slice(&bases.txn.to_le_bytes());
        let Widths { end, timestamp, txn } = widths;
        self.raw.extend_from_slice(&[end, timestamp, txn, bases.kind, restarts_width, 0, 0, 0]);
        &self.raw
    }

    /// Returns the values common to all records and the widths needed for the rest.
    fn measure(&self, values_len: u64) -> (Bases, Widths) {
        let timestamps = || self.timestamps.iter().flatten().copied();
        let timestamp = timestamps().min().unwrap_or_default();
        let timestamp_max = timestamps().max().unwrap_or_default();
        let txn = self.txns.iter().copied().min().unwrap_or_default();
        let txn_max = self.txns.iter().copied().max().unwrap_or_default();
        let kinds_alike = self.kinds.iter().all(|&kind| kind == self.kinds[0]);
        let bases =
            Bases { timestamp, txn, kind: if kinds_alike { self.kinds[0] } else { KINDS_LISTED } };
        let widths = Widths {
            end: if self.values_are_alike() { 0 } else { width(values_len) },
            timestamp: width(timestamp_max - timestamp),
            txn: width(txn_max - txn),
        };
        (bases, widths)
    }

    fn push_records(&mut self, bases: &Bases, widths: &Widths) {
        for index in 0..self.kinds.len() {
            let timestamp = self.timestamps[index].unwrap_or(bases.timestamp) - bases.timestamp;
            push_packed(&mut self.raw, self.ends[index], widths.end);
            push_packed(&mut self.raw, timestamp, widths.timestamp);
            push_packed(&mut self.raw, self.txns[index] - bases.txn, widths.txn);
            if bases.kind == KINDS_LISTED {
                self.raw.push(self.kinds[index]);
            }
        }
    }

    /// Appends the prefix-compressed heads without their shared suffix, and returns the
    /// offsets of the restarts.
    fn push_keys(&mut self) -> Vec<u64> {
        let keys_at = self.raw.len();
        let mut restarts = Vec::with_capacity(self.entries().div_ceil(RESTART_INTERVAL));
        let (mut start, mut before_len) = (0, 0);
        for (index, &end) in self.head_ends.iter().enumerate() {
            let len = end - start - self.suffix_len;
            let mut shared = self.shared[index].min(len).min(before_len);
            if index % RESTART_INTERVAL == 0 {
                shared = 0;
                restarts.push((self.raw.len() - keys_at) as u64);
            }
            push_varint(&mut self.raw, shared as u64);
            push_varint(&mut self.raw, (len - shared) as u64);
            self.raw.extend_from_slice(&self.heads[start + shared..start + len]);
            (start, before_len) = (end, len);
        }
        restarts
    }

    fn values_are_alike(&self) -> bool {
        let len = self.ends[0];
        self.ends.iter().zip(1..).all(|(&end, count)| end == len * count)
    }

    pub fn clear(&mut self) {
        self.raw.clear();
        self.ends.clear();
        self.heads.clear();
        self.head_ends.clear();
        self.shared.clear();
        self.shared_total = 0;
        self.suffix_len = 0;
        self.timestamps.clear();
        self.txns.clear();
        self.kinds.clear();
    }
}

/// Maps a timestamp to an unsigned number with the same order.
fn ordered(timestamp: i64) -> u64 {
    timestamp as u64 ^ (1 << 63)
}

fn common_suffix(a: &[u8], b: &[u8], limit: usize) -> usize {
    a.iter().rev().zip(b.iter().rev()).take(limit).take_while(|(a, b)| a == b).count()
}

/// Returns the number of bytes needed for `number`.
fn width(number: u64) -> u8 {
    (64 - number.leading_zeros()).div_ceil(8) as u8
}

fn push_packed(out: &mut Vec<u8>, number: u64, width: u8) {
    out.extend_from_slice(&number.to_le_bytes()[..usize::from(width)]);
}
