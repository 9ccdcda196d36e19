//! The cell key: one byte string whose plain byte order is the order of cells.
//!
//! ```text
//! row tombstone     esc(row) 00 00 | 01 | !txn | kind
//! family tombstone  esc(row) 00 00 | 02 | family 00 | 01 | !txn | kind
//! column tombstone  esc(row) 00 00 | 02 | family 00 | 02 | esc(qualifier) 00 00 | 01 | !txn | kind
//! cell              esc(row) 00 00 | 02 | family 00 | 02 | esc(qualifier) 00 00 | 02 | !timestamp | !txn | kind
//! ```
//!
//! `esc` replaces the byte 00 with 00 FF. The slot byte 01 sorts a tombstone before
//! everything it covers, so a reader encounters every delete before the cells that it
//! deletes. Timestamps and txns are stored inverted and big-endian, so the newest sorts
//! first.

use crate::txn::Txn;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A value.
    Put,
    /// An erasure that stays readable as history.
    Marker,
    /// A delete of everything older within the key's level.
    Tombstone,
    /// An operand for the fold with this id.
    Merge(u8),
}

const KIND_PUT: u8 = 1;
const KIND_MARKER: u8 = 2;
const KIND_TOMBSTONE: u8 = 3;
const KIND_MERGE: u8 = 0x10;

impl Kind {
    /// The largest fold id that a kind byte can carry.
    pub const FOLD_ID_MAX: u8 = u8::MAX - KIND_MERGE;

    pub fn to_byte(self) -> u8 {
        match self {
            Kind::Put => KIND_PUT,
            Kind::Marker => KIND_MARKER,
            Kind::Tombstone => KIND_TOMBSTONE,
            Kind::Merge(fold) => {
                assert!(fold <= Self::FOLD_ID_MAX, "fold id {fold} is too large");
                KIND_MERGE + fold
            }
        }
    }

    pub fn from_byte(byte: u8) -> Option<Kind> {
        match byte {
            KIND_PUT => Some(Kind::Put),
            KIND_MARKER => Some(Kind::Marker),
            KIND_TOMBSTONE => Some(Kind::Tombstone),
            KIND_MERGE.. => Some(Kind::Merge(byte - KIND_MERGE)),
            _ => None,
        }
    }
}

const SLOT_TOMBSTONE: u8 = 1;
const SLOT_ONWARD: u8 = 2;
/// The length of `!txn` and the kind, which end every key.
pub const TXN_TAIL: usize = 9;
/// The length of `!timestamp`, `!txn` and the kind, which end every cell's key.
pub const CELL_TAIL: usize = 17;

/// Appends `esc(bytes) 00 00`.
pub fn push_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut rest = bytes;
    while let Some(at) = memchr::memchr(0, rest) {
        out.extend_from_slice(&rest[..=at]);
        out.push(0xFF);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0, 0]);
}

/// Appends the prefix shared by all entries of a row.
pub fn push_row(out: &mut Vec<u8>, row: &[u8]) {
    push_escaped(out, row);
}

/// Appends the prefix shared by all entries of a family.
pub fn push_family(out: &mut Vec<u8>, row: &[u8], family: &[u8]) {
    debug_assert!(!family.contains(&0), "a family name holds no NUL");
    push_row(out, row);
    out.push(SLOT_ONWARD);
    out.extend_from_slice(family);
    out.push(0);
}

/// Appends the prefix shared by all entries of a column.
pub fn push_column(out: &mut Vec<u8>, row: &[u8], family: &[u8], qualifier: &[u8]) {
    push_family(out, row, family);
    push_qualifier(out, qualifier);
}

/// Appends a qualifier to a family prefix, which makes it a column prefix.
pub fn push_qualifier(out: &mut Vec<u8>, qualifier: &[u8]) {
    out.push(SLOT_ONWARD);
    push_escaped(out, qualifier);
}

/// Appends the tail of a tombstone to a row, family or column prefix.
pub fn push_tombstone_tail(out: &mut Vec<u8>, txn: Txn) {
    out.push(SLOT_TOMBSTONE);
    out.extend_from_slice(&(!txn.raw()).to_be_bytes());
    out.push(KIND_TOMBSTONE);
}

