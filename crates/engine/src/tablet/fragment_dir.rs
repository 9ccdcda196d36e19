//! The directory of a store's disk fragments: names new files, links those in
//! the config, and removes those that no chain or checkpoint refers to.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::link::{Link, LinkedFile};
use super::registry::FileRegistry;
use crate::cache::BlockCache;
use crate::cell::rows::RowRange;
use crate::config::{Configs, FileName, Reference};
use crate::error::{Error, Result};
use crate::fragment::{FileHandle, FileHandles, FragmentOptions, FragmentWriter, KnownSize};
use crate::resources::Resources;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::world::Files;

/// Name of the fragments directory inside a store's directory.
pub const FRAGMENTS_DIR: &str = "fragments";

pub struct FragmentDir {
    path: PathBuf,
    files: Arc<dyn Files>,
    cache: Arc<BlockCache>,
    handles: Arc<FileHandles>,
    registry: Arc<FileRegistry>,
    /// The files in the config that were missing when the directory was opened.
    missing: BTreeSet<FileName>,
    /// Part of the name of every file created here.
    incarnation: u64,
    next_number: AtomicU64,
    /// The number of the next compaction.
    next_unit: AtomicU64,
}

impl FragmentDir {
    /// Opens the directory inside `store_dir` for the incarnation in `configs`, and
    /// removes files that `configs` does not name. No file is opened.
    pub fn open(
        store_dir: &Path,
        files: Arc<dyn Files>,
        resources: &Resources,
        configs: &Configs,
    ) -> Result<FragmentDir> {
        let path = store_dir.join(FRAGMENTS_DIR);
        let mut dir = FragmentDir {
            registry: Arc::new(FileRegistry::new(&path, files.clone())),
            path,
            files,
            cache: resources.cache.clone(),
            handles: resources.handles.clone(),
            missing: BTreeSet::new(),
            incarnation: configs.incarnation,
            next_number: AtomicU64::new(1),
            next_unit: AtomicU64::new(1),
        };
        dir.registry.update_pins(configs);
        dir.missing = dir.remove_orphans(configs)?;
        Ok(dir)
    }

    /// Removes files that are not in the config, left by an incarnation that
    /// crashed before it could publish or delete them. Returns the files that
    /// are in the config but missing.
    fn remove_orphans(&self, configs: &Configs) -> Result<BTreeSet<FileName>> {
        let mut missing: BTreeSet<FileName> =
            configs.files().chain(configs.pinned_files()).map(|file| file.name).collect();
        let listed = self.files.list(&self.path);
        for name in listed.map_err(|error| Error::io("listing", &self.path, error))? {
            let Some(name) = name.to_str().and_then(FileName::parse) else {
                let name = name.display();
                tracing::warn!(%name, "ignoring a file that is not a fragment");
                continue;
            };
            if !missing.remove(&name) {
                let path = self.path_of(name);
                let removed = self.files.remove(&path);
                removed.map_err(|error| Error::io("removing", &path, error))?;
                tracing::info!(%name, "removed a fragment that is not in the config");
            }
        }
        Ok(missing)
    }

    /// Returns a unique name for a new fragment, and its path.
    pub fn mint(&self) -> (FileName, PathBuf) {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let name = FileName { incarnation: self.incarnation, number };
        (name, self.path_of(name))
    }

    /// Returns a unique number for a compaction.
    pub fn mint_unit(&self) -> u64 {
        let number = self.next_unit.fetch_add(1, Ordering::Relaxed);
        self.incarnation << 32 | (number & u64::from(u32::MAX))
    }

    pub fn path_of(&self, name: FileName) -> PathBuf {
        self.registry.path_of(name)
    }

    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// Starts writing a fragment at a minted path.
    pub fn create(&self, path: &Path, options: FragmentOptions) -> Result<FragmentWriter> {
        FragmentWriter::create(&self.files, path, options)
    }

    /// Makes the directory entries of new fragments durable.
    pub fn sync_names(&self) -> Result<()> {
        let synced = self.files.sync_dir(&self.path);
        synced.map_err(|error| Error::io("syncing", &self.path, error))
    }

    /// Links rows of a fragment as part of a chain. It is opened when it is first used.
    pub fn link(&self, file: &Reference, rows: RowRange) -> Arc<Link> {
        self.link_as(file, rows, || self.cache.next_file_id())
    }

    /// Like `link`, for a file whose blocks are cached under this id.
    pub fn link_cached(&self, file: &Reference, rows: RowRange, id: u64) -> Arc<Link> {
        self.link_as(file, rows, || id)
    }

    fn link_as(&self, file: &Reference, rows: RowRange, id: impl FnOnce() -> u64) -> Arc<Link> {
        let linked = self.registry.linked(file.name, || {
            let handle = FileHandle::new(&self.files, &self.path_of(file.name), &self.handles);
            let meta_bytes = file.facts.as_ref().map(|facts| facts.meta_bytes);
            let known = KnownSize { bytes: Some(file.bytes), meta_bytes };
            let (cache, registry) = (self.cache.clone(), self.registry.clone());
            LinkedFile::new(file.name, handle, known, id(), cache, registry)
        });
        if self.missing.contains(&file.name) {
            linked.note_loss(Error::data_loss(linked.path(), 0, "the file is missing"));
        }
        Arc::new(Link::new(file.clone(), rows, linked))
    }

    /// Looks for files that are missing or have a wrong size, without opening
    /// any, until `proceed` returns false. Those are reported as lost.
    pub fn check_sizes(&self, proceed: &dyn Fn() -> bool) {
        for linked in self.registry.all_linked().iter().take_while(|_| proceed()) {
            let Some(linked) = linked.upgrade().filter(|linked| !linked.is_open()) else {
                continue;
            };
            match self.files.size(linked.path()) {
                Ok(bytes) => linked.check_size(bytes),
                Err(error) => drop(linked.note_loss(Error::io("measuring", linked.path(), error))),
            }
        }
    }

    /// Announces a worker that will call `run_removals`.
    pub fn attend_removals(&self) {
        self.registry.removals().attend();
    }

    /// Removes files that are no longer used, until `end_removals` is called.
    pub fn run_removals(&self) {
        self.registry.removals().run();
    }

    pub fn end_removals(&self) {
        self.registry.removals().end();
    }

    /// Pins the files that the checkpoints in `configs` need, and no others.
    pub fn update_pins(&self, configs: &Configs) {
        self.registry.update_pins(configs);
    }

    /// Whether a checkpoint needs the file.
    pub fn is_pinned(&self, name: FileName) -> bool {
        self.registry.is_pinned(name)
    }

    /// Removes a file that no config names any more, after its last reader.
    pub fn remove(&self, name: FileName) {
        self.registry.remove(name);
    }

    /// Removes a new file that no config will ever name.
    pub fn discard(&self, path: &Path) {
        if let Err(error) = self.files.remove(path) {
            let path = path.display();
            tracing::warn!(%path, %error, "an unused fragment remains until the next open");
        }
    }
}
