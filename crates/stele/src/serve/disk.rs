//! The disk as a server uses it: an operation that would really block on the disk
//! notifies the runtime, which moves other tasks to another thread. Reads from the page
//! cache and syncs that finish sooner than tasks could be moved pay no extra cost.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rustix::io::{Errno, ReadWriteFlags, preadv2};
use stele_engine::world::{DirLock, Disk, FILE_MODE, File, Files};
use stele_grpc::offload::in_place;

pub struct ServerDisk;

/// A shorter sync is not worth notifying the runtime.
const SYNC_BRIEF: Duration = Duration::from_millis(1);

/// An environment variable that names a file. While the file exists no fragment is
/// written, so memory is not flushed. For tests only (docs/testing.md).
const HOLD: &str = "STELE_TEST_HOLD_FLUSHES";
const HOLD_PAUSE: Duration = Duration::from_millis(5);

/// An environment variable that names a file. While the file exists, writes fail as they
/// do on a full disk. For tests only (docs/testing.md).
const FULL: &str = "STELE_TEST_FULL_DISK";

/// Fails while the disk is full on purpose.
fn check_space() -> io::Result<()> {
    static FILE: LazyLock<Option<PathBuf>> =
        LazyLock::new(|| std::env::var_os(FULL).map(PathBuf::from));
    match &*FILE {
        Some(file) if file.exists() => Err(io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    }
}

/// Blocks while the creation of fragments is held.
fn wait_while_held(path: &Path) {
    static FILE: LazyLock<Option<PathBuf>> =
        LazyLock::new(|| std::env::var_os(HOLD).map(PathBuf::from));
    if let Some(file) = &*FILE
        && path.extension().is_some_and(|extension| extension == "frag")
    {
        while file.exists() {
            std::thread::sleep(HOLD_PAUSE);
        }
    }
}

/// A file whose slow operations notify the runtime.
struct ServerFile {
    file: fs::File,
    /// False once the file system has reported that it does not support reads from the
    /// page cache only.
    supports_nowait: AtomicBool,
    /// Whether the last sync was brief, which predicts that the next one is.
    sync_is_brief: AtomicBool,
}

impl ServerFile {
    fn shared(file: fs::File) -> Arc<dyn File> {
        let (supports_nowait, sync_is_brief) = (AtomicBool::new(true), AtomicBool::new(false));
        Arc::new(ServerFile { file, supports_nowait, sync_is_brief })
    }

    /// Reads from the page cache only and returns the number of bytes read.
    fn read_from_memory(&self, buf: &mut [u8], offset: u64) -> usize {
        if !self.supports_nowait.load(Ordering::Relaxed) {
            return 0;
        }
        match preadv2(&self.file, &mut [IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT) {
            Ok(read) => read,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => {
                self.supports_nowait.store(false, Ordering::Relaxed);
                0
            }
        }
    }
}

impl ServerFile {
    /// Runs an operation that syncs; notifies the runtime if it is likely to be slow.
    fn sync_with(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let started = Instant::now();
        let brief = self.sync_is_brief.load(Ordering::Relaxed);
        let synced = if brief { sync() } else { in_place(sync) };
        self.sync_is_brief.store(started.elapsed() < SYNC_BRIEF, Ordering::Relaxed);
        synced
    }
}

impl File for ServerFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let read = self.read_from_memory(buf, offset);
        let rest = &mut buf[read..];
        if rest.is_empty() {
            return Ok(());
        }
        in_place(|| File::read_exact_at(&self.file, rest, offset + read as u64))
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        check_space()?;
        File::write_all_at(&self.file, buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync_with(|| File::sync_data(&self.file))
    }

    fn write_durable_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        check_space()?;
        self.sync_with(|| File::write_durable_at(&self.file, parts, offset))
    }

    fn len(&self) -> io::Result<u64> {
        File::len(&self.file)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(&self.file, len)
    }
}

impl Files for ServerDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        wait_while_held(path);
        check_space()?;
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(FILE_MODE);
        Ok(ServerFile::shared(options.open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(ServerFile::shared(fs::OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(ServerFile::shared(fs::File::open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Disk.remove(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        Disk.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        Disk.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Disk.exists(path)
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        Disk.size(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        in_place(|| Disk.sync_dir(dir))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        Disk.lock(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_and_sync(dir: &Path) {
        let path = dir.join("file");
        let file = ServerDisk.create(&path).unwrap();
        let written: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
        file.write_all_at(&written, 10).unwrap();
        // The second sync does not notify the runtime if the first was brief.
        file.sync_data().unwrap();
        file.sync_data().unwrap();
        let again = ServerDisk.open_read(&path).unwrap();
        let mut read = vec![0; written.len()];
        again.read_exact_at(&mut read, 10).unwrap();
        assert_eq!(read, written);
        let past = again.read_exact_at(&mut read, 11).unwrap_err();
        assert_eq!(past.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!((again.len().unwrap(), again.is_empty().unwrap()), (100_010, false));
    }

    #[test]
    fn a_file_is_read_alike_on_every_kind_of_thread() {
        let dir = || tempfile::tempdir().unwrap();
        read_and_sync(dir().path());
        let single = tokio::runtime::Builder::new_current_thread().build().unwrap();
        single.block_on(async { read_and_sync(dir().path()) });
        let many = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        many.block_on(many.spawn(async move { read_and_sync(dir().path()) })).unwrap();
        many.block_on(many.spawn_blocking(move || read_and_sync(dir().path()))).unwrap();
    }
}
