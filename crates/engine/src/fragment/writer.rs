//! Writes a fragment from entries in key order. Called by flush and compaction; memory
//! is bounded by a block, a chunk of output and the metadata.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prost::Message;
use xxhash_rust::xxh3::Xxh3;

use crate::cell::key::{KeyParts, Kind, Level, unescape_into};
use crate::cell::prefix::common_prefix;
use crate::cell::range_tombstone::RangeTombstones;
use crate::error::{Error, Printable, Result};
use crate::fragment::builder::BlockBuilder;
use crate::fragment::compression::Compressor;
use crate::fragment::filter::FilterBuilder;
use crate::fragment::footer::{
    FileTail, FilterSection, Footer, FragmentMeta, IndexSection, Section,
};
use crate::fragment::heat::Warmer;
use crate::fragment::index::{BlockHandle, Contents, IndexBuilder, family_bit};
use crate::fragment::range_tombstones::encode_range_tombstones;
use crate::schema::Compression;
use crate::txn::Txn;
use crate::world::{File, Files, FragmentSink, wait_for};

/// Output is written in pieces of about this size.
const CHUNK_BYTES: usize = 512 << 10;
/// The maximum size of an entry, key and value together.
pub const ENTRY_BYTES_MAX: usize = 256 << 20;
const BLOCK_BYTES_RANGE: std::ops::RangeInclusive<u32> = 64..=4 << 20;

/// How a fragment is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentOptions {
    pub compression: Compression,
    /// The approximate size of a block before compression.
    pub block_bytes: u32,
}

/// A fragment file being written.
pub struct FragmentWriter {
    output: BufferedFile,
    block_bytes: usize,
    compressor: Compressor,
    block: BlockBuilder,
    contents: Contents,
    /// The separator of the block being built.
    separator: Vec<u8>,
    index: IndexBuilder,
    filter: FilterBuilder,
    range_tombstones: RangeTombstones,
    footer: Footer,
    last_key: Vec<u8>,
    last: Option<KeyParts>,
    row: Vec<u8>,
    family_index: usize,
    covers: CoveringTombstones,
    warmer: Option<Warmer>,
    #[cfg(test)]
    any_order: bool,
}

/// The newest tombstones over the current column, for counting live cells.
#[derive(Default)]
struct CoveringTombstones {
    row: Txn,
    family: Txn,
    column: Txn,
}

impl FragmentWriter {
    /// Creates a new file. The caller syncs its directory after `finish`.
    pub fn create(
        files: &Arc<dyn Files>,
        path: &Path,
        options: FragmentOptions,
    ) -> Result<FragmentWriter> {
        let compressor = Compressor::new(options.compression)
            .map_err(|error| Error::io("preparing compression for", path, error))?;
        let file =
            files.create(path).map_err(|error| Error::io("creating fragment", path, error))?;
        let target = Target::File(file, files.clone());
        Ok(FragmentWriter::new(target, path, compressor, options))
    }

    /// Writes to a store outside the directory. `path` names the file in messages.
    pub fn create_in(
        sink: Box<dyn FragmentSink>,
        path: &Path,
        options: FragmentOptions,
    ) -> Result<FragmentWriter> {
        let compressor = Compressor::new(options.compression)
            .map_err(|error| Error::io("preparing compression for", path, error))?;
        Ok(FragmentWriter::new(Target::Sink(Some(sink)), path, compressor, options))
    }

