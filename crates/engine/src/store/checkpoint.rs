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
use crate::config::{Checkpoint, ConfigEdit, Configs, Manifest, TableConfig, TabletConfig};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::resources::Resources;
use crate::tablet::{FRAGMENTS_DIR, Publishing, Table};
use crate::txn::Txn;
use crate::workers::claims::{Claim, Work};
use crate::workers::flush::{FlushTarget, flush_sealed};
use crate::world::{Files, World};

/// Bytes per copy step.
const COPY_BYTES: usize = 1 << 20;

impl Store {
    /// Creates a checkpoint of the given tables, all at the same txn.
    pub fn checkpoint(&self, tables: &[TableId]) -> Result<Checkpoint> {
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

    /// Creates a new store in `dir` from a checkpoint and opens it. The
    /// checkpoint's files are in `source`: the directory of the original store,
    /// or a copy of its fragments.
    pub fn open_from(
        dir: &Path,
        checkpoint: &Checkpoint,
        source: &Path,
        options: Options,
        world: World,
    ) -> Result<Store> {
        let files = &*world.files;
        let fragments = dir.join(FRAGMENTS_DIR);
        files.create_dir_all(&fragments).map_err(|e| Error::io("creating", &fragments, e))?;
        if Manifest::load(files, dir)?.is_some() {
            return Err(Error::DirectoryInUse { path: dir.to_path_buf() });
        }
        for file in checkpoint.files() {
            let name = file.name.to_string();
            copy(files, &source.join(FRAGMENTS_DIR).join(&name), &fragments.join(&name))?;
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
fn copy(files: &dyn Files, from: &Path, to: &Path) -> Result<()> {
    let source = files.open_read(from).map_err(|error| Error::io("opening", from, error))?;
    let length = source.len().map_err(|error| Error::io("measuring", from, error))?;
    if files.exists(to).map_err(|error| Error::io("looking for", to, error))? {
        files.remove(to).map_err(|error| Error::io("removing", to, error))?;
    }
    let target = files.create(to).map_err(|error| Error::io("creating", to, error))?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = 0;
    while at < length {
        let piece = usize::try_from(length - at).map_or(COPY_BYTES, |left| left.min(COPY_BYTES));
        let buffer = &mut buffer[..piece];
        source.read_exact_at(buffer, at).map_err(|error| Error::io("reading", from, error))?;
        target.write_all_at(buffer, at).map_err(|error| Error::io("writing", to, error))?;
        at += piece as u64;
    }
    target.sync_data().map_err(|error| Error::io("syncing", to, error))
}
