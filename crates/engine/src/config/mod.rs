//! Configuration: which tables, tablets and files make up a store.
//!
//! All of it changes through conditional edits, each one atomic batch. The
//! store never guesses from a directory listing: what no config names does not
//! exist.

mod encoding;
mod manifest;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use manifest::{FILE_NAME as MANIFEST_FILE, LoadedManifest, Manifest};

use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::txn::Txn;

/// Keeps the configuration.
pub trait ConfigStore: Send + Sync {
    /// What the store is made of now.
    fn read(&self) -> Result<Arc<Configs>>;

    /// Applies all edits, or none, if the configuration is still at
    /// `expected`. Durable when it returns. After a failure nothing has
    /// changed, unless the store has stopped: then it is settled at the next
    /// open.
    fn edit(&self, expected: u64, edits: &[ConfigEdit]) -> Result<Arc<Configs>>;

    /// No more edits will come from here.
    fn close(&self) -> Result<()>;

    /// Why no more edits are taken, if one has failed in such a way.
    fn failure(&self) -> Option<Error>;
}

/// The name of a fragment file: the incarnation that minted it and a number.
/// Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    pub epoch: u64,
    pub number: u64,
}

impl FileName {
    /// Reads a name that `Display` wrote.
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

/// Everything, at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configs {
    pub revision: u64,
    /// Told apart from every other store, for ever.
    pub store_id: u64,
    /// The last incarnation or generation taken.
    pub epoch: u64,
    /// The last table id given out.
    pub last_table: u32,
    /// The first log segment that may still be needed.
    pub log_head: u64,
    /// In a store whose log somebody else keeps: the index of that log up to
    /// which everything is in files, and nothing after it.
    pub flushed_index: Option<u64>,
    pub tables: BTreeMap<TableId, TableConfig>,
    /// The last checkpoint's number.
    pub last_checkpoint: u64,
    pub checkpoints: BTreeMap<u64, Checkpoint>,
}

/// Tables as they were at one txn. Their files stay until it is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub id: u64,
    /// Everything up to here is in the files, and nothing after it.
    pub txn: Txn,
    /// The incarnation of the store that it was taken in.
    pub epoch: u64,
    pub tables: Vec<TableConfig>,
}

impl Checkpoint {
    /// Every file that it needs.
    pub fn files(&self) -> impl Iterator<Item = &FileConfig> {
        self.tables.iter().flat_map(TableConfig::files)
    }

    /// As bytes, to be kept or sent elsewhere.
    pub fn encode(&self) -> Vec<u8> {
        encoding::encode_checkpoint(self)
    }

    /// Reads what `encode` wrote.
    pub fn decode(bytes: &[u8]) -> Result<Checkpoint> {
        encoding::decode_checkpoint(bytes)
            .map_err(|what| Error::InvalidPackedFormat { at: 0, what })
    }
}

impl TableConfig {
    /// Every file that any of its chains names.
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
    /// In row order, without holes.
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
    /// Commits up to here are in the files; replay skips them.
    pub flushed_through: Txn,
    /// Run by run, oldest first; in each run in row order.
    pub files: Vec<FileConfig>,
}

impl ChainConfig {
    /// Files that have no row in common are one run.
    pub fn runs(&self) -> impl Iterator<Item = &[FileConfig]> {
        self.files.chunk_by(|_, next| next.joins)
    }

    /// Whether each run is in row order, without a row in two files.
    fn is_sound(&self) -> bool {
        let ascends = |pair: &[FileConfig]| {
            !pair[1].joins
                || pair[0].rows.end.as_ref().is_some_and(|end| *end <= pair[1].rows.start)
        };
        self.files.iter().all(|file| !file.rows.is_empty()) && self.files.windows(2).all(ascends)
    }
}

/// A fragment file as a chain refers to it, enough to say which rows are lost
/// when the file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileConfig {
    pub name: FileName,
    pub bytes: u64,
    pub cells: u64,
    /// The rows that count here. The file may have others, which were
    /// rewritten into other files or belong to another tablet.
    pub rows: RowRange,
    /// The oldest and the newest commit that went into it.
    pub txn_min: Txn,
    pub txn_max: Txn,
    /// It belongs to the same run as the file before it.
    pub joins: bool,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigEdit {
    /// Takes the next epoch: `Configs::epoch` after the edit.
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
    /// Replaces consecutive files of a chain; with nothing to remove, appends.
    Splice(Splice),
    /// Keeps the files of some tables as they are now, for a checkpoint.
    Pin {
        tables: Vec<TableId>,
        txn: Txn,
    },
    /// Releases a checkpoint.
    Unpin {
        checkpoint: u64,
    },
    /// Log segments below are needed no more.
    SetLogHead {
        segment: u64,
    },
    /// Everything up to this index of somebody else's log is in files.
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
    /// Carries out one edit.
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

    /// The configuration after all edits, one revision on.
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

    /// Every file that any chain names.
    pub fn files(&self) -> impl Iterator<Item = &FileConfig> {
        self.tables.values().flat_map(TableConfig::files)
    }

    /// Every file that any checkpoint names.
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
