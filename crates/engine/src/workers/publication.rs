//! Publishes flushed memory: adds the new files to the config and to the tablets that
//! have rows in them, then releases the memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::flush::FlushTarget;
use super::flush_files::FlushedFile;
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::config::{ConfigEdit, Reference, RowChange, RowEdit, RowKey, Splice};
use crate::error::{Error, Result};
use crate::memory::MemoryFragment;
use crate::tablet::{Link, Publishing, Run, RunSplice, Table, Tables, TabletKey, TabletMap};
use crate::txn::Txn;
use crate::world::WaitScope;

/// The memory of one group written to files, which are not yet in the config.
pub struct Written {
    pub target: FlushTarget,
    pub sealed: Vec<Arc<MemoryFragment>>,
    /// In row order, without common rows.
    pub files: Vec<FlushedFile>,
    pub txn_max: Txn,
}

impl Written {
    pub fn files(&self) -> impl Iterator<Item = &Reference> {
        self.files.iter().map(|written| &written.file)
    }

    /// Opens the files, each for all of its rows.
    fn open(&self, tables: &Tables) -> Result<Vec<Arc<Link>>> {
        let open = |file: &Reference| {
            let link = tables.fragments.link(file, file.live_rows(&RowRange::all()));
            let _wait = WaitScope::enter();
            link.fragment()?;
            Ok(link)
        };
        self.files().map(open).collect()
    }

    /// Returns the run that each tablet gets, in row order. The tablets are those of
    /// now, not those of the time when the files were written.
    fn additions(&self, links: &[Arc<Link>], tablets: &TabletMap) -> Vec<Addition> {
        let mut additions: Vec<Addition> = Vec::new();
        for (written, link) in self.files.iter().zip(links) {
            for part in &written.parts {
                for tablet in tablets.overlapping(part) {
                    let rows = written.file.live_rows(&tablet.rows);
                    if rows.is_empty() {
                        continue;
                    }
                    let key = tablet.row_key(self.target.table.id);
                    let tablet = tablet.key();
                    match additions.last_mut().filter(|last| last.tablet == tablet) {
                        // One part may follow another in the same tablet and file.
                        Some(last) if last.has(&written.file) => {}
                        Some(last) => last.links.push(part_of(link, rows, true)),
                        None => {
                            let links = vec![part_of(link, rows, false)];
                            additions.push(Addition { key, tablet, links });
                        }
                    }
                }
            }
        }
        additions
    }

    fn changes(&self, additions: &[Addition]) -> Vec<RowChange> {
        let change = |addition: &Addition| {
            let TabletKey { id, load, start } = addition.tablet.clone();
            let splice = Splice {
                table: self.target.table.id,
                tablet: id,
                load,
                start,
                group: self.target.group,
                remove: Vec::new(),
                add: addition.links.iter().map(|link| link.file.clone()).collect(),
                flushed: Some(self.txn_max),
            };
            let (key, edit) = (addition.key.clone(), RowEdit::Splice(splice));
            RowChange { key, tablet: (id, load), lower: None, edit }
        };
        additions.iter().map(change).collect()
    }

    /// Returns the edit that follows once all tablets have the files.
    fn flushed(&self) -> ConfigEdit {
        let FlushTarget { table, group } = &self.target;
        ConfigEdit::SetFlushed { table: table.id, group: *group, txn: self.txn_max }
    }

    /// Shows the new runs to readers in place of the memory, in all tablets at once.
    fn show(&self, additions: Vec<Addition>, publishing: &Publishing<'_>) {
        let splice = |addition: Addition| RunSplice {
            tablet: addition.tablet,
            group: self.target.group,
            replaced: None,
            runs: Run::new(addition.links).into_iter().collect(),
            flushed: Some(self.txn_max),
        };
        let splices: Vec<RunSplice> = additions.into_iter().map(splice).collect();
        publishing.splice_runs(&splices, |version| {
            let memory = &mut version.memory[self.target.group];
            memory.sealed.drain(..self.sealed.len());
            memory.flushed = memory.flushed.max(self.txn_max);
        });
    }
}

