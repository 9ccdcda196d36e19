//! Splits and joins of tablets. Both are edits of the config: no data is rewritten,
//! and readers, writers and memory notice nothing. A compaction of such a tablet
//! ends without effect, because the tablet that it read no longer exists.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::chain::Tablet;
use super::link::Link;
use super::publish::Publishing;
use super::table::Table;
use super::tables::Tables;
use crate::cell::rows::RowRange;
use crate::config::{FileName, Join, Reference, ReferenceKey, RowChange, RowEdit, RowKey, Split};
use crate::error::{Error, Printable, Result};
use crate::txn::Txn;

impl Tables {
    /// Splits the tablet with `row` before that row. Returns whether it did: it may
    /// already be the first row of a tablet.
    pub fn split(&self, table: &Table, row: &[u8]) -> Result<bool> {
        if row.is_empty() {
            return Err(Error::InvalidSplit(
                "a tablet cannot be split before its first row".into(),
            ));
        }
        if !table.version().schema.is_splittable() {
            return Err(Error::InvalidSplit(format!("table {} is never split", table.name)));
        }
        loop {
            let found = table.version().tablets.of(row).clone();
            if found.rows.start == row {
                return Ok(false);
            }
            // Files may have to be opened, so this comes first.
            let shares = shares_before(&found, row);
            let publishing = table.publish_bounds(&found.rows);
            publishing.check_exists()?;
            if let Some(tablet) = found.key().find(&publishing.tablets()) {
                tablet.check_active(table)?;
                self.split_at(&publishing, table, tablet, row, &shares)?;
                return Ok(true);
            }
        }
    }

    fn split_at(
        &self,
        publishing: &Publishing<'_>,
        table: &Table,
        tablet: &Arc<Tablet>,
        row: &[u8],
        shares: &[(ReferenceKey, u64)],
    ) -> Result<()> {
        let share = |link: &Arc<Link>| {
            let known = shares.iter().find(|(key, _)| *key == link.file.key());
            // A file that was added meanwhile is small.
            known.map_or(link.share() / 2, |(_, share)| (*share).min(link.share()))
        };
        let split = RowEdit::Split(Split {
            table: table.id,
            tablet: tablet.id,
            load: tablet.load,
            row: row.to_vec(),
            shares: tablet.links().map(share).collect(),
        });
        let key = tablet.row_key(table.id);
        let mut lower = key.clone();
        lower.end = Some(row.to_vec());
        let tablet_load = (tablet.id, tablet.load);
        let change = RowChange { key: key.clone(), tablet: tablet_load, lower: None, edit: split };
        self.settler.settle(vec![change], Vec::new())?;
        let halves = self.rebuilt(&[lower, key], &[tablet])?;
        publishing.splice(&tablet.rows, halves);
        Ok(())
    }

    /// Joins the two tablets that meet at `row`. Returns whether it did: memory must be
    /// flushed first if the two have been flushed up to different txns.
    pub fn join(&self, table: &Table, row: &[u8]) -> Result<bool> {
        loop {
            let (lower, upper) = neighbours(table, row)?;
            let rows = RowRange { start: lower.rows.start.clone(), end: upper.rows.end.clone() };
            let publishing = table.publish_bounds(&rows);
            publishing.check_exists()?;
            let tablets = publishing.tablets();
            let current = |tablet: &Tablet| tablet.key().find(&tablets).cloned();
            let (Some(lower), Some(upper)) = (current(&lower), current(&upper)) else { continue };
            for tablet in [&lower, &upper] {
                tablet.check_active(table)?;
            }
            if !can_join(table, &lower, &upper) {
                return Ok(false);
            }
            let change = RowChange {
                key: upper.row_key(table.id),
                tablet: (upper.id, upper.load),
                lower: Some((lower.row_key(table.id), (lower.id, lower.load))),
                edit: RowEdit::Join(Join {
                    table: table.id,
                    row: row.to_vec(),
                    lower: (lower.id, lower.load),
                    upper: (upper.id, upper.load),
                }),
            };
            let key = change.key.clone();
            self.settler.settle(vec![change], Vec::new())?;
            publishing.splice(&rows, self.rebuilt(&[key], &[&lower, &upper])?);
            return Ok(true);
        }
    }

    /// Returns the tablets that the config now has in place of some, with the files that
    /// those have open.
    fn rebuilt(&self, keys: &[RowKey], replaced: &[&Arc<Tablet>]) -> Result<Vec<Arc<Tablet>>> {
        let links = replaced.iter().flat_map(|tablet| tablet.links());
        let open: BTreeMap<FileName, &Arc<Link>> =
            links.map(|link| (link.file.name, link)).collect();
        let loaded_at = replaced.iter().map(|tablet| tablet.loaded_at).max().unwrap_or(Txn::ZERO);
        let link = |file: &Reference, rows: RowRange| {
            let known = open.get(&file.name).expect("a split or join names no new file");
            Ok(Arc::new(Link::new(file.clone(), rows, known.linked().clone())))
        };
        let rows = self.settler.read(keys)?.into_iter();
        let since = self.world.clock.elapsed();
        rows.map(|row| Tablet::new(&row, loaded_at, since, link).map(Arc::new)).collect()
    }
}

/// Returns the sizes of the rows of a tablet before a row, for each reference.
fn shares_before(tablet: &Tablet, row: &[u8]) -> Vec<(ReferenceKey, u64)> {
    let before = RowRange { start: tablet.rows.start.clone(), end: Some(row.to_vec()) };
    let share = |link: &Arc<Link>| {
        let rows = link.rows.intersection(&before);
        let share = if rows.is_empty() { 0 } else { link.bytes_of(&rows) };
        (link.file.key(), share)
    };
    tablet.links().map(share).collect()
}

/// Returns the two tablets that meet at a row.
fn neighbours(table: &Table, row: &[u8]) -> Result<(Arc<Tablet>, Arc<Tablet>)> {
    let tablets = table.version().tablets.clone();
    let upper = tablets.of(row).clone();
    if upper.rows.start != row || row.is_empty() {
        let row = Printable::from(row);
        return Err(Error::InvalidSplit(format!("no two tablets meet at row {row}")));
    }
    Ok((tablets.before(Some(row)).clone(), upper))
}

/// Whether everything in memory is newer than what either tablet has flushed. Only
/// then does one txn say for both what replay has to skip.
fn can_join(table: &Table, lower: &Tablet, upper: &Tablet) -> bool {
    let version = table.version();
    version.memory.iter().enumerate().all(|(group, memory)| {
        let [low, up] = [lower, upper].map(|tablet| tablet.chains[group].flushed);
        let both = memory.flushed.max(low).max(up);
        both == memory.flushed.max(low.min(up))
            || memory.txn_min().is_none_or(|oldest| oldest > both)
    })
}
