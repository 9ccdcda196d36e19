//! Edits of the config, and their effects.

use std::sync::Arc;

use super::{
    Checkpoint, Configs, FileName, Join, Reference, ReferenceKey, Regroup, Split, TableConfig,
    TableState, TabletConfig, TabletConfigs, TabletId,
};
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::txn::Txn;

/// A single change of the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigEdit {
    /// Starts a new incarnation, with a generation of its own.
    TakeIncarnation,
    /// Takes the next generation of txns.
    TakeGeneration,
    CreateTable {
        name: String,
        schema: Arc<Schema>,
        /// The first rows of all tablets but the first, ascending.
        splits: Vec<Vec<u8>>,
    },
    /// Removes a table, whatever its state.
    DropTable {
        table: TableId,
    },
    /// Copies the references of a table to a new one: of a table in use to a backup, or
    /// of a backup to a table in use.
    CopyTable {
        source: TableId,
        name: String,
        state: TableState,
    },
    /// Deletes a table in use, or brings a deleted one back.
    SetState {
        table: TableId,
        state: TableState,
    },
    SetSchema {
        table: TableId,
        schema: Arc<Schema>,
    },
    /// Moves families between groups, and changes the schema.
    Regroup(Regroup),
    /// Replaces consecutive references of a chain; appends if there is nothing to
    /// remove.
    Splice(Splice),
    /// A splice in a manifest before version 4.
    LegacySplice(LegacySplice),
    /// Commits up to a txn are in files, in all tablets.
    SetFlushed {
        table: TableId,
        group: usize,
        txn: Txn,
    },
    Split(Split),
    Join(Join),
    /// Loads or unloads tablets, named by id and first row. Those that are in that
    /// state already keep their `load`.
    SetLoaded {
        table: TableId,
        tablets: Vec<(TabletId, Vec<u8>)>,
        loaded: bool,
    },
    /// Creates a checkpoint, which keeps the current files of some tables.
    Pin {
        tables: Vec<TableId>,
        txn: Txn,
    },
    /// Releases a checkpoint.
    Unpin {
        checkpoint: u64,
    },
    /// Log segments before this one are no longer needed.
    SetLogHead {
        segment: u64,
    },
    /// Everything up to this index of the external log is in files.
    SetFlushedIndex {
        index: u64,
    },
}

/// The replacement of consecutive references of a chain. Refused unless the tablet
/// has this load and its chain has exactly these references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    pub table: TableId,
    pub tablet: TabletId,
    pub load: u64,
    /// The first row of the tablet.
    pub start: Vec<u8>,
    pub group: usize,
    pub remove: Vec<ReferenceKey>,
    pub add: Vec<Reference>,
    pub flushed: Option<Txn>,
}

/// A splice that names a tablet by its position, and files without their rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacySplice {
    pub table: TableId,
    pub tablet: usize,
    pub group: usize,
    pub remove: Vec<FileName>,
    pub add: Vec<Reference>,
    pub flushed: Option<Txn>,
}

impl Configs {
    /// Applies one edit.
    fn apply(&mut self, edit: &ConfigEdit) -> Result<()> {
        match edit {
            ConfigEdit::TakeIncarnation => {
                self.incarnation = self.incarnation.saturating_add(1);
                self.generation = self.generation.saturating_add(1);
            }
            ConfigEdit::TakeGeneration => self.generation = self.generation.saturating_add(1),
            ConfigEdit::CreateTable { name, schema, splits } => {
                self.create_table(name, schema, splits)?;
            }
            ConfigEdit::DropTable { table } => {
                self.tables.remove(table).ok_or_else(|| unknown(*table))?;
            }
            ConfigEdit::CopyTable { source, name, state } => {
                self.copy_table(*source, name, state)?;
            }
            ConfigEdit::SetState { table, state } => self.set_state(*table, state)?,
            ConfigEdit::SetSchema { table, schema } => {
                let config = self.table_mut(*table)?;
                config.schema.check_successor(schema)?;
                config.schema = schema.clone();
                config.add_groups();
            }
            ConfigEdit::Regroup(regroup) => self.regroup(regroup)?,
            ConfigEdit::Splice(splice) => self.splice(splice)?,
            ConfigEdit::LegacySplice(splice) => self.legacy_splice(splice)?,
            ConfigEdit::SetFlushed { table, group, txn } => {
                let flushed = self.table_mut(*table)?.flushed.get_mut(*group);
                let flushed = flushed.ok_or_else(|| refused(*table, "it has no such group"))?;
                *flushed = (*flushed).max(*txn);
            }
            ConfigEdit::Split(split) => self.split(split)?,
            ConfigEdit::Join(join) => self.join(join)?,
            ConfigEdit::SetLoaded { table, tablets, loaded } => {
                self.set_loaded(*table, tablets, *loaded)?;
            }
            ConfigEdit::Pin { tables, txn } => self.pin(tables, *txn)?,
            ConfigEdit::Unpin { checkpoint } => {
                let released = self.checkpoints.remove(checkpoint);
                released.ok_or(Error::UnknownCheckpoint(*checkpoint))?;
            }
            ConfigEdit::SetLogHead { segment } => self.log_head = self.log_head.max(*segment),
            ConfigEdit::SetFlushedIndex { index } => {
                self.flushed_index = self.flushed_index.max(Some(*index));
            }
        }
        Ok(())
    }