    fn new(
        target: Target,
        path: &Path,
        compressor: Compressor,
        options: FragmentOptions,
    ) -> FragmentWriter {
        let block_bytes =
            options.block_bytes.clamp(*BLOCK_BYTES_RANGE.start(), *BLOCK_BYTES_RANGE.end());
        FragmentWriter {
            output: BufferedFile {
                target,
                path: path.to_path_buf(),
                chunk: Vec::with_capacity(CHUNK_BYTES + block_bytes as usize),
                written: 0,
                synced: 0,
                sync_bytes: u64::MAX,
            },
            block_bytes: block_bytes as usize,
            compressor,
            block: BlockBuilder::default(),
            contents: Contents::default(),
            separator: Vec::new(),
            index: IndexBuilder::default(),
            filter: FilterBuilder::default(),
            range_tombstones: RangeTombstones::default(),
            footer: Footer {
                compression: options.compression.to_byte().into(),
                block_bytes,
                txn_min: Txn::MAX.raw(),
                ..Footer::default()
            },
            last_key: Vec::new(),
            last: None,
            row: Vec::new(),
            family_index: 0,
            covers: CoveringTombstones::default(),
            warmer: None,
            #[cfg(test)]
            any_order: false,
        }
    }

    /// Syncs the file in steps of this size while it is written. A large file that is
    /// synced at once delays the log, whose syncs queue behind it in the device.
    pub fn sync_in_steps(&mut self, bytes: u64) {
        self.output.sync_bytes = bytes;
    }

    /// Adds an entry. Keys must be strictly ascending.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let size = key.len() + value.len();
        if size > ENTRY_BYTES_MAX {
            return Err(Error::TooLarge { what: "cell", size, limit: ENTRY_BYTES_MAX });
        }
        let shared = common_prefix(&self.last_key, key);
        let parts = self.parse(key, shared)?;
        if !self.block.is_empty() && self.block.bytes() + size > self.block_bytes {
            self.flush_block()?;
        }
        if self.block.is_empty() {
            self.separator.clear();
            // One byte more than the shared prefix sorts it after all previous keys.
            let len = if self.last.is_none() { key.len() } else { shared + 1 };
            self.separator.extend_from_slice(&key[..len]);
        }
        self.note(key, &parts, shared, size);
        self.block.add(key, &parts, shared, value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.last = Some(parts);
        Ok(())
    }

    fn parse(&self, key: &[u8], shared: usize) -> Result<KeyParts> {
        let parts = match &self.last {
            Some(last) if last.column_end > last.family_end && shared >= last.column_end => {
                last.parse_in_column(key)
            }
            _ => KeyParts::parse(key),
        };
        let parts = parts
            .ok_or_else(|| Error::CellDisorder(format!("invalid key {}", Printable::from(key))))?;
        let disordered = self.last.is_some() && self.last_key.get(shared..) >= key.get(shared..);
        #[cfg(test)]
        let disordered = disordered && !self.any_order;
        if disordered {
            let (last, key) = (Printable::from(&self.last_key[..]), Printable::from(key));
            return Err(Error::CellDisorder(format!("{key} is not above {last}")));
        }
        Ok(parts)
    }

    /// Updates the metadata of the block and the file with an entry.
    fn note(&mut self, key: &[u8], parts: &KeyParts, shared: usize, size: usize) {
        // Everything up to an end within the shared bytes is equal.
        let same = |end: fn(&KeyParts) -> usize| {
            self.last.as_ref().is_some_and(|last| shared >= end(last) && end(last) == end(parts))
        };
        let same_row = same(|parts| parts.row_end);
        let same_family = same_row && same(|parts| parts.family_end);
        let same_column = same_family && same(|parts| parts.column_end);
        if !same_row {
            unescape_into(parts.escaped_row(key), &mut self.row);
            self.filter.add(&self.row);
            self.footer.rows += 1;
            if self.footer.first_row.is_none() {
                self.footer.first_row = Some(self.row.clone());
            }
            self.covers = CoveringTombstones::default();
        }
        if !same_family {
            self.covers.family = Txn::ZERO;
        }
        if !same_column {
            self.covers.column = Txn::ZERO;
        }
        if parts.level != Level::RowTombstone {
            if !same_family {
                self.family_index = self.family_index_of(parts.family(key));
            }
            self.contents.families |= family_bit(self.family_index);
        }
        let footer = &mut self.footer;
        footer.raw_bytes += size as u64;
        footer.txn_min = footer.txn_min.min(parts.txn.raw());
        footer.txn_max = footer.txn_max.max(parts.txn.raw());
        self.contents.deletes |= parts.kind != Kind::Put;
        let cover = match parts.level {
            Level::RowTombstone => &mut self.covers.row,
            Level::FamilyTombstone => &mut self.covers.family,
            Level::ColumnTombstone => &mut self.covers.column,
            Level::Cell => {
                footer.cells += 1;
                self.contents.add_timestamp(parts.timestamp);
                let covers = &self.covers;
                if parts.txn >= covers.row.max(covers.family).max(covers.column) {
                    footer.live_bytes += size as u64;
                }
                return;
            }
        };
        *cover = parts.txn.max(*cover);
        footer.tombstones += 1;
    }

