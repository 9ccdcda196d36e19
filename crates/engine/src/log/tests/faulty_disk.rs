//! An in-memory disk that fails, stalls, loses power and corrupts data on
//! demand.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use parking_lot::{Condvar, Mutex};

use crate::world::{DirLock, File, Files, Random};

/// Granularity at which a power failure keeps or loses an unsynced write.
const SECTOR_BYTES: usize = 32;

#[derive(Default)]
pub struct Faults {
    pub fail_writes: AtomicBool,
    pub fail_syncs: AtomicBool,
    pub syncs_begun: AtomicU64,
    /// The last thread that synced.
    pub synced_by: Mutex<Option<ThreadId>>,
    syncs_blocked: Mutex<bool>,
    unblocked: Condvar,
}

impl Faults {
    /// Blocks syncs until called with `false`.
    pub fn block_syncs(&self, block: bool) {
        *self.syncs_blocked.lock() = block;
        self.unblocked.notify_all();
    }
}

#[derive(Default)]
struct Content {
    now: Vec<u8>,
    synced: Vec<u8>,
    /// The number of syncs of the whole file that began, and the last of those
    /// that ended.
    syncs: u64,
    synced_by: u64,
    /// The ranges that were written durably by themselves.
    ranges: Vec<(usize, Vec<u8>)>,
}

struct FaultyFile {
    content: Mutex<Content>,
    faults: Arc<Faults>,
}

type Names = BTreeMap<PathBuf, Arc<FaultyFile>>;

#[derive(Default)]
pub struct FaultyDisk {
    names: Mutex<Names>,
    synced_names: Mutex<Names>,
    pub faults: Arc<Faults>,
}

impl FaultyDisk {
    pub fn content(&self, path: &Path) -> Vec<u8> {
        self.names.lock()[path].content.lock().now.clone()
    }

    /// Replaces the contents of a file directly.
    pub fn overwrite(&self, path: &Path, bytes: &[u8]) {
        let file =
            self.names.lock().entry(path.to_path_buf()).or_insert_with(|| self.file()).clone();
        *file.content.lock() =
            Content { now: bytes.to_vec(), synced: bytes.to_vec(), ..Content::default() };
    }

    /// Simulates a power failure: any part of the unsynced data may survive.
    pub fn lose_power(&self, random: &dyn Random) {
        let mut names = self.names.lock();
        let mut synced_names = self.synced_names.lock();
        if random.next_u64() & 1 == 0 {
            *names = synced_names.clone();
        }
        *synced_names = names.clone();
        for file in names.values() {
            file.content.lock().lose_power(random);
        }
    }

    fn file(&self) -> Arc<FaultyFile> {
        Arc::new(FaultyFile { content: Mutex::default(), faults: self.faults.clone() })
    }
}

impl Content {
    fn lose_power(&mut self, random: &dyn Random) {
        let Content { now, synced, .. } = self;
        if random.next_u64() & 1 == 0 {
            now.truncate(synced.len());
        }
        synced.resize(now.len(), 0);
        for (now, synced) in now.chunks_mut(SECTOR_BYTES).zip(synced.chunks_mut(SECTOR_BYTES)) {
            if now != synced && random.next_u64() & 1 == 0 {
                now.copy_from_slice(synced);
            }
            synced.copy_from_slice(now);
        }
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Files for FaultyDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = self.file();
        let taken = self.names.lock().insert(path.to_path_buf(), file.clone());
        assert!(taken.is_none(), "{} is created twice", path.display());
        Ok(file)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = self.names.lock().get(path).ok_or_else(missing)?.clone();
        Ok(file)
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        let file = names.remove(from).ok_or_else(missing)?;
        names.insert(to.to_path_buf(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.names.lock().remove(path).map(drop).ok_or_else(missing)
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let names = self.names.lock();
        let inside = names.keys().filter_map(|path| path.strip_prefix(dir).ok());
        Ok(inside.map(Path::to_path_buf).collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.names.lock().contains_key(path))
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        *self.synced_names.lock() = self.names.lock().clone();
        Ok(())
    }

    fn lock(&self, _: &Path) -> io::Result<Box<dyn DirLock>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl FaultyFile {
    /// Blocks, or fails, as a sync should.
    fn wait_for_disk(&self) -> io::Result<()> {
        self.faults.syncs_begun.fetch_add(1, Ordering::SeqCst);
        *self.faults.synced_by.lock() = Some(thread::current().id());
        self.faults.unblocked.wait_while(&mut self.faults.syncs_blocked.lock(), |blocked| *blocked);
        if self.faults.fail_syncs.load(Ordering::SeqCst) {
            return Err(io::Error::other("a failed sync"));
        }
        Ok(())
    }
}

fn write_at(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[at..end].copy_from_slice(bytes);
}

impl File for FaultyFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let content = self.content.lock();
        let from = content.now.get(offset as usize..).unwrap_or_default();
        let from = from.get(..buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(from);
        Ok(())
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if self.faults.fail_writes.load(Ordering::SeqCst) {
            return Err(io::Error::other("a failed write"));
        }
        write_at(&mut self.content.lock().now, offset as usize, buf);
        Ok(())
    }

    /// Covers what was written when it began; others write meanwhile.
    fn sync_data(&self) -> io::Result<()> {
        let (before, sync, ranges) = {
            let mut content = self.content.lock();
            content.syncs += 1;
            (content.now.clone(), content.syncs, content.ranges.len())
        };
        self.wait_for_disk()?;
        let mut content = self.content.lock();
        if sync > content.synced_by {
            content.synced_by = sync;
            content.synced = before;
            let Content { synced, ranges: durable, .. } = &mut *content;
            durable[ranges..].iter().for_each(|(at, bytes)| write_at(synced, *at, bytes));
        }
        Ok(())
    }

    fn write_durable_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.write_all_at(&bytes, offset)?;
        self.wait_for_disk()?;
        let mut content = self.content.lock();
        write_at(&mut content.synced, offset as usize, &bytes);
        content.ranges.push((offset as usize, bytes));
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.content.lock().now.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.content.lock().now.resize(len as usize, 0);
        Ok(())
    }
}
