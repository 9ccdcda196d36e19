//! Opens a store: lock, config, new incarnation, log replay, workers.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::bounds::Bounds;
use super::collection::Collection;
use super::engine::Engine;
use super::external::ExternalLog;
use super::group_commit::GroupCommit;
use super::handle::Store;
use super::log_mode::LogMode;
use super::pool::lane_threads;
use super::recovery::{self, Recovered};
use super::stats::Counters;
use super::waiters::{Stage, Waiters};
use crate::cell::commit::TableId;
use crate::config::{ConfigEdit, ConfigStore, Configs, Manifest};
use crate::error::{Error, Result};
use crate::log::{GroupLog, LogEvent, LogWriter};
use crate::options::Options;
use crate::resources::Resources;
use crate::sync::NoIoMutex;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::tablet::{FRAGMENTS_DIR, Tables, WrapRows};
use crate::txn::Txn;
use crate::workers::claims::Claims;
use crate::workers::failures::Failures;
use crate::world::{DirLock, Files, World};
use crate::write::{ConflictMemory, Sequencer};

/// Name of the log directory inside a store's directory.
pub const LOG_DIR: &str = "log";
pub(crate) const LOCK_FILE: &str = "lock";

impl Store {
    /// Opens the store in `dir`, creating it if it does not exist, with its own
    /// memory budget and cache.
    pub fn open(dir: &Path, options: Options, world: World) -> Result<Store> {
        let resources = Resources::new(&options);
        Store::open_with(dir, options, world, resources)
    }

    /// Opens a store that shares memory with other stores.
    pub fn open_with(
        dir: &Path,
        options: Options,
        world: World,
        resources: Resources,
    ) -> Result<Store> {
        Store::open_with_rows(dir, options, world, resources, &|rows| rows)
    }

    /// Like `open_with`, for a store that changes the rows of its tablets through what
    /// `wrap` makes of those in the manifest.
    pub fn open_with_rows(
        dir: &Path,
        options: Options,
        world: World,
        resources: Resources,
        wrap: &WrapRows<'_>,
    ) -> Result<Store> {
        let lock = prepare_dir(&*world.files, dir, &[LOG_DIR, FRAGMENTS_DIR])?;
        let manifest = open_manifest(&world, dir, None)?;
        let (tables, configs) = load(dir, options, world, resources, manifest, wrap)?;
        let log = open_log(dir, &tables, &configs)?;
        Store::start(dir, lock, tables, &configs, LogMode::Own(log))
    }

    /// Opens a store without its own log. It contains everything up to its
    /// `flushed_index`; the caller replays later entries from its own log.
    pub fn open_external(dir: &Path, options: Options, world: World) -> Result<Store> {
        let resources = Resources::new(&options);
        Store::open_external_with(dir, options, world, resources)
    }

    /// Like `open_external`, for a store that shares memory with other stores.
    pub fn open_external_with(
        dir: &Path,
        options: Options,
        world: World,
        resources: Resources,
    ) -> Result<Store> {
        let lock = prepare_dir(&*world.files, dir, &[FRAGMENTS_DIR])?;
        let manifest = open_manifest(&world, dir, Some(0))?;
        let (tables, configs) = load(dir, options, world, resources, manifest, &|rows| rows)?;
        let flushed = configs.flushed_index.unwrap_or(0);
        let last_table = TableId(configs.last_table);
        let external = ExternalLog::new(Txn::base(configs.generation), flushed, last_table);
        Store::start(dir, lock, tables, &configs, LogMode::External(external))
    }

    pub(super) fn start(
        dir: &Path,
        lock: Box<dyn DirLock>,
        tables: Tables,
        configs: &Configs,
        log: LogMode,
    ) -> Result<Store> {
        let base = Txn::base(configs.generation);
        let spawner = tables.world.spawner.clone();
        let memory = &tables.options.memory;
        let waiters: Arc<Waiters> = Arc::default();
        let woken = waiters.clone();
        log.set_listener(move |event| match event {
            LogEvent::Progress => {
                woken.wake_first(Stage::Queue);
                woken.wake(Stage::Space);
            }
            LogEvent::Failed => woken.wake_all(),
        });
        let engine = Arc::new(Engine {
            sequencer: NoIoMutex::new(Sequencer::new(base, memory.generation_commits_max)),
            generation_wanted: AtomicBool::new(false),
            latest: AtomicU64::new(base.raw()),
            conflicts: ConflictMemory::new(memory.conflict_slots, base),
            floor: base,
            claims: Claims::default(),
            failures: Failures::default(),
            lane_threads: lane_threads(),
            urgent_compactions: AtomicUsize::new(0),
            large_compactions: AtomicUsize::new(0),
            group_commit: GroupCommit::default(),
            waiters: waiters.clone(),
            bounds: Bounds::default(),
            loading: AtomicUsize::new(0),
            collection: Collection::default(),
            counters: Counters::default(),
            stopping: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            _lock: lock,
            log,
            tables,
        });
        let workers = match &spawner {
            Some(spawner) => engine
                .spawn_workers(&**spawner)
                .map_err(|error| Error::io("starting workers for", dir, error))?,
            None => Vec::new(),
        };
        Ok(Store { engine, workers })
    }
}

