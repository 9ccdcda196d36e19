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
use crate::config::{Configs, FileFacts, FileName, Reference};
use crate::error::{Error, Result};
use crate::fragment::{Fragment, FragmentMeta};
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
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
    /// Number of references to the file in the current tablets.
    references: AtomicUsize,
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
            references: AtomicUsize::new(0),
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
    pub file: Reference,
    /// The live range; the file may have other rows.
    pub rows: RowRange,
    linked: Arc<LinkedFile>,
    /// Whether the file has no other rows.
    whole: bool,
    /// The first possible key of the rows, and the first one after them.
    start_key: Vec<u8>,
    end_key: Option<Vec<u8>>,
}

impl Link {
    /// Creates a link to the rows of a file that are live in a tablet.
    pub fn new(file: Reference, rows: RowRange, linked: Arc<LinkedFile>) -> Link {
        assert_eq!(file.name, linked.name, "a link is to the file that it names");
        let of_fragment = || linked.fragment.as_ref().ok().and_then(|fragment| fragment.rows());
        let held = file.facts.as_ref().map(|facts| facts.held.clone()).or_else(of_fragment);
        Link {
            whole: held.is_none_or(|held| held.intersection(&rows) == held),
            start_key: key::row_start(&rows.start),
            end_key: rows.end.as_deref().map(key::row_start),
            file,
            rows,
            linked,
        }
    }

    /// Returns the part of the link inside `rows`; `None` if it is empty.
    pub fn clipped(self: &Arc<Self>, rows: &RowRange) -> Option<Arc<Link>> {
        let rows = self.rows.intersection(rows);
        if rows.is_empty() {
            return None;
        }
        if rows == self.rows {
            return Some(self.clone());
        }
        let (share, kept) = (self.bytes_of(&rows), Some(rows.clone()));
        let file = Reference { rows: kept, share, ..self.file.clone() };
        Some(Arc::new(Link::new(file, rows, self.linked.clone())))
    }

    /// Returns the link as a part of what compaction `unit` leaves.
    pub fn of_unit(self: &Arc<Self>, unit: u64) -> Arc<Link> {
        if self.file.unit == unit {
            return self.clone();
        }
        let file = Reference { unit, ..self.file.clone() };
        Arc::new(Link::new(file, self.rows.clone(), self.linked.clone()))
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
            Ok(fragment) => Arc::new(fragment.range_tombstones().clipped(&self.rows)),
            Err(_) => Arc::default(),
        }
    }

    /// Returns the approximate size of the rows.
    pub fn share(&self) -> u64 {
        self.file.share
    }

    /// Returns the approximate size of some of the rows.
    pub fn bytes_of(&self, rows: &RowRange) -> u64 {
        match &self.linked.fragment {
            Ok(fragment) => fragment.estimate_bytes(rows).min(self.file.share),
            Err(_) => self.file.share,
        }
    }

    /// Returns what is known of the whole file; `None` if it is lost and was
    /// written by an earlier version.
    pub fn facts(&self) -> Option<FileFacts> {
        let of_fragment = || {
            let fragment = self.linked.fragment.as_ref().ok()?;
            Some(file_facts(fragment.meta(), fragment.rows()?))
        };
        self.file.facts.clone().or_else(of_fragment)
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

    /// Counts a reference in the current tablets.
    pub fn add_reference(&self) {
        self.linked.references.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a reference from the count. A file without any is removed after its
    /// last reader.
    pub fn remove_reference(&self) {
        let before = self.linked.references.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a reference is removed once");
        if before == 1 {
            self.doom();
        }
    }
}

/// Returns what a reference says of a whole file with these rows.
pub fn file_facts(meta: &FragmentMeta, held: RowRange) -> FileFacts {
    let dead = u128::from(meta.raw_bytes.saturating_sub(meta.live_bytes));
    let dead = dead * u128::from(meta.stored_bytes) / u128::from(meta.raw_bytes.max(1));
    FileFacts {
        meta_bytes: meta.stored_bytes - meta.data_bytes,
        dead_bytes: u64::try_from(dead).unwrap_or(u64::MAX),
        held,
        has_spans: meta.range_tombstones > 0,
        timestamp_max: meta.timestamps.map(|(_, max)| max),
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
    let of_link = |link: &Arc<Link>| match (&link.file.facts, link.fragment()) {
        (Some(facts), _) => facts.timestamp_max,
        (None, Ok(fragment)) => fragment.meta().timestamps.map(|(_, max)| max),
        (None, Err(_)) => Some(i64::MAX),
    };
    links.filter_map(of_link).max()
}
