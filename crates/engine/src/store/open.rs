//! Opening a store: lock, configuration, a new incarnation, replay, workers.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::background::Trouble;
use super::{Shared, Store, World, stats};
use crate::budget::MemoryBudget;
use crate::cache::BlockCache;
use crate::config::{ConfigEdit, ConfigStore, Manifest};
use crate::conflict::ConflictMemory;
use crate::error::{Error, Result};
use crate::log::{GroupLog, LogWriter};
use crate::options::Options;
use crate::recovery::{self, Recovered};
use crate::sequencer::Sequencer;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::sync::{Condvar, Mutex};
use crate::tables::{FRAGMENTS_DIR, Tables};
use crate::txn::Txn;
use crate::workers::signal::Signal;
use crate::world::{DirLock, Files};

/// The directory of log segments inside a store's directory.
pub const LOG_DIR: &str = "log";
pub(crate) const LOCK_FILE: &str = "lock";

/// Memory that the stores of a process share.
#[derive(Clone)]
pub struct Resources {
    pub budget: Arc<MemoryBudget>,
    pub cache: Arc<BlockCache>,
}

impl Resources {
    pub fn new(options: &Options) -> Resources {
        Resources {
            budget: MemoryBudget::new(options.memory.budget_bytes),
            cache: BlockCache::new(options.memory.cache_bytes),
        }
    }
}

impl Store {
    /// Opens the store in a directory, making it if there is none, with memory
    /// of its own.
    pub fn open(dir: &Path, options: Options, world: World) -> Result<Store> {
        let resources = Resources::new(&options);
        Store::open_with(dir, options, world, resources)
    }

    /// Opens a store that shares its memory with others.
    pub fn open_with(
        dir: &Path,
        options: Options,
        world: World,
        resources: Resources,
    ) -> Result<Store> {
        let files = world.files.clone();
        let lock = prepare_dir(&*files, dir)?;
        let manifest = open_manifest(&world, dir)?;
        // A new incarnation, durable before anything is named after it or
        // numbered by it.
        let revision = manifest.read()?.revision;
        let configs = manifest.edit(revision, &[ConfigEdit::TakeEpoch])?;
        let (epoch, head) = (configs.epoch, configs.log_head);
        let Resources { budget, cache } = resources;
        let tables = Tables::load(dir, world.clone(), options, budget, cache, Box::new(manifest))?;

        let log_dir = dir.join(LOG_DIR);
        let recovered = recovery::replay(&tables, &log_dir, head)?;
        let base = Txn::base(epoch);
        check_generation(&log_dir, &recovered, base)?;
        let log_options = tables.options.log.clone();
        let linger = log_options.linger;
        let secret = world.random.next_u64();
        let writer = LogWriter::start(files, &log_dir, epoch, secret, recovered.end, &log_options)?;
        let log = GroupLog::new(writer, base.raw(), world.clock.clone(), linger);

        let memory = &tables.options.memory;
        let shared = Arc::new(Shared {
            sequencer: Mutex::new(Sequencer::new(base, memory.generation_commits_max)),
            latest: AtomicU64::new(base.raw()),
            conflicts: ConflictMemory::new(memory.conflict_slots, base),
            floor: base,
            flush_signal: Signal::default(),
            compact_signal: Signal::default(),
            flush_trouble: Trouble::default(),
            compact_trouble: Trouble::default(),
            serializing: Mutex::new(()),
            chains: Mutex::new(()),
            compacted: Condvar::new(),
            counters: stats::Counters::default(),
            stopping: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            _lock: lock,
            log,
            tables,
        });
        let workers = match &world.spawner {
            Some(spawner) => shared
                .spawn_workers(&**spawner)
                .map_err(|error| Error::io("starting workers for", dir, error))?,
            None => Vec::new(),
        };
        Ok(Store { shared, workers })
    }
}

/// Makes the directories and takes the lock.
fn prepare_dir(files: &dyn Files, dir: &Path) -> Result<Box<dyn DirLock>> {
    let looking = |error| Error::io("looking for", dir, error);
    if !Manifest::exists(files, dir).map_err(looking)? {
        found_dir(files, dir)?;
    }
    for path in [dir.to_path_buf(), dir.join(LOG_DIR), dir.join(FRAGMENTS_DIR)] {
        files.create_dir_all(&path).map_err(|error| Error::io("creating", &path, error))?;
    }
    let lock = lock_dir(files, dir)?;
    files.sync_dir(dir).map_err(|error| Error::io("syncing", dir, error))?;
    Ok(lock)
}

/// Makes a new store's directory durable, with those above it that are new:
/// else the whole store could be lost with its name.
fn found_dir(files: &dyn Files, dir: &Path) -> Result<()> {
    let mut new = vec![dir];
    for above in dir.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        if files.exists(above).map_err(|error| Error::io("looking for", above, error))? {
            break;
        }
        new.push(above);
    }
    files.create_dir_all(dir).map_err(|error| Error::io("creating", dir, error))?;
    for parent in new.into_iter().rev().filter_map(Path::parent) {
        files.sync_dir(parent).map_err(|error| Error::io("syncing", parent, error))?;
    }
    Ok(())
}

/// Takes the lock of a store's directory.
pub(crate) fn lock_dir(files: &dyn Files, dir: &Path) -> Result<Box<dyn DirLock>> {
    let path = dir.join(LOCK_FILE);
    files.lock(&path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Error::Locked { path: dir.to_path_buf() },
        _ => Error::io("locking", &path, error),
    })
}

/// The manifest of the directory, or a first one if it is empty. Data without
/// a manifest is not guessed at.
fn open_manifest(world: &World, dir: &Path) -> Result<Manifest> {
    if let Some(manifest) = Manifest::open(world.files.clone(), dir)? {
        return Ok(manifest);
    }
    for part in [LOG_DIR, FRAGMENTS_DIR] {
        let path = dir.join(part);
        let listed = world.files.list(&path);
        if !listed.map_err(|error| Error::io("listing", &path, error))?.is_empty() {
            return Err(Error::data_loss(dir, 0, "there are data files but no manifest"));
        }
    }
    Manifest::create(world.files.clone(), dir, world.random.next_u64())
}

/// The log and the manifest must be of the same store and age.
fn check_generation(log_dir: &Path, recovered: &Recovered, base: Txn) -> Result<()> {
    if recovered.last >= base {
        let last = recovered.last;
        let what = format!("the log has a commit {last}, newer than the manifest allows");
        return Err(Error::data_loss(log_dir, 0, what));
    }
    Ok(())
}
