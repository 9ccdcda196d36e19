//! All tables of a store and their files: everything but the log. The store
//! applies commits to it, recovery replays commits into it, and the workers
//! flush its memory to disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::budget::MemoryBudget;
use crate::cache::BlockCache;
use crate::cell::commit::TableId;
use crate::cell::fold::Folds;
use crate::config::{ConfigEdit, ConfigStore, Configs, FileConfig, FileName, TableConfig};
use crate::error::{Error, Result};
use crate::fragment::Fragment;
use crate::link::{Link, LinkedFile, Pins, is_disk_error};
use crate::memory::MemoryFragment;
use crate::options::Options;
use crate::run::Run;
use crate::schema::Schema;
use crate::snapshot::Snapshots;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{ArcSwap, Guard, Mutex};
use crate::table::{GroupMemory, Table, TableVersion};
use crate::tablet::{Chain, Tablet};
use crate::txn::Txn;
use crate::world::World;

/// Name of the fragments directory inside a store's directory.
pub const FRAGMENTS_DIR: &str = "fragments";

pub struct Tables {
    pub world: World,
    pub options: Options,
    pub budget: Arc<MemoryBudget>,
    pub cache: Arc<BlockCache>,
    pub folds: Arc<Folds>,
    pub snapshots: Arc<Snapshots>,
    dir: PathBuf,
    config: Box<dyn ConfigStore>,
    /// Held while reading the revision and editing at it.
    editing: Mutex<()>,
    /// Whether the config store has failed; readable without its lock.
    failed: AtomicBool,
    by_id: ArcSwap<BTreeMap<TableId, Arc<Table>>>,
    /// The files pinned by checkpoints.
    pub pins: Arc<Pins>,
    /// This incarnation; part of the name of every file that it creates.
    epoch: u64,
    next_file: AtomicU64,
}

impl Tables {
    /// Opens every file in the config. Damaged files are reported and reads of
    /// their rows fail; everything else is served.
    pub fn load(
        dir: &Path,
        world: World,
        options: Options,
        budget: Arc<MemoryBudget>,
        cache: Arc<BlockCache>,
        config: Box<dyn ConfigStore>,
    ) -> Result<Tables> {
        let configs = config.read()?;
        let folds = Arc::new(options.folds.clone());
        let snapshots = Snapshots::new(world.clock.clone(), options.snapshot_age_max.0);
        let tables = Tables {
            world,
            options,
            budget,
            cache,
            folds,
            snapshots,
            dir: dir.join(FRAGMENTS_DIR),
            config,
            editing: Mutex::new(()),
            failed: AtomicBool::new(false),
            by_id: ArcSwap::default(),
            pins: Arc::default(),
            epoch: configs.epoch,
            next_file: AtomicU64::new(1),
        };
        tables.pins.update(&configs);
        tables.remove_orphans(&configs)?;
        let mut by_id = BTreeMap::new();
        for config in configs.tables.values() {
            by_id.insert(config.id, Arc::new(tables.load_table(config)?));
        }
        tables.by_id.store(Arc::new(by_id));
        Ok(tables)
    }

    fn load_table(&self, config: &TableConfig) -> Result<Table> {
        // Tablets may share a file, each with its own rows.
        let mut opened: BTreeMap<FileName, Arc<Link>> = BTreeMap::new();
        let mut open = |file: &FileConfig| -> Result<Arc<Link>> {
            let link = match opened.get(&file.name) {
                Some(known) => Arc::new(Link::new(file.clone(), known.linked().clone())),
                None => self.open_link(file)?,
            };
            opened.insert(file.name, link.clone());
            Ok(link)
        };
        let mut tablets = Vec::with_capacity(config.tablets.len());
        for tablet in &config.tablets {
            let mut chains = Vec::with_capacity(tablet.chains.len());
            for chain in &tablet.chains {
                let mut runs = Vec::new();
                for files in chain.runs() {
                    let links = files.iter().map(&mut open).collect::<Result<_>>()?;
                    runs.extend(Run::new(links));
                }
                chains.push(Chain { flushed_through: chain.flushed_through, runs });
            }
            tablets.push(Tablet { rows: tablet.rows.clone(), chains });
        }
        let memory = config.schema.groups().iter().map(|_| GroupMemory::new(&self.budget));
        let version = TableVersion {
            number: 0,
            schema: config.schema.clone(),
            memory: memory.collect(),
            tablets,
        };
        Ok(Table::new(config.id, config.name.clone(), version))
    }

    /// Opens a fragment as part of a chain. Damage, a missing file or a disk
    /// read error is recorded in the link; any other failure is returned and
    /// prevents the store from opening.
    pub fn open_link(&self, file: &FileConfig) -> Result<Arc<Link>> {
        self.open_link_as(file, self.cache.next_file_id())
    }

    /// Like `open_link`, for a file whose blocks are cached under this id.
    pub fn open_link_as(&self, file: &FileConfig, id: u64) -> Result<Arc<Link>> {
        let path = self.path(file.name);
        let mut opened = Fragment::open(&self.world.files, &path, id, self.cache.clone());
        if let Ok(fragment) = &opened
            && fragment.meta().stored_bytes != file.bytes
        {
            opened = Err(Error::data_loss(&path, 0, "the file is not the one that was written"));
        }
        let opened = match opened {
            Err(error) if is_damage(&error) => {
                tracing::error!(%error, "a fragment is lost; its rows answer with data loss");
                Err(match error {
                    Error::DataLoss { .. } => error,
                    other => Error::data_loss(&path, 0, other.to_string()),
                })
            }
            // A newer format, missing permissions or too many open files: the
            // file itself may be intact.
            Err(error) => return Err(error),
            Ok(fragment) => Ok(fragment),
        };
        let (files, pins) = (self.world.files.clone(), self.pins.clone());
        let linked = LinkedFile::new(file.name, opened, &path, files, pins);
        Ok(Arc::new(Link::new(file.clone(), Arc::new(linked))))
    }

