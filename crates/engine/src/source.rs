//! The runs a tablet's cells lie in, memory and disk, as one kind of cursor.

use std::sync::Arc;

use crate::cell::rows::RowRange;
use crate::cell::span::Spans;
use crate::error::Result;
use crate::fragment::{CursorOptions, FragmentCursor, row_hash};
use crate::memory::MemoryCursor;
use crate::merge::Cursor;
use crate::table::TableVersion;

/// A cursor over either kind of fragment.
pub enum Source {
    Memory(MemoryCursor),
    Disk(FragmentCursor),
}

macro_rules! each {
    ($source:expr, $cursor:ident => $body:expr) => {
        match $source {
            Source::Memory($cursor) => $body,
            Source::Disk($cursor) => $body,
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
}

/// Everything that may hold cells of a range of rows.
#[derive(Default)]
pub struct Sources {
    pub cursors: Vec<Source>,
    /// Range tombstones, of every fragment, whether or not it has a cursor:
    /// a fragment without the row may still hold a delete of it.
    pub spans: Vec<Arc<Spans>>,
}

impl Sources {
    /// The runs of one tablet that may hold rows of `rows`, newest first, for
    /// the given groups. The caller has made sure that no lost fragment lies
    /// over these rows.
    pub fn of_tablet(
        version: &TableVersion,
        tablet: usize,
        groups: &[usize],
        rows: &RowRange,
        options: &CursorOptions,
    ) -> Result<Sources> {
        let mut sources = Sources::default();
        let single = rows.single_row().map(|row| (row, row_hash(row)));
        for &group in groups {
            let memory = &version.memory[group];
            for fragment in memory.fragments().filter(|fragment| !fragment.is_empty()) {
                sources.add_spans(&fragment.spans());
                sources.cursors.push(Source::Memory(fragment.cursor()));
            }
            let links = &version.tablets[tablet].chains[group].links;
            for link in links.iter().rev().filter(|link| link.file.rows.overlaps(rows)) {
                let fragment = link.fragment()?;
                sources.add_spans(fragment.spans());
                if single.is_none_or(|(row, hash)| fragment.may_hold_row(row, hash)) {
                    sources.cursors.push(Source::Disk(fragment.cursor(options)));
                }
            }
        }
        Ok(sources)
    }

    fn add_spans(&mut self, spans: &Arc<Spans>) {
        if !spans.is_empty() {
            self.spans.push(spans.clone());
        }
    }
}
