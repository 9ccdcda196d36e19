//! A fragment file in a store outside the directory, read like a local one. A read whose
//! bytes are not on this machine fails with the fetch that brings them, unless the thread
//! may wait for it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::files::File;
use super::fragment_store::{Fetch, FetchError, FragmentStore, Part};
use crate::config::FileName;
use crate::error::Error;
use crate::sync::Mutex;

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, reads of this thread wait for fetches. Taken by background work and
/// commands, which hold no lock that a request needs.
pub struct WaitScope {
    before: bool,
}

impl WaitScope {
    pub fn enter() -> WaitScope {
        WaitScope { before: MAY_WAIT.replace(true) }
    }
}

impl Drop for WaitScope {
    fn drop(&mut self) {
        MAY_WAIT.set(self.before);
    }
}

/// A read that failed because its bytes are not on this machine. Whoever holds it can
/// await the fetch and try again; the bytes stay available as long as it is held.
#[derive(Clone)]
pub struct Miss {
    fetch: Arc<Fetch>,
    path: Arc<Path>,
}

impl Miss {
    /// Waits for the fetch, on any executor. An error means that the read fails, too.
    pub fn fetched(&self) -> Fetching {
        Fetching { miss: self.clone(), shared: Arc::default(), registered: false }
    }

    /// Like `fetched`, blocking this thread.
    pub fn wait(&self) -> Result<(), Error> {
        self.fetch.wait().map(drop).map_err(|error| self.error(error))
    }

    fn error(&self, error: FetchError) -> Error {
        match error.kind {
            io::ErrorKind::NotFound => Error::data_loss(&self.path, 0, "the file is missing"),
            _ => Error::io("fetching", &self.path, error.into()),
        }
    }

    /// Returns the miss that a failed read reports, if it is one.
    pub(crate) fn of(error: &io::Error) -> Option<&Miss> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Debug for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Miss").field(&self.path).finish()
    }
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes of {} are being fetched: try again", self.path.display())
    }
}

impl std::error::Error for Miss {}

/// Waits for the end of a fetch.
pub struct Fetching {
    miss: Miss,
    shared: Arc<Mutex<Awaited>>,
    registered: bool,
}

#[derive(Default)]
struct Awaited {
    outcome: Option<Result<(), FetchError>>,
    waker: Option<std::task::Waker>,
}

impl Future for Fetching {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.shared.lock().waker = Some(cx.waker().clone());
        if !this.registered {
            this.registered = true;
            let shared = this.shared.clone();
            this.miss.fetch.when_ended(move |outcome| {
                let mut awaited = shared.lock();
                awaited.outcome = Some(outcome.map(drop));
                let waker = awaited.waker.take();
                drop(awaited);
                waker.into_iter().for_each(std::task::Waker::wake);
            });
        }
        match this.shared.lock().outcome.take() {
            None => Poll::Pending,
            Some(outcome) => Poll::Ready(outcome.map_err(|error| this.miss.error(error))),
        }
    }
}

/// A file of a store outside the directory. Opening it needs no request.
pub struct RemoteFile {
    store: Arc<dyn FragmentStore>,
    name: FileName,
    bytes: u64,
    path: Arc<Path>,
    /// The offsets at which damaged bytes were dropped and are fetched again.
    forgotten: Mutex<BTreeSet<u64>>,
}

impl RemoteFile {
    pub fn new(store: &Arc<dyn FragmentStore>, name: FileName, bytes: u64) -> Arc<RemoteFile> {
        let path = remote_path(&**store, name).into();
        let forgotten = Mutex::default();
        Arc::new(RemoteFile { store: store.clone(), name, bytes, path, forgotten })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Drops the local copy of bytes that are damaged. Returns whether it is worthwhile to
    /// read them again: false if they have been fetched again already.
    pub fn forget(&self, range: Range<u64>) -> bool {
        let is_new = self.forgotten.lock().insert(range.start);
        if is_new {
            let (name, start) = (self.name, range.start);
            tracing::warn!(%name, start, "fetching damaged bytes of a fragment again");
            self.store.forget(name, range);
        }
        is_new
    }

    /// Fetches bytes that are read soon.
    pub fn prefetch(&self, range: Range<u64>) {
        let range = range.start..range.end.min(self.bytes);
        if !range.is_empty() {
            self.store.prefetch(self.name, self.bytes, range);
        }
    }
}

impl File for RemoteFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|&end| end <= self.bytes);
        let Some(end) = end else { return Err(io::ErrorKind::UnexpectedEof.into()) };
        // A waiting thread holds what it fetched until it has read it.
        let mut held = Vec::new();
        loop {
            match self.store.read(self.name, self.bytes, offset..end)? {
                Part::Ready(bytes) if bytes.len() == buf.len() => {
                    buf.copy_from_slice(&bytes);
                    return Ok(());
                }
                Part::Ready(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Part::Fetch(fetch) if MAY_WAIT.get() => {
                    fetch.wait()?;
                    held.push(fetch);
                }
                Part::Fetch(fetch) => {
                    let miss = Miss { fetch, path: self.path.clone() };
                    return Err(io::Error::new(io::ErrorKind::WouldBlock, miss));
                }
            }
        }
    }

    fn write_all_at(&self, _buf: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

/// Returns what a file of a store is called in messages.
pub fn remote_path(store: &dyn FragmentStore, name: FileName) -> PathBuf {
    Path::new(&store.address()).join(name.to_string())
}