    /// Returns the config after all edits, at the next revision.
    pub(super) fn edited(&self, expected: u64, edits: &[ConfigEdit]) -> Result<Configs> {
        if self.revision != expected {
            return Err(Error::ConfigConflict { expected, found: self.revision });
        }
        let mut next = self.clone();
        for edit in edits {
            next.apply(edit)?;
        }
        next.revision += 1;
        Ok(next)
    }

    fn pin(&mut self, tables: &[TableId], txn: Txn) -> Result<()> {
        let tables = tables.iter().map(|id| self.active(*id).cloned()).collect::<Result<_>>()?;
        self.last_checkpoint += 1;
        let (id, epoch) = (self.last_checkpoint, self.incarnation.max(self.generation));
        self.checkpoints.insert(id, Arc::new(Checkpoint { id, txn, epoch, tables }));
        Ok(())
    }

    fn create_table(&mut self, name: &str, schema: &Arc<Schema>, splits: &[Vec<u8>]) -> Result<()> {
        if self.table_named(name).is_some() {
            return Err(Error::TableExists(name.to_string()));
        }
        let ascends = splits.windows(2).all(|pair| pair[0] < pair[1]);
        if !splits.is_empty() && !schema.is_splittable() {
            return Err(Error::InvalidSplit(format!(
                "table {name} has one tablet and is never split"
            )));
        }
        if !ascends || splits.iter().any(Vec::is_empty) {
            let what = "the rows at which a table is split must ascend and not be empty";
            return Err(Error::InvalidSplit(what.into()));
        }
        self.last_table += 1;
        let id = TableId(self.last_table);
        let groups = schema.groups().len();
        let starts = std::iter::once(Vec::new()).chain(splits.iter().cloned());
        let ends = splits.iter().cloned().map(Some).chain([None]);
        let mut tablets = Vec::with_capacity(splits.len() + 1);
        for (start, end) in starts.zip(ends) {
            let rows = RowRange { start, end };
            tablets.push(Arc::new(TabletConfig::new(self.mint_tablet()?, rows, groups)));
        }
        let table = TableConfig {
            id,
            name: name.to_string(),
            schema: schema.clone(),
            state: TableState::Active,
            flushed: vec![Txn::ZERO; groups],
            tablets: TabletConfigs::new(tablets),
        };
        self.tables.insert(id, Arc::new(table));
        Ok(())
    }

    /// Returns the id of a new tablet.
    pub(super) fn mint_tablet(&mut self) -> Result<TabletId> {
        let spent = || Error::InvalidSplit("the numbers of tablets are exhausted".into());
        let incarnation = u32::try_from(self.incarnation).map_err(|_| spent())?;
        self.last_tablet = self.last_tablet.checked_add(1).ok_or_else(spent)?;
        Ok(TabletId { incarnation, number: self.last_tablet })
    }

    /// Returns a table in use.
    fn active(&self, table: TableId) -> Result<&Arc<TableConfig>> {
        let found = self.tables.get(&table).filter(|table| table.is_active());
        found.ok_or_else(|| unknown(table))
    }

