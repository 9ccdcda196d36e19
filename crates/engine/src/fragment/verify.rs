//! Verifies a fragment completely and describes its blocks. Used by the offline tools;
//! reads the file itself, not the cache.

use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use crate::cell::key::{KeyParts, Kind, Level, unescape_into};
use crate::error::{Error, Result};
use crate::fragment::filter::{RowFilter, row_hash};
use crate::fragment::index::{BlockHandle, Contents, IndexPartition, family_bit};
use crate::fragment::position::Position;
use crate::fragment::reader::Fragment;
use crate::schema::Compression;

/// What the verification of a fragment counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct VerifyReport {
    pub blocks: u64,
    pub cells: u64,
    pub tombstones: u64,
    pub rows: u64,
    pub raw_bytes: u64,
}

/// A description of a block, for dumps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    pub offset: u64,
    pub stored_len: u32,
    pub raw_len: u32,
    pub compression: Compression,
    pub entries: u32,
    pub first_key: Vec<u8>,
    /// The minimum and maximum timestamp of its cells, if it has any.
    pub timestamps: Option<(i64, i64)>,
    /// Whether it contains entries other than plain values.
    pub deletes: bool,
}

/// Receives the key and value of each entry of a fragment, or the error in reading
/// them.
pub type EntrySink<'s, E> = dyn FnMut(Result<(&[u8], &[u8])>) -> Result<(), E> + 's;

impl Fragment {
    /// Reads everything and checks all guarantees of the format. Returns the first
    /// problem as the error.
    pub fn verify(&self) -> Result<VerifyReport> {
        let mut first = None;
        let report = self.inspect(&mut |error| {
            first.get_or_insert(error);
        });
        first.map_or(Ok(report), Err)
    }

    /// Like `verify`, but reports every problem and returns the counts of what could be
    /// read.
    pub fn inspect(&self, wrong: &mut dyn FnMut(Error)) -> VerifyReport {
        let mut readable = true;
        let mut report_error = |error| {
            readable = false;
            wrong(error);
        };
        self.verify_hash().unwrap_or_else(&mut report_error);
        let mut verification = Verification::new(self);
        for number in 0..self.partition_count() {
            match self.read_partition(number) {
                Ok(partition) => {
                    for block in 0..partition.handles.len() {
                        verification.block(&partition, block).unwrap_or_else(&mut report_error);
                    }
                }
                Err(error) => report_error(error),
            }
        }
        // If something could not be read, the counts necessarily differ.
        if readable && let Err(error) = verification.finish() {
            wrong(error);
        }
        verification.report
    }

    /// Calls `each` with every entry, in order, and with an error for each unreadable
    /// block. Stops at the first error that `each` returns.
    pub fn for_each_entry<E>(&self, each: &mut EntrySink<'_, E>) -> Result<(), E> {
        for number in 0..self.partition_count() {
            let partition = match self.read_partition(number) {
                Ok(partition) => partition,
                Err(error) => {
                    each(Err(error))?;
                    continue;
                }
            };
            for handle in &partition.handles {
                let mut position = Position::default();
                match self.read_block(handle) {
                    Ok(block) => position.enter(Arc::new(block)),
                    Err(error) => {
                        each(Err(error))?;
                        continue;
                    }
                }
                position.first();
                while position.valid() {
                    each(Ok((position.key(), position.value())))?;
                    position.next();
                }
            }
        }
        Ok(())
    }

    fn verify_hash(&self) -> Result<()> {
        let mut hash = Xxh3::new();
        self.for_each_metadata_chunk(|piece| hash.update(piece))?;
        if hash.digest() != self.meta().hash {
            let offset = self.meta().data_bytes;
            return Err(Error::data_loss(self.path(), offset, "the hash of the metadata is wrong"));
        }
        Ok(())
    }

    /// Describes every block, in order.
    pub fn blocks(&self) -> impl Iterator<Item = Result<BlockInfo>> + '_ {
        (0..self.partition_count()).flat_map(move |number| {
            let (handles, failed) = match self.read_partition(number) {
                Ok(partition) => (partition.handles.clone(), None),
                Err(error) => (Vec::new(), Some(Err(error))),
            };
            handles.into_iter().map(move |handle| self.describe(&handle)).chain(failed)
        })
    }

    fn describe(&self, handle: &BlockHandle) -> Result<BlockInfo> {
        let mut position = Position::default();
        position.enter(Arc::new(self.read_block(handle)?));
        position.first();
        Ok(BlockInfo {
            offset: handle.offset,
            stored_len: handle.stored_len,
            raw_len: handle.raw_len,
            compression: handle.compression,
            entries: handle.entries,
            first_key: position.key().to_vec(),
            timestamps: handle.contents.timestamps,
            deletes: handle.contents.deletes,
        })
    }
}

/// A pass over all entries of a fragment.
struct Verification<'a> {
    fragment: &'a Fragment,
    report: VerifyReport,
    last_key: Vec<u8>,
    first_row: Option<Vec<u8>>,
    row: Vec<u8>,
    /// The filter for the current row, and its number.
    filter: Option<(usize, RowFilter)>,
}

