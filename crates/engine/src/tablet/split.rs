//! Splits and joins of tablets. Both are edits of the config: no data is rewritten,
//! and readers, writers and memory notice nothing. A compaction of such a tablet
//! ends without effect, because the tablet that it read no longer exists.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::chain::Tablet;
use super::link::Link;
use super::table::Table;
use super::tables::Tables;
use crate::cell::rows::RowRange;
use crate::config::{ConfigEdit, FileName, Join, Reference, Split, TableConfig};
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
        let publishing = table.publish();
        let tablet = publishing.tablets().of(row).clone();
        if tablet.rows.start == row {
            return Ok(false);
        }
        let before = RowRange { start: tablet.rows.start.clone(), end: Some(row.to_vec()) };
        let share = |link: &Arc<Link>| {
            let rows = link.rows.intersection(&before);
            if rows.is_empty() { 0 } else { link.bytes_of(&rows) }
        };
        let edit = ConfigEdit::Split(Split {
            table: table.id,
            tablet: tablet.id,
            load: tablet.load,
            row: row.to_vec(),
            shares: tablet.links().map(share).collect(),
        });
        let configs = self.config.edit(&[edit])?;
        let config = &configs.tables[&table.id];
        publishing.splice(&tablet.rows, rebuilt(config, &tablet.rows, &[&tablet])?);
        Ok(true)
    }

    /// Joins the two tablets that meet at `row`. Returns whether it did: memory must be
    /// flushed first if the two have been flushed up to different txns.
    pub fn join(&self, table: &Table, row: &[u8]) -> Result<bool> {
        let publishing = table.publish();
        let tablets = publishing.tablets();
        let upper = tablets.of(row).clone();
        if upper.rows.start != row || row.is_empty() {
            let row = Printable::from(row);
            return Err(Error::InvalidSplit(format!("no two tablets meet at row {row}")));
        }
        let lower = tablets.before(Some(row)).clone();
        if !can_join(table, &lower, &upper) {
            return Ok(false);
        }
        let edit = ConfigEdit::Join(Join {
            table: table.id,
            row: row.to_vec(),
            lower: (lower.id, lower.load),
            upper: (upper.id, upper.load),
        });
        let configs = self.config.edit(&[edit])?;
        let rows = RowRange { start: lower.rows.start.clone(), end: upper.rows.end.clone() };
        let config = &configs.tables[&table.id];
        publishing.splice(&rows, rebuilt(config, &rows, &[&lower, &upper])?);
        Ok(true)
    }
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

/// Returns the tablets that the config now has in place of some, with the files that
/// those have open.
fn rebuilt(
    config: &TableConfig,
    rows: &RowRange,
    replaced: &[&Arc<Tablet>],
) -> Result<Vec<Arc<Tablet>>> {
    let links = replaced.iter().flat_map(|tablet| tablet.links());
    let open: BTreeMap<FileName, &Arc<Link>> = links.map(|link| (link.file.name, link)).collect();
    let loaded_at = replaced.iter().map(|tablet| tablet.loaded_at).max().unwrap_or(Txn::ZERO);
    let link = |file: &Reference, rows: RowRange| {
        let known = open.get(&file.name).expect("a split or join names no new file");
        Ok(Arc::new(Link::new(file.clone(), rows, known.linked().clone())))
    };
    let tablets = config.tablets.overlapping(rows);
    tablets.map(|tablet| Tablet::new(tablet, loaded_at, link).map(Arc::new)).collect()
}
