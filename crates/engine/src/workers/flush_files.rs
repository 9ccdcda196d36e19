//! Writes the memory of one group to files: tablet by tablet in row order, through
//! one writer, so that the number of files depends on the amount of data and not on
//! the number of tablets.

use std::sync::Arc;

use super::flush::FlushTarget;
use super::output::OutputFile;
use crate::cell::key;
use crate::cell::range_tombstone::RangeTombstones;
use crate::cell::rows::RowRange;
use crate::config::Reference;
use crate::error::Result;
use crate::fragment::Heat;
use crate::memory::{MemoryCursor, MemoryFragment};
use crate::merge::{Merge, Rewrite, RewriteRules};
use crate::tablet::{TableVersion, Tables, Tablet, timestamp_max};
use crate::txn::Txn;

/// A file is complete at the row at which it reaches this size.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// A finished, synced file that is not yet in the config.
pub struct FlushedFile {
    pub file: Reference,
    /// The rows of the tablets that have something in it, in order.
    pub parts: Vec<RowRange>,
}

/// Writes sealed memory to files, in row order and without common rows.
pub fn write_files(
    tables: &Tables,
    target: &FlushTarget,
    sealed: &[Arc<MemoryFragment>],
    durable: &dyn Fn() -> Txn,
) -> Result<Vec<FlushedFile>> {
    let version = target.table.pinned_version();
    let snapshots = tables.snapshots.live(durable);
    let mut range_tombstones = RangeTombstones::default();
    sealed.iter().for_each(|fragment| range_tombstones.merge(&fragment.range_tombstones()));
    let txn_min = sealed.iter().filter_map(|fragment| fragment.txn_min()).min();
    let txn_max = sealed.iter().filter_map(|fragment| fragment.txn_max()).max();
    let mut writing = Writing {
        tables,
        version: &version,
        group: target.group,
        snapshots: &snapshots,
        now_micros: tables.world.clock.now_micros(),
        range_tombstones: &range_tombstones,
        merge: Merge::new(sealed.iter().map(|fragment| fragment.cursor()).collect()),
        txns: (txn_min.unwrap_or(Txn::ZERO), txn_max.unwrap_or(Txn::ZERO)),
        bytes_max: FILE_BYTES_MAX,
        files: Vec::new(),
    };
    match writing.run() {
        Ok(()) => Ok(writing.files),
        Err(error) => {
            let fragments = &tables.fragments;
            let written = writing.files.iter();
            written.for_each(|written| fragments.discard(written.file.name));
            Err(error)
        }
    }
}

struct Writing<'a> {
    tables: &'a Tables,
    version: &'a TableVersion,
    group: usize,
    snapshots: &'a [Txn],
    now_micros: i64,
    range_tombstones: &'a RangeTombstones,
    merge: Merge<MemoryCursor>,
    txns: (Txn, Txn),
    bytes_max: u64,
    files: Vec<FlushedFile>,
}

/// The file being written.
struct Current<'a> {
    output: OutputFile<'a>,
    /// The range tombstones of the parts.
    range_tombstones: Vec<Arc<RangeTombstones>>,
    parts: Vec<RowRange>,
}

impl<'a> Writing<'a> {
    fn run(&mut self) -> Result<()> {
        let mut current = self.begin();
        let mut start = Some(Vec::new());
        while let Some(row) = self.next_row(start.as_deref())? {
            let tablet = self.version.tablets.of(&row).clone();
            let rows = RowRange { start: row, end: tablet.rows.end.clone() };
            let end = match self.write_part(&tablet, &rows, &mut current) {
                Ok(end) => end,
                Err(error) => {
                    current.output.abandon();
                    return Err(error);
                }
            };
            let is_full = current.output.stored_bytes() >= self.bytes_max;
            if end.is_some() || is_full {
                let full = std::mem::replace(&mut current, self.begin());
                self.finish(full)?;
            }
            start = end.or(rows.end);
        }
        self.finish(current)
    }

    fn begin(&self) -> Current<'a> {
        let group = &self.version.schema.groups()[self.group];
        let (fragments, heat) = (&self.tables.fragments, Arc::new(Heat::default()));
        let output = OutputFile::new(fragments, group, self.txns, self.bytes_max, &heat);
        Current { output, range_tombstones: Vec::new(), parts: Vec::new() }
    }

    /// Returns the first row at or after `start` with an entry or a range
    /// tombstone.
    fn next_row(&mut self, start: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
        let Some(start) = start else { return Ok(None) };
        self.merge.seek(&key::row_start(start))?;
        let entry = if self.merge.valid() { key::row_of(self.merge.key()) } else { None };
        let deleted = self.range_tombstones.first_row_from(start);
        Ok(entry.into_iter().chain(deleted).min())
    }

    /// Writes rows of one tablet. Returns the row at which the file is full, if rows
    /// are left.
    fn write_part(
        &mut self,
        tablet: &Tablet,
        rows: &RowRange,
        current: &mut Current<'a>,
    ) -> Result<Option<Vec<u8>>> {
        let older = &tablet.chains[self.group];
        let rules = RewriteRules {
            snapshots: self.snapshots,
            rooted: older.runs.is_empty(),
            restricted: older.is_restricted(),
            older_timestamp_max: timestamp_max(older.links()),
            now_micros: self.now_micros,
            schema: &self.version.schema,
            group: self.group,
            folds: &self.tables.folds,
            rows,
        };
        let before = current.output.entries();
        let output = &mut current.output;
        let rewrite = Rewrite::new(&rules, &mut self.merge, self.range_tombstones, output);
        let done = rewrite.run(&|| true)?.expect("nothing stops a flush");
        if current.output.entries() > before || !done.range_tombstones.is_empty() {
            let end = done.end.clone().or_else(|| rows.end.clone());
            current.parts.push(RowRange { start: rows.start.clone(), end });
        }
        if !done.range_tombstones.is_empty() {
            current.range_tombstones.push(Arc::new(done.range_tombstones));
        }
        Ok(done.end)
    }

    fn finish(&mut self, current: Current<'a>) -> Result<()> {
        let Current { output, range_tombstones, parts } = current;
        let range_tombstones = RangeTombstones::concat(&range_tombstones);
        if let Some(file) = output.finish(range_tombstones)? {
            self.files.push(FlushedFile { file, parts });
        }
        Ok(())
    }
}
