//! The cache on the local disk: one file of slots that hold parts of files. Losing it, or
//! any bytes of it, loses nothing.
//!
//! Reads and writes of slots are plain file I/O without a lock: a slot in use is pinned,
//! and only slots without pins are evicted.

mod clock;
mod format;
mod index_file;
mod slab;

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use parking_lot::Mutex;
use stele_engine::config::FileName;
use stele_engine::world::{DIR_MODE, FILE_MODE};

use crate::counters::Counters;
use crate::{Error, Result};
use clock::{Slots, Use};
use format::Header;
use slab::Slab;

/// The bytes of a file that one slot holds.
pub const PART_BYTES: u64 = 1 << 20;
/// The smallest cache.
const SLOTS_MIN: u64 = 4;

/// A part of a file: the bytes from `part * PART_BYTES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartKey {
    pub name: FileName,
    pub part: u32,
}

impl PartKey {
    /// Returns the range of the part in a file of `file_bytes` bytes.
    pub fn range(self, file_bytes: u64) -> Range<u64> {
        let start = u64::from(self.part) * PART_BYTES;
        start..(start + PART_BYTES).min(file_bytes)
    }
}

/// Returns the parts that a range of a file touches.
pub fn parts_of(name: FileName, range: &Range<u64>) -> impl Iterator<Item = PartKey> + use<> {
    let last = range.end.max(range.start + 1).div_ceil(PART_BYTES);
    (range.start / PART_BYTES..last).map(move |part| PartKey { name, part: part as u32 })
}

pub struct Cache {
    dir: PathBuf,
    slab: Slab,
    slots: Mutex<Slots>,
    counters: Arc<Counters>,
    /// Held while the cache is open.
    _lock: File,
}

impl Cache {
    /// Opens the cache of a cluster. Contents of another cluster are dropped.
    pub fn open(dir: &Path, bytes: u64, cluster: &str, counters: Arc<Counters>) -> Result<Cache> {
        let slots_max = bytes / format::SLOT_BYTES;
        if slots_max < SLOTS_MIN {
            let least = (SLOTS_MIN * format::SLOT_BYTES).div_ceil(1 << 20);
            return Err(Error::Settings(format!(
                "a cache of {bytes} bytes is too small: give it at least {least} MiB"
            )));
        }
        let slots_max = usize::try_from(slots_max).unwrap_or(usize::MAX).min(u32::MAX as usize);
        counters.cache_limit_bytes.store(bytes, Relaxed);
        Cache::open_slots(dir, slots_max, cluster, counters)
            .map_err(|why| Error::Cache { dir: dir.display().to_string(), why })
    }

    fn open_slots(
        dir: &Path,
        slots_max: usize,
        cluster: &str,
        counters: Arc<Counters>,
    ) -> io::Result<Cache> {
        fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir)?;
        let lock = private().write(true).create(true).truncate(false).open(dir.join("lock"))?;
        if let Err(error) = lock.try_lock() {
            return Err(match error {
                fs::TryLockError::WouldBlock => io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    "another process uses it: give each server a cache of its own",
                ),
                fs::TryLockError::Error(error) => error,
            });
        }
        let slab = Slab::open(&dir.join("slab"), cluster, slots_max)?;
        let saved = index_file::take(dir)?;
        let found = match saved.filter(|_| slab.is_kept()) {
            Some(saved) => saved,
            None => slab.headers()?,
        };
        let slots = Slots::new(slots_max, found);
        counters.cache_used_bytes.store(slots.bytes(), Relaxed);
        let dir = dir.to_path_buf();
        Ok(Cache { dir, slab, slots: Mutex::new(slots), counters, _lock: lock })
    }

    /// Reports whether a part is in the cache.
    pub fn contains(&self, key: PartKey) -> bool {
        self.slots.lock().contains(key)
    }

    /// Returns bytes of a part, counted from its start. A damaged part is dropped.
    pub fn read(&self, key: PartKey, range: Range<usize>) -> Option<Bytes> {
        let pinned = self.slots.lock().pin(key)?;
        let bytes = self.read_pinned(&pinned, range);
        let mut slots = self.slots.lock();
        match bytes {
            Some(bytes) => {
                slots.unpin(pinned, Use::Intact);
                Some(bytes)
            }
            None => {
                slots.unpin(pinned, Use::Damaged);
                self.counters.cache_damaged.fetch_add(1, Relaxed);
                self.show_bytes(&slots);
                None
            }
        }
    }

    /// The first read of a slot after the cache was opened checks the whole part: what was
    /// written before a crash of the machine may be torn.
    fn read_pinned(&self, pinned: &clock::Pinned, range: Range<usize>) -> Option<Bytes> {
        let length = pinned.header.length as usize;
        if range.end > length {
            return None;
        }
        if pinned.verified {
            return self.slab.read(pinned.slot, range).ok();
        }
        let whole = self.slab.read(pinned.slot, 0..length).ok()?;
        (crc32c::crc32c(&whole) == pinned.header.data_crc).then(|| whole.slice(range))
    }

    /// Adds a part, unless all slots are in use.
    pub fn insert(&self, key: PartKey, bytes: &[u8]) {
        assert!(bytes.len() as u64 <= PART_BYTES, "a part fits into a slot");
        let claim = self.slots.lock().claim(key);
        let Some(claim) = claim else { return };
        if claim.evicted {
            self.counters.cache_evictions.fetch_add(1, Relaxed);
        }
        let header = Header { key, length: bytes.len() as u32, data_crc: crc32c::crc32c(bytes) };
        let written = self.slab.write(claim.slot, &header, bytes);
        let mut slots = self.slots.lock();
        match written {
            Ok(()) => slots.fill(claim, header),
            Err(error) => {
                slots.give_back(claim);
                tracing::warn!(cache = %self.dir.display(), %error, "a part was not cached");
            }
        }
        self.show_bytes(&slots);
    }

    /// Drops a part.
    pub fn forget(&self, key: PartKey) {
        let mut slots = self.slots.lock();
        slots.forget(key);
        self.show_bytes(&slots);
    }

    /// Drops all parts of a file.
    pub fn forget_file(&self, name: FileName) {
        let mut slots = self.slots.lock();
        slots.forget_file(name);
        self.show_bytes(&slots);
    }

    /// Saves the index, so that the next open need not read the headers of all slots.
    pub fn save(&self) -> io::Result<()> {
        index_file::save(&self.dir, &self.slots.lock().headers())
    }

    fn show_bytes(&self, slots: &Slots) {
        self.counters.cache_used_bytes.store(slots.bytes(), Relaxed);
    }
}

/// Options for files that only the owner may read.
fn private() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

#[cfg(test)]
mod tests;
