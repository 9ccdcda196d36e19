//! The cursor interface over a sorted run of entries.

use crate::error::Result;
use crate::txn::Txn;

/// The place of an entry in a disk fragment, by which it can be read again without a
/// search. Opaque to the merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPlace {
    /// The cache id of the fragment.
    pub fragment: u64,
    /// The partition of the index.
    pub part: u32,
    /// The block within the partition.
    pub block: u32,
    /// The entry within the block.
    pub entry: u32,
}

/// Iterates over the entries of one memory or disk fragment in key order.
///
/// A new cursor is unpositioned (`valid` is false) until a seek, and so is a cursor
/// that returned an error.
pub trait Cursor {
    /// Moves to the first entry whose key is at or after `key`.
    fn seek(&mut self, key: &[u8]) -> Result<()>;

    /// Moves to the last entry whose key is before `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<()>;

    /// Moves to the last entry.
    fn seek_last(&mut self) -> Result<()>;

    /// Moves to the first entry of the current stretch, which is cheap to read through.
    /// Requires `valid`.
    fn rewind(&mut self) -> Result<()>;

    /// Moves to the next entry. Requires `valid`.
    fn next(&mut self) -> Result<()>;

    /// Returns whether the cursor is positioned on an entry.
    fn valid(&self) -> bool;

    /// Returns the encoded cell key. Requires `valid`.
    fn key(&self) -> &[u8];

    /// Returns the value. Requires `valid`.
    fn value(&self) -> &[u8];

    /// Returns an upper bound of the txns of all entries that a reader of the cursor
    /// sees.
    fn txn_max(&self) -> Txn {
        Txn::MAX
    }

    /// Returns the place of the entry, if it can be read again by it. Requires
    /// `valid`.
    fn place(&self) -> Option<EntryPlace> {
        None
    }
}