    fn family_index_of(&mut self, family: &[u8]) -> usize {
        let families = &mut self.footer.families;
        families.iter().position(|known| known == family).unwrap_or_else(|| {
            families.push(family.to_vec());
            families.len() - 1
        })
    }

    /// Accepts keys out of order, for tests of damaged files.
    #[cfg(test)]
    pub fn accept_any_order(&mut self) {
        self.any_order = true;
    }

    /// Sets the warmer that inserts hot blocks into the cache.
    pub fn set_warmer(&mut self, warmer: Warmer) {
        self.warmer = Some(warmer);
    }

    /// Sets the range tombstones of the fragment.
    pub fn set_range_tombstones(&mut self, range_tombstones: RangeTombstones) {
        self.range_tombstones = range_tombstones;
    }

    /// Returns the approximate size of the file if it were finished now.
    pub fn stored_bytes(&self) -> u64 {
        let pending = self.block.bytes() + self.index.bytes() + self.filter.bytes();
        self.output.offset() + pending as u64
    }

    fn flush_block(&mut self) -> Result<()> {
        let entries = self.block.entries() as u32;
        let raw = self.block.finish();
        let (stored, compression) = self.compressor.compress(raw);
        let handle = BlockHandle {
            offset: self.output.offset(),
            stored_len: stored.len() as u32,
            raw_len: raw.len() as u32,
            crc: crc32c::crc32c(stored),
            compression,
            entries,
            contents: std::mem::take(&mut self.contents),
        };
        self.output.append(stored)?;
        if let Some(warmer) = &mut self.warmer {
            warmer.block_written(handle.offset, raw);
        }
        self.index.add(&self.separator, &handle);
        if let Some((min, max)) = handle.contents.timestamps {
            let footer = &mut self.footer;
            footer.timestamp_min = Some(footer.timestamp_min.map_or(min, |known| known.min(min)));
            footer.timestamp_max = Some(footer.timestamp_max.map_or(max, |known| known.max(max)));
        }
        self.block.clear();
        Ok(())
    }

    /// Writes the remaining block and the metadata, and syncs the file.
    pub fn finish(mut self) -> Result<FragmentMeta> {
        if !self.block.is_empty() {
            self.flush_block()?;
        }
        let mut footer = self.footer;
        let mut output = self.output;
        let mut hash = Xxh3::new();
        footer.data_bytes = output.offset();
        footer.last_row = footer.first_row.is_some().then_some(self.row);
        for part in self.index.finish() {
            let section = output.append_section(&part.bytes, &mut hash)?;
            let (first_separator, data_offset, blocks) =
                (part.first_separator, part.data_offset, part.blocks);
            footer.index.push(IndexSection { section, first_separator, data_offset, blocks });
        }
        for filter in self.filter.finish() {
            let section = output.append_section(&filter.bytes, &mut hash)?;
            footer.filters.push(FilterSection { section, first_row: filter.first_row });
        }
        if !self.range_tombstones.is_empty() {
            footer.range_tombstones = Some(
                output
                    .append_section(&encode_range_tombstones(&self.range_tombstones), &mut hash)?,
            );
            footer.range_tombstone_count = self.range_tombstones.iter().count() as u64;
        }
        let range_tombstone_txns =
            self.range_tombstones.txn_min().into_iter().chain(self.range_tombstones.txn_max());
        for txn in range_tombstone_txns.map(Txn::raw) {
            footer.txn_min = footer.txn_min.min(txn);
            footer.txn_max = footer.txn_max.max(txn);
        }
        footer.txn_min = footer.txn_min.min(footer.txn_max);
        let section = output.append_section(&footer.encode_to_vec(), &mut hash)?;
        let hash = hash.digest();
        let tail = FileTail {
            footer_offset: section.offset,
            footer_len: section.len,
            footer_crc: section.crc,
            hash,
        };
        output.append(&tail.encode())?;
        output.finish()?;
        Ok(footer.meta(output.offset(), hash).expect("the metadata that was written is consistent"))
    }

