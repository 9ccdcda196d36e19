//! The first cell of a row, and the place where it was found: with the place,
//! the same cell is read again without looking for it, for as long as the row
//! has not been written and the fragment is still read from.

use crate::cell::key::{self, KeyParts, Kind, Level};
use crate::cell::span::RangeDeletes;
use crate::conflict::RowSlot;
use crate::error::Result;
use crate::fragment::{EntryPlace, Fragment};
use crate::merge::{CellView, Merge, ReadBudget, Reader, Sink};
use crate::point::SPARE;
use crate::scan::{ScanSpec, View};
use crate::source::{Source, Sources};
use crate::store::Shared;
use crate::table::{Table, TableVersion};
use crate::txn::Txn;

/// Where the first cell of a row was when it was read. Good until the store
/// is closed; a place that is wrong costs the time to notice, never a wrong
/// cell, if its txn is one that the store gave out with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// When the row was read.
    pub txn: Txn,
    pub entry: EntryPlace,
}

/// How the first cell of a row was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstCell {
    /// The row was read at this txn.
    pub txn: Txn,
    /// Where the cell is; `None` when there is none, or when it is not in a
    /// fragment on disk alone.
    pub place: Option<Place>,
    /// Whether the caller's place led there.
    pub by_place: bool,
}

impl Shared {
    pub fn read_first(
        &self,
        table: &Table,
        row: &[u8],
        view: &View,
        place: Option<&Place>,
        sink: &mut Sink<'_>,
    ) -> Result<FirstCell> {
        let (version, snapshot) = self.version_for(table, view)?;
        if let Some(place) = place
            // What was not too old then may be so by now.
            && !version.schema.ages()
            && self.is_unchanged(table, &version, row, place.txn, snapshot)
            && read_entry(&version, row, &place.entry, sink)?
        {
            return Ok(FirstCell { txn: snapshot, place: Some(*place), by_place: true });
        }
        let spec = ScanSpec { cells_max: Some(1), ..ScanSpec::default() };
        let schema = &*version.schema;
        let tablet = version.tablets.partition_point(|tablet| tablet.ends_by(row));
        let options = spec.cursor_options(schema, true);
        let sources = Sources::of_row(&version, tablet, 0..version.memory.len(), row, &options)?;
        let now_micros = if schema.ages() { self.tables.world.clock.now_micros() } else { 0 };
        let rules = spec.rules(snapshot, now_micros, schema, &self.tables.folds);
        let mut merge = Merge::new(sources.cursors);
        let mut bound = key::row_start(row);
        merge.seek(&bound)?;
        let first = if schema.ages() { None } else { first_entry(&merge, &bound) };
        key::push_past(&mut bound);
        let mut state = SPARE.take();
        let mut reader = Reader {
            merge: &mut merge,
            state: &mut state,
            rules: &rules,
            spans: &sources.spans,
            places: None,
            once: true,
        };
        let mut budget = ReadBudget { cells: 1, ..ReadBudget::UNLIMITED };
        let mut place = None;
        let outcome = reader.read(Some(&bound), &mut budget, &mut |cell: &CellView<'_>| {
            place = first.filter(|first| first.is(cell)).map(|first| first.place);
            sink(cell)
        });
        state.clear();
        SPARE.set(state);
        outcome?;
        let place = place.map(|entry| Place { txn: snapshot, entry });
        Ok(FirstCell { txn: snapshot, place, by_place: false })
    }

    /// Whether the row is at `snapshot` as it was at `since`. False when that
    /// is not known.
    fn is_unchanged(
        &self,
        table: &Table,
        version: &TableVersion,
        row: &[u8],
        since: Txn,
        snapshot: Txn,
    ) -> bool {
        // Whoever made a commit visible has noted its rows before.
        if since > snapshot || self.newest_write_of(table, row) > since {
            return false;
        }
        if table.range_deleted() <= since {
            return true;
        }
        let newer =
            |spans: &dyn RangeDeletes| spans.covering(row, snapshot).is_some_and(|txn| txn > since);
        let tablet = version.tablets.partition_point(|tablet| tablet.ends_by(row));
        let mut memory = version.memory.iter().flat_map(|memory| memory.fragments());
        let mut runs = version.tablets[tablet].chains.iter().flat_map(|chain| &chain.runs);
        !memory.any(|fragment| newer(&**fragment)) && !runs.any(|run| newer(&**run.spans()))
    }

    fn newest_write_of(&self, table: &Table, row: &[u8]) -> Txn {
        self.newest_in_slot(RowSlot::of(table.id, row))
    }
}

/// The first entry of a row, if it is a value in a fragment on disk.
#[derive(Clone, Copy)]
struct First {
    timestamp: i64,
    txn: Txn,
    /// Where its value is in memory.
    value: *const u8,
    place: EntryPlace,
}

fn first_entry(merge: &Merge<Source>, row_start: &[u8]) -> Option<First> {
    let place = merge.place()?;
    let key = merge.key();
    let parts = KeyParts::parse(key)?;
    let is_value = parts.level == Level::Cell && parts.kind == Kind::Put;
    let (timestamp, txn, value) = (parts.timestamp, parts.txn, merge.value().as_ptr());
    (is_value && key.starts_with(row_start)).then_some(First { timestamp, txn, value, place })
}

impl First {
    /// Whether the cell that is read is this one. Of the cells of one commit
    /// in one row either all are deleted or none, unless deletes stand before
    /// them, and then the first entry is no value.
    fn is(&self, cell: &CellView<'_>) -> bool {
        (self.timestamp, self.txn) == (cell.timestamp, cell.txn)
            && std::ptr::eq(self.value, cell.value.as_ptr())
    }
}

/// Gives the entry at a place to `sink`, if that is a value of the row.
fn read_entry(
    version: &TableVersion,
    row: &[u8],
    place: &EntryPlace,
    sink: &mut Sink<'_>,
) -> Result<bool> {
    let Some(fragment) = fragment_of(version, row, place.fragment) else { return Ok(false) };
    fragment.entry_at(place, |key, value| {
        let Some(parts) = KeyParts::parse(key) else { return false };
        let is_value = parts.level == Level::Cell && parts.kind == Kind::Put;
        if !is_value || !is_row(parts.escaped_row(key), row) {
            return false;
        }
        let family = parts.family(key);
        let known = version.schema.find(family);
        if known.is_none_or(|at| version.schema.predates(at, parts.txn)) {
            return false;
        }
        let mut qualifier = Vec::new();
        key::unescape_into(parts.escaped_qualifier(key), &mut qualifier);
        let (timestamp, txn) = (parts.timestamp, parts.txn);
        let qualifier = &qualifier;
        sink(&CellView { row, family, qualifier, timestamp, txn, marker: false, value });
        true
    })
}

/// Whether an escaped row is this one.
fn is_row(escaped: &[u8], row: &[u8]) -> bool {
    if escaped.len() == row.len() && !row.contains(&0) {
        return escaped == row;
    }
    let mut unescaped = Vec::new();
    key::unescape_into(escaped, &mut unescaped);
    unescaped == row
}

/// The fragment of that number, if the row is read from it.
fn fragment_of<'v>(
    version: &'v TableVersion,
    row: &[u8],
    number: u64,
) -> Option<&'v std::sync::Arc<Fragment>> {
    let tablet = version.tablets.partition_point(|tablet| tablet.ends_by(row));
    let runs = version.tablets[tablet].chains.iter().flat_map(|chain| &chain.runs);
    let mut fragments = runs.filter_map(|run| run.link_of(row)?.fragment().ok());
    fragments.find(|fragment| fragment.id() == number)
}
