//! The parts of a fragment that its readers need in memory: index partitions and row
//! filters.
//!
//! All are charged to the block cache. Up to half of its budget, the parts of a file stay
//! in memory with its metadata, so that a reader finds them without any synchronisation.
//! Beyond that the cache owns them and evicts them like blocks: a fragment has a pointer
//! to each that is in memory, and the cache clears the pointer when it evicts the part.

use std::sync::{Arc, Weak};

use crate::cache::{CacheReservation, Cached};
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

/// Parts of a file that stay in memory.
#[derive(Default)]
pub struct ResidentParts {
    /// All partitions, or none.
    pub partitions: Vec<Arc<IndexPartition>>,
    /// All filters, or none.
    pub filters: Vec<Arc<RowFilter>>,
    /// Their share of the cache's budget.
    reservations: Vec<CacheReservation>,
}

/// The slots of one file, for parts that are not resident.
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
    /// Decodes the index and the filters if they are small and were read. They become
    /// resident if the cache has capacity for that.
    pub(super) fn decode_parts(&mut self, end: &FileEnd) -> Result<()> {
        if self.cache.capacity_bytes() == 0 {
            return Ok(());
        }
        self.decode_index(end)?;
        self.decode_filters(end);
        Ok(())
    }

    fn decode_index(&mut self, end: &FileEnd) -> Result<()> {
        let sections = self.index.iter().map(|partition| &partition.section);
        if sections.clone().map(|section| u64::from(section.len)).sum::<u64>() > INDEX_DECODED_BYTES
        {
            return Ok(());
        }
        let mut partitions = Vec::with_capacity(self.index.len());
        for (number, section) in sections.enumerate() {
            let Some(bytes) = end.section(section) else { return Ok(()) };
            check_section(bytes, self.path(), section, "index")?;
            partitions.push(self.parse_partition(number, bytes)?);
        }
        match self.cache.reserve(partitions.iter().map(|partition| partition.bytes()).sum()) {
            Some(reserved) => {
                self.resident.reservations.push(reserved);
                self.resident.partitions = partitions;
            }
            None => partitions.iter().enumerate().for_each(|(n, it)| self.cache_partition(n, it)),
        }
        Ok(())
    }

    fn decode_filters(&mut self, end: &FileEnd) {
        let sections = self.filters.iter().map(|filter| &filter.section);
        let bytes: u64 = sections.clone().map(|section| u64::from(section.len)).sum();
        if bytes > FILTERS_DECODED_BYTES {
            return;
        }
        let mut filters = Vec::with_capacity(self.filters.len());
        for (number, section) in sections.enumerate() {
            let Some(bytes) = end.section(section) else { return };
            let parsed = check_section(bytes, self.path(), section, "row filter")
                .and_then(|()| self.parse_filter(number, bytes));
            filters.push(usable(parsed));
        }
        match self.cache.reserve(filters.iter().map(|filter| filter.bytes()).sum()) {
            Some(reserved) => {
                self.resident.reservations.push(reserved);
                self.resident.filters = filters;
            }
            None => filters.iter().enumerate().for_each(|(n, it)| self.cache_filter(n, it)),
        }
    }

    /// Returns a filter that is not resident.
    pub(super) fn filter(&self, number: usize) -> Arc<RowFilter> {
        let offset = self.filters[number].section.offset;
        if let Some(filter) = self.parts.filters[number].load_full() {
            self.cache.refresh(self.id, offset, filter.last_use());
            return filter;
        }
        if let Some(Cached::Filter(filter, _)) = self.cache.get(self.id, offset) {
            self.fill_filter_slot(number, &filter);
            return filter;
        }
        let read = self.read_filter(number);
        let again = matches!(&read, Err(Error::Io { .. } | Error::NotLocal(_)));
        let filter = match read {
            Err(Error::NotLocal(_)) => Arc::new(RowFilter::accept_all()),
            read => usable(read),
        };
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
        self.read_intact(section.offset, section.len, || {
            let bytes = read_section(&*self.file()?, self.path(), section, "row filter")?;
            self.parse_filter(number, &bytes)
        })
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
        if let Some(partition) = self.resident.partitions.get(number) {
            return Some(partition.clone());
        }
        if let Some(partition) = self.kept_partition(number) {
            return Some(partition);
        }
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
        if let Some(partition) = self.resident.partitions.get(number) {
            return Ok(partition.clone());
        }
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
        self.read_intact(section.offset, section.len, || {
            let bytes = read_section(&*self.file()?, self.path(), section, "index")?;
            self.parse_partition(number, &bytes)
        })
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
