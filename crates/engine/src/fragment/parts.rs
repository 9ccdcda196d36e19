//! The parts of a fragment that its readers need in memory: index partitions and row
//! filters.
//!
//! The block cache owns them and evicts them like blocks. A fragment has a pointer to
//! each that is in memory, which a reader loads without writing to shared memory. The
//! cache clears the pointer when it evicts the part.

use std::sync::{Arc, Weak};

use crate::cache::Cached;
use crate::error::{Error, Result};
use crate::fragment::filter::RowFilter;
use crate::fragment::index::IndexPartition;
use crate::fragment::reader::Fragment;
use crate::fragment::sections::{FileEnd, check_section, damaged, read_section};
use crate::sync::ArcSwapOption;

/// An index up to this size is decoded when the file is opened; a larger one partition
/// by partition, when they are read.
const INDEX_DECODED_BYTES: u64 = 256 << 10;
/// The same limit for the filters of a file.
const FILTERS_DECODED_BYTES: u64 = 1 << 20;

/// A pointer to a part, unset while the part is not in memory.
pub type PartSlot<T> = ArcSwapOption<T>;

/// The slots of one file.
pub struct Parts {
    pub partitions: Vec<PartSlot<IndexPartition>>,
    pub filters: Vec<PartSlot<RowFilter>>,
}

impl Parts {
    pub fn new(partitions: usize, filters: usize) -> Arc<Parts> {
        Arc::new(Parts {
            partitions: (0..partitions).map(|_| PartSlot::default()).collect(),
            filters: (0..filters).map(|_| PartSlot::default()).collect(),
        })
    }
}

/// The slot of a cached part.
#[derive(Clone)]
pub struct SlotRef {
    parts: Weak<Parts>,
    number: usize,
}

impl SlotRef {
    pub fn new(parts: &Arc<Parts>, number: usize) -> SlotRef {
        SlotRef { parts: Arc::downgrade(parts), number }
    }

    /// Clears the slot if it points to this partition.
    pub fn clear_partition(&self, partition: &Arc<IndexPartition>) {
        if let Some(parts) = self.parts.upgrade() {
            clear(&parts.partitions[self.number], partition);
        }
    }

    /// Clears the slot if it points to this filter.
    pub fn clear_filter(&self, filter: &Arc<RowFilter>) {
        if let Some(parts) = self.parts.upgrade() {
            clear(&parts.filters[self.number], filter);
        }
    }
}

/// Clears a slot if it still points to `part`.
fn clear<T>(slot: &PartSlot<T>, part: &Arc<T>) {
    slot.compare_and_swap(Arc::as_ptr(part), None);
}

impl Fragment {
    /// Decodes the index and the filters if they are small and were read.
    pub(super) fn decode_parts(&self, end: &FileEnd) -> Result<()> {
        if self.cache.capacity_bytes() == 0 {
            return Ok(());
        }
        let index_bytes: u64 =
            self.index.iter().map(|partition| u64::from(partition.section.len)).sum();
        if index_bytes <= INDEX_DECODED_BYTES {
            for (number, partition) in self.index.iter().enumerate() {
                let Some(bytes) = end.section(&partition.section) else { continue };
                check_section(bytes, self.path(), &partition.section, "index")?;
                self.cache_partition(number, &self.parse_partition(number, bytes)?);
            }
        }
        let filter_bytes: u64 =
            self.filters.iter().map(|filter| u64::from(filter.section.len)).sum();
        if filter_bytes <= FILTERS_DECODED_BYTES {
            for (number, filter) in self.filters.iter().enumerate() {
                let Some(bytes) = end.section(&filter.section) else { continue };
                let parsed = check_section(bytes, self.path(), &filter.section, "row filter")
                    .and_then(|()| self.parse_filter(number, bytes));
                self.cache_filter(number, &usable(parsed));
            }
        }
        Ok(())
    }

    /// Returns a filter that is not in its slot.
    #[cold]
    pub(super) fn filter(&self, number: usize) -> Arc<RowFilter> {
        let offset = self.filters[number].section.offset;
        if let Some(Cached::Filter(filter, _)) = self.cache.get(self.id, offset) {
            self.fill_filter_slot(number, &filter);
            return filter;
        }
        let read = self.read_filter(number);
        let again = matches!(&read, Err(Error::Io { .. }));
        let filter = usable(read);
        // One that could not be read now may be readable later.
        if !again {
            self.cache_filter(number, &filter);
        }
        filter
    }

    fn cache_filter(&self, number: usize, filter: &Arc<RowFilter>) {
        let offset = self.filters[number].section.offset;
        let slot = SlotRef::new(&self.parts, number);
        self.cache.insert(self.id, offset, Cached::Filter(filter.clone(), slot));
        self.fill_filter_slot(number, filter);
    }

