//! A cursor over the entries of a fragment, block by block.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::error::Result;
use crate::fragment::heat::Heat;
use crate::fragment::index::{Contents, IndexPartition, family_bit};
use crate::fragment::position::Position;
use crate::fragment::read_ahead::ReadAhead;
use crate::fragment::reader::Fragment;
use crate::merge::{Cursor, EntryPlace};
use crate::txn::Txn;

/// How many blocks form a stretch that is cheap to read through, and how large each of
/// them may be.
const STRETCH_BLOCKS: usize = 4;
const STRETCH_BLOCK_BYTES_MAX: u32 = 256 << 10;

/// The options of a cursor.
#[derive(Clone, Debug)]
pub struct CursorOptions {
    /// Whether blocks read from the file are inserted into the cache. Cached blocks are
    /// used in any case.
    pub fill_cache: bool,
    /// Set if the reader rewrites the fragment: it leaves the cache unchanged and
    /// records here which blocks were cached.
    pub heat: Option<Arc<Heat>>,
    /// What the reader has fetched ahead of files outside the directory.
    pub ahead: Option<Arc<ReadAhead>>,
    /// Skip blocks whose cells are all outside this range.
    pub timestamps: Option<RangeInclusive<i64>>,
    /// Skip blocks without cells of these families.
    pub families: Option<Vec<Vec<u8>>>,
}

impl Default for CursorOptions {
    fn default() -> Self {
        CursorOptions {
            fill_cache: true,
            heat: None,
            ahead: None,
            timestamps: None,
            families: None,
        }
    }
}

/// Which blocks to skip. The rest may still contain entries that do not match, and
/// blocks with anything but plain values are never skipped, because such entries affect
/// cells elsewhere.
struct Skip {
    timestamps: RangeInclusive<i64>,
    families: u64,
}

impl Skip {
    fn new(fragment: &Fragment, options: &CursorOptions) -> Option<Skip> {
        if options.timestamps.is_none() && options.families.is_none() {
            return None;
        }
        let bit = |family: &Vec<u8>| {
            let index = fragment.meta().families.iter().position(|known| known == family);
            index.map_or(0, family_bit)
        };
        let families = options.families.as_ref();
        Some(Skip {
            timestamps: options.timestamps.clone().unwrap_or(i64::MIN..=i64::MAX),
            families: families.map_or(u64::MAX, |list| list.iter().map(bit).fold(0, |a, b| a | b)),
        })
    }

    fn skips(&self, contents: &Contents) -> bool {
        let outside = contents.timestamps.is_none_or(|(min, max)| {
            max < *self.timestamps.start() || min > *self.timestamps.end()
        });
        !contents.deletes && (outside || contents.families & self.families == 0)
    }
}

pub struct FragmentCursor {
    fragment: Arc<Fragment>,
    fill_cache: bool,
    heat: Option<Arc<Heat>>,
    /// Set if the file is outside the directory and is read ahead.
    ahead: Option<Arc<ReadAhead>>,
    skip: Option<Skip>,
    partition_number: usize,
    partition: Option<Arc<IndexPartition>>,
    /// The block within the partition; `position` is inside it or unset.
    block_number: usize,
    position: Position,
}

impl Fragment {
    /// Returns an unpositioned cursor.
    pub fn cursor(self: &Arc<Self>, options: &CursorOptions) -> FragmentCursor {
        FragmentCursor {
            fragment: self.clone(),
            fill_cache: options.fill_cache,
            heat: options.heat.clone(),
            ahead: options.ahead.clone().filter(|_| self.remote().is_some()),
            skip: Skip::new(self, options),
            partition_number: 0,
            partition: None,
            block_number: 0,
            position: Position::default(),
        }
    }
}

impl Fragment {
    /// Calls `with` with the key and the value of the entry at `place`; returns false
    /// if there is no such entry.
    pub fn entry_at(
        &self,
        place: &EntryPlace,
        with: impl FnOnce(&[u8], &[u8]) -> bool,
    ) -> Result<bool> {
        let (partition_number, number) = (place.part as usize, place.block as usize);
        if partition_number >= self.partition_count() {
            return Ok(false);
        }
        let partition = self.partition(partition_number)?;
        if number >= partition.handles.len() || place.entry >= partition.handles[number].entries {
            return Ok(false);
        }
        let mut position = Position::default();
        position.enter(self.block((partition_number, &partition), number, true)?);
        position.go_to(place.entry as usize);
        Ok(with(position.key(), position.value()))
    }
}