    /// Returns a table in use, to be changed. Backups and deleted tables do not change.
    pub(super) fn table_mut(&mut self, table: TableId) -> Result<&mut TableConfig> {
        let found = self.tables.get_mut(&table).filter(|table| table.is_active());
        found.map(Arc::make_mut).ok_or_else(|| unknown(table))
    }

    fn splice(&mut self, splice: &Splice) -> Result<()> {
        let refused = |what| refused(splice.table, what);
        let table = self.table_mut(splice.table)?;
        let found = table.tablets.of(&splice.start);
        if (found.id, found.load) != (splice.tablet, splice.load) {
            return Err(refused("the tablet has changed"));
        }
        if !found.loaded {
            return Err(refused("the tablet is not loaded"));
        }
        let mut tablet = (**found).clone();
        let rows = tablet.rows.clone();
        let chain = tablet.chains.get_mut(splice.group);
        let chain = chain.ok_or_else(|| refused("it has no such group"))?;
        let changed = || refused("its files have changed");
        let at = match splice.remove.first() {
            None => chain.files.len(),
            Some(first) => {
                let is_first = |file: &Reference| {
                    file.name == first.name
                        && file.rows == first.rows
                        && file.families == first.families
                };
                chain.files.iter().position(is_first).ok_or_else(changed)?
            }
        };
        let gone = at..at + splice.remove.len();
        let named = chain.files.get(gone.clone()).ok_or_else(changed)?;
        if !named.iter().map(Reference::key).eq(splice.remove.iter().cloned()) {
            return Err(changed());
        }
        chain.files.splice(gone, splice.add.iter().cloned());
        if !chain.is_valid(&rows) {
            let what = "a reference is invalid, or the files of a run are not in row order";
            return Err(refused(what));
        }
        if let Some(txn) = splice.flushed {
            chain.flushed = chain.flushed.max(txn);
        }
        tablet.rev = tablet.rev.saturating_add(1);
        table.tablets.replace([Arc::new(tablet)]);
        Ok(())
    }

    fn set_loaded(
        &mut self,
        table: TableId,
        tablets: &[(TabletId, Vec<u8>)],
        loaded: bool,
    ) -> Result<()> {
        let config = self.table_mut(table)?;
        for (id, start) in tablets {
            let found = config.tablets.of(start).clone();
            if found.id != *id || found.rows.start != *start {
                return Err(refused(table, "the tablet has changed"));
            }
            let mut tablet = (*found).clone();
            tablet.rev = tablet.rev.saturating_add(1);
            if loaded && !tablet.loaded {
                tablet.load = tablet.load.saturating_add(1);
            }
            tablet.loaded = loaded;
            config.tablets.replace([Arc::new(tablet)]);
        }
        Ok(())
    }

    fn legacy_splice(&mut self, splice: &LegacySplice) -> Result<()> {
        let missing = || refused(splice.table, "it has no such files");
        let table = self.table_mut(splice.table)?;
        let tablet = table.tablets.iter().nth(splice.tablet).ok_or_else(missing)?;
        let files = tablet.chains.get(splice.group).map(|chain| &chain.files[..]);
        let mut files = files.unwrap_or(&[]).iter();
        let skipped = |name: &FileName| files.position(|file| file.name == *name);
        let at = splice.remove.first().map(skipped);
        let at = at.map(|at| at.ok_or_else(missing)).transpose()?.unwrap_or(0);
        let all = tablet.chains.get(splice.group).ok_or_else(missing)?.files.iter();
        let removed: Vec<&Reference> = all.skip(at).take(splice.remove.len()).collect();
        if !removed.iter().map(|file| file.name).eq(splice.remove.iter().copied()) {
            return Err(missing());
        }
        let splice = Splice {
            table: splice.table,
            tablet: tablet.id,
            load: tablet.load,
            start: tablet.rows.start.clone(),
            group: splice.group,
            remove: removed.into_iter().map(Reference::key).collect(),
            add: splice.add.clone(),
            flushed: splice.flushed,
        };
        self.splice(&splice)
    }
}

pub(super) fn unknown(table: TableId) -> Error {
    Error::UnknownTable(format!("number {}", table.0))
}

/// Returns the error for an edit that does not fit the current tablets.
pub(super) fn refused(table: TableId, what: &'static str) -> Error {
    Error::EditRefused { table: table.0, what }
}
