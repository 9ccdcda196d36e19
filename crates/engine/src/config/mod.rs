//! The config: the tables, tablets and files that make up a store.
//!
//! `configs` describes it, with one `tablet_config` per tablet and one `reference`
//! per use of a file. `edit` changes it, `split` divides and joins tablets, `regroup` moves
//! families between groups, `copy` makes backups of tables and tables of backups,
//! `upgrade` completes what an earlier version wrote, and `manifest` stores it in a
//! file, in the `encoding` of `messages`. `volatile` keeps it in memory, for a server of a cluster. `row_set` applies changes to rows that are stored elsewhere. All changes are conditional edits in
//! atomic batches. `rows` is the contract for changing the rows of tablets, wherever
//! they are stored: here in the manifest (`manifest_rows`). The `settler` finds out what
//! became of each change; `sim_rows` loses answers, for tests. The store never infers
//! anything from a directory listing: a file that is not in the config does not exist.

mod configs;
mod copy;
mod edit;
mod editor;
mod encoding;
mod manifest;
mod manifest_rows;
mod messages;
mod reference;
mod regroup;
mod regroup_encoding;
mod row_set;
mod rows;
#[cfg(test)]
mod rows_contract;
mod schema_encoding;
mod settler;
mod sim_rows;
mod split;
mod store;
mod tablet_config;
mod upgrade;
mod volatile;

pub use configs::{BackupOrigin, Checkpoint, Configs, TableConfig, TableState};
pub use edit::{ConfigEdit, LegacySplice, Splice};
pub(crate) use editor::ConfigEditor;
pub use manifest::{FILE_NAME as MANIFEST_FILE, LoadedManifest, Manifest};
pub use manifest_rows::ManifestRows;
pub use reference::{FileFacts, FileName, Reference, ReferenceKey};
pub use regroup::{FileContents, Regroup, RegroupedTablet, regroup};
pub use row_set::RowSet;
pub(crate) use row_set::filled;
pub use rows::{
    Answer, Done, Expected, Found, Mutation, OpId, Outcome, Rider, RowEdit, RowKey, Submission,
    TabletRow, TabletRows,
};
pub(crate) use settler::{RowChange, Settler};
pub use sim_rows::{Fate, Probe, RowFaultCounts, RowFaults, SimRows};
pub use split::{Join, Split};
pub use store::ConfigStore;
pub use tablet_config::{ChainConfig, TabletConfig, TabletConfigs, TabletId};
pub use volatile::TakeGeneration;
pub(crate) use volatile::VolatileConfig;
