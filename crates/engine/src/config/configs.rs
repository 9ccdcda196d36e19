//! The config as data: counters, tables and checkpoints. A changed copy shares all
//! tablets that did not change.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ChainConfig, Reference, TabletConfig, TabletConfigs, encoding};
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
    /// Returns the table in use with this name. Backups and deleted tables may have the
    /// same name.
    pub fn table_named(&self, name: &str) -> Option<&Arc<TableConfig>> {
        self.tables.values().find(|table| table.name == name && table.is_active())
    }

    /// Returns the backup with this name.
    pub fn backup_named(&self, name: &str) -> Option<&Arc<TableConfig>> {
        let is_backup = |table: &&Arc<TableConfig>| matches!(table.state, TableState::Backup(_));
        self.tables.values().filter(is_backup).find(|table| table.name == name)
    }

    /// Returns every file in any chain, of backups and deleted tables as well.
    pub fn files(&self) -> impl Iterator<Item = &Reference> {
        self.tables.values().flat_map(|table| table.files())
    }

    /// Returns every file in any checkpoint.
    pub fn pinned_files(&self) -> impl Iterator<Item = &Reference> {
        self.checkpoints.values().flat_map(|checkpoint| checkpoint.files())
    }

    /// Returns every reference that is not part of an open table: those of backups,
    /// deleted tables and checkpoints.
    pub fn kept_files(&self) -> impl Iterator<Item = &Reference> {
        let kept = self.tables.values().filter(|table| !table.is_active());
        kept.flat_map(|table| table.files()).chain(self.pinned_files())
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
    pub tablets: TabletConfigs,
}

/// Whether a table is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TableState {
    #[default]
    Active,
    /// Keeps the files of another table; never opened. It has a name of its own.
    Backup(BackupOrigin),
    /// Dropped, but its files are kept for a while. Never opened.
    Deleted {
        /// When it was deleted, in microseconds since 1970.
        since: i64,
    },
}

/// What a backup was made of, and when. Times are in microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupOrigin {
    pub table: TableId,
    /// The name of that table.
    pub name: String,
    /// The files hold exactly the commits up to this txn.
    pub txn: Txn,
    pub created: i64,
    /// When the backup is removed; `None` for never.
    pub expires: Option<i64>,
}

impl TableConfig {
    /// Whether the table is in use, so that its tablets can change.
    pub fn is_active(&self) -> bool {
        self.state == TableState::Active
    }

    /// Adds an empty chain to each tablet for each group that the schema has gained.
    pub(super) fn add_groups(&mut self) {
        let groups = self.schema.groups().len();
        if self.flushed.len() == groups {
            return;
        }
        self.flushed.resize(groups, Txn::ZERO);
        let tablets = self.tablets.iter().map(|tablet| {
            let mut tablet = (**tablet).clone();
            tablet.chains.resize_with(groups, ChainConfig::default);
            tablet.rev = tablet.rev.saturating_add(1);
            Arc::new(tablet)
        });
        self.tablets = TabletConfigs::new(tablets.collect());
    }

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