/// Appends the tail of a cell to a column prefix.
pub fn push_cell_tail(out: &mut Vec<u8>, timestamp: i64, txn: Txn, kind: Kind) {
    debug_assert!(kind != Kind::Tombstone, "a tombstone is not a cell");
    out.push(SLOT_ONWARD);
    out.extend_from_slice(&timestamp_bytes(timestamp));
    out.extend_from_slice(&(!txn.raw()).to_be_bytes());
    out.push(kind.to_byte());
}

/// Overwrites the txn of a complete key.
pub fn set_txn(key: &mut [u8], txn: Txn) {
    let at = key.len() - TXN_TAIL;
    key[at..at + 8].copy_from_slice(&(!txn.raw()).to_be_bytes());
}

/// Returns the txn of a complete key; `None` if it has none.
pub fn txn_of(key: &[u8]) -> Option<Txn> {
    let tail = key.last_chunk::<TXN_TAIL>()?;
    Txn::from_raw(!u64::from_be_bytes(*tail.first_chunk()?))
}

/// Overwrites the kind of a complete cell key.
pub fn set_kind(key: &mut [u8], kind: Kind) {
    *key.last_mut().expect("a key ends with its kind") = kind.to_byte();
}

/// Appends to a column prefix the position at which cells at or before `timestamp`
/// start.
pub fn push_seek_timestamp(out: &mut Vec<u8>, timestamp: i64) {
    out.push(SLOT_ONWARD);
    out.extend_from_slice(&timestamp_bytes(timestamp));
}

/// Appends to a row, family or column prefix the position at which its own tombstones
/// no newer than `txn` start.
pub fn push_seek_tombstone(out: &mut Vec<u8>, txn: Txn) {
    out.push(SLOT_TOMBSTONE);
    out.extend_from_slice(&(!txn.raw()).to_be_bytes());
}

/// Appends to a row, family or column prefix the position at which everything except
/// its own tombstones starts.
pub fn push_past_tombstones(out: &mut Vec<u8>) {
    out.push(SLOT_ONWARD);
}

/// Appends to a column prefix a suffix that sorts after every entry of one version.
pub fn push_past_version(out: &mut Vec<u8>, timestamp: i64) {
    push_seek_timestamp(out, timestamp);
    out.extend_from_slice(&[0xFF; TXN_TAIL]);
}

/// Returns the first possible key of a row.
pub fn row_start(row: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(row.len() + 2);
    push_row(&mut key, row);
    key
}

/// Turns a shared prefix (row, family or column) into a key that sorts after everything
/// that starts with it, because the slot byte after a prefix is always below FF.
pub fn push_past(prefix: &mut Vec<u8>) {
    prefix.push(0xFF);
}

fn timestamp_bytes(timestamp: i64) -> [u8; 8] {
    (!((timestamp as u64) ^ (1 << 63))).to_be_bytes()
}

fn timestamp_from(bytes: [u8; 8]) -> i64 {
    ((!u64::from_be_bytes(bytes)) ^ (1 << 63)) as i64
}

/// Reverses `esc`. `escaped` excludes the terminator.
pub fn unescape_into(escaped: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut rest = escaped;
    while let Some(at) = memchr::memchr(0, rest) {
        out.extend_from_slice(&rest[..=at]);
        // Within the escaped part, 00 is always followed by FF.
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

/// The level that a key addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    RowTombstone,
    FamilyTombstone,
    ColumnTombstone,
    Cell,
}

/// A parsed key: offsets into its bytes, without copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyParts {
    pub level: Level,
    /// End of the row prefix, including the terminator.
    pub row_end: usize,
    /// End of the family prefix, including the terminator; `row_end` if absent.
    pub family_end: usize,
    /// End of the column prefix, including the terminator; `family_end` if absent.
    pub column_end: usize,
    /// Zero unless this is a cell.
    pub timestamp: i64,
    pub txn: Txn,
    pub kind: Kind,
}

