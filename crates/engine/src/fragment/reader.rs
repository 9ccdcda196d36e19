//! An open fragment: its metadata, index, filters and blocks. Immutable and shared by
//! all readers. The metadata stays in memory; everything else is in the cache while it
//! is used, and is read again when it is needed.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cache::{BlockCache, Cached};
use crate::cell::range_tombstone::RangeTombstones;
use crate::cell::rows::{RowRange, successor};
use crate::cell::separators::Separators;
use crate::error::{Error, Result};
use crate::fragment::block::Block;
use crate::fragment::compression::decompress;
use crate::fragment::footer::{FilterSection, FragmentMeta, IndexSection, TAIL_BYTES};
use crate::fragment::handles::{FileHandle, FileHandles};
use crate::fragment::index::{BlockHandle, IndexPartition};
use crate::fragment::kept::Keeping;
use crate::fragment::parts::{Parts, ResidentParts};
use crate::fragment::range_tombstones::parse_range_tombstones;
use crate::fragment::sections::{check_section, damaged, read_at, read_metadata, read_section};
use crate::world::{File, Files, RemoteFile};

/// The damage of a file that has another size than is known.
pub const SIZE_DIFFERS: &str = "the file size differs from the size in the manifest";

/// An open fragment file.
pub struct Fragment {
    file: Arc<FileHandle>,
    pub(super) id: u64,
    pub(super) cache: Arc<BlockCache>,
    meta: FragmentMeta,
    range_tombstones: Arc<RangeTombstones>,
    pub(super) index: Vec<IndexSection>,
    index_separators: Separators,
    pub(super) filters: Vec<FilterSection>,
    pub(super) resident: ResidentParts,
    /// The index partitions and filters in memory that are not resident.
    pub(super) parts: Arc<Parts>,
    /// For each index partition, whether any of its blocks were inserted into the
    /// cache.
    blocks_cached: Vec<AtomicBool>,
    pub(super) keeping: Keeping,
}

/// What is known about a file before it is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownSize {
    /// The size of the file. If it has another one, it is damaged.
    pub bytes: Option<u64>,
    /// The size of everything after the blocks, to be read at once.
    pub meta_bytes: Option<u64>,
}

impl Fragment {
    /// Opens a finished file. `id` is its cache id, from `BlockCache::next_file_id`.
    pub fn open(
        files: &Arc<dyn Files>,
        path: &Path,
        id: u64,
        cache: Arc<BlockCache>,
    ) -> Result<Arc<Fragment>> {
        let file = FileHandle::new(files, path, &FileHandles::new(1));
        Fragment::open_handle(file, KnownSize::default(), id, cache)
    }

    /// Like `open`, for a file that counts as one of the open files of the process, or
    /// that is outside the directory.
    pub fn open_handle(
        handle: Arc<FileHandle>,
        known: KnownSize,
        id: u64,
        cache: Arc<BlockCache>,
    ) -> Result<Arc<Fragment>> {
        let open = || Fragment::open_once(&handle, known, id, cache.clone());
        let opened = open();
        if let (Err(Error::DataLoss { .. }), Some(file)) = (&opened, handle.remote()) {
            let bytes = known.bytes.unwrap_or(0);
            let start = bytes.saturating_sub(known.meta_bytes.unwrap_or(bytes));
            if file.forget(start..bytes) {
                return open();
            }
        }
        opened
    }

    fn open_once(
        handle: &Arc<FileHandle>,
        known: KnownSize,
        id: u64,
        cache: Arc<BlockCache>,
    ) -> Result<Arc<Fragment>> {
        let path = handle.path();
        let file = handle.file().map_err(|error| Error::io("opening fragment", path, error))?;
        let file_len = file.len().map_err(|error| Error::io("reading fragment", path, error))?;
        if known.bytes.is_some_and(|bytes| bytes != file_len) {
            return Err(Error::data_loss(path, 0, SIZE_DIFFERS));
        }
        let (footer, meta, end) = read_metadata(&*file, path, file_len, known.meta_bytes)?;
        let range_tombstones = match &footer.range_tombstones {
            None => RangeTombstones::default(),
            Some(section) => {
                let read;
                let bytes = match end.section(section) {
                    Some(bytes) => bytes,
                    None => {
                        read = read_section(&*file, path, section, "range tombstones")?;
                        &read
                    }
                };
                check_section(bytes, path, section, "range tombstones")?;
                parse_range_tombstones(bytes)
                    .filter(|range_tombstones| {
                        range_tombstones.iter().count() as u64 == footer.range_tombstone_count
                    })
                    .ok_or_else(|| damaged(path, section, "range tombstones"))?
            }
        };
        let index_separators = top_separators(&footer.index).ok_or_else(|| {
            Error::data_loss(path, meta.data_bytes, "the index is not in ascending order")
        })?;
        let blocks_cached = footer.index.iter().map(|_| AtomicBool::new(false)).collect();
        let mut fragment = Fragment {
            file: handle.clone(),
            id,
            cache,
            meta,
            range_tombstones: Arc::new(range_tombstones),
            resident: ResidentParts::default(),
            parts: Parts::new(footer.index.len(), footer.filters.len()),
            index: footer.index,
            index_separators,
            filters: footer.filters,
            blocks_cached,
            keeping: Keeping::default(),
        };
        fragment.decode_parts(&end)?;
        Ok(Arc::new(fragment))
    }