    /// Points the slot to a filter that is in the cache. If it was evicted meanwhile, it
    /// must not stay in the slot.
    fn fill_filter_slot(&self, number: usize, filter: &Arc<RowFilter>) {
        let slot = &self.parts.filters[number];
        slot.store(Some(filter.clone()));
        match self.cache.peek(self.id, self.filters[number].section.offset) {
            Some(Cached::Filter(cached, _)) if Arc::ptr_eq(&cached, filter) => {}
            _ => clear(slot, filter),
        }
    }

    pub(super) fn read_filter(&self, number: usize) -> Result<RowFilter> {
        let section = &self.filters[number].section;
        let bytes = read_section(&*self.file()?, self.path(), section, "row filter")?;
        self.parse_filter(number, &bytes)
    }

    fn parse_filter(&self, number: usize, bytes: &[u8]) -> Result<RowFilter> {
        let section = &self.filters[number].section;
        RowFilter::parse(bytes).ok_or_else(|| damaged(self.path(), section, "row filter"))
    }

    pub(super) fn partition(&self, number: usize) -> Result<Arc<IndexPartition>> {
        if let Some(partition) = self.loaded_partition(number) {
            return Ok(partition);
        }
        let partition = self.read_partition(number)?;
        self.cache_partition(number, &partition);
        Ok(partition)
    }

    /// Returns a partition that is in memory.
    #[inline]
    pub(super) fn loaded_partition(&self, number: usize) -> Option<Arc<IndexPartition>> {
        let partition = self.parts.partitions[number].load_full();
        let Some(loaded) = &partition else { return self.cached_partition(number) };
        self.cache.refresh(self.id, self.index[number].section.offset, loaded.last_use());
        partition
    }

    /// Returns a partition that is not in its slot.
    #[cold]
    fn cached_partition(&self, number: usize) -> Option<Arc<IndexPartition>> {
        match self.cache.get(self.id, self.index[number].section.offset) {
            Some(Cached::Index(partition, _)) => {
                self.fill_partition_slot(number, &partition);
                Some(partition)
            }
            _ => None,
        }
    }

    fn cache_partition(&self, number: usize, partition: &Arc<IndexPartition>) {
        let offset = self.index[number].section.offset;
        let slot = SlotRef::new(&self.parts, number);
        self.cache.insert(self.id, offset, Cached::Index(partition.clone(), slot));
        self.fill_partition_slot(number, partition);
    }

    /// Points the slot to a partition that is in the cache. If it was evicted meanwhile,
    /// it must not stay in the slot.
    fn fill_partition_slot(&self, number: usize, partition: &Arc<IndexPartition>) {
        let slot = &self.parts.partitions[number];
        slot.store(Some(partition.clone()));
        match self.cache.peek(self.id, self.index[number].section.offset) {
            Some(Cached::Index(cached, _)) if Arc::ptr_eq(&cached, partition) => {}
            _ => clear(slot, partition),
        }
    }

    /// Returns a partition without changing the cache.
    pub(super) fn peek_partition(&self, number: usize) -> Result<Arc<IndexPartition>> {
        if let Some(partition) = self.parts.partitions[number].load_full() {
            return Ok(partition);
        }
        match self.cache.peek(self.id, self.index[number].section.offset) {
            Some(Cached::Index(partition, _)) => Ok(partition),
            _ => self.read_partition(number),
        }
    }

    pub(super) fn read_partition(&self, number: usize) -> Result<Arc<IndexPartition>> {
        let section = &self.index[number].section;
        let bytes = read_section(&*self.file()?, self.path(), section, "index")?;
        self.parse_partition(number, &bytes)
    }

    fn parse_partition(&self, number: usize, bytes: &[u8]) -> Result<Arc<IndexPartition>> {
        let entry = &self.index[number];
        let data_end =
            self.index.get(number + 1).map_or(self.meta().data_bytes, |next| next.data_offset);
        let partition = IndexPartition::parse(bytes, entry.data_offset, data_end)
            .filter(|partition| partition.separators.get(0) == entry.first_separator)
            .filter(|partition| partition.handles.len() as u64 == entry.blocks)
            .ok_or_else(|| damaged(self.path(), &entry.section, "index"))?;
        Ok(Arc::new(partition))
    }
}

/// Returns a filter that can be used. A filter only saves work: without it the block
/// itself gives the answer, so damage is reported to the operator, not to the reader.
fn usable(read: Result<RowFilter>) -> Arc<RowFilter> {
    Arc::new(read.unwrap_or_else(|error| {
        tracing::warn!(%error, "the row filter is unreadable: reading without it");
        RowFilter::accept_all()
    }))
}
