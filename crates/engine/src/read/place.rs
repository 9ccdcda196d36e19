//! The first cell of a row and its place in a fragment. With the place, the
//! cell can be read again without a lookup, as long as the row has not been
//! written and the fragment is still in use.

use std::sync::Arc;

use super::row::RowRead;
use super::scan::{ScanSpec, View};
use super::source::Source;
use crate::cell::key::{self, KeyParts, Kind, Level};
use crate::cell::range_tombstone::RangeTombstoneLookup;
use crate::error::Result;
use crate::fragment::Fragment;
use crate::merge::{CellView, EntryPlace, Merge, ReadBudget, Sink};
use crate::store::Engine;
use crate::tablet::{Run, Table, TableVersion};
use crate::txn::Txn;
use crate::write::RowSlot;

/// The position of a row's first cell at the time it was read. Valid until the
/// store is closed. A stale place only costs the time to detect it and never
/// yields a wrong cell, provided that `txn` is the one the store returned with
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The txn at which the row was read.
    pub txn: Txn,
    pub entry: EntryPlace,
}

/// The result of reading the first cell of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstCell {
    /// The txn at which the row was read.
    pub txn: Txn,
    /// The place of the cell; `None` if there is no cell, or if it is not
    /// entirely in one disk fragment.
    pub place: Option<Place>,
    /// Whether the cell was found through the caller's place.
    pub by_place: bool,
}

impl Engine {
    pub fn read_first(
        &self,
        table: &Table,
        row: &[u8],
        view: &View,
        place: Option<&Place>,
        sink: &mut Sink<'_>,
    ) -> Result<FirstCell> {
        let (version, snapshot) = self.version_for(table, view)?;
        version.tablets.of(row).check_read(table, row)?;
        if let Some(place) = place
            // A cell that was not too old then may be too old now.
            && !version.schema.ages()
            && self.is_unchanged(table, &version, row, place.txn, snapshot)
            && read_entry(&version, row, &place.entry, sink)?
        {
            return Ok(FirstCell { txn: snapshot, place: Some(*place), by_place: true });
        }
        let spec = ScanSpec { cells_max: Some(1), ..ScanSpec::default() };
        let mut read = RowRead::new(self, table, &version, snapshot, row, &spec)?;
        let ages = version.schema.ages();
        let first = if ages { None } else { first_entry(&read.merge, &read.bound) };
        key::push_past(&mut read.bound);
        let mut budget = ReadBudget { cells: 1, ..ReadBudget::UNLIMITED };
        let mut place = None;
        read.run(&mut budget, &mut |cell: &CellView<'_>| {
            place = first.filter(|first| first.is(cell)).map(|first| first.place);
            sink(cell)
        })?;
        let place = place.map(|entry| Place { txn: snapshot, entry });
        Ok(FirstCell { txn: snapshot, place, by_place: false })
    }

    /// Whether the row at `snapshot` is the same as at `since`. False if
    /// unknown.
    fn is_unchanged(
        &self,
        table: &Table,
        version: &TableVersion,
        row: &[u8],
        since: Txn,
        snapshot: Txn,
    ) -> bool {
        // The rows of a commit are recorded before the commit becomes visible.
        let newest = self.newest_write_of(table, row).max(version.tablets.of(row).loaded_at);
        if since > snapshot || newest > since {
            return false;
        }
        if table.range_deleted() <= since {
            return true;
        }
        let newer = |tombstones: &dyn RangeTombstoneLookup| {
            tombstones.covering(row, snapshot).is_some_and(|txn| txn > since)
        };
        let tablet = version.tablets.of(row);
        let mut memory = version.memory.iter().flat_map(|memory| memory.fragments());
        let mut runs = tablet.chains.iter().flat_map(|chain| &chain.runs);
        let newer_in_run = |run: &Run| {
            let tombstones = run.link_of(row).map(|link| link.range_tombstones());
            match tombstones {
                None | Some(Ok(None)) => false,
                Some(Ok(Some(tombstones))) => newer(&*tombstones),
                Some(Err(_)) => true,
            }
        };
        !memory.any(|fragment| newer(&**fragment)) && !runs.any(newer_in_run)
    }

    fn newest_write_of(&self, table: &Table, row: &[u8]) -> Txn {
        self.newest_in_slot(RowSlot::of(table.id, row))
    }
}

/// The first entry of a row, if it is a value in a disk fragment.
#[derive(Clone, Copy)]
struct First {
    timestamp: i64,
    txn: Txn,
    /// The address of its value in memory.
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
    /// Whether the cell being read is this one. The cells of one commit in one
    /// row are either all deleted or none, unless deletes precede them, in
    /// which case the first entry is not a value.
    fn is(&self, cell: &CellView<'_>) -> bool {
        (self.timestamp, self.txn) == (cell.timestamp, cell.txn)
            && std::ptr::eq(self.value, cell.value.as_ptr())
    }
}

/// Passes the entry at a place to `sink` if it is a value of the row. Returns
/// whether it is.
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

/// Whether an escaped row equals this one.
fn is_row(escaped: &[u8], row: &[u8]) -> bool {
    if escaped.len() == row.len() && !row.contains(&0) {
        return escaped == row;
    }
    let mut unescaped = Vec::new();
    key::unescape_into(escaped, &mut unescaped);
    unescaped == row
}

/// Returns the fragment with that number if the row is read from it.
fn fragment_of<'v>(
    version: &'v TableVersion,
    row: &[u8],
    number: u64,
) -> Option<&'v Arc<Fragment>> {
    let chains = &version.tablets.of(row).chains[..version.schema.visible_groups()];
    let runs = chains.iter().flat_map(|chain| &chain.runs);
    let mut fragments = runs.filter_map(|run| run.link_of(row)?.open_fragment());
    fragments.find(|fragment| fragment.id() == number)
}