    /// Abandons the file and removes it.
    pub fn abandon(self) -> Result<()> {
        let path = &self.output.path;
        match &self.output.target {
            Target::File(_, files) => files.remove(path),
            Target::Sink(_) => Ok(()),
        }
        .map_err(|error| Error::io("removing fragment", path, error))
    }
}

/// Where a fragment is written to.
enum Target {
    File(Arc<dyn File>, Arc<dyn Files>),
    /// `None` after it was finished.
    Sink(Option<Box<dyn FragmentSink>>),
}

/// The output file, written in large pieces.
struct BufferedFile {
    target: Target,
    path: PathBuf,
    chunk: Vec<u8>,
    written: u64,
    synced: u64,
    /// How much may be written before it is synced.
    sync_bytes: u64,
}

impl BufferedFile {
    fn offset(&self) -> u64 {
        self.written + self.chunk.len() as u64
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_BYTES {
            self.write_chunk()?;
        }
        Ok(())
    }

    fn append_section(&mut self, bytes: &[u8], hash: &mut Xxh3) -> Result<Section> {
        let limit = u32::MAX as usize;
        let len = u32::try_from(bytes.len()).map_err(|_| Error::TooLarge {
            what: "metadata of a fragment",
            size: bytes.len(),
            limit,
        })?;
        hash.update(bytes);
        let section = Section { offset: self.offset(), len, crc: crc32c::crc32c(bytes) };
        self.append(bytes)?;
        Ok(section)
    }

    fn write_chunk(&mut self) -> Result<()> {
        match &mut self.target {
            Target::File(file, _) => file.write_all_at(&self.chunk, self.written),
            Target::Sink(Some(sink)) => sink.append(&self.chunk),
            Target::Sink(None) => Err(io::ErrorKind::BrokenPipe.into()),
        }
        .map_err(|error| Error::io("writing fragment", &self.path, error))?;
        self.written += self.chunk.len() as u64;
        self.chunk.clear();
        if self.written - self.synced >= self.sync_bytes {
            self.sync_written()?;
        }
        Ok(())
    }

    /// Completes the file: it is durable afterwards.
    fn finish(&mut self) -> Result<()> {
        self.write_chunk()?;
        match &mut self.target {
            Target::File(..) => self.sync_written(),
            Target::Sink(sink) => {
                let sink = sink.take().expect("a file is finished once");
                let finished = wait_for(|done| sink.finish(done));
                finished.map_err(|error| Error::io("storing fragment", &self.path, error))
            }
        }
    }

