//! The files of a store's disk fragments, in a directory or in a store outside it: names
//! new files and links those in the config. Files in the directory that no table, backup
//! or checkpoint refers to are removed; those outside are left to the collection.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::link::{Link, LinkedFile};
use super::pending_names::PendingNames;
use super::registry::FileRegistry;
use crate::cache::BlockCache;
use crate::cell::rows::RowRange;
use crate::config::{Configs, FileName, Reference};
use crate::error::{Error, Result};
use crate::fragment::{FileHandle, FileHandles, FragmentOptions, FragmentWriter, KnownSize};
use crate::resources::Resources;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::world::{Files, FragmentStore, RemoteFile, remote_path};

/// Name of the fragments directory inside a store's directory.
pub const FRAGMENTS_DIR: &str = "fragments";

pub struct FragmentDir {
    path: PathBuf,
    files: Arc<dyn Files>,
    /// The store outside the directory that has the files, if they are not in it.
    remote: Option<Arc<dyn FragmentStore>>,
    cache: Arc<BlockCache>,
    handles: Arc<FileHandles>,
    registry: Arc<FileRegistry>,
    /// The files in the config that were missing when the directory was opened.
    missing: BTreeSet<FileName>,
    /// Part of the name of every file created here.
    incarnation: u64,
    names: PendingNames,
    /// The number of the next compaction.
    next_unit: AtomicU64,
}

impl FragmentDir {
    /// Opens the directory inside `store_dir` for the incarnation in `configs`, and
    /// removes files that `configs` does not name. No file is opened. With a store
    /// outside, the files are there, and no request is made.
    pub fn open(
        store_dir: &Path,
        files: Arc<dyn Files>,
        remote: Option<Arc<dyn FragmentStore>>,
        resources: &Resources,
        configs: &Configs,
    ) -> Result<FragmentDir> {
        let path = store_dir.join(FRAGMENTS_DIR);
        let mut dir = FragmentDir {
            registry: Arc::new(match &remote {
                None => FileRegistry::new(&path, files.clone()),
                Some(_) => FileRegistry::without_removals(&path, files.clone()),
            }),
            path,
            files,
            remote,
            cache: resources.cache.clone(),
            handles: resources.handles.clone(),
            missing: BTreeSet::new(),
            incarnation: configs.incarnation,
            names: PendingNames::default(),
            next_unit: AtomicU64::new(1),
        };
        dir.keep(configs.kept_files());
        match &dir.remote {
            None => dir.missing = dir.remove_orphans(configs)?,
            Some(remote) => dir.check_no_local_files(&**remote, configs)?,
        }
        Ok(dir)
    }

    /// Fails if files in the config are in the directory although they should be
    /// outside.
    fn check_no_local_files(&self, remote: &dyn FragmentStore, configs: &Configs) -> Result<()> {
        let listed = self.files.list(&self.path);
        let listed = listed.map_err(|error| Error::io("listing", &self.path, error))?;
        let local: BTreeSet<FileName> =
            listed.iter().filter_map(|name| FileName::parse(name.file_name()?.to_str()?)).collect();
        let mut named = configs.files().chain(configs.pinned_files());
        if named.any(|file| local.contains(&file.name)) {
            let (path, address) = (self.path.clone(), remote.address());
            return Err(Error::LocalFragments { path, address });
        }
        Ok(())
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
        let number = self.names.mint();
        let name = FileName { incarnation: self.incarnation, number };
        (name, self.path_of(name))
    }

    /// Returns a unique number for a compaction.
    pub fn mint_unit(&self) -> u64 {
        let number = self.next_unit.fetch_add(1, Ordering::Relaxed);
        self.incarnation << 32 | (number & u64::from(u32::MAX))
    }

    /// Returns the directory of the store.
    pub fn store_dir(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    pub fn path_of(&self, name: FileName) -> PathBuf {
        match &self.remote {
            None => self.registry.path_of(name),
            Some(remote) => remote_path(&**remote, name),
        }
    }

    /// Returns the store outside the directory that has the files, if any.
    pub fn remote(&self) -> Option<&Arc<dyn FragmentStore>> {
        self.remote.as_ref()
    }

    /// Returns the incarnation of new names, and the lowest number in it whose outcome
    /// is not known.
    pub fn oldest_pending(&self) -> FileName {
        FileName { incarnation: self.incarnation, number: self.names.oldest() }
    }

    /// Records that a config names new files, or never will.
    pub fn outcome_known<'a>(&self, files: impl Iterator<Item = &'a Reference>) {
        let new = files.filter(|file| file.name.incarnation == self.incarnation);
        new.for_each(|file| self.names.end(file.name.number));
    }

    /// Like `outcome_known`, for a new file of which there is no reference.
    pub fn outcome_known_of(&self, name: FileName) {
        self.names.end(name.number);
    }

    /// Whether readers or tables use the file now.
    pub fn is_linked(&self, name: FileName) -> bool {
        self.registry.is_linked(name)
    }

    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// Starts writing a fragment with a minted name and its path.
    pub fn create(
        &self,
        name: FileName,
        path: &Path,
        options: FragmentOptions,
    ) -> Result<FragmentWriter> {
        match &self.remote {
            None => FragmentWriter::create(&self.files, path, options),
            Some(remote) => FragmentWriter::create_in(remote.create(name), path, options),
        }
    }

    /// Makes the directory entries of new fragments durable.
    pub fn sync_names(&self) -> Result<()> {
        if self.remote.is_some() {
            return Ok(());
        }
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
            let handle = match &self.remote {
                None => FileHandle::new(&self.files, &self.path_of(file.name), &self.handles),
                Some(remote) => {
                    let file = RemoteFile::new(remote, file.name, file.bytes);
                    Arc::new(FileHandle::Remote(file))
                }
            };
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
        if self.remote.is_some() {
            return;
        }
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

    /// Counts references that are not part of an open table.
    pub fn keep<'f>(&self, files: impl Iterator<Item = &'f Reference>) {
        files.for_each(|file| self.registry.add_reference(file.name));
    }

    /// Removes such references from the count. Files without any are removed after their
    /// last reader.
    pub fn release<'f>(&self, files: impl Iterator<Item = &'f Reference>) {
        files.for_each(|file| self.registry.release(file.name));
    }

    /// Removes a new file that no config will ever name. One outside the directory is
    /// left to the collection: its creation may still be under way.
    pub fn discard(&self, name: FileName) {
        self.names.end(name.number);
        if self.remote.is_some() {
            return;
        }
        let path = &self.path_of(name);
        if let Err(error) = self.files.remove(path) {
            let path = path.display();
            tracing::warn!(%path, %error, "an unused fragment remains until the next open");
        }
    }
}