impl<'a> Verification<'a> {
    fn new(fragment: &'a Fragment) -> Verification<'a> {
        Verification {
            fragment,
            report: VerifyReport::default(),
            last_key: Vec::new(),
            first_row: None,
            row: Vec::new(),
            filter: None,
        }
    }

    fn block(&mut self, partition: &IndexPartition, number: usize) -> Result<()> {
        let handle = &partition.handles[number];
        let block = Arc::new(self.fragment.read_block(handle)?);
        let damaged =
            |what: &str| Error::data_loss(self.fragment.path(), handle.offset, what.to_string());
        let separator = partition.separators.get(number);
        if self.report.blocks > 0 && separator <= self.last_key.as_slice() {
            return Err(damaged("the separator is not above the block before it"));
        }
        let mut position = Position::default();
        position.enter(block);
        position.first();
        if position.key() < separator {
            return Err(damaged("the separator is above the first key of its block"));
        }
        let mut contents = Contents::default();
        while position.valid() {
            self.entry(&position, &mut contents)
                .map_err(|what| Error::data_loss(self.fragment.path(), handle.offset, what))?;
            position.next();
        }
        if contents != handle.contents {
            return Err(Error::data_loss(
                self.fragment.path(),
                handle.offset,
                "the block has other timestamps or families than its index states",
            ));
        }
        self.report.blocks += 1;
        Ok(())
    }

    fn entry(
        &mut self,
        position: &Position,
        contents: &mut Contents,
    ) -> std::result::Result<(), String> {
        let key = position.key();
        let first = self.report.cells + self.report.tombstones == 0;
        if !first && key <= self.last_key.as_slice() {
            return Err("the keys are not in ascending order".into());
        }
        let parts = KeyParts::parse(key).ok_or("the block holds an invalid key")?;
        let mut row = Vec::new();
        unescape_into(parts.escaped_row(key), &mut row);
        if first || row != self.row {
            self.first_row.get_or_insert_with(|| row.clone());
            self.row = row;
            self.report.rows += 1;
            self.check_row()?;
        }
        contents.deletes |= parts.kind != Kind::Put;
        if parts.level == Level::Cell {
            contents.add_timestamp(parts.timestamp);
            self.report.cells += 1;
        } else {
            self.report.tombstones += 1;
        }
        let meta = self.fragment.meta();
        if parts.level != Level::RowTombstone {
            let family = parts.family(key);
            let index = meta.families.iter().position(|known| known == family);
            contents.families |=
                family_bit(index.ok_or("a family is not in the list of the file")?);
        }
        if parts.txn < meta.txn_min || parts.txn > meta.txn_max {
            return Err("a txn is outside the bounds of the file".into());
        }
        self.report.raw_bytes += (key.len() + position.value().len()) as u64;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    fn check_row(&mut self) -> std::result::Result<(), String> {
        let sections = self.fragment.filter_sections();
        let number = sections.partition_point(|filter| filter.first_row <= self.row);
        let number = number.checked_sub(1).ok_or("a row is before the first row filter")?;
        if self.filter.as_ref().is_none_or(|(current, _)| *current != number) {
            let filter = self.fragment.read_filter(number).map_err(|error| error.to_string())?;
            self.filter = Some((number, filter));
        }
        let hash = row_hash(&self.row);
        match self.filter.as_ref().is_some_and(|(_, filter)| filter.may_hold(hash)) {
            true => Ok(()),
            false => Err("the row filter does not contain a row of the file".into()),
        }
    }

    /// Compares the footer with the counts.
    fn finish(&self) -> Result<()> {
        let (meta, report) = (self.fragment.meta(), &self.report);
        let damaged = |what| Err(Error::data_loss(self.fragment.path(), meta.data_bytes, what));
        let counts = [
            ("blocks", meta.blocks, report.blocks),
            ("cells", meta.cells, report.cells),
            ("tombstones", meta.tombstones, report.tombstones),
            ("rows", meta.rows, report.rows),
            ("raw bytes", meta.raw_bytes, report.raw_bytes),
        ];
        if let Some((what, stated, held)) = counts.iter().find(|(_, stated, held)| stated != held) {
            return damaged(format!("the footer states {stated} {what}, the blocks hold {held}"));
        }
        if let Some((first, last)) = &meta.row_bounds
            && (self.first_row.as_ref() != Some(first) || self.row != *last)
        {
            return damaged("the first or last row is not that of the footer".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cell::key::row_of;
    use crate::cell::range_tombstone::RangeTombstones;
    use crate::cell::rows::RowRange;
    use crate::fragment::testing::{OneFile, entries, options};
    use crate::txn::Txn;

    fn range_tombstones() -> RangeTombstones {
        let mut range_tombstones = RangeTombstones::default();
        range_tombstones.insert(&RowRange::new("a", "b"), Txn::base(3));
        range_tombstones.insert(&RowRange::new("a", "c"), Txn::base(9));
        range_tombstones
    }

    proptest! {
        #[test]
        fn facts_agree_with_the_entries(entries in entries(0..80), options in options()) {
            let file = OneFile::default();
            let meta = file.write_with(options, &entries, range_tombstones()).unwrap();
            let fragment = file.open().unwrap();
            prop_assert_eq!(fragment.meta(), &meta);
            prop_assert_eq!(&**fragment.range_tombstones(), &range_tombstones());
            let parts: Vec<KeyParts> =
                entries.keys().map(|key| KeyParts::parse(key).unwrap()).collect();
            let txns = || parts.iter().map(|part| part.txn).chain([Txn::base(3), Txn::base(9)]);
            prop_assert_eq!(Some(meta.txn_min), txns().min());
            prop_assert_eq!(Some(meta.txn_max), txns().max());
            let rows: Vec<Vec<u8>> = entries.keys().map(|key| row_of(key).unwrap()).collect();
            prop_assert_eq!(meta.row_bounds.as_ref().map(|b| &b.0), rows.first());
            prop_assert_eq!(meta.row_bounds.as_ref().map(|b| &b.1), rows.last());
            prop_assert_eq!(meta.stored_bytes, file.bytes().len() as u64);
            prop_assert!(meta.live_bytes <= meta.raw_bytes);
            let report = fragment.verify().unwrap();
            prop_assert_eq!(report.cells + report.tombstones, entries.len() as u64);
            prop_assert_eq!(fragment.blocks().count() as u64, meta.blocks);
        }
    }
}
