//! An open fragment: its metadata, index, filters and blocks. Immutable and shared by
//! all readers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cache::{BlockCache, CacheReservation, Cached};
use crate::cell::range_tombstone::RangeTombstones;
use crate::cell::rows::{RowRange, successor};
use crate::error::{Error, Result};
use crate::fragment::block::Block;
use crate::fragment::compression::decompress;
use crate::fragment::filter::RowFilter;
use crate::fragment::footer::{FilterSection, FragmentMeta, IndexSection, TAIL_BYTES};
use crate::fragment::index::{BlockHandle, IndexPartition};
use crate::fragment::range_tombstones::parse_range_tombstones;
use crate::fragment::sections::{damaged, read_at, read_footer, read_section};
use crate::fragment::separators::Separators;
use crate::world::{File, Files};

/// An index up to this size stays in memory; a larger one is cached partition by
/// partition.
const INDEX_RESIDENT_BYTES: u64 = 256 << 10;
/// The same limit for the filters of a file.
const FILTER_RESIDENT_BYTES: u64 = 1 << 20;

/// An open fragment file.
pub struct Fragment {
    file: Arc<dyn File>,
    path: PathBuf,
    id: u64,
    cache: Arc<BlockCache>,
    meta: FragmentMeta,
    range_tombstones: Arc<RangeTombstones>,
    pub(super) index: Vec<IndexSection>,
    index_separators: Separators,
    /// All partitions, or empty if they go through the cache.
    index_resident: Vec<Arc<IndexPartition>>,
    filters: Vec<FilterSection>,
    /// All filters, or empty if they go through the cache.
    filters_resident: Vec<Arc<RowFilter>>,
    /// The part of the cache's budget that the resident partitions and filters use.
    resident: Vec<CacheReservation>,
    /// For each index partition, whether any of its blocks were inserted into the
    /// cache.
    blocks_cached: Vec<AtomicBool>,
}