impl FragmentCursor {
    /// Takes the current partition of the index out of the cursor, after loading it if
    /// it is another one. The caller puts it back.
    fn take_partition(&mut self, number: usize) -> Result<Arc<IndexPartition>> {
        match self.partition.take() {
            Some(partition) if self.partition_number == number => return Ok(partition),
            _ => self.position.leave(),
        }
        let partition = match &self.heat {
            None => self.fragment.partition(number)?,
            Some(_) => self.fragment.peek_partition(number)?,
        };
        self.partition_number = number;
        Ok(partition)
    }

    /// Loads a block of the current partition and leaves the position unset.
    fn enter_block(&mut self, partition: &Arc<IndexPartition>, number: usize) -> Result<()> {
        if self.block_number == number && self.position.in_block() {
            return Ok(());
        }
        self.position.leave();
        if let Some(ahead) = &self.ahead {
            ahead.enter(&self.fragment, &partition.handles[number]);
        }
        let block = match &self.heat {
            None => {
                self.fragment.block((self.partition_number, partition), number, self.fill_cache)?
            }
            Some(heat) => {
                let (block, found) = self.fragment.peek_block(&partition.handles[number])?;
                heat.note(found);
                block
            }
        };
        self.block_number = number;
        self.position.enter(block);
        Ok(())
    }

    fn skips(&self, partition: &IndexPartition, number: usize) -> bool {
        let contents = &partition.handles[number].contents;
        self.skip.as_ref().is_some_and(|skip| skip.skips(contents))
    }

    /// Moves to the first entry at or after block `number` of partition `partition_number`;
    /// unset if there is none.
    fn first_from(&mut self, mut partition_number: usize, mut number: usize) -> Result<()> {
        while partition_number < self.fragment.partition_count() {
            let partition = self.take_partition(partition_number)?;
            while number < partition.handles.len() {
                if !self.skips(&partition, number) {
                    self.enter_block(&partition, number)?;
                    self.position.first();
                    self.partition = Some(partition);
                    return Ok(());
                }
                number += 1;
            }
            self.partition = Some(partition);
            (partition_number, number) = (partition_number + 1, 0);
        }
        if let Some(ahead) = &self.ahead {
            ahead.leave(&self.fragment);
        }
        self.position.leave();
        Ok(())
    }

    /// Moves to the last entry before block `number` of partition `partition_number`; unset
    /// if there is none.
    fn last_before(&mut self, mut partition_number: usize, mut number: usize) -> Result<()> {
        loop {
            let partition = self.take_partition(partition_number)?;
            while number > 0 {
                number -= 1;
                if !self.skips(&partition, number) {
                    self.enter_block(&partition, number)?;
                    self.position.last();
                    self.partition = Some(partition);
                    return Ok(());
                }
            }
            self.partition = Some(partition);
            if partition_number == 0 {
                self.position.leave();
                return Ok(());
            }
            partition_number -= 1;
            number = self.blocks_of(partition_number)?;
        }
    }

    /// Moves to a partition and returns the number of its blocks.
    fn blocks_of(&mut self, partition_number: usize) -> Result<usize> {
        let partition = self.take_partition(partition_number)?;
        let blocks = partition.handles.len();
        self.partition = Some(partition);
        Ok(blocks)
    }

    fn try_seek(&mut self, key: &[u8]) -> Result<()> {
        let partition_number = self.fragment.partition_of(key);
        let partition = self.take_partition(partition_number)?;
        let number = partition.separators.count_to(key).saturating_sub(1);
        let skips = self.skips(&partition, number);
        if !skips {
            self.enter_block(&partition, number)?;
            self.position.seek(key);
        }
        self.partition = Some(partition);
        if !skips && self.position.valid() {
            return Ok(());
        }
        self.first_from(partition_number, number + 1)
    }

    fn try_seek_before(&mut self, key: &[u8]) -> Result<()> {
        let partition_number = self.fragment.partition_before(key);
        let partition = self.take_partition(partition_number)?;
        let number = partition.separators.count_before(key).saturating_sub(1);
        let skips = self.skips(&partition, number);
        if !skips {
            self.enter_block(&partition, number)?;
            self.position.seek_before(key);
        }
        self.partition = Some(partition);
        if !skips && self.position.valid() {
            return Ok(());
        }
        self.last_before(partition_number, number)
    }