    /// Removes files that are not in the config, left by an incarnation that
    /// crashed before it could publish or delete them.
    fn remove_orphans(&self, configs: &Configs) -> Result<()> {
        let named: BTreeSet<FileName> =
            configs.files().chain(configs.pinned_files()).map(|file| file.name).collect();
        let listed = self.world.files.list(&self.dir);
        for name in listed.map_err(|error| Error::io("listing", &self.dir, error))? {
            let Some(name) = name.to_str().and_then(FileName::parse) else {
                tracing::warn!(name = %name.display(), "a file that is no fragment lies here");
                continue;
            };
            if !named.contains(&name) {
                let path = self.path(name);
                let removed = self.world.files.remove(&path);
                removed.map_err(|error| Error::io("removing", &path, error))?;
                tracing::info!(%name, "removed a fragment that no configuration names");
            }
        }
        Ok(())
    }

    pub fn all(&self) -> Guard<Arc<BTreeMap<TableId, Arc<Table>>>> {
        self.by_id.load()
    }

    pub fn get(&self, id: TableId) -> Result<Arc<Table>> {
        let table = self.all().get(&id).cloned();
        table.ok_or_else(|| Error::UnknownTable(format!("number {}", id.0)))
    }

    pub fn named(&self, name: &str) -> Option<Arc<Table>> {
        self.all().values().find(|table| table.name == name).cloned()
    }

    pub fn configs(&self) -> Result<Arc<Configs>> {
        self.config.read()
    }

    /// Applies a batch of edits durably.
    pub fn edit(&self, edits: &[ConfigEdit]) -> Result<Arc<Configs>> {
        let _editing = self.editing.lock();
        let revision = self.config.read()?.revision;
        let edited = self.config.edit(revision, edits);
        if self.config.failure().is_some() {
            self.failed.store(true, Ordering::Release);
        }
        edited
    }

    /// Returns the error if the config store accepts no more edits.
    pub fn failure(&self) -> Option<Error> {
        let failed = self.failed.load(Ordering::Acquire);
        if failed { self.config.failure() } else { None }
    }

    /// Closes the config store cleanly.
    pub fn close(&self) -> Result<()> {
        self.config.close()
    }

    /// Whether a failed edit certainly had no effect, so that files that it
    /// would have named can be removed.
    pub fn edit_left_no_trace(&self) -> bool {
        self.config.failure().is_none()
    }

    pub fn create(&self, name: &str, schema: Arc<Schema>) -> Result<Arc<Table>> {
        let configs = self.edit(&[ConfigEdit::CreateTable { name: name.to_string(), schema }])?;
        let config = configs.table_named(name).expect("the table was just created");
        let table = Arc::new(self.load_table(config)?);
        self.by_id.rcu(|known| {
            let mut next = BTreeMap::clone(known);
            next.insert(table.id, table.clone());
            next
        });
        Ok(table)
    }

    /// Drops a table; its files are removed after their last readers.
    pub fn forget(&self, table: &Table) -> Result<()> {
        self.edit(&[ConfigEdit::DropTable { table: table.id }])?;
        self.by_id.rcu(|known| {
            let mut next = BTreeMap::clone(known);
            next.remove(&table.id);
            next
        });
        table.drop_it();
        Ok(())
    }

    /// Returns a unique name for a new fragment, and its path.
    pub fn mint(&self) -> (FileName, PathBuf) {
        let number = self.next_file.fetch_add(1, Ordering::Relaxed);
        let name = FileName { incarnation: self.epoch, number };
        (name, self.path(name))
    }

    pub fn path(&self, name: FileName) -> PathBuf {
        self.dir.join(name.to_string())
    }

    /// Makes the directory entries of new fragments durable.
    pub fn sync_names(&self) -> Result<()> {
        let synced = self.world.files.sync_dir(&self.dir);
        synced.map_err(|error| Error::io("syncing", &self.dir, error))
    }

    /// Returns the oldest commit over all tables that is only in memory,
    /// ignoring the memory fragments in `flushed`.
    pub fn txn_min(&self, flushed: &[Arc<MemoryFragment>]) -> Option<Txn> {
        let all = self.all();
        let versions: Vec<_> = all.values().map(|table| table.version()).collect();
        versions
            .iter()
            .flat_map(|version| &version.memory)
            .flat_map(GroupMemory::fragments)
            .filter(|fragment| !flushed.iter().any(|gone| Arc::ptr_eq(gone, fragment)))
            .filter_map(|fragment| fragment.txn_min())
            .min()
    }
}

/// Whether a failure to open a fragment is due to the file itself.
fn is_damage(error: &Error) -> bool {
    match error {
        Error::DataLoss { .. } => true,
        Error::Io { error, .. } => {
            error.kind() == std::io::ErrorKind::NotFound || is_disk_error(error)
        }
        _ => false,
    }
}
