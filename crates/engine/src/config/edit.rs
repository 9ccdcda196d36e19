//! Edits of the config, and their effects.

use std::sync::Arc;

use super::{ChainConfig, Checkpoint, Configs, FileConfig, FileName, TableConfig, TabletConfig};
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::txn::Txn;

/// A single change of the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigEdit {
    /// Takes the next epoch, which is `Configs::epoch` after the edit.
    TakeEpoch,
    CreateTable {
        name: String,
        schema: Arc<Schema>,
    },
    DropTable {
        table: TableId,
    },
    SetSchema {
        table: TableId,
        schema: Arc<Schema>,
    },
    /// Replaces consecutive files of a chain; appends if there is nothing to
    /// remove.
    Splice(Splice),
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

/// The replacement of consecutive files of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    pub table: TableId,
    pub tablet: usize,
    pub group: usize,
    pub remove: Vec<FileName>,
    pub add: Vec<FileConfig>,
    pub flushed_through: Option<Txn>,
}

impl Configs {
    /// Applies one edit.
    fn apply(&mut self, edit: &ConfigEdit) -> Result<()> {
        match edit {
            ConfigEdit::TakeEpoch => self.epoch += 1,
            ConfigEdit::CreateTable { name, schema } => self.create_table(name, schema)?,
            ConfigEdit::DropTable { table } => {
                self.tables.remove(table).ok_or_else(|| unknown(*table))?;
            }
            ConfigEdit::SetSchema { table, schema } => {
                let config = self.table_mut(*table)?;
                config.schema.check_successor(schema)?;
                config.schema = schema.clone();
            }
            ConfigEdit::Splice(splice) => self.splice(splice)?,
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
        let tables = tables
            .iter()
            .map(|id| self.tables.get(id).cloned().ok_or_else(|| unknown(*id)))
            .collect::<Result<_>>()?;
        self.last_checkpoint += 1;
        let id = self.last_checkpoint;
        self.checkpoints.insert(id, Checkpoint { id, txn, epoch: self.epoch, tables });
        Ok(())
    }

    fn create_table(&mut self, name: &str, schema: &Arc<Schema>) -> Result<()> {
        if self.table_named(name).is_some() {
            return Err(Error::TableExists(name.to_string()));
        }
        self.last_table += 1;
        let id = TableId(self.last_table);
        let chains = vec![ChainConfig::default(); schema.groups().len()];
        let tablets = vec![TabletConfig { rows: RowRange::all(), chains }];
        let table = TableConfig { id, name: name.to_string(), schema: schema.clone(), tablets };
        self.tables.insert(id, table);
        Ok(())
    }

    fn table_mut(&mut self, table: TableId) -> Result<&mut TableConfig> {
        self.tables.get_mut(&table).ok_or_else(|| unknown(table))
    }

    fn splice(&mut self, splice: &Splice) -> Result<()> {
        let missing = || Error::UnknownTable(format!("number {} with these files", splice.table.0));
        let table = self.table_mut(splice.table)?;
        let tablet = table.tablets.get_mut(splice.tablet).ok_or_else(missing)?;
        let chain = tablet.chains.get_mut(splice.group).ok_or_else(missing)?;
        let at = match splice.remove.first() {
            None => chain.files.len(),
            Some(first) => {
                chain.files.iter().position(|file| file.name == *first).ok_or_else(missing)?
            }
        };
        let gone = at..at + splice.remove.len();
        let named = chain.files.get(gone.clone()).ok_or_else(missing)?;
        if !named.iter().map(|file| file.name).eq(splice.remove.iter().copied()) {
            return Err(missing());
        }
        chain.files.splice(gone, splice.add.iter().cloned());
        if !chain.is_valid() {
            return Err(missing());
        }
        if let Some(txn) = splice.flushed_through {
            chain.flushed_through = chain.flushed_through.max(txn);
        }
        Ok(())
    }
}

fn unknown(table: TableId) -> Error {
    Error::UnknownTable(format!("number {}", table.0))
}
