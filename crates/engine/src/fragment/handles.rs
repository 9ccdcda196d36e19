//! The open files of fragments: at most a fixed number at a time. A file that was closed
//! is opened again when a block of it is read.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::world::{File, Files, RemoteFile};

/// The maximum number of open files, whatever the limit of the process.
const OPEN_FILES_MAX: u64 = 4096;
/// The share of the process's limit: the rest is for connections and the log.
const PROCESS_SHARE: u64 = 4;
const OPEN_FILES_MIN: u64 = 16;
/// How often a file is tried again after others were closed for it.
const RETRIES: usize = 3;
/// When the process runs out of handles, this fraction of ours is closed.
const CLOSED_SHARE: usize = 4;

/// The open files of all stores of a process. When one is opened at the limit, one that has
/// not been used recently is closed; files that are being read stay open.
pub struct FileHandles {
    limit: usize,
    state: Mutex<State>,
}

struct State {
    /// The number of open files, including those being opened.
    open: usize,
    /// Candidates for closing. May contain files that no longer exist.
    queue: VecDeque<Weak<LocalHandle>>,
}

/// What became of a candidate for closing.
enum Candidate {
    Closed,
    InUse,
    Gone,
}

impl FileHandles {
    pub fn new(limit: usize) -> Arc<FileHandles> {
        let state = State { open: 0, queue: VecDeque::new() };
        Arc::new(FileHandles { limit: limit.max(1), state: Mutex::new(state) })
    }

    /// Returns the number of files that fragments may hold open in this process.
    pub fn process_limit() -> usize {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let share = limit.unwrap_or(u64::MAX) / PROCESS_SHARE;
        share.clamp(OPEN_FILES_MIN, OPEN_FILES_MAX) as usize
    }

    /// Returns the number of open files.
    pub fn open(&self) -> usize {
        self.state.lock().open
    }

    /// Counts a file that is about to be opened, and closes others if there are too
    /// many.
    fn reserve(&self) -> Reservation<'_> {
        let mut state = self.state.lock();
        state.open += 1;
        // A candidate that was used is passed once.
        let mut passes = 2 * state.queue.len();
        while state.open > self.limit && passes > 0 {
            passes -= 1;
            self.close_next(&mut state, |handle| handle.close_unused());
        }
        Reservation { handles: self }
    }

    /// Closes files that are not being read. Returns whether there were any.
    fn close_some(&self) -> bool {
        let mut state = self.state.lock();
        let before = state.open;
        let wanted = before.div_ceil(CLOSED_SHARE);
        let mut passes = state.queue.len();
        while before - state.open < wanted && passes > 0 {
            passes -= 1;
            self.close_next(&mut state, |handle| handle.close_idle());
        }
        state.open < before
    }

    /// Offers the next candidate to `close`, without the lock.
    fn close_next(
        &self,
        state: &mut MutexGuard<'_, State>,
        close: impl FnOnce(&LocalHandle) -> Candidate,
    ) {
        let Some(next) = state.queue.pop_front() else { return };
        let closed = MutexGuard::unlocked(state, || {
            next.upgrade().map_or(Candidate::Gone, |handle| close(&handle))
        });
        match closed {
            Candidate::Closed => state.open -= 1,
            Candidate::InUse => state.queue.push_back(next),
            Candidate::Gone => {}
        }
    }

    fn opened(&self, handle: &Arc<LocalHandle>) {
        let mut state = self.state.lock();
        state.queue.push_back(Arc::downgrade(handle));
        if state.queue.len() > 2 * state.open + OPEN_FILES_MIN as usize {
            state.queue.retain(|handle| handle.strong_count() > 0);
        }
    }

    fn closed(&self) {
        self.state.lock().open -= 1;
    }
}

/// A file counted as open; returned on drop, unless the file was opened.
struct Reservation<'a> {
    handles: &'a FileHandles,
}

impl Reservation<'_> {
    fn keep(self, handle: &Arc<LocalHandle>) {
        self.handles.opened(handle);
        std::mem::forget(self);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.handles.closed();
    }
}

/// A file for reading: in the directory, or in a store outside it.
pub enum FileHandle {
    Local(Arc<LocalHandle>),
    Remote(Arc<RemoteFile>),
}

impl FileHandle {
    /// Returns a handle of a file in a directory, which counts as one of the open files.
    pub fn new(files: &Arc<dyn Files>, path: &Path, handles: &Arc<FileHandles>) -> Arc<FileHandle> {
        Arc::new(FileHandle::Local(LocalHandle::new(files, path, handles)))
    }

    pub fn path(&self) -> &Path {
        match self {
            FileHandle::Local(handle) => handle.path(),
            FileHandle::Remote(file) => file.path(),
        }
    }

    /// Returns the file, opened if necessary.
    pub fn file(&self) -> io::Result<Arc<dyn File>> {
        match self {
            FileHandle::Local(handle) => handle.file(),
            FileHandle::Remote(file) => Ok(file.clone()),
        }
    }

    /// Returns the file if it is in a store outside the directory.
    #[inline]
    pub fn remote(&self) -> Option<&RemoteFile> {
        match self {
            FileHandle::Local(_) => None,
            FileHandle::Remote(file) => Some(file),
        }
    }
}

/// A file of a directory that is open only while it is used.
pub struct LocalHandle {
    files: Arc<dyn Files>,
    path: PathBuf,
    handles: Arc<FileHandles>,
    /// Held while the file is opened, so that it is opened once.
    file: Mutex<Option<Arc<dyn File>>>,
    /// Set by every use, cleared when the file is passed as a candidate for closing.
    used: AtomicBool,
}