impl Fragment {
    /// Opens a finished file. `id` is its cache id, from `BlockCache::next_file_id`.
    pub fn open(
        files: &Arc<dyn Files>,
        path: &Path,
        id: u64,
        cache: Arc<BlockCache>,
    ) -> Result<Arc<Fragment>> {
        let file =
            files.open_read(path).map_err(|error| Error::io("opening fragment", path, error))?;
        let (footer, meta) = read_footer(&*file, path)?;
        let range_tombstones = match &footer.range_tombstones {
            None => RangeTombstones::default(),
            Some(section) => {
                let bytes = read_section(&*file, path, section, "range tombstones")?;
                parse_range_tombstones(&bytes)
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
            file,
            path: path.to_path_buf(),
            id,
            cache,
            meta,
            range_tombstones: Arc::new(range_tombstones),
            index: footer.index,
            index_separators,
            index_resident: Vec::new(),
            filters: footer.filters,
            filters_resident: Vec::new(),
            resident: Vec::new(),
            blocks_cached,
        };
        fragment.load_resident()?;
        Ok(Arc::new(fragment))
    }

    /// Loads the index and the filters into memory if they are small and the cache has
    /// capacity for them. Otherwise they go through the cache.
    fn load_resident(&mut self) -> Result<()> {
        let index_bytes: u64 =
            self.index.iter().map(|partition| u64::from(partition.section.len)).sum();
        if index_bytes <= INDEX_RESIDENT_BYTES {
            let partitions = (0..self.index.len()).map(|number| self.read_partition(number));
            let partitions: Vec<_> = partitions.collect::<Result<_>>()?;
            if let Some(reserved) =
                self.cache.reserve(partitions.iter().map(|partition| partition.bytes()).sum())
            {
                self.resident.push(reserved);
                self.index_resident = partitions;
            }
        }
        let filter_bytes: u64 =
            self.filters.iter().map(|filter| u64::from(filter.section.len)).sum();
        if filter_bytes <= FILTER_RESIDENT_BYTES {
            let filters = (0..self.filters.len()).map(|number| self.usable_filter(number));
            let filters: Vec<_> = filters.collect();
            let bytes = filters.iter().map(|filter| filter.bytes()).sum();
            if let Some(reserved) = self.cache.reserve(bytes) {
                self.resident.push(reserved);
                self.filters_resident = filters;
            }
        }
        Ok(())
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
        &self.path
    }

    /// Returns the size of the index and filters that stay in memory while this is
    /// open.
    pub fn resident_bytes(&self) -> u64 {
        self.resident.iter().map(CacheReservation::bytes).sum()
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
        if let Some(filter) = self.filters_resident.get(number) {
            return filter.may_hold(row_hash);
        }
        let offset = self.filters[number].section.offset;
        if let Some(Cached::Filter(filter)) = self.cache.get(self.id, offset) {
            return filter.may_hold(row_hash);
        }
        let filter = self.usable_filter(number);
        self.cache.insert(self.id, offset, Cached::Filter(filter.clone()));
        filter.may_hold(row_hash)
    }

    /// Reads a filter. A filter only saves work: without it the block itself gives the
    /// answer, so damage is reported to the operator, not to the reader.
    fn usable_filter(&self, number: usize) -> Arc<RowFilter> {
        Arc::new(self.read_filter(number).unwrap_or_else(|error| {
            tracing::warn!(%error, "the row filter is unreadable: reading without it");
            RowFilter::accept_all()
        }))
    }

    pub(super) fn read_filter(&self, number: usize) -> Result<RowFilter> {
        let section = &self.filters[number].section;
        let bytes = read_section(&*self.file, &self.path, section, "row filter")?;
        RowFilter::parse(&bytes).ok_or_else(|| damaged(&self.path, section, "row filter"))
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

    pub(super) fn partition(&self, number: usize) -> Result<Arc<IndexPartition>> {
        if let Some(partition) = self.loaded_partition(number) {
            return Ok(partition);
        }
        let partition = self.read_partition(number)?;
        let offset = self.index[number].section.offset;
        self.cache.insert(self.id, offset, Cached::Index(partition.clone()));
        Ok(partition)
    }

    #[inline]
    pub(super) fn loaded_partition(&self, number: usize) -> Option<Arc<IndexPartition>> {
        if let Some(partition) = self.index_resident.get(number) {
            return Some(partition.clone());
        }
        match self.cache.get(self.id, self.index[number].section.offset) {
            Some(Cached::Index(partition)) => Some(partition),
            _ => None,
        }
    }

    /// Returns a partition without changing the cache.
    pub(super) fn peek_partition(&self, number: usize) -> Result<Arc<IndexPartition>> {
        if let Some(partition) = self.index_resident.get(number) {
            return Ok(partition.clone());
        }
        match self.cache.peek(self.id, self.index[number].section.offset) {
            Some(Cached::Index(partition)) => Ok(partition),
            _ => self.read_partition(number),
        }
    }

    pub(super) fn read_partition(&self, number: usize) -> Result<Arc<IndexPartition>> {
        let entry = &self.index[number];
        let data_end =
            self.index.get(number + 1).map_or(self.meta.data_bytes, |next| next.data_offset);
        let bytes = read_section(&*self.file, &self.path, &entry.section, "index")?;
        let partition = IndexPartition::parse(&bytes, entry.data_offset, data_end)
            .filter(|partition| partition.separators.get(0) == entry.first_separator)
            .filter(|partition| partition.handles.len() as u64 == entry.blocks)
            .ok_or_else(|| damaged(&self.path, &entry.section, "index"))?;
        Ok(Arc::new(partition))
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
        let damaged = |what| Error::data_loss(&self.path, handle.offset, what);
        let mut stored = vec![0; handle.stored_len as usize];
        read_at(&*self.file, &self.path, &mut stored, handle.offset)?;
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
        let mut at = self.meta.data_bytes;
        while at < end {
            let mut piece = vec![0; PIECE_BYTES.min(end - at) as usize];
            read_at(&*self.file, &self.path, &mut piece, at)?;
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
                let partition = self.loaded_partition(number);
                let partition = partition.map_or_else(|| self.read_partition(number), Ok);
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
    use crate::fragment::CursorOptions;
    use crate::fragment::testing::{fragment_of, many};
    use crate::merge::Cursor;

    fn walk(fragment: &Arc<Fragment>) {
        let mut cursor = fragment.cursor(&CursorOptions::default());
        cursor.seek(b"").unwrap();
        while cursor.valid() {
            cursor.next().unwrap();
        }
    }

    #[test]
    fn a_fragment_pays_for_its_index_and_filters_as_long_as_it_is_open() {
        let cache = BlockCache::new(1 << 20);
        let fragment = fragment_of(500, &cache);
        assert!(fragment.resident_bytes() > 500 * 16);
        assert_eq!(cache.stats().resident_bytes, fragment.resident_bytes());
        assert_eq!(cache.stats().bytes, fragment.resident_bytes());
        drop(fragment);
        assert_eq!(cache.stats().bytes, 0);
    }

    #[test]
    fn an_index_that_does_not_fit_in_memory_goes_through_the_cache() {
        let cache = BlockCache::new(20_000);
        let fragment = fragment_of(500, &cache);
        assert!(fragment.index_resident.is_empty());
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
