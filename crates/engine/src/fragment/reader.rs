//! An open fragment: its facts, its index and filters, and the blocks behind
//! them. Shared by all readers; nothing in it changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use prost::Message;

use crate::cache::{BlockCache, Cached};
use crate::cell::key::row_start;
use crate::cell::rows::{RowRange, successor};
use crate::cell::span::Spans;
use crate::error::{Error, Result};
use crate::fragment::block::Block;
use crate::fragment::compression::decompress;
use crate::fragment::filter::RowFilter;
use crate::fragment::footer::{
    FileTail, FilterSection, Footer, FragmentMeta, IndexSection, Section, TAIL_BYTES,
};
use crate::fragment::index::{BlockHandle, IndexPart};
use crate::fragment::separators::Separators;
use crate::fragment::spans::parse_spans;
use crate::world::{File, Files};

/// An index up to this size stays in memory; a larger one goes through the
/// cache, partition by partition.
const INDEX_RESIDENT_BYTES: u64 = 256 << 10;
/// The same for the filters of a file.
const FILTER_RESIDENT_BYTES: u64 = 1 << 20;

pub struct Fragment {
    file: Arc<dyn File>,
    path: PathBuf,
    id: u64,
    cache: Arc<BlockCache>,
    meta: FragmentMeta,
    spans: Arc<Spans>,
    index: Vec<IndexSection>,
    index_separators: Separators,
    /// All partitions, or none when they go through the cache.
    index_resident: Vec<Arc<IndexPart>>,
    filters: Vec<FilterSection>,
    /// All filters, or none when they go through the cache.
    filters_resident: Vec<Arc<RowFilter>>,
}

impl Fragment {
    /// Opens a finished file. `id` is its name in the cache, from
    /// `BlockCache::next_file_id`.
    pub fn open(
        files: &Arc<dyn Files>,
        path: &Path,
        id: u64,
        cache: Arc<BlockCache>,
    ) -> Result<Arc<Fragment>> {
        let file =
            files.open_read(path).map_err(|error| Error::io("opening fragment", path, error))?;
        let (footer, meta) = read_footer(&*file, path)?;
        let spans = match &footer.spans {
            None => Spans::default(),
            Some(section) => {
                let bytes = read_section(&*file, path, section, "range tombstones")?;
                parse_spans(&bytes)
                    .filter(|spans| spans.iter().count() as u64 == footer.span_count)
                    .ok_or_else(|| damaged(path, section, "range tombstones"))?
            }
        };
        let index_separators = top_separators(&footer.index)
            .ok_or_else(|| Error::data_loss(path, meta.data_bytes, "index does not ascend"))?;
        let mut fragment = Fragment {
            file,
            path: path.to_path_buf(),
            id,
            cache,
            meta,
            spans: Arc::new(spans),
            index: footer.index,
            index_separators,
            index_resident: Vec::new(),
            filters: footer.filters,
            filters_resident: Vec::new(),
        };
        fragment.load_resident()?;
        Ok(Arc::new(fragment))
    }

    fn load_resident(&mut self) -> Result<()> {
        let index_bytes: u64 = self.index.iter().map(|part| u64::from(part.section.len)).sum();
        if index_bytes <= INDEX_RESIDENT_BYTES {
            let parts = (0..self.index.len()).map(|number| self.read_index_part(number));
            self.index_resident = parts.collect::<Result<_>>()?;
        }
        let filter_bytes: u64 = self.filters.iter().map(|part| u64::from(part.section.len)).sum();
        if filter_bytes <= FILTER_RESIDENT_BYTES {
            let filters = (0..self.filters.len()).map(|number| self.usable_filter(number));
            self.filters_resident = filters.collect();
        }
        Ok(())
    }

    pub fn meta(&self) -> &FragmentMeta {
        &self.meta
    }

    pub fn spans(&self) -> &Arc<Spans> {
        &self.spans
    }

