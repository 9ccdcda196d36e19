//! A tablet: a range of rows and, for each group, the chain of disk fragments
//! that hold them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cell::rows::RowRange;
use crate::config::{Configs, FileConfig, FileName};
use crate::error::{Error, Result};
use crate::fragment::Fragment;
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::txn::Txn;
use crate::world::Files;

/// One range of rows. Immutable: a change makes a new one.
#[derive(Clone)]
pub struct Tablet {
    pub rows: RowRange,
    /// One for each group of the schema.
    pub chains: Vec<Chain>,
}

impl Tablet {
    /// Whether the tablet's last row is before `row`.
    pub fn ends_by(&self, row: &[u8]) -> bool {
        self.rows.end.as_ref().is_some_and(|end| end.as_slice() <= row)
    }
}

/// The disk fragments of one group.
#[derive(Clone, Default)]
pub struct Chain {
    pub flushed_through: Txn,
    /// Oldest first.
    pub links: Vec<Arc<Link>>,
}

/// The files that checkpoints need.
#[derive(Default)]
pub struct Pins {
    names: RwLock<BTreeSet<FileName>>,
}

impl Pins {
    /// Takes over what the configuration says now.
    pub fn update(&self, configs: &Configs) {
        *self.names.write() = configs.pinned_files().map(|file| file.name).collect();
    }

    pub fn holds(&self, name: FileName) -> bool {
        self.names.read().contains(&name)
    }
}

/// A fragment in its place in a chain.
pub struct Link {
    pub file: FileConfig,
    fragment: Result<Arc<Fragment>>,
    path: PathBuf,
    files: Arc<dyn Files>,
    /// No chain names the file any more: it goes with its last reader, unless
    /// a checkpoint needs it.
    doomed: AtomicBool,
    pins: Arc<Pins>,
    /// A block turned out to be damaged; compaction leaves the file alone.
    damaged: AtomicBool,
}

impl Link {
    pub fn new(
        file: FileConfig,
        fragment: Result<Arc<Fragment>>,
        path: &Path,
        files: Arc<dyn Files>,
        pins: Arc<Pins>,
    ) -> Link {
        Link {
            file,
            fragment,
            path: path.to_path_buf(),
            files,
            doomed: AtomicBool::new(false),
            pins,
            damaged: AtomicBool::new(false),
        }
    }

    /// The open fragment, or why its rows are lost.
    pub fn fragment(&self) -> Result<&Arc<Fragment>> {
        self.fragment.as_ref().map_err(Error::clone)
    }

    /// Whether all of the file can be read, as far as is known.
    pub fn is_readable(&self) -> bool {
        self.fragment.is_ok() && !self.damaged.load(Ordering::Relaxed)
    }

    /// Remembers damage that was found in this file.
    pub fn note_loss(&self, error: &Error) {
        if matches!(error, Error::DataLoss { path, .. } if *path == self.path) {
            tracing::error!(%error, "a fragment is damaged and will not be compacted");
            self.damaged.store(true, Ordering::Relaxed);
        }
    }

    /// Deletes the file once nobody reads it.
    pub fn doom(&self) {
        self.doomed.store(true, Ordering::Relaxed);
    }
}

/// The greatest timestamp of any cell in these fragments, if they hold cells;
/// a fragment that cannot be read may hold any.
pub fn timestamp_max(links: &[Arc<Link>]) -> Option<i64> {
    let of_link = |link: &Arc<Link>| match &link.fragment {
        Ok(fragment) => fragment.meta().timestamps.map(|(_, max)| max),
        Err(_) => Some(i64::MAX),
    };
    links.iter().filter_map(of_link).max()
}

impl Drop for Link {
    fn drop(&mut self) {
        if !self.doomed.load(Ordering::Relaxed) || self.pins.holds(self.file.name) {
            return;
        }
        match self.files.remove(&self.path) {
            // The last checkpoint that needed it was released meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                // The next open removes what no config names.
                tracing::warn!(path = %self.path.display(), %error, "could not remove a fragment");
            }
            Ok(()) => {}
        }
    }
}
