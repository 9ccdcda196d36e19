//! The directory of a store's disk fragments: names new files, opens those in
//! the config, and removes those that no chain or checkpoint refers to.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::link::{Link, LinkedFile, Pins, is_disk_error};
use crate::cache::BlockCache;
use crate::cell::rows::RowRange;
use crate::config::{Configs, FileName, Reference};
use crate::error::{Error, Result};
use crate::fragment::{Fragment, FragmentOptions, FragmentWriter};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::world::Files;

/// Name of the fragments directory inside a store's directory.
pub const FRAGMENTS_DIR: &str = "fragments";

pub struct FragmentDir {
    path: PathBuf,
    files: Arc<dyn Files>,
    cache: Arc<BlockCache>,
    /// The files that checkpoints need.
    pins: Arc<Pins>,
    /// Part of the name of every file created here.
    incarnation: u64,
    next_number: AtomicU64,
    /// The number of the next compaction.
    next_unit: AtomicU64,
}

impl FragmentDir {
    /// Opens the directory inside `store_dir` for the incarnation that last
    /// was started in `configs`, and removes files that `configs` does not
    /// name.
    pub fn open(
        store_dir: &Path,
        files: Arc<dyn Files>,
        cache: Arc<BlockCache>,
        configs: &Configs,
    ) -> Result<FragmentDir> {
        let dir = FragmentDir {
            path: store_dir.join(FRAGMENTS_DIR),
            files,
            cache,
            pins: Arc::default(),
            incarnation: configs.incarnation,
            next_number: AtomicU64::new(1),
            next_unit: AtomicU64::new(1),
        };
        dir.pins.update(configs);
        dir.remove_orphans(configs)?;
        Ok(dir)
    }

    /// Removes files that are not in the config, left by an incarnation that
    /// crashed before it could publish or delete them.
    fn remove_orphans(&self, configs: &Configs) -> Result<()> {
        let named: BTreeSet<FileName> =
            configs.files().chain(configs.pinned_files()).map(|file| file.name).collect();
        let listed = self.files.list(&self.path);
        for name in listed.map_err(|error| Error::io("listing", &self.path, error))? {
            let Some(name) = name.to_str().and_then(FileName::parse) else {
                let name = name.display();
                tracing::warn!(%name, "ignoring a file that is not a fragment");
                continue;
            };
            if !named.contains(&name) {
                let path = self.path_of(name);
                let removed = self.files.remove(&path);
                removed.map_err(|error| Error::io("removing", &path, error))?;
                tracing::info!(%name, "removed a fragment that is not in the config");
            }
        }
        Ok(())
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
        self.path.join(name.to_string())
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

    /// Opens rows of a fragment as part of a chain. Damage, a missing file or a disk
    /// read error is recorded in the link; any other failure is returned and
    /// prevents the store from opening.
    pub fn open_link(&self, file: &Reference, rows: RowRange) -> Result<Arc<Link>> {
        self.open_link_as(file, rows, self.cache.next_file_id())
    }

    /// Like `open_link`, for a file whose blocks are cached under this id.
    pub fn open_link_as(&self, file: &Reference, rows: RowRange, id: u64) -> Result<Arc<Link>> {
        let path = self.path_of(file.name);
        let mut opened = Fragment::open(&self.files, &path, id, self.cache.clone());
        if let Ok(fragment) = &opened
            && fragment.meta().stored_bytes != file.bytes
        {
            let what = "the file size differs from the size in the manifest";
            opened = Err(Error::data_loss(&path, 0, what));
        }
        let opened = match opened {
            Err(error) if is_damage(&error) => {
                tracing::error!(%error, "a fragment is lost; reads of its rows fail with data loss");
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
        let (files, pins) = (self.files.clone(), self.pins.clone());
        let linked = LinkedFile::new(file.name, opened, &path, files, pins);
        Ok(Arc::new(Link::new(file.clone(), rows, Arc::new(linked))))
    }

    /// Pins the files that the checkpoints in `configs` need, and no others.
    pub fn update_pins(&self, configs: &Configs) {
        self.pins.update(configs);
    }

    /// Whether a checkpoint needs the file.
    pub fn is_pinned(&self, name: FileName) -> bool {
        self.pins.holds(name)
    }

    /// Removes a file that no config names any more, unless it is gone
    /// already.
    pub fn remove(&self, name: FileName) -> Result<()> {
        let path = self.path_of(name);
        match self.files.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("removing", &path, error))
            }
            _ => Ok(()),
        }
    }

    /// Removes a new file that no config will ever name.
    pub fn discard(&self, path: &Path) {
        if let Err(error) = self.files.remove(path) {
            let path = path.display();
            tracing::warn!(%path, %error, "an unused fragment remains until the next open");
        }
    }
}

/// Whether a failure to open a fragment is due to the file itself.
fn is_damage(error: &Error) -> bool {
    match error {
        Error::DataLoss { .. } => true,
        Error::Io { error, .. } => error.kind() == io::ErrorKind::NotFound || is_disk_error(error),
        _ => false,
    }
}
