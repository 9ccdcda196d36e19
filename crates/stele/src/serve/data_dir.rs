//! The data directory, which may be temporary, and the store opened in it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use stele_engine::world::World;
use stele_engine::{Options, Store};
use tempfile::TempDir;

use super::disk::ServerDisk;
use super::object_store::ObjectStore;
use super::settings::{Data, EffectiveSettings};
use super::shares::Shares;
use super::timeouts::timeouts;
use crate::private;

/// A group of a table is flushed when it reaches this many eighths of the memory for
/// cells: the next fragment can fill while one is written, without stalling writers, and
/// fragments are large enough that chains stay short.
const FRAGMENT_EIGHTHS: u64 = 3;
const FRAGMENT_BYTES_MAX: u64 = 64 << 20;
const LOG_SEGMENT_BYTES_MIN: u64 = 4 << 20;
const LOG_QUEUE_BYTES_MAX: u64 = 16 << 20;

pub struct DataDir {
    pub path: PathBuf,
    /// Removed on every kind of exit.
    temporary: Option<TempDir>,
}

impl DataDir {
    pub fn prepare(data: &Data) -> anyhow::Result<DataDir> {
        match data {
            Data::Dir(dir) => {
                let dir = std::path::absolute(dir)
                    .with_context(|| format!("--data {}", dir.display()))?;
                private::narrow_data_dir(&dir)?;
                Ok(DataDir { path: dir, temporary: None })
            }
            Data::Ephemeral => {
                let temporary = tempfile::Builder::new()
                    .prefix("stele-")
                    .tempdir()
                    .context("creating a temporary directory")?;
                Ok(DataDir { path: temporary.path().to_path_buf(), temporary: Some(temporary) })
            }
        }
    }

    pub fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }

    pub fn open_store(
        &self,
        settings: &EffectiveSettings,
        objects: Option<&ObjectStore>,
    ) -> anyhow::Result<Store> {
        let mut options = engine_options(settings);
        options.objects.store = objects.map(ObjectStore::fragments);
        options.log.sync = !self.is_temporary();
        let world = World { files: Arc::new(ServerDisk), ..World::real() };
        Store::open(&self.path, options, world)
            .with_context(|| format!("opening the store in {}", self.path.display()))
    }

    /// Removes the directory if it is temporary.
    pub fn remove_if_temporary(self) -> anyhow::Result<()> {
        match self.temporary {
            Some(temporary) => {
                temporary.close().with_context(|| format!("removing {}", self.path.display()))
            }
            None => Ok(()),
        }
    }
}

/// Returns the engine's options under these settings.
fn engine_options(settings: &EffectiveSettings) -> Options {
    let Shares { cells, cache, .. } = Shares::of(settings);
    let mut options = Options::default();
    options.memory.budget_bytes = usize::try_from(cells).unwrap_or(usize::MAX);
    options.memory.cache_bytes = cache;
    options.memory.log_queue_bytes_max = LOG_QUEUE_BYTES_MAX.min(cells);
    let fragment = (cells / 8 * FRAGMENT_EIGHTHS).min(FRAGMENT_BYTES_MAX);
    options.flush.fragment_bytes = usize::try_from(fragment).unwrap_or(usize::MAX);
    // Enough segments that the log can be released in small steps.
    let segment = (cells / 8).clamp(LOG_SEGMENT_BYTES_MIN, options.log.segment_bytes);
    options.log.segment_bytes = segment;
    options.admission.wait_max = timeouts().admission;
    options
}