    /// Returns the file, opened if it was closed.
    pub(super) fn file(&self) -> Result<Arc<dyn File>> {
        self.file.file().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::data_loss(self.path(), 0, "the file is missing"),
            _ => Error::io("opening fragment", self.path(), error),
        })
    }

    /// Returns the file if it is outside the directory.
    #[inline]
    pub(super) fn remote(&self) -> Option<&RemoteFile> {
        self.file.remote()
    }

    /// Fetches the first `bytes_max` stored bytes of the rows from the key `start` on, if
    /// the file is outside the directory.
    pub fn prefetch(&self, start: &[u8], bytes_max: u64) {
        let Some(file) = self.remote() else { return };
        if self.partition_count() == 0 {
            return;
        }
        let Some(partition) = self.loaded_partition(self.partition_of(start)) else { return };
        let number = partition.separators.count_to(start).saturating_sub(1);
        let from = partition.handles[number].offset;
        file.prefetch(from..from.saturating_add(bytes_max).min(self.meta.data_bytes));
    }

    /// Records that any block may be in the cache.
    pub(super) fn note_blocks_cached(&self) {
        self.blocks_cached.iter().for_each(|cached| cached.store(true, Ordering::Relaxed));
    }

    /// Returns its cache id, which is never reused in this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn meta(&self) -> &FragmentMeta {
        &self.meta
    }

    pub fn range_tombstones(&self) -> &Arc<RangeTombstones> {
        &self.range_tombstones
    }

    /// Returns a range that contains the rows of all entries and range tombstones;
    /// `None` if there are neither.
    pub fn rows(&self) -> Option<RowRange> {
        let bounds = self.meta.row_bounds.as_ref();
        let entries = bounds
            .map(|(first, last)| RowRange { start: first.clone(), end: Some(successor(last)) });
        RowRange::hull(entries, self.range_tombstones.hull())
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the size of the index partitions and filters that are in memory.
    pub fn decoded_bytes(&self) -> usize {
        let partitions = self.parts.partitions.iter().filter_map(|slot| slot.load_full());
        let partitions = partitions.chain(self.resident.partitions.iter().cloned());
        let filters = self.parts.filters.iter().filter_map(|slot| slot.load_full());
        let filters = filters.chain(self.resident.filters.iter().cloned());
        let partition_bytes: usize = partitions.map(|partition| partition.bytes()).sum();
        partition_bytes + filters.map(|filter| filter.bytes()).sum::<usize>()
    }

    /// Returns false only if the fragment certainly has no entry of `row`. Does not
    /// consider range tombstones: check `range_tombstones` as well.
    pub fn may_hold_row(&self, row: &[u8], row_hash: u64) -> bool {
        let Some((first, last)) = &self.meta.row_bounds else { return false };
        if row < first.as_slice() || row > last.as_slice() {
            return false;
        }
        let number = self.filters.partition_point(|filter| filter.first_row.as_slice() <= row);
        let Some(number) = number.checked_sub(1) else { return true };
        if let Some(filter) = self.resident.filters.get(number) {
            return filter.may_hold(row_hash);
        }
        self.filter(number).may_hold(row_hash)
    }

    pub(super) fn filter_sections(&self) -> &[FilterSection] {
        &self.filters
    }

    pub(super) fn partition_count(&self) -> usize {
        self.index.len()
    }

    /// Returns the partition that `key` belongs to.
    #[inline]
    pub(super) fn partition_of(&self, key: &[u8]) -> usize {
        match self.index.len() {
            1 => 0,
            _ => self.index_separators.count_to(key).saturating_sub(1),
        }
    }

    /// Returns the partition of the last key before `key`.
    pub(super) fn partition_before(&self, key: &[u8]) -> usize {
        self.index_separators.count_before(key).saturating_sub(1)
    }

    /// Returns a block of a partition, from the cache or else from the file.
    #[inline]
    pub(super) fn block(
        &self,
        (partition_number, partition): (usize, &Arc<IndexPartition>),
        number: usize,
        fill_cache: bool,
    ) -> Result<Arc<Block>> {
        let (handle, slot) = (&partition.handles[number], &partition.slots[number]);
        if let Some(block) = slot.block() {
            self.cache.note_use(self.id, handle.offset, block.last_use());
            return Ok(block);
        }
        if let Some(Cached::Block(block)) = self.cache.get(self.id, handle.offset) {
            // It may have been inserted while the file was written.
            self.blocks_cached[partition_number].store(true, Ordering::Relaxed);
            slot.fill(&block);
            return Ok(block);
        }
        let mut block = self.read_block(handle)?;
        if !fill_cache {
            return Ok(Arc::new(block));
        }
        block.attach_to_slot(partition, number);
        let block = Arc::new(block);
        slot.fill(&block);
        self.blocks_cached[partition_number].store(true, Ordering::Relaxed);
        self.cache.insert(self.id, handle.offset, Cached::Block(block.clone()));
        Ok(block)
    }

    /// Returns a block without changing the cache, and whether it was cached.
    pub(super) fn peek_block(&self, handle: &BlockHandle) -> Result<(Arc<Block>, bool)> {
        match self.cache.peek(self.id, handle.offset) {
            Some(Cached::Block(block)) => Ok((block, true)),
            _ => Ok((Arc::new(self.read_block(handle)?), false)),
        }
    }

    /// Reads and validates a block from the file.
    pub(super) fn read_block(&self, handle: &BlockHandle) -> Result<Block> {
        self.read_intact(handle.offset, handle.stored_len, || self.read_block_once(handle))
    }

    /// Reads bytes of the file. If they are damaged and the file is outside the
    /// directory, they are fetched again once.
    pub(super) fn read_intact<T>(
        &self,
        offset: u64,
        len: u32,
        read: impl Fn() -> Result<T>,
    ) -> Result<T> {
        let first = read();
        match (&first, self.remote()) {
            (Err(Error::DataLoss { .. }), Some(file))
                if file.forget(offset..offset + u64::from(len)) =>
            {
                read()
            }
            _ => first,
        }
    }

    fn read_block_once(&self, handle: &BlockHandle) -> Result<Block> {
        let damaged = |what| Error::data_loss(self.path(), handle.offset, what);
        let mut stored = vec![0; handle.stored_len as usize];
        read_at(&*self.file()?, self.path(), &mut stored, handle.offset)?;
        if crc32c::crc32c(&stored) != handle.crc {
            return Err(damaged("the checksum of a block is wrong"));
        }
        let raw = decompress(handle.compression, stored, handle.raw_len as usize);
        let block = Block::parse(raw.map_err(damaged)?).map_err(damaged)?;
        if block.entries() != handle.entries as usize {
            return Err(damaged("the block has another number of entries than its index states"));
        }
        Ok(block)
    }

    /// Reads all bytes after the blocks, piece by piece.
    pub(super) fn for_each_metadata_chunk(&self, mut with: impl FnMut(&[u8])) -> Result<()> {
        const PIECE_BYTES: u64 = 1 << 20;
        let end = self.meta.stored_bytes - TAIL_BYTES as u64;
        let (file, mut at) = (self.file()?, self.meta.data_bytes);
        while at < end {
            let mut piece = vec![0; PIECE_BYTES.min(end - at) as usize];
            read_at(&*file, self.path(), &mut piece, at)?;
            with(&piece);
            at += piece.len() as u64;
        }
        Ok(())
    }
}

