//! Checkpoints: the state of tables at one txn, kept until released.
//!
//! A checkpoint costs a flush but no copy. Its files stay in place, by name,
//! until it is released, across restarts and regardless of later changes to the
//! tables. A new store can be created from them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::engine::Engine;
use super::handle::Store;
use crate::cell::commit::TableId;
use crate::config::{
    Checkpoint, ConfigEdit, Configs, FileName, Manifest, Reference, TableConfig, TabletConfig,
};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::resources::Resources;
use crate::tablet::{FRAGMENTS_DIR, Publishing, Table};
use crate::txn::Txn;
use crate::workers::claims::{Claim, Work};
use crate::workers::flush::{FlushTarget, flush_sealed};
use crate::world::{
    File, Files, FragmentStore, RemoteFile, WaitScope, World, remote_path, wait_for,
};

/// Bytes per copy step.
const COPY_BYTES: usize = 1 << 20;

impl Store {
    /// Creates a checkpoint of the given tables, all at the same txn.
    pub fn checkpoint(&self, tables: &[TableId]) -> Result<Checkpoint> {
        self.check_alone("create checkpoints")?;
        let tables = tables.iter().map(|&id| self.engine.tables.map.get(id));
        Ok(self.pin(tables.collect::<Result<_>>()?)?.0)
    }

    /// Creates a checkpoint of all tables of a store without its own log. Returns
    /// the index of the caller's log that it is as of.
    pub fn checkpoint_at_index(&self) -> Result<(Checkpoint, u64)> {
        if self.engine.log.external().is_none() {
            return Err(Error::HasOwnLog);
        }
        self.pin(self.engine.tables.map.all().values().cloned().collect())
    }

    /// Creates a checkpoint of some tables. Also returns the index of the external
    /// log that it is as of, if there is one.
    fn pin(&self, mut tables: Vec<Arc<Table>>) -> Result<(Checkpoint, u64)> {
        self.check_open()?;
        let engine = &self.engine;
        tables.sort_by_key(|table| table.id);
        tables.dedup_by_key(|table| table.id);
        // Exclude other flushes, so that no file has data from after the checkpoint.
        let flushes = engine.claim_flushes(&tables);
        let txn = match engine.log.external() {
            None => self.flush_sealed(&tables)?,
            Some(_) => {
                for claim in &flushes {
                    engine.flush_all(claim)?;
                }
                tables.iter().map(|table| table.flushed()).max().unwrap_or(Txn::ZERO)
            }
        };
        // Exact, because no other flush runs.
        let index = self.flushed_index();
        // Nobody replaces files or drops a table until the references are counted.
        let _turns: Vec<Publishing<'_>> = tables.iter().map(|table| table.publish()).collect();
        let _keeping = engine.tables.keeping.lock();
        let (ids, config) = (tables.iter().map(|table| table.id).collect(), &engine.tables.config);
        let configs = config.edit(&[ConfigEdit::Pin { tables: ids, txn }])?;
        let checkpoint = configs.checkpoints.get(&configs.last_checkpoint);
        let checkpoint = checkpoint.expect("it was just created");
        engine.tables.fragments.keep(checkpoint.files());
        Ok(((**checkpoint).clone(), index))
    }

    /// Flushes the tables up to one txn, and returns it. The caller has claimed all
    /// flushes of the tables.
    pub(super) fn flush_sealed(&self, tables: &[Arc<Table>]) -> Result<Txn> {
        let engine = &self.engine;
        let txn = self.seal_all(tables);
        engine.log.wait_durable(txn.raw())?;
        for table in tables {
            for target in groups_of(table) {
                flush_sealed(&engine.tables, &target, &**engine)?;
            }
        }
        Ok(txn)
    }

    /// Seals the memory of all groups at one txn, and returns it.
    fn seal_all(&self, tables: &[Arc<Table>]) -> Txn {
        let _no_writers = self.engine.sequencer.lock();
        for table in tables {
            for group in 0..table.version().memory.len() {
                table.seal(group, &self.engine.tables.resources.budget);
            }
        }
        self.engine.latest()
    }