/// A run that a tablet gets.
struct Addition {
    key: RowKey,
    tablet: TabletKey,
    links: Vec<Arc<Link>>,
}

impl Addition {
    fn has(&self, file: &Reference) -> bool {
        self.links.last().is_some_and(|link| link.file.name == file.name)
    }
}

/// Returns the part of a new file in a tablet.
fn part_of(link: &Arc<Link>, rows: RowRange, joins: bool) -> Arc<Link> {
    let share = if rows == link.rows { link.file.bytes } else { link.bytes_of(&rows) };
    let file = Reference { share, joins, ..link.file.clone() };
    Arc::new(Link::new(file, rows, link.linked().clone()))
}

/// What became of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// Readers see it. `riders`: whether the edits that follow from it are durable, too.
    Shown { riders: bool },
    /// The table was dropped before.
    Dropped,
}

/// Adds the new files to the tablets, then releases the memory: only when every tablet
/// has them. `head` follows from it.
pub fn publish(tables: &Tables, written: &Written, head: Option<ConfigEdit>) -> Result<Published> {
    let opened = tables.fragments.sync_names().and_then(|()| written.open(tables));
    let opened = opened.map_err(|error| give_up(tables, written.files(), error))?;
    let publishing = written.target.table.publish_files(&RowRange::all());
    if publishing.check_exists().is_err() {
        discard(tables, written.files());
        return Ok(Published::Dropped);
    }
    let additions = written.additions(&opened, &publishing.tablets());
    let riders = std::iter::once(written.flushed()).chain(head).collect();
    let settled = tables.settler.settle(written.changes(&additions), riders);
    let riders = settled.map_err(|error| give_up(tables, written.files(), error))?;
    tables.outcome_known(written.files());
    written.show(additions, &publishing);
    Ok(Published::Shown { riders })
}

/// Like `publish`, for the memory of several tables at once. The files and `edit` are one
/// atomic edit of the config. No table may be dropped meanwhile.
pub fn publish_all(tables: &Tables, all: &[Written], edit: ConfigEdit) -> Result<()> {
    let files = || all.iter().flat_map(Written::files);
    let open = || all.iter().map(|written| written.open(tables)).collect::<Result<Vec<_>>>();
    let opened = tables.fragments.sync_names().and_then(|()| open());
    let opened = opened.map_err(|error| give_up(tables, files(), error))?;
    let publishing = take_turns(all);
    let additions = |(written, links): (&Written, &Vec<Arc<Link>>)| {
        written.additions(links, &publishing[&written.target.table.id].tablets())
    };
    let additions: Vec<Vec<Addition>> = all.iter().zip(&opened).map(additions).collect();
    let edits = all.iter().zip(&additions).flat_map(|(written, added)| {
        let splices = written.changes(added).into_iter().map(|change| change.edit.into());
        splices.chain([written.flushed()])
    });
    let edits: Vec<ConfigEdit> = edits.chain([edit]).collect();
    tables.config.edit(&edits).map_err(|error| give_up(tables, files(), error))?;
    tables.outcome_known(files());
    for (written, additions) in all.iter().zip(additions) {
        written.show(additions, &publishing[&written.target.table.id]);
    }
    Ok(())
}

/// Excludes other changes of the tablets of all these tables. The turns are taken in
/// the order of the ids.
fn take_turns(all: &[Written]) -> BTreeMap<TableId, Publishing<'_>> {
    let tables: BTreeMap<TableId, &Arc<Table>> =
        all.iter().map(|written| (written.target.table.id, &written.target.table)).collect();
    tables.into_iter().map(|(id, table)| (id, table.publish())).collect()
}

/// Handles a failed publication: removes the files if the config cannot name them.
/// Returns the error.
pub fn give_up<'a>(
    tables: &Tables,
    files: impl Iterator<Item = &'a Reference>,
    error: Error,
) -> Error {
    if tables.config.edit_left_no_trace() {
        discard(tables, files);
    }
    error
}

/// Removes files that no config will ever name.
pub fn discard<'a>(tables: &Tables, files: impl Iterator<Item = &'a Reference>) {
    let fragments = &tables.fragments;
    files.for_each(|file| fragments.discard(file.name));
}
