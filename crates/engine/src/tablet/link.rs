//! A link of a chain: a reference to a fragment file and the range of its rows
//! that are live in that chain. Several links may share one file, each with its
//! own rows. The file is opened when it is first used.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::registry::FileRegistry;
use crate::cache::BlockCache;
use crate::cell::key;
use crate::cell::range_tombstone::RangeTombstones;
use crate::cell::rows::RowRange;
use crate::config::{FileContents, FileFacts, FileName, Reference};
use crate::error::{Error, Result};
use crate::fragment::{FileHandle, Fragment, FragmentMeta, KnownSize, SIZE_DIFFERS};
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::{Mutex, assert_io_allowed};
use crate::world::WaitScope;

/// A fragment file shared by links.
pub struct LinkedFile {
    name: FileName,
    handle: Arc<FileHandle>,
    known: KnownSize,
    /// Its id in the cache.
    id: u64,
    cache: Arc<BlockCache>,
    registry: Arc<FileRegistry>,
    /// Set when the file was first used.
    fragment: OnceLock<Arc<Fragment>>,
    /// Set when the file was found to be missing or damaged as a whole.
    loss: OnceLock<Error>,
    /// Held while the file is opened, so that it is opened once.
    opening: Mutex<()>,
    /// Set when a block is found damaged; compaction then skips the file.
    damaged: AtomicBool,
    /// Number of times that compaction failed to read the file.
    read_failures: AtomicU32,
}

/// A file counts as damaged after this many failed reads by compaction.
const READ_FAILURES_MAX: u32 = 3;

impl LinkedFile {
    /// Creates a file that is not open yet.
    pub fn new(
        name: FileName,
        handle: Arc<FileHandle>,
        known: KnownSize,
        id: u64,
        cache: Arc<BlockCache>,
        registry: Arc<FileRegistry>,
    ) -> LinkedFile {
        LinkedFile {
            name,
            handle,
            known,
            id,
            cache,
            registry,
            fragment: OnceLock::new(),
            loss: OnceLock::new(),
            opening: Mutex::new(()),
            damaged: AtomicBool::new(false),
            read_failures: AtomicU32::new(0),
        }
    }

    pub fn path(&self) -> &Path {
        self.handle.path()
    }

    /// Records a loss if the file has another size than the config states.
    pub fn check_size(&self, bytes: u64) {
        if self.known.bytes.is_some_and(|stated| stated != bytes) {
            self.note_loss(Error::data_loss(self.path(), 0, SIZE_DIFFERS));
        }
    }

    pub fn is_open(&self) -> bool {
        self.fragment.get().is_some()
    }

    /// Opens the file. A missing file or a wrong checksum is a loss, which lasts; any
    /// other failure is an error of this call alone.
    #[cold]
    fn open(&self) -> Result<&Arc<Fragment>> {
        assert_io_allowed();
        // A file outside the directory may have to be fetched, by a thread that waits.
        let _opening = self.handle.remote().is_none().then(|| self.opening.lock());
        if let Some(fragment) = self.fragment.get() {
            return Ok(fragment);
        }
        if let Some(loss) = self.loss.get() {
            return Err(loss.clone());
        }
        let (handle, cache) = (self.handle.clone(), self.cache.clone());
        match Fragment::open_handle(handle, self.known, self.id, cache) {
            Ok(fragment) => Ok(self.fragment.get_or_init(|| fragment)),
            Err(error @ Error::NotLocal(_)) => Err(error),
            Err(error) => Err(self.note_loss(error)),
        }
    }

    /// Records a failure to open the file if the file is lost. Returns the error for
    /// the caller.
    pub fn note_loss(&self, error: Error) -> Error {
        let loss = match error {
            Error::DataLoss { .. } => error,
            Error::Io { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                Error::data_loss(self.path(), 0, "the file is missing")
            }
            other => return other,
        };
        if self.loss.set(loss.clone()).is_ok() {
            tracing::error!(error = %loss, "a fragment is lost; reads of its rows fail with data loss");
        }
        loss
    }
}

/// Releases the file, which is removed if the config no longer refers to it.
impl Drop for LinkedFile {
    fn drop(&mut self) {
        self.registry.released(self.name, self.fragment.take());
    }
}

/// A range of rows of a fragment, as part of a chain.
pub struct Link {
    pub file: Reference,
    /// The live range; the file may have other rows.
    pub rows: RowRange,
    linked: Arc<LinkedFile>,
    /// Whether the file has no other rows. Set when it was needed.
    whole: OnceLock<bool>,
    /// The range tombstones over the rows, if the file has others. Set when they were
    /// needed.
    clipped_tombstones: OnceLock<Arc<RangeTombstones>>,
    /// The first possible key of the rows, and the first one after them.
    start_key: Vec<u8>,
    end_key: Option<Vec<u8>>,
}