    /// Returns all unreleased checkpoints, oldest first.
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        let configs = self.engine.tables.config.read()?;
        Ok(configs.checkpoints.values().map(|checkpoint| (**checkpoint).clone()).collect())
    }

    /// Returns the paths of a checkpoint's files.
    pub fn checkpoint_paths(&self, checkpoint: &Checkpoint) -> Vec<PathBuf> {
        checkpoint.files().map(|file| self.engine.tables.fragments.path_of(file.name)).collect()
    }

    /// Releases a checkpoint, and removes the files that only it needed.
    pub fn release_checkpoint(&self, id: u64) -> Result<()> {
        self.check_open()?;
        let tables = &self.engine.tables;
        let _keeping = tables.keeping.lock();
        let before = tables.config.read()?;
        let released = before.checkpoints.get(&id).ok_or(Error::UnknownCheckpoint(id))?;
        tables.config.edit(&[ConfigEdit::Unpin { checkpoint: id }])?;
        tables.fragments.release(released.files());
        Ok(())
    }

    /// Creates a new store in `dir` from a checkpoint and opens it. The checkpoint's files
    /// are copied to `dir`, or to the store outside it that the options name. This thread
    /// waits for them.
    pub fn open_from<'a>(
        dir: &Path,
        checkpoint: &Checkpoint,
        source: impl Into<CheckpointFiles<'a>>,
        options: Options,
        world: World,
    ) -> Result<Store> {
        let (files, source) = (&*world.files, source.into());
        let fragments = create_dir(files, dir)?;
        let _wait = WaitScope::enter();
        for file in checkpoint.files() {
            let (from, original) = source.open(files, file)?;
            match &options.objects.store {
                None => copy(files, &*original, &from, &fragments.join(file.name.to_string()))?,
                Some(store) => upload(&**store, file.name, &*original, &from)?,
            }
        }
        files.sync_dir(&fragments).map_err(|e| Error::io("syncing", &fragments, e))?;
        let configs = configs_of(checkpoint, world.random.next_u64(), None);
        Manifest::create(world.files.clone(), dir, configs)?;
        Store::open(dir, options, world)
    }

    /// Creates a store without its own log from a checkpoint as of `index`, and
    /// opens it. The checkpoint's files are already in the fragments directory
    /// ([`Store::fragments_dir`]) of `dir`, synced.
    pub fn open_external_from(
        dir: &Path,
        (checkpoint, index): (&Checkpoint, u64),
        options: Options,
        world: World,
        resources: Resources,
    ) -> Result<Store> {
        let fragments = Store::fragments_dir(dir);
        if Manifest::load(&*world.files, dir)?.is_some() {
            return Err(Error::DirectoryInUse { path: dir.to_path_buf() });
        }
        world.files.sync_dir(&fragments).map_err(|e| Error::io("syncing", &fragments, e))?;
        let configs = configs_of(checkpoint, world.random.next_u64(), Some(index));
        Manifest::create(world.files.clone(), dir, configs)?;
        Store::open_external_with(dir, options, world, resources)
    }

    /// Returns the directory of the fragments of a store.
    pub fn fragments_dir(dir: &Path) -> PathBuf {
        dir.join(FRAGMENTS_DIR)
    }
}

/// Returns the config of a new store with the tables of a checkpoint.
fn configs_of(checkpoint: &Checkpoint, store_id: u64, flushed_index: Option<u64>) -> Configs {
    let tables = checkpoint.tables.iter().map(|table| (table.id, loaded(table)));
    let tablets = checkpoint.tables.iter().flat_map(|table| table.tablets.iter());
    Configs {
        store_id,
        // At or above those of every file and txn in the checkpoint.
        incarnation: checkpoint.epoch,
        generation: checkpoint.epoch.max(checkpoint.txn.generation()),
        last_tablet: tablets.map(|tablet| tablet.id.number).max().unwrap_or(0),
        last_table: checkpoint.tables.iter().map(|table| table.id.0).max().unwrap_or(0),
        tables: tables.collect(),
        flushed_index,
        ..Configs::default()
    }
}

/// Where the files of a checkpoint are.
pub enum CheckpointFiles<'a> {
    /// In the directory of the original store, or in a copy of its fragments.
    Directory(&'a Path),
    /// In a store outside the directory.
    Store(&'a Arc<dyn FragmentStore>),
}

impl<'a, P: AsRef<Path> + ?Sized> From<&'a P> for CheckpointFiles<'a> {
    fn from(dir: &'a P) -> CheckpointFiles<'a> {
        CheckpointFiles::Directory(dir.as_ref())
    }
}

impl CheckpointFiles<'_> {
    /// Opens a file. Returns its path, too.
    fn open(&self, files: &dyn Files, file: &Reference) -> Result<(PathBuf, Arc<dyn File>)> {
        match self {
            CheckpointFiles::Directory(dir) => {
                let path = dir.join(FRAGMENTS_DIR).join(file.name.to_string());
                let opened = files.open_read(&path);
                let opened = opened.map_err(|error| Error::io("opening", &path, error))?;
                Ok((path, opened))
            }
            CheckpointFiles::Store(store) => {
                let file = RemoteFile::new(store, file.name, file.bytes);
                Ok((file.path().to_path_buf(), file))
            }
        }
    }
}

