//! A run: links without common rows, in row order, read as one sorted file.
//! Each row is in at most one of them.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::family_cursor::FamilyCursor;
use super::link::Link;
use crate::cell::range_tombstone::RangeTombstones;
use crate::cell::rows::RowRange;
use crate::error::Result;
use crate::fragment::CursorOptions;
use crate::merge::{Cursor, EntryPlace};
use crate::txn::Txn;

/// A run of links; never empty and cheap to clone.
#[derive(Clone)]
pub struct Run {
    links: Arc<[Arc<Link>]>,
    /// The range tombstones of all links. Set when all links were open.
    range_tombstones: Arc<OnceLock<Option<Arc<RangeTombstones>>>>,
}

impl Run {
    /// Creates a run from links in row order; `None` if there are none.
    pub fn new(links: Vec<Arc<Link>>) -> Option<Run> {
        assert!(
            links.windows(2).all(|pair| {
                let end = pair[0].rows.end.as_ref();
                end.is_some_and(|end| *end <= pair[1].rows.start)
            }),
            "the links of a run ascend and have no row in common"
        );
        (!links.is_empty()).then(|| Run { links: links.into(), range_tombstones: Arc::default() })
    }

    pub fn links(&self) -> &[Arc<Link>] {
        &self.links
    }

    /// Returns range tombstones that include all of the links at `positions`; `None` if
    /// there are none.
    pub fn range_tombstones(
        &self,
        positions: Range<usize>,
    ) -> Result<Option<Arc<RangeTombstones>>> {
        if let Some(known) = self.range_tombstones.get() {
            return Ok(known.clone());
        }
        // Once all links are open, those of the whole run are kept.
        let all_open = self.links.iter().all(|link| link.open_fragment().is_some());
        let positions = if all_open { 0..self.links.len() } else { positions };
        let mut lists = Vec::new();
        for link in &self.links[positions] {
            lists.extend(link.range_tombstones()?);
        }
        let joined = match lists.len() {
            0 | 1 => lists.pop(),
            _ => Some(Arc::new(RangeTombstones::concat(&lists))),
        };
        if all_open {
            // Another thread may have set it, to the same value.
            let _ = self.range_tombstones.set(joined.clone());
        }
        Ok(joined)
    }

    /// Returns the link that covers `row`, if any.
    #[inline]
    pub fn link_of(&self, row: &[u8]) -> Option<&Arc<Link>> {
        let ends_by =
            |link: &Arc<Link>| link.rows.end.as_ref().is_some_and(|end| end.as_slice() <= row);
        let at = if self.links.len() == 1 { 0 } else { self.links.partition_point(ends_by) };
        self.links.get(at).filter(|link| link.rows.contains(row))
    }

    /// Returns the position of the link that covers `row`; empty if none does.
    pub fn positions_of_row(&self, row: &[u8]) -> Range<usize> {
        let ends_by =
            |link: &Arc<Link>| link.rows.end.as_ref().is_some_and(|end| end.as_slice() <= row);
        let at = self.links.partition_point(ends_by);
        let covers = self.links.get(at).is_some_and(|link| link.rows.contains(row));
        at..at + usize::from(covers)
    }

    /// Returns the positions of the links that overlap `rows`.
    pub fn positions_of(&self, rows: &RowRange) -> Range<usize> {
        let ends_by =
            |link: &Arc<Link>| link.rows.end.as_ref().is_some_and(|end| *end <= rows.start);
        let start = self.links.partition_point(ends_by);
        let begins_in =
            |link: &Arc<Link>| rows.end.as_ref().is_none_or(|end| link.rows.start < *end);
        start..start + self.links[start..].partition_point(begins_in)
    }

    /// Returns the links that overlap `rows`.
    pub fn links_of(&self, rows: &RowRange) -> &[Arc<Link>] {
        &self.links[self.positions_of(rows)]
    }

    /// Returns the approximate size of the run.
    pub fn bytes(&self) -> u64 {
        self.links.iter().map(|link| link.share()).sum()
    }

    /// Returns a cursor over the links at `positions`.
    pub fn cursor(&self, positions: Range<usize>, options: &CursorOptions) -> RunCursor {
        RunCursor {
            run: self.clone(),
            at: positions.start,
            positions,
            options: options.clone(),
            cursor: None,
        }
    }
}

/// A cursor over consecutive links of a run, each clipped to its rows.
pub struct RunCursor {
    run: Run,
    positions: Range<usize>,
    options: CursorOptions,
    /// The position of the link that `cursor` is in.
    at: usize,
    /// Positioned within the rows of its link; `None` if not positioned.
    cursor: Option<FamilyCursor>,
}

impl RunCursor {
    fn link(&self) -> &Link {
        &self.run.links[self.at]
    }

