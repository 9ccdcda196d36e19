//! Dumps a fragment file: its metadata, blocks, range tombstones and entries.

use std::path::Path;
use std::sync::Arc;

use crate::cache::BlockCache;
use crate::cell::commit::TimeRange;
use crate::cell::key::{KeyParts, Kind, Level, unescape_into};
use crate::cell::normal::decode_times;
use crate::cell::range_tombstone::RangeTombstones;
use crate::error::{Error, Result};
use crate::fragment::{BlockInfo, Fragment, FragmentMeta};
use crate::txn::Txn;
use crate::world::Files;

/// An entry with its parsed key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryInfo<'a> {
    pub row: Vec<u8>,
    pub family: Option<&'a [u8]>,
    pub qualifier: Option<Vec<u8>>,
    /// Only for cells.
    pub timestamp: Option<i64>,
    pub txn: Txn,
    pub kind: &'static str,
    /// Only for merge operands.
    pub fold: Option<u8>,
    /// The time ranges that a column tombstone covers.
    pub times: Vec<TimeRange>,
    /// Only for cells.
    pub value: Option<&'a [u8]>,
}

/// A fragment to dump.
pub struct FragmentDump {
    fragment: Arc<Fragment>,
}

impl FragmentDump {
    pub fn open(files: &Arc<dyn Files>, path: &Path) -> Result<FragmentDump> {
        let fragment = Fragment::open(files, path, 0, BlockCache::new(0))?;
        Ok(FragmentDump { fragment })
    }

    pub fn meta(&self) -> &FragmentMeta {
        self.fragment.meta()
    }

    pub fn range_tombstones(&self) -> &RangeTombstones {
        self.fragment.range_tombstones()
    }

    /// Returns every block in order, or the error in reading it.
    pub fn blocks(&self) -> impl Iterator<Item = Result<BlockInfo>> + '_ {
        self.fragment.blocks()
    }

    /// Calls `each` with every entry, and with an error for each unreadable block.
    /// Stops at the first error that `each` returns.
    pub fn entries<E>(
        &self,
        each: &mut dyn FnMut(Result<EntryInfo<'_>>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.fragment.for_each_entry(&mut |entry| {
            let described = entry.and_then(|(key, value)| {
                describe(key, value).ok_or_else(|| {
                    let what = format!("invalid key \"{}\"", key.escape_ascii());
                    Error::data_loss(self.fragment.path(), 0, what)
                })
            });
            each(described)
        })
    }
}

/// Parses an entry; `None` if its key is invalid.
fn describe<'a>(key: &'a [u8], value: &'a [u8]) -> Option<EntryInfo<'a>> {
    let parts = KeyParts::parse(key)?;
    let unescaped = |escaped: &[u8]| {
        let mut bytes = Vec::new();
        unescape_into(escaped, &mut bytes);
        bytes
    };
    let in_column = parts.level >= Level::ColumnTombstone;
    let is_cell = parts.level == Level::Cell;
    Some(EntryInfo {
        row: unescaped(parts.escaped_row(key)),
        family: (parts.level >= Level::FamilyTombstone).then(|| parts.family(key)),
        qualifier: in_column.then(|| unescaped(parts.escaped_qualifier(key))),
        timestamp: is_cell.then_some(parts.timestamp),
        txn: parts.txn,
        kind: kind_name(&parts),
        fold: match parts.kind {
            Kind::Merge(fold) => Some(fold),
            _ => None,
        },
        times: match parts.level {
            Level::ColumnTombstone => decode_times(value).collect(),
            _ => Vec::new(),
        },
        value: is_cell.then_some(value),
    })
}

fn kind_name(parts: &KeyParts) -> &'static str {
    match (parts.level, parts.kind) {
        (Level::RowTombstone, _) => "row_tombstone",
        (Level::FamilyTombstone, _) => "family_tombstone",
        (Level::ColumnTombstone, _) => "column_tombstone",
        (Level::Cell, Kind::Put) => "put",
        (Level::Cell, Kind::Marker) => "marker",
        (Level::Cell, Kind::Merge(_)) => "merge",
        (Level::Cell, Kind::Tombstone) => unreachable!("a cell's key is never a tombstone's"),
    }
}