impl KeyParts {
    /// Parses a key; `None` if the bytes are not a valid key.
    pub fn parse(key: &[u8]) -> Option<KeyParts> {
        let row_end = escaped_end(key, 0)?;
        let mut parts = KeyParts {
            level: Level::RowTombstone,
            row_end,
            family_end: row_end,
            column_end: row_end,
            timestamp: 0,
            txn: Txn::ZERO,
            kind: Kind::Tombstone,
        };
        if *key.get(row_end)? == SLOT_TOMBSTONE {
            return parts.with_tombstone_tail(key, row_end + 1);
        }
        onward(key, row_end)?;
        let family = row_end + 1;
        parts.family_end = family + memchr::memchr(0, key.get(family..)?)? + 1;
        parts.column_end = parts.family_end;
        parts.level = Level::FamilyTombstone;
        if *key.get(parts.family_end)? == SLOT_TOMBSTONE {
            return parts.with_tombstone_tail(key, parts.family_end + 1);
        }
        onward(key, parts.family_end)?;
        parts.column_end = escaped_end(key, parts.family_end + 1)?;
        parts.level = Level::ColumnTombstone;
        if *key.get(parts.column_end)? == SLOT_TOMBSTONE {
            return parts.with_tombstone_tail(key, parts.column_end + 1);
        }
        onward(key, parts.column_end)?;
        parts.level = Level::Cell;
        parts.with_cell_tail(key)
    }

    /// Parses a key that is known to start with the column prefix of `self`, without
    /// scanning that prefix again.
    pub fn parse_in_column(&self, key: &[u8]) -> Option<KeyParts> {
        let mut parts = *self;
        if *key.get(self.column_end)? == SLOT_TOMBSTONE {
            parts.level = Level::ColumnTombstone;
            parts.timestamp = 0;
            return parts.with_tombstone_tail(key, self.column_end + 1);
        }
        onward(key, self.column_end)?;
        parts.level = Level::Cell;
        parts.with_cell_tail(key)
    }

    /// Returns whether `key` differs from `last`, from which `self` was parsed, only in
    /// its row and in what follows the column, with rows of equal length and without
    /// NUL. This is the common case in tables with one column; `parse_in_column` can
    /// then parse `key`.
    #[inline]
    pub fn is_next_row(&self, last: &[u8], key: &[u8]) -> bool {
        let shared = self.row_end - 2..self.column_end;
        self.column_end > self.family_end
            && key.len() > self.column_end
            && key[shared.clone()] == last[shared]
            && memchr::memchr(0, &key[..self.row_end - 2]).is_none()
    }

    fn with_tombstone_tail(mut self, key: &[u8], at: usize) -> Option<KeyParts> {
        let tail: &[u8; TXN_TAIL] = key.get(at..)?.try_into().ok()?;
        (self.txn, self.kind) = txn_and_kind(tail)?;
        (self.kind == Kind::Tombstone).then_some(self)
    }

    fn with_cell_tail(mut self, key: &[u8]) -> Option<KeyParts> {
        let tail: &[u8; CELL_TAIL] = key.get(self.column_end + 1..)?.try_into().ok()?;
        let (timestamp, rest) = tail.split_first_chunk::<8>()?;
        self.timestamp = timestamp_from(*timestamp);
        (self.txn, self.kind) = txn_and_kind(rest.try_into().ok()?)?;
        (self.kind != Kind::Tombstone).then_some(self)
    }

    /// Returns the row, still escaped, without its terminator.
    pub fn escaped_row<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        &key[..self.row_end - 2]
    }

    /// Returns the family; empty for a row tombstone.
    pub fn family<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        if self.family_end == self.row_end {
            return &[];
        }
        &key[self.row_end + 1..self.family_end - 1]
    }

    /// Returns the qualifier, still escaped, without its terminator; empty above the
    /// column level.
    pub fn escaped_qualifier<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        if self.column_end == self.family_end {
            return &[];
        }
        &key[self.family_end + 1..self.column_end - 2]
    }
}

/// Returns the end of the escaped string that starts at `from`, including the
/// terminator.
fn escaped_end(key: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += memchr::memchr(0, key.get(at..)?)?;
        match key.get(at + 1)? {
            0 => return Some(at + 2),
            0xFF => at += 2,
            _ => return None,
        }
    }
}

fn onward(key: &[u8], at: usize) -> Option<()> {
    (*key.get(at)? == SLOT_ONWARD).then_some(())
}

fn txn_and_kind(tail: &[u8; TXN_TAIL]) -> Option<(Txn, Kind)> {
    let (txn, kind) = tail.split_first_chunk::<8>()?;
    let txn = Txn::from_raw(!u64::from_be_bytes(*txn))?;
    Some((txn, Kind::from_byte(kind[0])?))
}

