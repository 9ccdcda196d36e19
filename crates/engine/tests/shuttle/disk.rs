//! An in-memory disk where every operation is a step of the schedule, and where a sync
//! takes time: it covers what was written when it began, and others write meanwhile.
//! Unlike a real disk, it refuses to read removed files, because a reader must keep its
//! files.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use shuttle::sync::atomic::{AtomicU64, Ordering};
use stele_engine::world::{DirLock, File, Files};

#[derive(Clone, Default)]
struct Content {
    now: Vec<u8>,
    /// The number of writes so far.
    writes: u64,
    /// The synced contents, and the number of writes that they include.
    synced: Vec<u8>,
    synced_writes: u64,
    removed: bool,
}

#[derive(Default)]
struct DiskState {
    names: BTreeMap<PathBuf, usize>,
    files: Vec<Content>,
    /// The number of writes and syncs that succeed before all later ones fail.
    operations_left: Option<u32>,
}

impl DiskState {
    fn find(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or(io::ErrorKind::NotFound.into())
    }

    fn count_operation(&mut self) -> io::Result<()> {
        match &mut self.operations_left {
            Some(0) => return Err(io::Error::other("medium error")),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(())
    }
}

#[derive(Clone)]
pub struct Disk {
    /// Never held across a step, so it need not be part of the schedule.
    state: Arc<Mutex<DiskState>>,
    /// Incremented to yield to other threads; a copy for inspection has none.
    steps: Option<Arc<AtomicU64>>,
}

impl Disk {
    pub fn new() -> Disk {
        Disk { state: Arc::default(), steps: Some(Arc::default()) }
    }

    /// Makes all writes and syncs fail after the given number of them.
    pub fn fail_after(&self, operations: u32) {
        self.state().operations_left = Some(operations);
    }

    /// Returns what is left if the process dies now.
    pub fn written(&self) -> Disk {
        self.copy(|content| content.now.clone())
    }

    /// Returns the minimum that is left if the power fails now. Names are assumed to be
    /// durable: the crash tests cover those.
    pub fn synced(&self) -> Disk {
        self.copy(|content| content.synced.clone())
    }

    fn copy(&self, left: impl Fn(&Content) -> Vec<u8>) -> Disk {
        let state = self.state();
        let files =
            state.files.iter().map(|content| Content { now: left(content), ..Content::default() });
        let copy =
            DiskState { names: state.names.clone(), files: files.collect(), operations_left: None };
        Disk { state: Arc::new(Mutex::new(copy)), steps: None }
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap()
    }

    /// Lets the schedule choose the next thread, then returns the state.
    fn step(&self) -> MutexGuard<'_, DiskState> {
        if let Some(steps) = &self.steps {
            steps.fetch_add(1, Ordering::SeqCst);
        }
        self.state()
    }

    fn handle(&self, number: usize) -> Arc<dyn File> {
        Arc::new(DiskFile { disk: self.clone(), number })
    }
}

struct Lock;

impl DirLock for Lock {}

impl Files for Disk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut state = self.step();
        let number = state.files.len();
        state.files.push(Content::default());
        let taken = state.names.insert(path.to_path_buf(), number);
        assert!(taken.is_none(), "{} is made twice", path.display());
        Ok(self.handle(number))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let number = self.step().find(path)?;
        Ok(self.handle(number))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.step();
        let number = state.find(from)?;
        state.names.remove(from);
        state.names.insert(to.to_path_buf(), number);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.step();
        let number = state.find(path)?;
        state.files[number].removed = true;
        state.names.remove(path);
        Ok(())
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let state = self.step();
        let inside = state.names.keys().filter_map(|path| path.strip_prefix(dir).ok());
        Ok(inside.map(Path::to_path_buf).collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.step().names.contains_key(path))
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        drop(self.step());
        Ok(())
    }

    fn lock(&self, _: &Path) -> io::Result<Box<dyn DirLock>> {
        Ok(Box::new(Lock))
    }
}

struct DiskFile {
    disk: Disk,
    number: usize,
}

impl File for DiskFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.disk.step();
        let content = &state.files[self.number];
        if content.removed {
            return Err(io::Error::other("a file is read after it was removed"));
        }
        let from = content.now.get(offset as usize..).unwrap_or_default();
        let from = from.get(..buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(from);
        Ok(())
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.step();
        state.count_operation()?;
        let content = &mut state.files[self.number];
        let end = offset as usize + buf.len();
        if content.now.len() < end {
            content.now.resize(end, 0);
        }
        content.now[offset as usize..end].copy_from_slice(buf);
        content.writes += 1;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let begun = self.disk.step().files[self.number].clone();
        let mut state = self.disk.step();
        state.count_operation()?;
        let content = &mut state.files[self.number];
        // A sync that began later may have finished first.
        if begun.writes > content.synced_writes {
            (content.synced, content.synced_writes) = (begun.now, begun.writes);
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.step().files[self.number].now.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.step();
        let content = &mut state.files[self.number];
        content.now.resize(len as usize, 0);
        content.writes += 1;
        Ok(())
    }
}
