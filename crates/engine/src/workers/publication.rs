//! Publishes flushed memory: adds the new files to the config and to the tablets that
//! have rows in them, then releases the memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::flush::FlushTarget;
use super::flush_files::FlushedFile;
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::config::{ConfigEdit, Reference, Splice};
use crate::error::{Error, Result};
use crate::memory::MemoryFragment;
use crate::tablet::{Link, Publishing, Run, Table, Tables, Tablet, TabletKey, TabletMap};
use crate::txn::Txn;

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
                    let tablet = tablet.key();
                    match additions.last_mut().filter(|last| last.tablet == tablet) {
                        // One part may follow another in the same tablet and file.
                        Some(last) if last.has(&written.file) => {}
                        Some(last) => last.links.push(part_of(link, rows, true)),
                        None => {
                            let links = vec![part_of(link, rows, false)];
                            additions.push(Addition { tablet, links });
                        }
                    }
                }
            }
        }
        additions
    }

    fn edits(&self, additions: &[Addition]) -> Vec<ConfigEdit> {
        let (table, group) = (self.target.table.id, self.target.group);
        let splice = |addition: &Addition| {
            let TabletKey { id, load, start } = addition.tablet.clone();
            ConfigEdit::Splice(Splice {
                table,
                tablet: id,
                load,
                start,
                group,
                remove: Vec::new(),
                add: addition.links.iter().map(|link| link.file.clone()).collect(),
                flushed: Some(self.txn_max),
            })
        };
        let flushed = ConfigEdit::SetFlushed { table, group, txn: self.txn_max };
        additions.iter().map(splice).chain([flushed]).collect()
    }

    /// Shows the new runs to readers in place of the memory.
    fn show(&self, additions: Vec<Addition>, publishing: &Publishing<'_>) {
        let tablets = publishing.tablets();
        let changed = additions.into_iter().map(|addition| {
            let tablet = addition.tablet.find(&tablets).expect("no other thread changes tablets");
            let mut tablet = Tablet::clone(tablet);
            let chain = &mut tablet.chains[self.target.group];
            chain.runs.extend(Run::new(addition.links));
            chain.flushed = self.txn_max;
            Arc::new(tablet)
        });
        publishing.replace(changed.collect(), |version| {
            let memory = &mut version.memory[self.target.group];
            memory.sealed.drain(..self.sealed.len());
            memory.flushed = self.txn_max;
        });
    }
}

/// A run that a tablet gets.
struct Addition {
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

/// Adds the new files to the config and the chains, then releases the memory.
/// Returns false if it failed because a table was dropped.
pub fn publish(tables: &Tables, all: Vec<Written>, edit: Option<ConfigEdit>) -> Result<bool> {
    let open = || all.iter().map(|written| written.open(tables)).collect::<Result<Vec<_>>>();
    let opened = tables.fragments.sync_names().and_then(|()| open());
    let publishing = lock_tables(&all);
    let published = opened.and_then(|opened| {
        let additions = |(written, links): (&Written, &Vec<Arc<Link>>)| {
            written.additions(links, &publishing[&written.target.table.id].tablets())
        };
        let additions: Vec<Vec<Addition>> = all.iter().zip(&opened).map(additions).collect();
        let edits = all.iter().zip(&additions).flat_map(|(written, added)| written.edits(added));
        let edits: Vec<ConfigEdit> = edits.chain(edit).collect();
        tables.config.edit(&edits).map(|_| additions)
    });
    match published {
        Ok(additions) => {
            for (written, additions) in all.iter().zip(additions) {
                written.show(additions, &publishing[&written.target.table.id]);
            }
            Ok(true)
        }
        Err(error) => {
            let dropped = all.iter().any(|written| written.target.table.is_dropped());
            give_up(tables, dropped, all.iter().flat_map(Written::files), error)?;
            Ok(false)
        }
    }
}

/// Excludes other changes of the tablets of all these tables. The tables are locked
/// in the order of their ids.
fn lock_tables(all: &[Written]) -> BTreeMap<TableId, Publishing<'_>> {
    let tables: BTreeMap<TableId, &Arc<Table>> =
        all.iter().map(|written| (written.target.table.id, &written.target.table)).collect();
    tables.into_iter().map(|(id, table)| (id, table.publish())).collect()
}

/// Handles a failed publication: removes the files if the config cannot name
/// them.
pub fn give_up<'a>(
    tables: &Tables,
    dropped: bool,
    files: impl Iterator<Item = &'a Reference>,
    error: Error,
) -> Result<()> {
    if tables.config.edit_left_no_trace() {
        discard(tables, files);
    }
    if dropped { Ok(()) } else { Err(error) }
}

/// Removes files that no config will ever name.
pub fn discard<'a>(tables: &Tables, files: impl Iterator<Item = &'a Reference>) {
    let fragments = &tables.fragments;
    files.for_each(|file| fragments.discard(&fragments.path_of(file.name)));
}
