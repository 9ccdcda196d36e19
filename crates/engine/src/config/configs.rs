//! The config as data: tables, tablets, chains, files and checkpoints.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::encoding;
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::txn::Txn;

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

impl Configs {
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
}

/// Tables at one txn. Their files are kept until the checkpoint is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub id: u64,
    /// The files hold exactly the commits up to this txn.
    pub txn: Txn,
    /// The store's epoch when the checkpoint was taken.
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

/// A table: its schema, and its tablets in row order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableConfig {
    pub id: TableId,
    pub name: String,
    pub schema: Arc<Schema>,
    /// In row order, without gaps.
    pub tablets: Vec<TabletConfig>,
}

impl TableConfig {
    /// Returns every file in the table's chains.
    pub fn files(&self) -> impl Iterator<Item = &FileConfig> {
        let chains = self.tablets.iter().flat_map(|tablet| &tablet.chains);
        chains.flat_map(|chain| &chain.files)
    }
}

/// A tablet: a range of rows with a chain of files per group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TabletConfig {
    pub rows: RowRange,
    /// One chain per group of the schema.
    pub chains: Vec<ChainConfig>,
}

/// The files of one tablet and group.
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
    pub(super) fn is_valid(&self) -> bool {
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

/// The name of a fragment file: the incarnation that created it and a number.
/// Names are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    pub incarnation: u64,
    pub number: u64,
}

impl FileName {
    /// Parses a name written by `Display`.
    pub fn parse(name: &str) -> Option<FileName> {
        let (incarnation, number) = name.strip_suffix(".frag")?.split_once('-')?;
        let parsed =
            FileName { incarnation: incarnation.parse().ok()?, number: number.parse().ok()? };
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08}-{:08}.frag", self.incarnation, self.number)
    }
}
