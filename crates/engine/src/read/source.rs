//! A common cursor type for memory fragments and the runs of chains.

use std::sync::Arc;

use crate::cell::range_tombstone::RangeTombstoneLookup;
use crate::cell::rows::RowRange;
use crate::error::Result;
use crate::fragment::{CursorOptions, FragmentCursor, row_hash};
use crate::memory::MemoryCursor;
use crate::merge::{Cursor, EntryPlace};
use crate::tablet::{GroupMemory, Run, RunCursor, TableVersion, Tablet};
use crate::txn::Txn;

/// A cursor over any source of cells.
pub enum Source {
    Memory(MemoryCursor),
    /// A whole fragment, or one read only within the rows of its link.
    Disk(FragmentCursor),
    Run(RunCursor),
}

macro_rules! each {
    ($source:expr, $cursor:ident => $body:expr) => {
        match $source {
            Source::Memory($cursor) => $body,
            Source::Disk($cursor) => $body,
            Source::Run($cursor) => $body,
        }
    };
}

impl Cursor for Source {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        each!(self, cursor => cursor.seek(key))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        each!(self, cursor => cursor.seek_before(key))
    }

    fn seek_last(&mut self) -> Result<()> {
        each!(self, cursor => cursor.seek_last())
    }

    fn rewind(&mut self) -> Result<()> {
        each!(self, cursor => cursor.rewind())
    }

    fn next(&mut self) -> Result<()> {
        each!(self, cursor => cursor.next())
    }

    fn valid(&self) -> bool {
        each!(self, cursor => cursor.valid())
    }

    fn key(&self) -> &[u8] {
        each!(self, cursor => cursor.key())
    }

    fn value(&self) -> &[u8] {
        each!(self, cursor => cursor.value())
    }

    fn txn_max(&self) -> Txn {
        each!(self, cursor => cursor.txn_max())
    }

    fn place(&self) -> Option<EntryPlace> {
        each!(self, cursor => cursor.place())
    }
}

/// All sources that may hold cells of a range of rows.
#[derive(Default)]
pub struct Sources {
    pub cursors: Vec<Source>,
    /// The range tombstones of every fragment, even of those without a cursor:
    /// a fragment that lacks the row may still delete it.
    pub range_tombstones: Vec<Arc<dyn RangeTombstoneLookup>>,
}

impl Sources {
    /// Returns the sources of one tablet that may hold rows in `rows`, newest
    /// first, for the given groups. The caller has checked that no fragment known
    /// to be lost covers these rows.
    pub fn of_tablet(
        version: &TableVersion,
        tablet: &Tablet,
        groups: &[usize],
        rows: &RowRange,
        options: &CursorOptions,
    ) -> Result<Sources> {
        if let Some(row) = rows.single_row() {
            return Sources::of_row(version, tablet, groups.iter().copied(), row, options);
        }
        let mut sources = Sources::default();
        for &group in groups {
            sources.add_memory(&version.memory[group]);
            let in_memory = version.schema.groups()[group].in_memory;
            for run in tablet.chains[group].runs.iter().rev() {
                sources.add_run(run, rows, options, in_memory)?;
            }
        }
        Ok(sources)
    }

    /// Like `of_tablet`, for one row. Fragments excluded by their filters get
    /// no cursor.
    pub fn of_row(
        version: &TableVersion,
        tablet: &Tablet,
        groups: impl Iterator<Item = usize>,
        row: &[u8],
        options: &CursorOptions,
    ) -> Result<Sources> {
        let mut sources = Sources::default();
        let hash = row_hash(row);
        for group in groups {
            sources.add_memory(&version.memory[group]);
            let in_memory = version.schema.groups()[group].in_memory;
            for run in tablet.chains[group].runs.iter().rev() {
                let Some(link) = run.link_of(row) else { continue };
                let fragment = link.fragment()?;
                if in_memory {
                    fragment.keep_blocks();
                }
                if let Some(tombstones) = link.range_tombstones_of(fragment) {
                    sources.range_tombstones.push(tombstones);
                }
                if fragment.may_hold_row(row, hash) {
                    sources.cursors.push(match link.families() {
                        None => Source::Disk(fragment.cursor(options)),
                        Some(_) => Source::Run(run.cursor(run.positions_of_row(row), options)),
                    });
                }
            }
        }
        Ok(sources)
    }

    fn add_memory(&mut self, memory: &GroupMemory) {
        for fragment in memory.fragments() {
            let holds = fragment.holds();
            if holds.range_tombstones {
                self.range_tombstones.push(fragment.clone());
            }
            if holds.cells {
                self.cursors.push(Source::Memory(fragment.cursor()));
            }
        }
    }

    fn add_run(
        &mut self,
        run: &Run,
        rows: &RowRange,
        options: &CursorOptions,
        in_memory: bool,
    ) -> Result<()> {
        let positions = run.positions_of(rows);
        if positions.is_empty() {
            return Ok(());
        }
        if in_memory {
            for link in &run.links()[positions.clone()] {
                link.fragment()?.keep_blocks();
            }
        }
        if let Some(tombstones) = run.range_tombstones(positions.clone())? {
            self.range_tombstones.push(tombstones);
        }
        self.cursors.push(match &run.links()[positions.clone()] {
            [link] if link.is_whole() && link.families().is_none() => {
                Source::Disk(link.fragment()?.cursor(options))
            }
            _ => Source::Run(run.cursor(positions, options)),
        });
        Ok(())
    }
}
