//! The config as data: counters, tables and checkpoints. A changed copy shares all
//! tablets that did not change.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Reference, TabletConfig, TabletRows, encoding};
use crate::cell::commit::TableId;
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::txn::Txn;

/// The complete config at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configs {
    pub revision: u64,
    /// Globally unique id of the store.
    pub store_id: u64,
    /// The number of the last opening of the store for writing.
    pub incarnation: u64,
    /// The last generation of txns taken.
    pub generation: u64,
    /// The last table id assigned.
    pub last_table: u32,
    /// The last number of a tablet id assigned.
    pub last_tablet: u32,
    /// The first log segment that may still be needed.
    pub log_head: u64,
    /// In a store with an external log: the files hold exactly the commits up
    /// to this index of that log.
    pub flushed_index: Option<u64>,
    pub tables: BTreeMap<TableId, Arc<TableConfig>>,
    /// The last checkpoint id assigned.
    pub last_checkpoint: u64,
    pub checkpoints: BTreeMap<u64, Arc<Checkpoint>>,
}

impl Configs {
    pub fn table_named(&self, name: &str) -> Option<&Arc<TableConfig>> {
        self.tables.values().find(|table| table.name == name)
    }

    /// Returns every file in any chain.
    pub fn files(&self) -> impl Iterator<Item = &Reference> {
        self.tables.values().flat_map(|table| table.files())
    }

    /// Returns every file in any checkpoint.
    pub fn pinned_files(&self) -> impl Iterator<Item = &Reference> {
        self.checkpoints.values().flat_map(|checkpoint| checkpoint.files())
    }
}

/// Tables at one txn. Their files are kept until the checkpoint is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub id: u64,
    /// The files hold exactly the commits up to this txn.
    pub txn: Txn,
    /// At or above every incarnation and generation of the store when the checkpoint
    /// was taken.
    pub epoch: u64,
    pub tables: Vec<Arc<TableConfig>>,
}

impl Checkpoint {
    /// Returns every file of the checkpoint.
    pub fn files(&self) -> impl Iterator<Item = &Reference> {
        self.tables.iter().flat_map(|table| table.files())
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
    pub state: TableState,
    /// For each group of the schema: commits up to this txn are in files, in all
    /// tablets.
    pub flushed: Vec<Txn>,
    pub tablets: TabletRows,
}

/// Whether a table is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableState {
    #[default]
    Active,
    /// Keeps the files of another table; never opened.
    Backup,
    /// Dropped, but its files are kept for a while.
    Deleted,
}

impl TableConfig {
    /// Returns every reference in the table's chains.
    pub fn files(&self) -> impl Iterator<Item = &Reference> {
        self.tablets.iter().flat_map(|tablet| tablet.files())
    }

    /// Returns the txn up to which the commits to a tablet and group are in files.
    pub fn flushed_of(&self, tablet: &TabletConfig, group: usize) -> Txn {
        let of_table = self.flushed.get(group).copied().unwrap_or(Txn::ZERO);
        tablet.chains.get(group).map_or(of_table, |chain| chain.flushed.max(of_table))
    }
}
