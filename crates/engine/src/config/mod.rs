//! The config: the tables, tablets and files that make up a store.
//!
//! `configs` describes it, `edit` changes it, `manifest` stores it in a file, in
//! the `encoding` of `messages`. All changes are conditional edits in atomic
//! batches. The store never infers anything from a directory listing: a file
//! that is not in the config does not exist.

mod configs;
mod edit;
mod editor;
mod encoding;
mod manifest;
mod messages;
mod store;

pub use configs::{
    ChainConfig, Checkpoint, Configs, FileConfig, FileName, TableConfig, TabletConfig,
};
pub use edit::{ConfigEdit, Splice};
pub(crate) use editor::ConfigEditor;
pub use manifest::{FILE_NAME as MANIFEST_FILE, LoadedManifest, Manifest};
pub use store::ConfigStore;
