//! Receives the state of another member into the directory that does not hold the
//! state, and puts it in place of the own one under running readers.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use stele_engine::config::Checkpoint;
use stele_engine::world::{File, World};
use stele_engine::{Options, Resources, Store};

use super::{Applier, current};
use crate::consensus::{Position, SnapshotFile, Staging};
use crate::error::{Error, Result};

/// Where the state is, and how it is opened.
#[derive(Clone)]
pub struct Home {
    /// The member's directory.
    pub dir: PathBuf,
    pub engine: Options,
    pub resources: Resources,
    pub world: World,
    /// The highest feature level that this member speaks.
    pub level_spoken: u32,
}

/// A state that is being received.
pub struct StagedState {
    applier: Arc<Applier>,
    dir: PathBuf,
    checkpoint: Checkpoint,
    files: Vec<SnapshotFile>,
    /// The file that is being written, and its length.
    open: Option<(usize, Arc<dyn File>, u64)>,
}

impl StagedState {
    /// Prepares an empty directory.
    pub fn begin(
        applier: Arc<Applier>,
        description: &Bytes,
        files: Vec<SnapshotFile>,
    ) -> Result<StagedState> {
        let checkpoint = Checkpoint::decode(description)?;
        let names: BTreeSet<String> =
            checkpoint.files().map(|file| file.name.to_string()).collect();
        let sent: BTreeSet<String> = files.iter().map(|file| file.name.clone()).collect();
        if sent != names || sent.len() != files.len() {
            return Err(Error::Internal("the files of a snapshot are not those it names".into()));
        }
        if !applier.tidy()? {
            return Err(Error::Internal(
                "the state before the last snapshot is still being read".into(),
            ));
        }
        let home = applier.home();
        let world_files = &*home.world.files;
        let dir = current::other_dir(world_files, &home.dir)?;
        current::clear(world_files, &dir)?;
        let fragments = Store::fragments_dir(&dir);
        let created = world_files.create_dir_all(&fragments);
        created.map_err(|error| stele_engine::Error::io("creating", &fragments, error))?;
        let synced = world_files.sync_dir(&home.dir).and_then(|()| world_files.sync_dir(&dir));
        synced.map_err(|error| stele_engine::Error::io("syncing", &dir, error))?;
        Ok(StagedState { dir, checkpoint, files, open: None, applier })
    }

    fn open(&mut self, file: usize) -> Result<()> {
        self.sync()?;
        let path = Store::fragments_dir(&self.dir).join(&self.files[file].name);
        let created = self.applier.home().world.files.create(&path);
        let created = created.map_err(|error| stele_engine::Error::io("creating", &path, error))?;
        self.open = Some((file, created, 0));
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        let Some((_, file, _)) = self.open.take() else { return Ok(()) };
        let synced = file.sync_data();
        Ok(synced.map_err(|error| stele_engine::Error::io("syncing", &self.dir, error))?)
    }
}

impl Staging for StagedState {
    fn write(&mut self, file: usize, bytes: &[u8]) -> Result<()> {
        if self.open.as_ref().is_none_or(|(open, ..)| *open != file) {
            self.open(file)?;
        }
        let Some((_, open, length)) = &mut self.open else {
            return Err(Error::Internal("a file of a snapshot is not open".into()));
        };
        let written = open.write_all_at(bytes, *length);
        written.map_err(|error| stele_engine::Error::io("writing", &self.dir, error))?;
        *length += bytes.len() as u64;
        Ok(())
    }

    fn install(mut self: Box<Self>, applied: Position) -> Result<()> {
        let empty: Vec<usize> =
            (0..self.files.len()).filter(|file| self.files[*file].bytes == 0).collect();
        for file in empty {
            self.open(file)?;
        }
        self.sync()?;
        let Home { engine, resources, world, .. } = self.applier.home().clone();
        let checkpoint = (&self.checkpoint, applied.index);
        let store = Store::open_external_from(&self.dir, checkpoint, engine, world, resources)?;
        self.applier.install(store, applied)
    }
}