    /// Moves to link `at` and returns it with its cursor.
    fn enter(&mut self, at: usize) -> Result<(&Link, &mut FamilyCursor)> {
        if self.at != at {
            self.cursor = None;
            self.at = at;
        }
        let link = &self.run.links[at];
        let cursor = match self.cursor.take() {
            Some(cursor) => cursor,
            None => FamilyCursor::new(link, &self.options)?,
        };
        Ok((link, self.cursor.insert(cursor)))
    }

    /// Whether the cursor is on an entry past the link's rows.
    fn is_past(&self) -> bool {
        let link = self.link();
        match (&self.cursor, link.end_key()) {
            (Some(cursor), Some(end)) => !link.is_whole() && cursor.key() >= end,
            _ => false,
        }
    }

    fn is_before(&self) -> bool {
        let link = self.link();
        !link.is_whole() && self.cursor.as_ref().is_some_and(|c| c.key() < link.start_key())
    }

    fn is_on_entry(&self) -> bool {
        self.cursor.as_ref().is_some_and(|cursor| cursor.valid())
    }

    /// Moves to the first entry of link `at` or a later one.
    fn first_from(&mut self, mut at: usize) -> Result<()> {
        while at < self.positions.end {
            let (link, cursor) = self.enter(at)?;
            cursor.seek(link.start_key())?;
            if self.is_on_entry() && !self.is_past() {
                return Ok(());
            }
            at += 1;
        }
        self.cursor = None;
        Ok(())
    }

    /// Moves to the last entry of a link before `at`.
    fn last_before(&mut self, mut at: usize) -> Result<()> {
        while at > self.positions.start {
            at -= 1;
            let (link, cursor) = self.enter(at)?;
            match link.end_key() {
                Some(end) => cursor.seek_before(end)?,
                None => cursor.seek_last()?,
            }
            if self.is_on_entry() && !self.is_before() {
                return Ok(());
            }
        }
        self.cursor = None;
        Ok(())
    }

    /// Invalidates the cursor after a failure.
    fn checked(&mut self, result: Result<()>) -> Result<()> {
        if result.is_err() {
            self.cursor = None;
        }
        result
    }

    fn try_seek(&mut self, key: &[u8]) -> Result<()> {
        let links = &self.run.links[self.positions.clone()];
        let ends_by = |link: &Arc<Link>| link.end_key().is_some_and(|end| end <= key);
        let at = self.positions.start + links.partition_point(ends_by);
        if at == self.positions.end || self.run.links[at].start_key() >= key {
            return self.first_from(at);
        }
        self.enter(at)?.1.seek(key)?;
        if self.is_on_entry() && !self.is_past() {
            return Ok(());
        }
        self.first_from(at + 1)
    }

    fn try_seek_before(&mut self, key: &[u8]) -> Result<()> {
        let links = &self.run.links[self.positions.clone()];
        let begun = links.partition_point(|link| link.start_key() < key);
        let Some(at) = (self.positions.start + begun).checked_sub(1).filter(|_| begun > 0) else {
            self.cursor = None;
            return Ok(());
        };
        if self.run.links[at].end_key().is_some_and(|end| end <= key) {
            return self.last_before(at + 1);
        }
        self.enter(at)?.1.seek_before(key)?;
        if self.is_on_entry() && !self.is_before() {
            return Ok(());
        }
        self.last_before(at)
    }

    fn try_rewind(&mut self) -> Result<()> {
        let at = self.at;
        self.enter(at)?.1.rewind()?;
        if self.is_before() { self.first_from(at) } else { Ok(()) }
    }
}

