//! A position in a sorted run of entries.

use crate::error::Result;
use crate::fragment::EntryPlace;
use crate::txn::Txn;

/// Walks the entries of one memory or disk fragment in key order.
///
/// A new cursor stands nowhere (`valid` is false) until it is sought. A cursor
/// that returned an error stands nowhere too.
pub trait Cursor {
    /// Goes to the first entry whose key is at or after `key`.
    fn seek(&mut self, key: &[u8]) -> Result<()>;

    /// Goes to the last entry whose key is before `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<()>;

    /// Goes to the last entry.
    fn seek_last(&mut self) -> Result<()>;

    /// Goes to the first entry of the stretch it stands in, which is cheap to
    /// read through. Only where `valid`.
    fn rewind(&mut self) -> Result<()>;

    /// Goes to the next entry. Only where `valid`.
    fn next(&mut self) -> Result<()>;

    /// Whether the cursor stands on an entry.
    fn valid(&self) -> bool;

    /// The encoded cell key. Only where `valid`.
    fn key(&self) -> &[u8];

    /// Only where `valid`.
    fn value(&self) -> &[u8];

    /// No entry that any reader of the cursor sees has a greater txn.
    fn txn_max(&self) -> Txn {
        Txn::MAX
    }

    /// Where the entry is, if it can be read there again. Only where `valid`.
    fn place(&self) -> Option<EntryPlace> {
        None
    }
}