impl LocalHandle {
    fn new(files: &Arc<dyn Files>, path: &Path, handles: &Arc<FileHandles>) -> Arc<LocalHandle> {
        Arc::new(LocalHandle {
            files: files.clone(),
            path: path.to_path_buf(),
            handles: handles.clone(),
            file: Mutex::new(None),
            used: AtomicBool::new(false),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file, opened if necessary. It stays open at least as long as the
    /// caller holds it. If the process has too many open files, idle ones are closed
    /// and the file is tried again.
    pub fn file(self: &Arc<Self>) -> io::Result<Arc<dyn File>> {
        if let Some(file) = &*self.file.lock() {
            self.used.store(true, Ordering::Relaxed);
            return Ok(file.clone());
        }
        let mut retries = 0;
        loop {
            match self.open() {
                Err(error) if retries < RETRIES && is_shortage(&error) => {
                    if !self.handles.close_some() {
                        return Err(error);
                    }
                    retries += 1;
                }
                opened => return opened,
            }
        }
    }

    fn open(self: &Arc<Self>) -> io::Result<Arc<dyn File>> {
        let reservation = self.handles.reserve();
        let mut current = self.file.lock();
        if let Some(file) = &*current {
            return Ok(file.clone());
        }
        let file = self.files.open_read(&self.path)?;
        *current = Some(file.clone());
        reservation.keep(self);
        Ok(file)
    }

    /// Closes the file unless it was used since the last call or is being read.
    fn close_unused(&self) -> Candidate {
        if self.used.swap(false, Ordering::Relaxed) {
            return Candidate::InUse;
        }
        self.close_idle()
    }

    /// Closes the file unless it is being read.
    fn close_idle(&self) -> Candidate {
        let mut current = self.file.lock();
        match &*current {
            None => Candidate::Gone,
            Some(file) if Arc::strong_count(file) > 1 => Candidate::InUse,
            Some(_) => {
                *current = None;
                Candidate::Closed
            }
        }
    }
}

impl Drop for LocalHandle {
    fn drop(&mut self) {
        if self.file.lock().take().is_some() {
            self.handles.closed();
        }
    }
}

/// Whether the process or the system has no handle left (EMFILE, ENFILE).
fn is_shortage(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::sim::{Fault, Operation, SimFiles};

    fn disk(count: usize) -> (SimFiles, Arc<dyn Files>, Vec<PathBuf>) {
        let sim = SimFiles::new(1);
        let paths: Vec<PathBuf> = (0..count).map(|n| PathBuf::from(format!("/{n}.frag"))).collect();
        for path in &paths {
            sim.create(path).unwrap().write_all_at(b"x", 0).unwrap();
        }
        (sim.clone(), Arc::new(sim), paths)
    }

    fn read(handle: &Arc<FileHandle>) {
        handle.file().unwrap().read_exact_at(&mut [0], 0).unwrap();
    }

    #[test]
    fn scale_2_13_the_least_used_file_is_closed_when_the_limit_is_reached() {
        let (sim, files, paths) = disk(5);
        let handles = FileHandles::new(3);
        let all: Vec<_> = paths.iter().map(|p| FileHandle::new(&files, p, &handles)).collect();
        assert_eq!(sim.open_files(".frag"), 0);
        all[..3].iter().for_each(read);
        // The first is used again, so the second is closed.
        read(&all[0]);
        read(&all[3]);
        assert_eq!((sim.open_files(".frag"), handles.open()), (3, 3));
        let opens = sim.counters().opens;
        read(&all[0]);
        assert_eq!(sim.counters().opens, opens, "it stayed open");
        read(&all[1]);
        assert_eq!(sim.counters().opens, opens + 1, "it was closed");
        drop(all);
        assert_eq!((sim.open_files(".frag"), handles.open()), (0, 0));
    }

    #[test]
    fn scale_2_13_a_file_that_is_read_stays_open_beyond_the_limit() {
        let (sim, files, paths) = disk(4);
        let handles = FileHandles::new(2);
        let all: Vec<_> = paths.iter().map(|p| FileHandle::new(&files, p, &handles)).collect();
        let held: Vec<_> = all.iter().map(|handle| handle.file().unwrap()).collect();
        assert_eq!((sim.open_files(".frag"), handles.open()), (4, 4));
        drop(held);
        read(&FileHandle::new(&files, &paths[0], &handles));
        read(&all[1]);
        assert!(handles.open() <= 2 && sim.open_files(".frag") <= 2);
    }

    #[test]
    fn scale_2_13_idle_files_are_closed_when_the_process_has_no_handle_left() {
        let (sim, files, paths) = disk(3);
        let handles = FileHandles::new(10);
        let all: Vec<_> = paths.iter().map(|p| FileHandle::new(&files, p, &handles)).collect();
        read(&all[0]);
        sim.fail_next(Operation::Open, "1.frag", Fault::OpenFiles.error());
        read(&all[1]);
        assert_eq!(sim.open_files("0.frag"), 0, "it was closed to free a handle");
        // With nothing to close, the call fails and the next one tries again.
        let held = all[1].file().unwrap();
        sim.fail_always(Operation::Open, "2.frag", Fault::OpenFiles);
        assert!(is_shortage(&all[2].file().err().unwrap()));
        sim.clear_faults();
        read(&all[2]);
        assert_eq!(handles.open(), 2);
        drop(held);
    }
}