impl Cursor for RunCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let result = self.try_seek(key);
        self.checked(result)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let result = self.try_seek_before(key);
        self.checked(result)
    }

    fn seek_last(&mut self) -> Result<()> {
        let result = self.last_before(self.positions.end);
        self.checked(result)
    }

    fn rewind(&mut self) -> Result<()> {
        let result = self.try_rewind();
        self.checked(result)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let cursor = self.cursor.as_mut().expect("only a valid cursor moves");
        let result = cursor.next();
        if result.is_ok() && self.is_on_entry() && !self.is_past() {
            return Ok(());
        }
        let result = result.and_then(|()| self.first_from(self.at + 1));
        self.checked(result)
    }

    #[inline]
    fn valid(&self) -> bool {
        self.is_on_entry()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.cursor.as_ref().expect("the cursor is valid").key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.cursor.as_ref().expect("the cursor is valid").value()
    }

    fn txn_max(&self) -> Txn {
        let links = &self.run.links[self.positions.clone()];
        links.iter().map(|link| link.file.txn_max).max().unwrap_or(Txn::ZERO)
    }

    fn place(&self) -> Option<EntryPlace> {
        self.cursor.as_ref()?.place()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::cache::BlockCache;
    use crate::cell::key;
    use crate::cell::key::{KeyParts, Level};
    use crate::config::{FileName, Reference};
    use crate::fragment::testing::{Entries, FAMILIES, OneFile, entries, key, options};
    use crate::fragment::{FileHandle, FileHandles, FragmentOptions, KnownSize};
    use crate::tablet::link::LinkedFile;
    use crate::tablet::registry::FileRegistry;

    /// Writes all `entries` to one file and links only `rows` and `families` of it.
    fn link(
        number: u64,
        entries: &Entries,
        options: FragmentOptions,
        rows: RowRange,
        families: Option<Vec<Vec<u8>>>,
    ) -> Arc<Link> {
        let file = OneFile::default();
        let meta = file.write(options, entries).unwrap();
        let name = FileName { incarnation: 1, number };
        let handle = FileHandle::new(&file.files(), OneFile::path(), &FileHandles::new(1));
        let registry = Arc::new(FileRegistry::new(OneFile::path(), file.files()));
        let (known, cache) = (KnownSize::default(), BlockCache::new(1 << 20));
        let linked = LinkedFile::new(name, handle, known, 1, cache, registry);
        let reference = Reference {
            name,
            bytes: meta.stored_bytes,
            cells: meta.cells,
            txn_min: Txn::ZERO,
            txn_max: Txn::MAX,
            rows: Some(rows.clone()),
            families,
            facts: None,
            share: meta.stored_bytes,
            unit: 0,
            joins: number > 0,
        };
        Arc::new(Link::new(reference, rows, Arc::new(linked)))
    }

    fn here(cursor: &RunCursor) -> Option<(Vec<u8>, Vec<u8>)> {
        cursor.valid().then(|| (cursor.key().to_vec(), cursor.value().to_vec()))
    }

    fn owned(entry: Option<(&Vec<u8>, &Vec<u8>)>) -> Option<(Vec<u8>, Vec<u8>)> {
        entry.map(|(key, value)| (key.clone(), value.clone()))
    }

    proptest! {
        #[test]
        fn a_run_answers_like_one_sorted_map_of_the_rows_and_families_that_count(
            entries in entries(0..80),
            options in options(),
            cuts in prop::collection::btree_set(
                prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', b'b', 0xFF]), 0..3),
                1..6,
            ),
            open_end in any::<bool>(),
            families in prop::option::of(prop::sample::subsequence(FAMILIES.to_vec(), 0..3)),
            targets in prop::collection::vec(key(), 0..20),
        ) {
            // Every other range between two cuts is live, each in its own file.
            let cuts: Vec<Vec<u8>> = cuts.into_iter().collect();
            let ranges = cuts.chunks(2).filter_map(|cut| match cut {
                [start, end] => Some(RowRange::new(start.clone(), end.clone())),
                [start] => open_end.then(|| RowRange::from(start.clone())),
                _ => None,
            });
            let ranges: Vec<RowRange> = ranges.collect();
            let families = families.map(|list| {
                let mut list: Vec<Vec<u8>> = list.into_iter().map(<[u8]>::to_vec).collect();
                list.sort();
                list
            });
            let is_live = |key: &[u8]| {
                let parts = KeyParts::parse(key).unwrap();
                parts.level == Level::RowTombstone
                    || families.as_ref().is_none_or(|list| list.iter().any(|f| f == parts.family(key)))
            };
            let counting: BTreeMap<_, _> = entries
                .clone()
                .into_iter()
                .filter(|(key, _)| {
                    let row = key::row_of(key).unwrap();
                    is_live(key) && ranges.iter().any(|range| range.contains(&row))
                })
                .collect();
            let links = ranges.iter().enumerate();
            let links = links.map(|(at, rows)| {
                link(at as u64, &entries, options, rows.clone(), families.clone())
            });
            let links: Vec<_> = links.collect();
            let Some(run) = Run::new(links) else { return Ok(()) };
            let mut cursor = run.cursor(0..ranges.len(), &CursorOptions::default());
            prop_assert!(!cursor.valid());

            let mut seen = Vec::new();
            cursor.seek(b"").unwrap();
            while let Some(entry) = here(&cursor) {
                seen.push(entry);
                cursor.next().unwrap();
            }
            prop_assert_eq!(&seen, &counting.clone().into_iter().collect::<Vec<_>>());
            cursor.seek_last().unwrap();
            prop_assert_eq!(here(&cursor), owned(counting.iter().next_back()));
            if cursor.valid() {
                cursor.rewind().unwrap();
                prop_assert!(counting.contains_key(cursor.key()));
            }
            for target in targets.iter().chain(entries.keys()) {
                cursor.seek(target).unwrap();
                prop_assert_eq!(here(&cursor), owned(counting.range(target.clone()..).next()));
                cursor.seek_before(target).unwrap();
                prop_assert_eq!(here(&cursor), owned(counting.range(..target.clone()).next_back()));
                let row = key::row_of(target).unwrap();
                let counts = ranges.iter().position(|range| range.contains(&row));
                let found = run.link_of(&row).map(|link| link.file.name.number as usize);
                prop_assert_eq!(found, counts);
                let positions = run.positions_of(&RowRange::row(&row));
                prop_assert_eq!(positions.clone().next(), counts);
                prop_assert!(positions.len() <= 1);
            }
        }
    }
}