/// Creates the directories of a new store. Returns that of its fragments.
fn create_dir(files: &dyn Files, dir: &Path) -> Result<PathBuf> {
    let fragments = dir.join(FRAGMENTS_DIR);
    files.create_dir_all(&fragments).map_err(|e| Error::io("creating", &fragments, e))?;
    match Manifest::load(files, dir)? {
        Some(_) => Err(Error::DirectoryInUse { path: dir.to_path_buf() }),
        None => Ok(fragments),
    }
}

impl Engine {
    /// Claims the flushes of all groups of some tables, which are in the order of their
    /// ids.
    pub(super) fn claim_flushes(&self, tables: &[Arc<Table>]) -> Vec<Claim<'_>> {
        let works = || -> BTreeSet<Work> {
            tables.iter().flat_map(groups_of).map(|target| self.flush_work(&target)).collect()
        };
        loop {
            let before = works();
            let flushes: Vec<_> = before.iter().map(|&work| self.claims.take(work)).collect();
            // Groups change only by callers with all of these claims.
            if works() == before {
                return flushes;
            }
        }
    }
}

/// Returns the table with all tablets loaded: a new store serves all its rows.
fn loaded(table: &Arc<TableConfig>) -> Arc<TableConfig> {
    let mut table = table.clone();
    let unloaded: Vec<_> = table.tablets.iter().filter(|tablet| !tablet.loaded).cloned().collect();
    if !unloaded.is_empty() {
        let load = |tablet: Arc<TabletConfig>| {
            let load = tablet.load.saturating_add(1);
            Arc::new(TabletConfig { loaded: true, load, ..(*tablet).clone() })
        };
        Arc::make_mut(&mut table).tablets.replace(unloaded.into_iter().map(load));
    }
    table
}

/// Returns what to flush of a table: each of its groups.
pub(super) fn groups_of(table: &Arc<Table>) -> impl Iterator<Item = FlushTarget> + use<> {
    let (table, groups) = (table.clone(), table.version().memory.len());
    (0..groups).map(move |group| FlushTarget { table: table.clone(), group })
}

/// Copies a file and makes the copy durable. Replaces a copy left by an
/// interrupted attempt.
fn copy(files: &dyn Files, source: &dyn File, from: &Path, to: &Path) -> Result<()> {
    if files.exists(to).map_err(|error| Error::io("looking for", to, error))? {
        files.remove(to).map_err(|error| Error::io("removing", to, error))?;
    }
    let target = files.create(to).map_err(|error| Error::io("creating", to, error))?;
    for_each_piece(source, from, &mut |at, piece| {
        target.write_all_at(piece, at).map_err(|error| Error::io("writing", to, error))
    })?;
    target.sync_data().map_err(|error| Error::io("syncing", to, error))
}

/// Copies a file to a store outside the directory. Succeeds if an interrupted attempt has
/// done so.
fn upload(store: &dyn FragmentStore, name: FileName, source: &dyn File, from: &Path) -> Result<()> {
    let to = remote_path(store, name);
    let writing = |error| Error::io("writing", &to, error);
    let mut sink = store.create(name);
    for_each_piece(source, from, &mut |_, piece| sink.append(piece).map_err(writing))?;
    wait_for(|done| sink.finish(done)).map_err(writing)
}

/// Reads a file from its beginning to its end.
fn for_each_piece(
    source: &dyn File,
    from: &Path,
    take: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let length = source.len().map_err(|error| Error::io("measuring", from, error))?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = 0;
    while at < length {
        let piece = usize::try_from(length - at).map_or(COPY_BYTES, |left| left.min(COPY_BYTES));
        let buffer = &mut buffer[..piece];
        source.read_exact_at(buffer, at).map_err(|error| Error::io("reading", from, error))?;
        take(at, buffer)?;
        at += piece as u64;
    }
    Ok(())
}
