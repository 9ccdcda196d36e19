//! Serializes edits of a config store: each batch is applied to the newest
//! revision.

use std::sync::Arc;

use super::{ConfigEdit, ConfigStore, Configs};
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// A config store that several threads edit.
pub struct ConfigEditor {
    store: Box<dyn ConfigStore>,
    /// Held while reading the revision and editing at it.
    editing: Mutex<()>,
    /// Whether the config store has failed; readable without its lock.
    failed: AtomicBool,
}

impl ConfigEditor {
    pub fn new(store: Box<dyn ConfigStore>) -> ConfigEditor {
        ConfigEditor { store, editing: Mutex::new(()), failed: AtomicBool::new(false) }
    }

    /// Returns the current configs.
    pub fn read(&self) -> Result<Arc<Configs>> {
        self.store.read()
    }

    /// Applies a batch of edits durably.
    pub fn edit(&self, edits: &[ConfigEdit]) -> Result<Arc<Configs>> {
        let _editing = self.editing.lock();
        let revision = self.store.read()?.revision;
        let edited = self.store.edit(revision, edits);
        if self.store.failure().is_some() {
            self.failed.store(true, Ordering::Release);
        }
        edited
    }

    /// Returns the error if the config store accepts no more edits.
    pub fn failure(&self) -> Option<Error> {
        let failed = self.failed.load(Ordering::Acquire);
        if failed { self.store.failure() } else { None }
    }

    /// Whether a failed edit certainly had no effect, so that files that it
    /// would have named can be removed.
    pub fn edit_left_no_trace(&self) -> bool {
        self.store.failure().is_none()
    }

    /// Closes the config store cleanly.
    pub fn close(&self) -> Result<()> {
        self.store.close()
    }
}