/// Removes its blocks, index and filters from the cache, since they will not be
/// requested again.
impl Drop for Fragment {
    fn drop(&mut self) {
        for (number, section) in self.index.iter().enumerate() {
            if self.blocks_cached[number].load(Ordering::Relaxed) {
                let partition = self.peek_partition(number);
                // Entries that cannot be identified age out.
                let handles = partition.iter().flat_map(|partition| &partition.handles);
                handles.for_each(|handle| self.cache.remove(self.id, handle.offset));
            }
            self.cache.remove(self.id, section.section.offset);
        }
        for filter in &self.filters {
            self.cache.remove(self.id, filter.section.offset);
        }
    }
}

fn top_separators(index: &[IndexSection]) -> Option<Separators> {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for partition in index {
        bytes.extend_from_slice(&partition.first_separator);
        ends.push(bytes.len());
    }
    Separators::new(bytes, ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fragment::testing::{fragment_of, many};
    use crate::fragment::{CursorOptions, FragmentOptions, FragmentWriter};
    use crate::merge::Cursor;
    use crate::world::sim::SimFiles;

    fn walk(fragment: &Arc<Fragment>) {
        let mut cursor = fragment.cursor(&CursorOptions::default());
        cursor.seek(b"").unwrap();
        while cursor.valid() {
            cursor.next().unwrap();
        }
    }

    #[test]
    fn scale_2_13_index_and_filters_are_charged_to_the_cache() {
        let cache = BlockCache::new(1 << 20);
        let fragment = fragment_of(500, &cache);
        assert!(cache.stats().resident_bytes > 500 * 16);
        assert_eq!(cache.stats().bytes, cache.stats().resident_bytes);
        drop(fragment);
        assert_eq!((cache.stats().bytes, cache.stats().resident_bytes), (0, 0));
    }

    #[test]
    fn scale_2_13_an_evicted_index_is_reloaded_when_it_is_needed() {
        let cache = BlockCache::new(1 << 20);
        // As if the indexes of other files were half of the budget.
        let _reserved = cache.reserve(1 << 19).unwrap();
        let others = fragment_of(20_000, &cache);
        walk(&others);
        let fragment = fragment_of(50, &cache);
        let loaded = |fragment: &Fragment| {
            let partitions = fragment.parts.partitions.iter().map(|slot| slot.load().is_some());
            let filters = fragment.parts.filters.iter().map(|slot| slot.load().is_some());
            (partitions.collect::<Vec<_>>(), filters.collect::<Vec<_>>())
        };
        assert_eq!(loaded(&fragment), (vec![true], vec![true]));
        // Blocks that are read more often than the index.
        walk(&others);
        assert_eq!(loaded(&fragment), (vec![false], vec![false]));
        let key = many(50).into_keys().next().unwrap();
        let mut cursor = fragment.cursor(&CursorOptions::default());
        cursor.seek(&key).unwrap();
        assert_eq!(cursor.key(), key);
        let row = b"00000049";
        assert!(fragment.may_hold_row(row, crate::fragment::row_hash(row)));
        assert_eq!(loaded(&fragment), (vec![true], vec![true]));
    }

    #[test]
    fn scale_2_13_a_file_of_known_metadata_size_is_opened_with_one_read() {
        let path = Path::new("/f.frag");
        let sim = SimFiles::new(1);
        let files: Arc<dyn Files> = Arc::new(sim.clone());
        let options = FragmentOptions { block_bytes: 64, ..FragmentOptions::default() };
        let mut writer = FragmentWriter::create(&files, path, options).unwrap();
        many(500).iter().for_each(|(key, value)| writer.add(key, value).unwrap());
        let meta = writer.finish().unwrap();
        let cache = BlockCache::new(1 << 20);
        // Without the size, and with a wrong one, the footer tells where the rest is.
        for (meta_bytes, reads) in [(Some(meta.meta_bytes()), 1), (None, 3), (Some(50), 3)] {
            let before = sim.counters();
            let handle = FileHandle::new(&files, path, &FileHandles::new(1));
            let known = KnownSize { bytes: Some(meta.stored_bytes), meta_bytes };
            let id = cache.next_file_id();
            let fragment = Fragment::open_handle(handle, known, id, cache.clone()).unwrap();
            assert_eq!(sim.counters().reads - before.reads, reads, "{meta_bytes:?}");
            assert!(fragment.loaded_partition(0).is_some());
            let row = b"00000499";
            assert!(fragment.may_hold_row(row, crate::fragment::row_hash(row)));
            assert_eq!(sim.counters().reads - before.reads, reads, "index and filter are there");
        }
    }

    #[test]
    fn an_index_that_does_not_fit_in_memory_goes_through_the_cache() {
        let cache = BlockCache::new(20_000);
        let fragment = fragment_of(500, &cache);
        assert!(fragment.parts.partitions[0].load().is_none());
        let mut cursor = fragment.cursor(&CursorOptions::default());
        for key in many(500).keys() {
            cursor.seek(key).unwrap();
            assert_eq!(cursor.key(), key);
        }
        assert!(cache.stats().bytes <= 20_000, "{:?}", cache.stats());
    }

    #[test]
    fn a_dropped_fragment_leaves_nothing_in_the_cache() {
        let cache = BlockCache::new(64 << 20);
        for blocks in [500, 20_000] {
            let stays = fragment_of(100, &cache);
            walk(&stays);
            let before = cache.stats().bytes;
            let goes = fragment_of(blocks, &cache);
            walk(&goes);
            assert!(cache.stats().bytes > before + blocks * 64);
            // As if an index partition had been evicted before its blocks.
            cache.remove(goes.id, goes.index[0].section.offset);
            drop(goes);
            assert_eq!(cache.stats().bytes, before);
        }
    }
}
