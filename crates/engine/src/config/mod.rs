//! The config: the tables, tablets and files that make up a store.
//!
//! `configs` describes it, with one `tablet_config` per tablet and one `reference`
//! per use of a file. `edit` changes it, `split` divides and joins tablets,
//! `upgrade` completes what an earlier version wrote, and `manifest` stores it in a
//! file, in the `encoding` of `messages`. All changes are conditional edits in
//! atomic batches. The store never infers anything from a directory listing: a file
//! that is not in the config does not exist.

mod configs;
mod edit;
mod editor;
mod encoding;
mod manifest;
mod messages;
mod reference;
mod schema_encoding;
mod split;
mod store;
mod tablet_config;
mod upgrade;

pub use configs::{Checkpoint, Configs, TableConfig, TableState};
pub use edit::{ConfigEdit, LegacySplice, Splice};
pub(crate) use editor::ConfigEditor;
pub use manifest::{FILE_NAME as MANIFEST_FILE, LoadedManifest, Manifest};
pub use reference::{FileFacts, FileName, Reference, ReferenceKey};
pub use split::{Join, Split};
pub use store::ConfigStore;
pub use tablet_config::{ChainConfig, TabletConfig, TabletId, TabletRows};