/// Starts a new incarnation and opens the tables in the manifest.
fn load(
    dir: &Path,
    options: Options,
    world: World,
    resources: Resources,
    manifest: Manifest,
    wrap: &WrapRows<'_>,
) -> Result<(Tables, Arc<Configs>)> {
    // The numbers must be durable before any file name or txn uses them.
    let revision = manifest.read()?.revision;
    let configs = manifest.edit(revision, &[ConfigEdit::TakeIncarnation])?;
    let tables = Tables::load(dir, world, options, resources, Box::new(manifest), wrap)?;
    Ok((tables, configs))
}

/// Replays the store's own log and prepares it for appending.
fn open_log(dir: &Path, tables: &Tables, configs: &Configs) -> Result<GroupLog> {
    let world = &tables.world;
    let log_dir = dir.join(LOG_DIR);
    let recovered = recovery::replay(tables, &log_dir, configs.log_head)?;
    let base = Txn::base(configs.generation);
    check_generation(&log_dir, &recovered, base)?;
    let options = &tables.options.log;
    let (files, secret) = (world.files.clone(), world.random.next_u64());
    let end = recovered.end;
    let writer = LogWriter::start(files, &log_dir, configs.incarnation, secret, end, options)?;
    Ok(GroupLog::new(writer, base.raw(), world.clock.clone(), options.linger))
}

/// Creates the directories and locks the store.
pub(super) fn prepare_dir(
    files: &dyn Files,
    dir: &Path,
    parts: &[&str],
) -> Result<Box<dyn DirLock>> {
    let looking = |error| Error::io("looking for", dir, error);
    if !Manifest::exists(files, dir).map_err(looking)? {
        create_durably(files, dir)?;
    }
    let parts = parts.iter().map(|part| dir.join(part));
    for path in [dir.to_path_buf()].into_iter().chain(parts) {
        files.create_dir_all(&path).map_err(|error| Error::io("creating", &path, error))?;
    }
    let lock = lock_dir(files, dir)?;
    files.sync_dir(dir).map_err(|error| Error::io("syncing", dir, error))?;
    Ok(lock)
}

/// Makes a new store's directory entry durable, along with those of its new
/// ancestors; otherwise a crash could lose the whole store.
fn create_durably(files: &dyn Files, dir: &Path) -> Result<()> {
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

/// Locks a store's directory.
pub(crate) fn lock_dir(files: &dyn Files, dir: &Path) -> Result<Box<dyn DirLock>> {
    let path = dir.join(LOCK_FILE);
    files.lock(&path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Error::Locked { path: dir.to_path_buf() },
        _ => Error::io("locking", &path, error),
    })
}

/// Opens the manifest, or creates one in an empty directory. Data files without
/// a manifest are an error. `flushed_index` is the initial value for a new
/// store without its own log.
fn open_manifest(world: &World, dir: &Path, flushed_index: Option<u64>) -> Result<Manifest> {
    if let Some(configs) = Manifest::load(&*world.files, dir)? {
        let external = configs.flushed_index.is_some();
        if external != flushed_index.is_some() {
            return Err(Error::OtherLog { path: dir.to_path_buf(), external });
        }
    }
    if let Some(manifest) = Manifest::open(world.files.clone(), dir)? {
        return Ok(manifest);
    }
    for part in [LOG_DIR, FRAGMENTS_DIR] {
        let path = dir.join(part);
        let listed = match world.files.list(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            listed => listed,
        };
        if !listed.map_err(|error| Error::io("listing", &path, error))?.is_empty() {
            return Err(Error::data_loss(dir, 0, "data files exist but the manifest is missing"));
        }
    }
    let store_id = world.random.next_u64();
    let configs = Configs { store_id, flushed_index, ..Configs::default() };
    Manifest::create(world.files.clone(), dir, configs)
}

/// Checks that the log is not newer than the manifest: both must belong to the
/// same store.
fn check_generation(log_dir: &Path, recovered: &Recovered, base: Txn) -> Result<()> {
    if recovered.last >= base {
        let last = recovered.last;
        let what = format!(
            "the log contains commit {last}, which is newer than the manifest's generation"
        );
        return Err(Error::data_loss(log_dir, 0, what));
    }
    Ok(())
}