impl Link {
    /// Creates a link to the rows of a file that are live in a tablet.
    pub fn new(file: Reference, rows: RowRange, linked: Arc<LinkedFile>) -> Link {
        assert_eq!(file.name, linked.name, "a link is to the file that it names");
        let whole = OnceLock::new();
        if let Some(facts) = &file.facts {
            let _ = whole.set(facts.held.intersection(&rows) == facts.held);
        }
        Link {
            whole,
            clipped_tombstones: OnceLock::new(),
            start_key: key::row_start(&rows.start),
            end_key: rows.end.as_deref().map(key::row_start),
            file,
            rows,
            linked,
        }
    }

    /// Returns the families of the file that are live here, in ascending order; `None` for
    /// all.
    #[inline]
    pub fn families(&self) -> Option<&[Vec<u8>]> {
        self.file.families.as_deref()
    }

    /// Returns the approximate size of what is live here of some bytes of the file.
    fn live_bytes(&self, fragment: &Fragment, bytes: u64) -> u64 {
        let Some(families) = self.families() else { return bytes };
        let all = fragment.meta().families.len().max(1) as u64;
        bytes.saturating_mul(families.len() as u64) / all
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

    /// Fetches the first bytes of the rows from `start` on, if the file is open and outside
    /// the directory.
    pub fn prefetch(&self, start: &[u8], bytes_max: u64) {
        if let Some(fragment) = self.open_fragment() {
            let key = key::row_start(start.max(&self.rows.start[..]));
            fragment.prefetch(&key, bytes_max.min(self.file.share));
        }
    }

    /// Returns the open fragment, opened if necessary. `DataLoss`: its rows are lost.
    /// Any other error concerns this call alone.
    #[inline]
    pub fn fragment(&self) -> Result<&Arc<Fragment>> {
        match self.linked.fragment.get() {
            Some(fragment) => Ok(fragment),
            None => self.linked.open(),
        }
    }

    /// Returns the fragment if it has been opened.
    #[inline]
    pub fn open_fragment(&self) -> Option<&Arc<Fragment>> {
        self.linked.fragment.get()
    }

    pub fn linked(&self) -> &Arc<LinkedFile> {
        &self.linked
    }

    /// Returns the error because of which the rows are lost, as far as is known.
    pub fn loss(&self) -> Option<&Error> {
        self.linked.loss.get()
    }

    /// Whether all rows of the file are live here. False if the file cannot be opened.
    #[inline]
    pub fn is_whole(&self) -> bool {
        match self.whole.get() {
            Some(whole) => *whole,
            None => self.fragment().is_ok_and(|fragment| self.is_whole_of(fragment)),
        }
    }

    fn is_whole_of(&self, fragment: &Fragment) -> bool {
        if let Some(whole) = self.whole.get() {
            return *whole;
        }
        let held = fragment.rows();
        let whole = held.is_none_or(|held| held.intersection(&self.rows) == held);
        // Another thread may have set it, to the same value.
        let _ = self.whole.set(whole);
        whole
    }

    pub fn start_key(&self) -> &[u8] {
        &self.start_key
    }

    /// Returns the first key after the rows; `None` if they are unbounded.
    pub fn end_key(&self) -> Option<&[u8]> {
        self.end_key.as_deref()
    }

    /// Returns the range tombstones over the rows; `None` if there are none.
    pub fn range_tombstones(&self) -> Result<Option<Arc<RangeTombstones>>> {
        // Most files have none, and need not be opened to find out.
        if self.file.facts.as_ref().is_some_and(|facts| !facts.has_spans) {
            return Ok(None);
        }
        Ok(self.range_tombstones_of(self.fragment()?))
    }

    /// Like `range_tombstones`, for the link's open fragment.
    #[inline]
    pub fn range_tombstones_of(&self, fragment: &Fragment) -> Option<Arc<RangeTombstones>> {
        if fragment.range_tombstones().is_empty() {
            return None;
        }
        if self.is_whole_of(fragment) {
            return Some(fragment.range_tombstones().clone());
        }
        let clipped = match self.clipped_tombstones.get() {
            Some(clipped) => clipped,
            None => {
                let clipped = fragment.range_tombstones().clipped(&self.rows);
                // Another thread may have set it, to the same value.
                let _ = self.clipped_tombstones.set(Arc::new(clipped));
                self.clipped_tombstones.get().expect("it was just set")
            }
        };
        (!clipped.is_empty()).then(|| clipped.clone())
    }

    /// Returns the approximate size of the rows.
    pub fn share(&self) -> u64 {
        self.file.share
    }

    /// Returns the approximate size of some of the rows, for which the file is opened.
    pub fn bytes_of(&self, rows: &RowRange) -> u64 {
        match self.fragment() {
            Ok(fragment) => {
                self.live_bytes(fragment, fragment.estimate_bytes(rows)).min(self.file.share)
            }
            Err(_) => self.file.share,
        }
    }

    /// Returns the approximate size of the rows that are in `range`; zero if they are
    /// lost. Opens the file only if some are not.
    pub fn bytes_in(&self, range: &RowRange) -> u64 {
        let part = range.intersection(&self.rows);
        if self.open_fragment().is_none() && self.loss().is_none() && part == self.rows {
            return self.file.share;
        }
        match self.fragment() {
            Ok(fragment) => self.live_bytes(fragment, fragment.estimate_bytes(&part)),
            // An upper bound, until the index is here.
            Err(Error::NotLocal(_)) => self.file.share,
            Err(_) => 0,
        }
    }

    /// Calls `with` for stretches of the file in row order, with the approximate rows
    /// and stored bytes of each. A file smaller than `stretch_bytes` is one stretch
    /// unless it is open; a larger one is opened.
    pub fn for_each_stretch(&self, stretch_bytes: u64, mut with: impl FnMut(RowRange, u64)) {
        if self.loss().is_some() {
            return;
        }
        if self.open_fragment().is_none() && self.file.share < stretch_bytes {
            return with(self.rows.clone(), self.file.share);
        }
        match self.fragment() {
            Ok(fragment) => {
                let mut with = with;
                fragment
                    .for_each_stretch(|rows, bytes| with(rows, self.live_bytes(fragment, bytes)));
            }
            Err(Error::NotLocal(_)) => with(self.rows.clone(), self.file.share),
            Err(_) => {}
        }
    }

    /// Like `for_each_stretch`, with stretches as short as the index allows, for which the
    /// file is opened and its index is read.
    pub fn for_each_read_stretch(&self, mut with: impl FnMut(RowRange, u64)) {
        let _wait = WaitScope::enter();
        if let Ok(fragment) = self.fragment() {
            fragment
                .for_each_read_stretch(|rows, bytes| with(rows, self.live_bytes(fragment, bytes)));
        }
    }

    /// Returns what is known of the whole file, which is opened if its reference was
    /// written by an earlier version; `None` if it is lost.
    pub fn facts(&self) -> Option<FileFacts> {
        let of_fragment = || {
            let fragment = self.fragment().ok()?;
            Some(file_facts(fragment.meta(), fragment.rows()?))
        };
        self.file.facts.clone().or_else(of_fragment)
    }

    /// Returns what decides to which groups the file belongs. The file is opened.
    pub fn contents(&self) -> Result<FileContents> {
        let meta = self.fragment()?.meta();
        let deletes = meta.tombstones > 0 || meta.range_tombstones > 0;
        Ok(FileContents { families: meta.families.clone(), deletes })
    }

    /// Counts this as a reference of the current tablets to the file.
    pub fn add_reference(&self) {
        self.linked.registry.add_reference(self.file.name);
    }

    /// Removes this from the references. A file without any is removed after its
    /// last reader.
    pub fn remove_reference(&self) {
        self.linked.registry.remove_reference(self.file.name);
    }

    /// Whether the whole file is readable, as far as is known.
    pub fn is_readable(&self) -> bool {
        self.loss().is_none() && !self.linked.damaged.load(Ordering::Relaxed)
    }

    /// Records that a compaction failed because of this file, if it did:
    /// because of damage, or of a persistent disk error.
    pub fn note_failure(&self, error: &Error) {
        let linked = &self.linked;
        let damaged = match error {
            Error::DataLoss { path, .. } => path == linked.path(),
            Error::Io { path, error, .. } if path == linked.path() && is_disk_error(error) => {
                linked.read_failures.fetch_add(1, Ordering::Relaxed) + 1 >= READ_FAILURES_MAX
            }
            _ => false,
        };
        if damaged {
            tracing::error!(%error, "a fragment is damaged and will not be compacted");
            linked.damaged.store(true, Ordering::Relaxed);
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
fn is_disk_error(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    error.raw_os_error() == Some(EIO)
}

/// Returns the greatest timestamp of any cell in these fragments, if they have
/// cells. An unreadable fragment may have any timestamp.
pub fn timestamp_max<'a>(links: impl Iterator<Item = &'a Arc<Link>>) -> Option<i64> {
    let of_link = |link: &Arc<Link>| match &link.file.facts {
        Some(facts) => facts.timestamp_max,
        None => match link.fragment() {
            Ok(fragment) => fragment.meta().timestamps.map(|(_, max)| max),
            Err(_) => Some(i64::MAX),
        },
    };
    links.filter_map(of_link).max()
}
