//! Where a config is stored.

use std::sync::Arc;

use super::{ConfigEdit, Configs};
use crate::error::{Error, Result};

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
