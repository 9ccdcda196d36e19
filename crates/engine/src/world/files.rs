//! The file layer: the few file system operations that the engine needs.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory tree. Paths are used as given.
///
/// A created, renamed or removed name is durable only after `sync_dir` of its
/// directory; written bytes only after `sync_data` of their file.
pub trait Files: Send + Sync {
    /// Creates a new file; fails if the name exists.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file for reading.
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Renames a file, replacing an existing one.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Returns the sorted paths in a directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Returns the length of a file.
    fn size(&self, path: &Path) -> io::Result<u64> {
        self.open_read(path)?.len()
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Acquires the lock of a file, or fails with `WouldBlock` if it is held elsewhere.
    /// Creates the file if it is missing.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>>;
}

/// An open file. Reads and writes specify their offset, so a file is shared without a
/// lock.
pub trait File: Send + Sync {
    /// Fills `buf` from `offset`; fails with `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `buf` at `offset`, growing the file as needed.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Syncs the bytes and the length.
    fn sync_data(&self) -> io::Result<()>;
    /// Writes all of `parts`, one after the other, at `offset`, and returns once these
    /// bytes can be read back after a power failure. Other unsynced bytes of the file
    /// stay unsynced. An error may be reported to any of the calls that are under way
    /// on the same handle: concurrent callers need a handle each.
    fn write_durable_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for part in parts {
            self.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        self.sync_data()
    }
    fn len(&self) -> io::Result<u64>;
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    fn set_len(&self, len: u64) -> io::Result<()>;
}

/// Holds the lock until it is dropped.
pub trait DirLock: Send + Sync {}
