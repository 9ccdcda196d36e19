//! Serializes edits of a config store: each batch is applied to the newest
//! revision. Nothing that commits or readers need is locked meanwhile.

use std::sync::{Arc, OnceLock};

use super::{ConfigEdit, ConfigStore, Configs};
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, assert_io_allowed};

/// A config store that several threads edit.
pub struct ConfigEditor {
    store: Box<dyn ConfigStore>,
    /// Held while reading the revision and editing at it.
    editing: Mutex<()>,
    /// Whether the config store has failed; readable without its lock.
    failed: AtomicBool,
    /// Set when a row was not as the store left it.
    broken: OnceLock<Error>,
    /// Called then.
    on_failure: OnceLock<OnFailure>,
}

type OnFailure = Box<dyn Fn(&Error) + Send + Sync>;

impl ConfigEditor {
    pub fn new(store: Box<dyn ConfigStore>) -> ConfigEditor {
        ConfigEditor {
            store,
            editing: Mutex::new(()),
            failed: AtomicBool::new(false),
            broken: OnceLock::new(),
            on_failure: OnceLock::new(),
        }
    }

    /// Returns the current configs.
    pub fn read(&self) -> Result<Arc<Configs>> {
        self.store.read()
    }

    /// Applies a batch of edits durably.
    pub fn edit(&self, edits: &[ConfigEdit]) -> Result<Arc<Configs>> {
        self.edit_with(|_| edits.to_vec())
    }

    /// Applies the edits that `decide` chooses for the current configs, durably. Returns
    /// the configs that they lead to.
    pub fn edit_with(
        &self,
        decide: impl FnOnce(&Configs) -> Vec<ConfigEdit>,
    ) -> Result<Arc<Configs>> {
        assert_io_allowed();
        let _editing = self.editing.lock();
        if let Some(error) = self.broken.get() {
            return Err(error.clone());
        }
        let configs = self.store.read()?;
        let edits = decide(&configs);
        if edits.is_empty() {
            return Ok(configs);
        }
        let edited = self.store.edit(configs.revision, &edits);
        if self.store.failure().is_some() {
            self.failed.store(true, Ordering::Release);
        }
        edited
    }

    /// Stops the store: its config is not what it should be, so nothing may be derived
    /// from it. Returns the error that later edits fail with.
    pub fn fail(&self, error: Error) -> Error {
        let stopped = self.broken.get_or_init(|| Error::Stopped(Arc::new(error)));
        self.failed.store(true, Ordering::Release);
        if let Some(on_failure) = self.on_failure.get() {
            on_failure(stopped);
        }
        stopped.clone()
    }

    /// Sets what is called when the store has stopped. Once.
    pub fn set_on_failure(&self, call: impl Fn(&Error) + Send + Sync + 'static) {
        // The first one stays.
        let _ = self.on_failure.set(Box::new(call));
    }

    /// Returns the error if the config store accepts no more edits.
    pub fn failure(&self) -> Option<Error> {
        let failed = self.failed.load(Ordering::Acquire);
        if failed { self.broken.get().cloned().or_else(|| self.store.failure()) } else { None }
    }

    /// Whether a failed edit certainly had no effect, so that files that it
    /// would have named can be removed.
    pub fn edit_left_no_trace(&self) -> bool {
        self.broken.get().is_none() && self.store.failure().is_none()
    }

    /// Closes the config store cleanly.
    pub fn close(&self) -> Result<()> {
        self.store.close()
    }
}