    /// The rows that it has entries or range tombstones of lie within these;
    /// `None` when it has neither.
    pub fn rows(&self) -> Option<RowRange> {
        let bounds = self.meta.row_bounds.as_ref();
        let entries = bounds
            .map(|(first, last)| RowRange { start: first.clone(), end: Some(successor(last)) });
        RowRange::hull(entries, self.spans.hull())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of index and filters that stay in memory while this is open.
    pub fn resident_bytes(&self) -> usize {
        self.index_resident.iter().map(|part| part.bytes()).sum::<usize>()
            + self.filters_resident.iter().map(|filter| filter.bytes()).sum::<usize>()
    }

    /// False only when the fragment surely has no entry of `row`. Range
    /// tombstones are not counted: ask `spans` as well.
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

    /// A filter only saves work: without it the block itself gives the answer,
    /// so damage here is told to the operator, not to the reader.
    fn usable_filter(&self, number: usize) -> Arc<RowFilter> {
        Arc::new(self.read_filter(number).unwrap_or_else(|error| {
            tracing::warn!(%error, "reading without a row filter");
            RowFilter::open()
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

    pub(super) fn index_parts(&self) -> usize {
        self.index.len()
    }

    /// The partition that `key` belongs to.
    #[inline]
    pub(super) fn index_part_of(&self, key: &[u8]) -> usize {
        match self.index.len() {
            1 => 0,
            _ => self.index_separators.count_to(key).saturating_sub(1),
        }
    }

    /// The partition that the keys before `key` end in.
    pub(super) fn index_part_before(&self, key: &[u8]) -> usize {
        self.index_separators.count_before(key).saturating_sub(1)
    }

    pub(super) fn index_part(&self, number: usize) -> Result<Arc<IndexPart>> {
        if let Some(part) = self.index_resident.get(number) {
            return Ok(part.clone());
        }
        let offset = self.index[number].section.offset;
        if let Some(Cached::Index(part)) = self.cache.get(self.id, offset) {
            return Ok(part);
        }
        let part = self.read_index_part(number)?;
        self.cache.insert(self.id, offset, Cached::Index(part.clone()));
        Ok(part)
    }

    /// A partition for a reader that leaves the cache as it is.
    pub(super) fn peek_index_part(&self, number: usize) -> Result<Arc<IndexPart>> {
        if let Some(part) = self.index_resident.get(number) {
            return Ok(part.clone());
        }
        match self.cache.peek(self.id, self.index[number].section.offset) {
            Some(Cached::Index(part)) => Ok(part),
            _ => self.read_index_part(number),
        }
    }

    pub(super) fn read_index_part(&self, number: usize) -> Result<Arc<IndexPart>> {
        let entry = &self.index[number];
        let data_end =
            self.index.get(number + 1).map_or(self.meta.data_bytes, |next| next.data_offset);
        let bytes = read_section(&*self.file, &self.path, &entry.section, "index")?;
        let part = IndexPart::parse(&bytes, entry.data_offset, data_end)
            .filter(|part| part.separators.get(0) == entry.first_separator)
            .filter(|part| part.handles.len() as u64 == entry.blocks)
            .ok_or_else(|| damaged(&self.path, &entry.section, "index"))?;
        Ok(Arc::new(part))
    }

    /// The block from the cache, else from the file.
    #[inline]
    pub(super) fn block(&self, handle: &BlockHandle, fill_cache: bool) -> Result<Arc<Block>> {
        if let Some(Cached::Block(block)) = self.cache.get(self.id, handle.offset) {
            return Ok(block);
        }
        let block = Arc::new(self.read_block(handle)?);
        if fill_cache {
            self.cache.insert(self.id, handle.offset, Cached::Block(block.clone()));
        }
        Ok(block)
    }

    /// A block for a reader that leaves the cache as it is, and whether it was
    /// there.
    pub(super) fn peek_block(&self, handle: &BlockHandle) -> Result<(Arc<Block>, bool)> {
        match self.cache.peek(self.id, handle.offset) {
            Some(Cached::Block(block)) => Ok((block, true)),
            _ => Ok((Arc::new(self.read_block(handle)?), false)),
        }
    }

    /// The block from the file, checked.
    pub(super) fn read_block(&self, handle: &BlockHandle) -> Result<Block> {
        let damaged = |what| Error::data_loss(&self.path, handle.offset, what);
        let mut stored = vec![0; handle.stored_len as usize];
        read_at(&*self.file, &self.path, &mut stored, handle.offset)?;
        if crc32c::crc32c(&stored) != handle.crc {
            return Err(damaged("block has a wrong checksum"));
        }
        let raw = decompress(handle.compression, stored, handle.raw_len as usize);
        let block = Block::parse(raw.map_err(damaged)?).map_err(damaged)?;
        if block.entries() != handle.entries as usize {
            return Err(damaged("block has another number of entries than its index tells"));
        }
        Ok(block)
    }

    /// Reads all bytes behind the blocks, piece by piece.
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

    /// About how many stored bytes the rows of `range` take. A range within
    /// another is never estimated larger.
    pub fn estimate_bytes(&self, range: &RowRange) -> u64 {
        let Some((first, last)) = &self.meta.row_bounds else { return 0 };
        let before = range.end.as_ref().is_some_and(|end| end <= first);
        if range.is_empty() || before || range.start > *last {
            return 0;
        }
        let start = self.place_of(self.index_part_of(&row_start(&range.start)), |part| {
            let number = part.separators.count_to(&row_start(&range.start)).saturating_sub(1);
            part.handles[number].offset
        });
        let end = range.end.as_ref().map(|end| row_start(end));
        let end = end.map_or(self.meta.data_bytes, |end| {
            let number = self.index_part_before(&end);
            self.place_of(number, |part| {
                let number = part.separators.count_before(&end).saturating_sub(1);
                part.handles[number].end()
            })
        });
        end.saturating_sub(start)
    }

    /// A place within a partition; its start when the partition is unreadable.
    fn place_of(&self, number: usize, place: impl FnOnce(&IndexPart) -> u64) -> u64 {
        match self.index_part(number) {
            Ok(part) => place(&part),
            Err(_) => self.index[number].data_offset,
        }
    }
}

fn read_footer(file: &dyn File, path: &Path) -> Result<(Footer, FragmentMeta)> {
    let file_len = file.len().map_err(|error| Error::io("reading fragment", path, error))?;
    let Some(tail_at) = file_len.checked_sub(TAIL_BYTES as u64) else {
        return Err(Error::data_loss(path, 0, "too short for a fragment"));
    };
    let mut tail = [0; TAIL_BYTES];
    read_at(file, path, &mut tail, tail_at)?;
    let tail = FileTail::parse(&tail, path, file_len)?;
    let section =
        Section { offset: tail.footer_offset, len: tail.footer_len, crc: tail.footer_crc };
    let bytes = read_section(file, path, &section, "footer")?;
    let footer = Footer::decode(bytes.as_slice()).map_err(|_| damaged(path, &section, "footer"))?;
    let meta = footer.meta(file_len, tail.hash).filter(|_| footer.sections_fit(section.offset));
    let meta = meta.ok_or_else(|| damaged(path, &section, "footer"))?;
    Ok((footer, meta))
}

/// Reads a section that lies within the file, and checks it.
fn read_section(file: &dyn File, path: &Path, section: &Section, what: &str) -> Result<Vec<u8>> {
    let mut bytes = vec![0; section.len as usize];
    read_at(file, path, &mut bytes, section.offset)?;
    if crc32c::crc32c(&bytes) != section.crc {
        return Err(damaged(path, section, what));
    }
    Ok(bytes)
}

fn read_at(file: &dyn File, path: &Path, bytes: &mut [u8], offset: u64) -> Result<()> {
    file.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::data_loss(path, offset, "the file ends early"),
        _ => Error::io("reading fragment", path, error),
    })
}

fn damaged(path: &Path, section: &Section, what: &str) -> Error {
    Error::data_loss(path, section.offset, format!("damaged {what}"))
}

fn top_separators(index: &[IndexSection]) -> Option<Separators> {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for part in index {
        bytes.extend_from_slice(&part.first_separator);
        ends.push(bytes.len());
    }
    Separators::new(bytes, ends)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fragment::testing::{OneFile, entries, options};

    proptest! {
        #[test]
        fn a_wider_range_is_never_estimated_smaller(
            entries in entries(1..80),
            options in options(),
            mut cuts in prop::collection::vec(prop::collection::vec(0u8..3, 0..3), 4),
        ) {
            let file = OneFile::default();
            let meta = file.write(options, &entries).unwrap();
            let fragment = file.open().unwrap();
            cuts.sort();
            let [a, b, c, d] = <[Vec<u8>; 4]>::try_from(cuts).unwrap();
            let inner = fragment.estimate_bytes(&RowRange::new(b.clone(), c));
            prop_assert!(inner <= fragment.estimate_bytes(&RowRange::new(a, d)));
            prop_assert!(inner <= fragment.estimate_bytes(&RowRange::from(b)));
            prop_assert_eq!(fragment.estimate_bytes(&RowRange::all()), meta.data_bytes);
        }
    }
}