    /// Unsets the position of a cursor that failed; a seek makes it usable again.
    fn unset_on_error(&mut self, result: Result<()>) -> Result<()> {
        if result.is_err() {
            self.position.leave();
        }
        result
    }
}

impl Cursor for FragmentCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self.fragment.partition_count() == 0 {
            return Ok(());
        }
        let result = self.try_seek(key);
        self.unset_on_error(result)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        if self.fragment.partition_count() == 0 {
            return Ok(());
        }
        let result = self.try_seek_before(key);
        self.unset_on_error(result)
    }

    fn seek_last(&mut self) -> Result<()> {
        let partitions = self.fragment.partition_count();
        if partitions == 0 {
            return Ok(());
        }
        let blocks = self.blocks_of(partitions - 1);
        let result = blocks.and_then(|blocks| self.last_before(partitions - 1, blocks));
        self.unset_on_error(result)
    }

    fn rewind(&mut self) -> Result<()> {
        let partition = self.partition.clone().expect("a cursor on an entry is in a partition");
        let blocks = partition.handles[..=self.block_number].iter().rev().take(STRETCH_BLOCKS);
        let small = blocks.take_while(|block| block.raw_len <= STRETCH_BLOCK_BYTES_MAX);
        let first = self.block_number - small.count().saturating_sub(1);
        let result = self.enter_block(&partition, first);
        self.position.first();
        self.unset_on_error(result)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.position.next();
        if self.position.valid() {
            return Ok(());
        }
        let result = self.first_from(self.partition_number, self.block_number + 1);
        self.unset_on_error(result)
    }

    #[inline]
    fn valid(&self) -> bool {
        self.position.valid()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.position.key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.position.value()
    }

    fn txn_max(&self) -> Txn {
        self.fragment.meta().txn_max
    }

    fn place(&self) -> Option<EntryPlace> {
        Some(EntryPlace {
            fragment: self.fragment.id(),
            part: self.partition_number as u32,
            block: self.block_number as u32,
            entry: self.position.index() as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::cell::key::{KeyParts, Kind, push_cell_tail, push_column};
    use crate::fragment::testing::{FAMILIES, OneFile, entries, key, options};
    use crate::fragment::{Compression, FragmentOptions};
    use crate::txn::Txn;

    type Entry = (Vec<u8>, Vec<u8>);

    fn here(cursor: &FragmentCursor) -> Option<Entry> {
        cursor.valid().then(|| (cursor.key().to_vec(), cursor.value().to_vec()))
    }

    fn owned(entry: Option<(&Vec<u8>, &Vec<u8>)>) -> Option<Entry> {
        entry.map(|(key, value)| (key.clone(), value.clone()))
    }

    fn walk(cursor: &mut FragmentCursor) -> Vec<Entry> {
        let mut seen = Vec::new();
        cursor.seek(b"").unwrap();
        while let Some(entry) = here(cursor) {
            seen.push(entry);
            cursor.next().unwrap();
        }
        seen
    }

    fn walk_back(cursor: &mut FragmentCursor) -> Vec<Entry> {
        let mut seen = Vec::new();
        cursor.seek_before(&[0xFF; 300]).unwrap();
        while let Some(entry) = here(cursor) {
            cursor.seek_before(&entry.0).unwrap();
            seen.push(entry);
        }
        seen.reverse();
        seen
    }

    proptest! {
        #[test]
        fn a_fragment_answers_like_a_sorted_map(
            entries in entries(0..120),
            options in options(),
            targets in prop::collection::vec(key(), 0..30),
            fill_cache in any::<bool>(),
        ) {
            let file = OneFile::default();
            let meta = file.write(options, &entries).unwrap();
            let fragment = file.open().unwrap();
            prop_assert_eq!(fragment.meta(), &meta);
            let mut cursor = fragment.cursor(&CursorOptions { fill_cache, ..CursorOptions::default() });
            prop_assert!(!cursor.valid());
            let all: Vec<Entry> = entries.clone().into_iter().collect();
            prop_assert_eq!(walk(&mut cursor), all.clone());
            prop_assert_eq!(walk_back(&mut cursor), all);
            let cut = targets.iter().map(|key| key[..key.len() / 2].to_vec());
            for target in targets.iter().cloned().chain(cut).chain(entries.keys().cloned()) {
                let mut after = entries.range(target.clone()..);
                cursor.seek(&target).unwrap();
                prop_assert_eq!(here(&cursor), owned(after.next()));
                if cursor.valid() {
                    cursor.next().unwrap();
                    prop_assert_eq!(here(&cursor), owned(after.next()));
                }
                cursor.seek_before(&target).unwrap();
                prop_assert_eq!(here(&cursor), owned(entries.range(..target).next_back()));
            }
        }

        #[test]
        fn passing_over_blocks_loses_no_match_and_no_tombstone(
            entries in entries(0..120),
            options in options(),
            timestamps in prop::option::of((-4i64..4, 0i64..4)),
            families in prop::option::of(prop::sample::subsequence(FAMILIES.to_vec(), 0..3)),
        ) {
            let file = OneFile::default();
            file.write(options, &entries).unwrap();
            let timestamps = timestamps.map(|(min, more)| min..=min + more);
            let matches = |key: &[u8]| {
                let parts = KeyParts::parse(key).unwrap();
                let family = parts.family(key);
                parts.kind != Kind::Put
                    || timestamps.as_ref().is_none_or(|range| range.contains(&parts.timestamp))
                        && families.as_ref().is_none_or(|list| list.contains(&family))
            };
            let mut cursor = file.open().unwrap().cursor(&CursorOptions {
                timestamps: timestamps.clone(),
                families: families.as_ref().map(|list| list.iter().map(|f| f.to_vec()).collect()),
                ..CursorOptions::default()
            });
            let wanted: Vec<Entry> =
                entries.clone().into_iter().filter(|(key, _)| matches(key)).collect();
            for seen in [walk(&mut cursor), walk_back(&mut cursor)] {
                prop_assert!(seen.iter().all(|(key, value)| entries.get(key) == Some(value)));
                let seen: Vec<Entry> = seen.into_iter().filter(|(key, _)| matches(key)).collect();
                prop_assert_eq!(&seen, &wanted);
            }
        }
    }

    fn cell(row: &[u8], timestamp: i64) -> Vec<u8> {
        let mut key = Vec::new();
        push_column(&mut key, row, b"f", b"q");
        push_cell_tail(&mut key, timestamp, Txn::base(1), Kind::Put);
        key
    }

    #[test]
    fn a_time_range_reads_only_the_blocks_that_can_match() {
        let entries: BTreeMap<_, _> =
            (0..5000).map(|n: u64| (cell(&n.to_be_bytes(), n as i64), vec![1; 50])).collect();
        let file = OneFile::default();
        let meta = file.write(FragmentOptions::new(Compression::Lz4), &entries).unwrap();
        assert!(meta.blocks > 10);
        let cache = crate::cache::BlockCache::new(1 << 20);
        let fragment = file.open_with(cache.clone()).unwrap();
        let timestamps = Some(2000..=2001);
        let mut cursor = fragment.cursor(&CursorOptions { timestamps, ..CursorOptions::default() });
        let seen = walk(&mut cursor);
        assert!(seen.iter().any(|(key, _)| *key == cell(&2000u64.to_be_bytes(), 2000)));
        assert!(cache.stats().misses <= 2, "{:?}", cache.stats());
    }

    #[test]
    fn an_index_of_many_partitions_is_read_through_the_cache() {
        let row = |n: u64| format!("{n:08}{}", "x".repeat(40)).into_bytes();
        let entries: BTreeMap<_, _> =
            (0..30_000).map(|n| (cell(&row(n), 5), b"value".to_vec())).collect();
        let file = OneFile::default();
        let options = FragmentOptions { compression: Compression::None, block_bytes: 64 };
        let meta = file.write(options, &entries).unwrap();
        let cache = crate::cache::BlockCache::new(64 << 20);
        let fragment = file.open_with(cache.clone()).unwrap();
        assert!(fragment.partition_count() > 8 && meta.blocks == 30_000);
        assert_eq!(cache.stats().bytes >> 18, 0, "only the filter is read at first");
        let mut cursor = fragment.cursor(&CursorOptions::default());
        assert_eq!(walk(&mut cursor), entries.clone().into_iter().collect::<Vec<_>>());
        for n in (0..30_000).step_by(997) {
            let key = cell(&row(n), 5);
            cursor.seek(&key).unwrap();
            assert_eq!(here(&cursor), owned(entries.get_key_value(&key)));
            cursor.seek_before(&key).unwrap();
            assert_eq!(here(&cursor), owned(entries.range(..key).next_back()));
        }
        assert_eq!(fragment.verify().unwrap().blocks, 30_000);
    }
}