/// Returns the row prefix of a key, including the terminator.
pub fn row_prefix(key: &[u8]) -> Option<&[u8]> {
    escaped_end(key, 0).map(|end| &key[..end])
}

/// Returns the row that a key belongs to.
pub fn row_of(key: &[u8]) -> Option<Vec<u8>> {
    let prefix = row_prefix(key)?;
    let mut row = Vec::with_capacity(prefix.len() - 2);
    unescape_into(&prefix[..prefix.len() - 2], &mut row);
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Address {
        row: Vec<u8>,
        family: Vec<u8>,
        qualifier: Vec<u8>,
        timestamp: i64,
        txn: Txn,
    }

    impl Address {
        fn key(&self) -> Vec<u8> {
            let mut key = Vec::new();
            push_column(&mut key, &self.row, &self.family, &self.qualifier);
            push_cell_tail(&mut key, self.timestamp, self.txn, Kind::Put);
            key
        }

        fn order(&self) -> impl Ord + use<> {
            use std::cmp::Reverse;
            (
                self.row.clone(),
                self.family.clone(),
                self.qualifier.clone(),
                Reverse(self.timestamp),
                Reverse(self.txn),
            )
        }
    }

    fn small_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, b'a', 0xFE, 0xFF]), 0..4)
    }

    fn address() -> impl Strategy<Value = Address> {
        (
            small_bytes(),
            prop::collection::vec(prop::sample::select(vec![1u8, b'f', 0xFF]), 1..3),
            small_bytes(),
            prop::sample::select(vec![i64::MIN, -1, 0, 1, 5, i64::MAX]),
            0u64..3,
        )
            .prop_map(|(row, family, qualifier, timestamp, txn)| Address {
                row,
                family,
                qualifier,
                timestamp,
                txn: Txn::from_raw(txn).unwrap(),
            })
    }

    proptest! {
        #[test]
        fn byte_order_of_keys_is_the_order_of_cells(a in address(), b in address()) {
            prop_assert_eq!(a.key().cmp(&b.key()), a.order().cmp(&b.order()));
        }

        #[test]
        fn a_key_taken_apart_gives_back_what_it_was_made_of(a in address()) {
            let key = a.key();
            let parts = KeyParts::parse(&key).unwrap();
            let (mut row, mut qualifier) = (Vec::new(), Vec::new());
            unescape_into(parts.escaped_row(&key), &mut row);
            unescape_into(parts.escaped_qualifier(&key), &mut qualifier);
            prop_assert_eq!(parts.level, Level::Cell);
            prop_assert_eq!(&row, &a.row);
            prop_assert_eq!(parts.family(&key), &a.family[..]);
            prop_assert_eq!(&qualifier, &a.qualifier);
            prop_assert_eq!((parts.timestamp, parts.txn), (a.timestamp, a.txn));
            prop_assert_eq!(parts.parse_in_column(&key), Some(parts));
            let mut other = a.clone();
            other.row.iter_mut().for_each(|byte| *byte ^= 3);
            let other_key = other.key();
            if parts.is_next_row(&key, &other_key) {
                let expected = KeyParts::parse(&other_key);
                prop_assert_eq!(parts.parse_in_column(&other_key), expected);
            } else {
                prop_assert!(a.row.contains(&0) || other.row.contains(&0));
            }
            prop_assert_eq!(row_of(&key), Some(a.row));
        }

        #[test]
        fn tombstones_sort_before_all_that_they_cover(a in address()) {
            let cell = a.key();
            let mut prefixes = [Vec::new(), Vec::new(), Vec::new()];
            push_row(&mut prefixes[0], &a.row);
            push_family(&mut prefixes[1], &a.row, &a.family);
            push_column(&mut prefixes[2], &a.row, &a.family, &a.qualifier);
            for prefix in prefixes {
                let (mut tombstone, mut past) = (prefix.clone(), prefix.clone());
                push_tombstone_tail(&mut tombstone, Txn::ZERO);
                push_past(&mut past);
                prop_assert!(tombstone < cell && cell < past);
                prop_assert_eq!(KeyParts::parse(&tombstone).unwrap().kind, Kind::Tombstone);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(parts) = KeyParts::parse(&bytes) {
                parts.family(&bytes);
                parts.escaped_qualifier(&bytes);
            }
        }
    }
}
