//! A link of a chain: a reference to a fragment file and the range of its rows
//! that are live in that chain. Several links may share one file, each with its
//! own rows.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cell::key;
use crate::cell::range_tombstone::RangeTombstones;
use crate::cell::rows::RowRange;
use crate::config::{Configs, FileConfig, FileName};
use crate::error::{Error, Result};
use crate::fragment::Fragment;
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::world::Files;

/// The files that checkpoints need.
#[derive(Default)]
pub struct Pins {
    names: RwLock<BTreeSet<FileName>>,
}

impl Pins {
    /// Replaces the set with the pinned files of the config.
    pub fn update(&self, configs: &Configs) {
        *self.names.write() = configs.pinned_files().map(|file| file.name).collect();
    }

    pub fn holds(&self, name: FileName) -> bool {
        self.names.read().contains(&name)
    }
}

/// A fragment file shared by links.
pub struct LinkedFile {
    name: FileName,
    fragment: Result<Arc<Fragment>>,
    path: PathBuf,
    files: Arc<dyn Files>,
    /// Set when no chain names the file any more: it is removed after its last
    /// reader, unless a checkpoint needs it.
    doomed: AtomicBool,
    pins: Arc<Pins>,
    /// Set when a block is found damaged; compaction then skips the file.
    damaged: AtomicBool,
    /// Number of times that compaction failed to read the file.
    read_failures: AtomicU32,
}

/// A file counts as damaged after this many failed reads by compaction.
const READ_FAILURES_MAX: u32 = 3;

impl LinkedFile {
    pub fn new(
        name: FileName,
        fragment: Result<Arc<Fragment>>,
        path: &Path,
        files: Arc<dyn Files>,
        pins: Arc<Pins>,
    ) -> LinkedFile {
        LinkedFile {
            name,
            fragment,
            path: path.to_path_buf(),
            files,
            doomed: AtomicBool::new(false),
            pins,
            damaged: AtomicBool::new(false),
            read_failures: AtomicU32::new(0),
        }
    }
}

impl Drop for LinkedFile {
    fn drop(&mut self) {
        if !self.doomed.load(Ordering::Relaxed) || self.pins.holds(self.name) {
            return;
        }
        match self.files.remove(&self.path) {
            // The last checkpoint that needed the file was released meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                // The next open removes files that are not in the config.
                tracing::warn!(path = %self.path.display(), %error, "could not remove a fragment");
            }
            Ok(()) => {}
        }
    }
}

/// A range of rows of a fragment, as part of a chain.
pub struct Link {
    /// `rows` is the live range; the file may have other rows.
    pub file: FileConfig,
    linked: Arc<LinkedFile>,
    /// Whether the file has no other rows.
    whole: bool,
    /// The first possible key of the rows, and the first one after them.
    start_key: Vec<u8>,
    end_key: Option<Vec<u8>>,
}

impl Link {
    pub fn new(file: FileConfig, linked: Arc<LinkedFile>) -> Link {
        assert_eq!(file.name, linked.name, "a link is to the file that it names");
        let held = linked.fragment.as_ref().ok().and_then(|fragment| fragment.rows());
        Link {
            whole: held.is_none_or(|held| held.intersection(&file.rows) == held),
            start_key: key::row_start(&file.rows.start),
            end_key: file.rows.end.as_deref().map(key::row_start),
            file,
            linked,
        }
    }

    /// Returns the part of the link inside `rows`; `None` if it is empty.
    pub fn clipped(self: &Arc<Self>, rows: &RowRange) -> Option<Arc<Link>> {
        let rows = self.file.rows.intersection(rows);
        if rows.is_empty() {
            return None;
        }
        if rows == self.file.rows {
            return Some(self.clone());
        }
        let file = FileConfig { rows, ..self.file.clone() };
        Some(Arc::new(Link::new(file, self.linked.clone())))
    }

    /// Returns the open fragment, or the error because of which its rows are
    /// lost.
    pub fn fragment(&self) -> Result<&Arc<Fragment>> {
        self.linked.fragment.as_ref().map_err(Error::clone)
    }

    pub fn linked(&self) -> &Arc<LinkedFile> {
        &self.linked
    }

    /// Whether all rows of the file are live here.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    pub fn start_key(&self) -> &[u8] {
        &self.start_key
    }

    /// Returns the first key after the rows; `None` if they are unbounded.
    pub fn end_key(&self) -> Option<&[u8]> {
        self.end_key.as_deref()
    }

    /// Returns the range tombstones over the rows.
    pub fn range_tombstones(&self) -> Arc<RangeTombstones> {
        match &self.linked.fragment {
            Ok(fragment) if self.whole || fragment.range_tombstones().is_empty() => {
                fragment.range_tombstones().clone()
            }
            Ok(fragment) => Arc::new(fragment.range_tombstones().clipped(&self.file.rows)),
            Err(_) => Arc::default(),
        }
    }

    /// Returns the approximate size of the rows.
    pub fn bytes(&self) -> u64 {
        match &self.linked.fragment {
            Ok(fragment) if !self.whole => fragment.estimate_bytes(&self.file.rows),
            _ => self.file.bytes,
        }
    }

    /// Whether the whole file is readable, as far as is known.
    pub fn is_readable(&self) -> bool {
        self.linked.fragment.is_ok() && !self.linked.damaged.load(Ordering::Relaxed)
    }

    /// Records that a compaction failed because of this file, if it did:
    /// because of damage, or of a persistent disk error.
    pub fn note_failure(&self, error: &Error) {
        let linked = &self.linked;
        let damaged = match error {
            Error::DataLoss { path, .. } => *path == linked.path,
            Error::Io { path, error, .. } if *path == linked.path && is_disk_error(error) => {
                linked.read_failures.fetch_add(1, Ordering::Relaxed) + 1 >= READ_FAILURES_MAX
            }
            _ => false,
        };
        if damaged {
            tracing::error!(%error, "a fragment is damaged and will not be compacted");
            linked.damaged.store(true, Ordering::Relaxed);
        }
    }

    /// Marks the file for deletion after its last reader.
    pub fn doom(&self) {
        self.linked.doomed.store(true, Ordering::Relaxed);
    }
}

/// Whether an error concerns the disk (EIO) rather than the process, such as
/// too many open files.
pub fn is_disk_error(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    error.raw_os_error() == Some(EIO)
}

/// Returns the greatest timestamp of any cell in these fragments, if they have
/// cells. An unreadable fragment may have any timestamp.
pub fn timestamp_max<'a>(links: impl Iterator<Item = &'a Arc<Link>>) -> Option<i64> {
    let of_link = |link: &Arc<Link>| match link.fragment() {
        Ok(fragment) => fragment.meta().timestamps.map(|(_, max)| max),
        Err(_) => Some(i64::MAX),
    };
    links.filter_map(of_link).max()
}