    fn sync_written(&mut self) -> Result<()> {
        self.synced = self.written;
        let Target::File(file, _) = &self.target else { return Ok(()) };
        file.sync_data().map_err(|error| Error::io("syncing fragment", &self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cell::key::{push_cell_tail, push_column, push_family, push_tombstone_tail};
    use crate::fragment::CursorOptions;
    use crate::fragment::testing::{Entries, OneFile, entries, key, options};
    use crate::merge::Cursor;

    fn cell(row: &str, txn: u64) -> Vec<u8> {
        let mut key = Vec::new();
        push_column(&mut key, row.as_bytes(), b"f", b"q");
        push_cell_tail(&mut key, 0, Txn::from_raw(txn).unwrap(), Kind::Put);
        key
    }

    proptest! {
        #[test]
        fn the_same_entries_give_the_same_bytes(entries in entries(0..60), options in options()) {
            let (a, b) = (OneFile::default(), OneFile::default());
            a.write(options, &entries).unwrap();
            b.write(options, &entries).unwrap();
            prop_assert_eq!(a.bytes(), b.bytes());
        }

        #[test]
        fn keys_that_do_not_ascend_are_refused(a in key(), b in key()) {
            let file = OneFile::default();
            let mut writer =
                FragmentWriter::create(&file.files(), OneFile::path(), FragmentOptions::default())
                    .unwrap();
            writer.add(&a, b"").unwrap();
            let result = writer.add(&b, b"");
            prop_assert_eq!(result.is_ok(), a < b);
            if let Err(error) = result {
                prop_assert!(matches!(error, Error::CellDisorder(_)));
            }
        }
    }

    #[test]
    fn bytes_that_are_no_key_are_refused() {
        let file = OneFile::default();
        let mut writer =
            FragmentWriter::create(&file.files(), OneFile::path(), FragmentOptions::default())
                .unwrap();
        assert!(matches!(writer.add(b"row", b""), Err(Error::CellDisorder(_))));
        writer.abandon().unwrap();
        assert!(file.bytes().is_empty());
    }

    #[test]
    fn a_large_value_has_a_block_of_its_own() {
        let large: Vec<u8> = (0..10 << 20).map(|n: u32| (n.wrapping_mul(n) >> 7) as u8).collect();
        let entries = Entries::from([
            (cell("a", 1), b"small".to_vec()),
            (cell("b", 1), large.clone()),
            (cell("c", 1), b"small".to_vec()),
        ]);
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let file = OneFile::default();
            let meta = file.write(FragmentOptions::new(compression), &entries).unwrap();
            assert_eq!(meta.blocks, 3);
            let fragment = file.open().unwrap();
            let mut cursor = fragment.cursor(&CursorOptions::default());
            cursor.seek(&cell("b", 1)).unwrap();
            assert!(cursor.value() == large);
            cursor.next().unwrap();
            assert_eq!(cursor.value(), b"small");
        }
    }

    #[test]
    fn covered_cells_do_not_count_as_live() {
        let mut tombstone = Vec::new();
        push_family(&mut tombstone, b"a", b"f");
        push_tombstone_tail(&mut tombstone, Txn::from_raw(5).unwrap());
        let (newer, older, other) = (cell("a", 6), cell("a", 4), cell("b", 4));
        let live = newer.len() + other.len() + 2;
        let entries: Entries =
            [tombstone, newer, older, other].into_iter().map(|key| (key, vec![7])).collect();
        let meta = OneFile::default().write(FragmentOptions::default(), &entries).unwrap();
        assert_eq!(meta.live_bytes, live as u64);
        assert_eq!((meta.cells, meta.tombstones, meta.rows), (3, 1, 2));
    }

    #[test]
    fn spans_without_cells_make_a_fragment() {
        let mut range_tombstones = RangeTombstones::default();
        range_tombstones.insert(&crate::cell::rows::RowRange::new("a", "c"), Txn::base(4));
        let file = OneFile::default();
        let meta = file
            .write_with(FragmentOptions::default(), &Entries::new(), range_tombstones.clone())
            .unwrap();
        assert_eq!((meta.cells, meta.range_tombstones, meta.txn_min), (0, 1, Txn::base(4)));
        let fragment = file.open().unwrap();
        assert_eq!(**fragment.range_tombstones(), range_tombstones);
        assert!(!fragment.may_hold_row(b"a", 0));
        let mut cursor = fragment.cursor(&CursorOptions::default());
        cursor.seek(b"").unwrap();
        assert!(!cursor.valid());
        cursor.seek_before(b"z").unwrap();
        assert!(!cursor.valid());
        assert_eq!(fragment.verify().unwrap().blocks, 0);
    }
}
