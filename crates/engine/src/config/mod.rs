//! The config: the tables, tablets and files that make up a store.
//!
//! All changes are conditional edits in atomic batches. The store never infers
//! anything from a directory listing: a file that is not in the config does not
//! exist.

mod editor;
mod encoding;
mod manifest;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub(crate) use editor::ConfigEditor;
pub use manifest::{FILE_NAME as MANIFEST_FILE, LoadedManifest, Manifest};

use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::txn::Txn;

/// Stores the config.
pub trait ConfigStore: Send + Sync {
    /// Returns the current config.
    fn read(&self) -> Result<Arc<Configs>>;

    /// Applies all edits atomically if the config is still at revision
    /// `expected`. The edits are durable on return. A failure changes nothing,
    /// unless it stops the config store: then the outcome is unknown until the
    /// next open.
    fn edit(&self, expected: u64, edits: &[ConfigEdit]) -> Result<Arc<Configs>>;

    /// Closes the config store; no more edits follow.
    fn close(&self) -> Result<()>;

    /// Returns the error if a failure has stopped the config store.
    fn failure(&self) -> Option<Error>;
}

/// The name of a fragment file: the incarnation that created it and a number.
/// Names are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    pub epoch: u64,
    pub number: u64,
}

impl FileName {
    /// Parses a name written by `Display`.
    pub fn parse(name: &str) -> Option<FileName> {
        let (epoch, number) = name.strip_suffix(".frag")?.split_once('-')?;
        let parsed = FileName { epoch: epoch.parse().ok()?, number: number.parse().ok()? };
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08}-{:08}.frag", self.epoch, self.number)
    }
}

/// The complete config at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configs {
    pub revision: u64,
    /// Globally unique id of the store.
    pub store_id: u64,
    /// The last epoch taken, by an incarnation or a generation.
    pub epoch: u64,
    /// The last table id assigned.
    pub last_table: u32,
    /// The first log segment that may still be needed.
    pub log_head: u64,
    /// In a store with an external log: the files hold exactly the commits up
    /// to this index of that log.
    pub flushed_index: Option<u64>,
    pub tables: BTreeMap<TableId, TableConfig>,
    /// The last checkpoint id assigned.
    pub last_checkpoint: u64,
    pub checkpoints: BTreeMap<u64, Checkpoint>,
}

/// Tables at one txn. Their files are kept until the checkpoint is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub id: u64,
    /// The files hold exactly the commits up to this txn.
    pub txn: Txn,
    /// The incarnation of the store in which the checkpoint was taken.
    pub epoch: u64,
    pub tables: Vec<TableConfig>,
}

impl Checkpoint {
    /// Returns every file of the checkpoint.
    pub fn files(&self) -> impl Iterator<Item = &FileConfig> {
        self.tables.iter().flat_map(TableConfig::files)
    }

    /// Encodes the checkpoint, to be stored or sent elsewhere.
    pub fn encode(&self) -> Vec<u8> {
        encoding::encode_checkpoint(self)
    }

    /// Decodes the output of `encode`.
    pub fn decode(bytes: &[u8]) -> Result<Checkpoint> {
        encoding::decode_checkpoint(bytes)
            .map_err(|what| Error::InvalidPackedFormat { at: 0, what })
    }
}

impl TableConfig {
    /// Returns every file in the table's chains.
    pub fn files(&self) -> impl Iterator<Item = &FileConfig> {
        let chains = self.tablets.iter().flat_map(|tablet| &tablet.chains);
        chains.flat_map(|chain| &chain.files)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableConfig {
    pub id: TableId,
    pub name: String,
    pub schema: Arc<Schema>,
    /// In row order, without gaps.
    pub tablets: Vec<TabletConfig>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TabletConfig {
    pub rows: RowRange,
    /// One chain per group of the schema.
    pub chains: Vec<ChainConfig>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ChainConfig {
    /// Commits up to this txn are in the files; replay skips them.
    pub flushed_through: Txn,
    /// Ordered by run, oldest first; within a run in row order.
    pub files: Vec<FileConfig>,
}

impl ChainConfig {
    /// Returns the runs: groups of files without common rows.
    pub fn runs(&self) -> impl Iterator<Item = &[FileConfig]> {
        self.files.chunk_by(|_, next| next.joins)
    }

    /// Whether each run is in row order and has no row in two files.
    fn is_sound(&self) -> bool {
        let ascends = |pair: &[FileConfig]| {
            !pair[1].joins
                || pair[0].rows.end.as_ref().is_some_and(|end| *end <= pair[1].rows.start)
        };
        self.files.iter().all(|file| !file.rows.is_empty()) && self.files.windows(2).all(ascends)
    }
}

/// A fragment file as part of a chain, with enough information to tell which
/// rows are lost if the file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileConfig {
    pub name: FileName,
    pub bytes: u64,
    pub cells: u64,
    /// The live rows of the file. Others in it were rewritten into other files
    /// or belong to another tablet.
    pub rows: RowRange,
    /// The oldest and the newest commit in the file.
    pub txn_min: Txn,
    pub txn_max: Txn,
    /// Whether the file belongs to the same run as the previous one.
    pub joins: bool,
}

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
    fn edited(&self, expected: u64, edits: &[ConfigEdit]) -> Result<Configs> {
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

    pub fn table_named(&self, name: &str) -> Option<&TableConfig> {
        self.tables.values().find(|table| table.name == name)
    }

    /// Returns every file in any chain.
    pub fn files(&self) -> impl Iterator<Item = &FileConfig> {
        self.tables.values().flat_map(TableConfig::files)
    }

    /// Returns every file in any checkpoint.
    pub fn pinned_files(&self) -> impl Iterator<Item = &FileConfig> {
        self.checkpoints.values().flat_map(Checkpoint::files)
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
        let missing = || Error::UnknownTable(format!("{} with that chain", splice.table.0));
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
        if !chain.is_sound() {
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
