//! The state as of one entry, for members that the log no longer reaches: an
//! engine checkpoint, whose files do not change while they are sent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use stele_engine::Store;
use stele_engine::world::Files;

use crate::consensus::{Checkpoint, SnapshotFile};
use crate::error::Result;

/// A checkpoint of the state, released when it is dropped.
pub struct StateCheckpoint {
    store: Arc<Store>,
    id: u64,
    index: u64,
    description: Bytes,
    files: Vec<SnapshotFile>,
    paths: Vec<PathBuf>,
    world_files: Arc<dyn Files>,
}

impl StateCheckpoint {
    /// Flushes the store and keeps its files.
    pub fn create(store: Arc<Store>, world_files: Arc<dyn Files>) -> Result<StateCheckpoint> {
        let (checkpoint, index) = store.checkpoint_at_index()?;
        let (id, description) = (checkpoint.id, checkpoint.encode().into());
        // Two tablets may share a file.
        let names = checkpoint.files().map(|file| file.name.to_string());
        let paths: BTreeMap<String, PathBuf> =
            names.zip(store.checkpoint_paths(&checkpoint)).collect();
        let mut created = StateCheckpoint {
            store,
            id,
            index,
            description,
            files: Vec::new(),
            paths: Vec::new(),
            world_files,
        };
        for (name, path) in paths {
            let bytes = created.world_files.size(&path);
            let bytes =
                bytes.map_err(|error| stele_engine::Error::io("measuring", &path, error))?;
            created.files.push(SnapshotFile { name, bytes });
            created.paths.push(path);
        }
        Ok(created)
    }
}

impl Checkpoint for StateCheckpoint {
    fn index(&self) -> u64 {
        self.index
    }

    fn description(&self) -> Bytes {
        self.description.clone()
    }

    fn files(&self) -> &[SnapshotFile] {
        &self.files
    }

    fn read(&self, file: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let path = &self.paths[file];
        let read = self.world_files.open_read(path);
        let read = read.and_then(|file| file.read_exact_at(buffer, offset));
        Ok(read.map_err(|error| stele_engine::Error::io("reading", path, error))?)
    }
}

impl Drop for StateCheckpoint {
    fn drop(&mut self) {
        if let Err(error) = self.store.release_checkpoint(self.id) {
            tracing::warn!(%error, "a checkpoint is released at the next start");
        }
    }
}
