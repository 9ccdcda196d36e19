//! A store of fragments outside the store's own directory, such as a bucket. The
//! engine never waits for one under a lock: requests are started, and a callback
//! reports the outcome.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_channel::oneshot;

use crate::config::FileName;
use crate::sync::{Condvar, Mutex};

/// Called once with the outcome of a request, on any thread. It must not block.
pub type Done<T> = Box<dyn FnOnce(io::Result<T>) + Send>;

/// A store of immutable files. A file is visible whole or not at all.
pub trait FragmentStore: Send + Sync {
    /// Starts a new file. Its name was never used before.
    fn create(&self, name: FileName) -> Box<dyn FragmentSink>;

    /// Returns bytes of a file of `file_bytes` bytes if they are on this machine; else
    /// starts a fetch, or joins the one that is under way.
    fn read(&self, name: FileName, file_bytes: u64, range: Range<u64>) -> io::Result<Part>;

    /// Fetches bytes that will probably be read soon. Does nothing if too many such
    /// fetches are under way.
    fn prefetch(&self, name: FileName, file_bytes: u64, range: Range<u64>);

    /// Drops local copies of bytes that turned out to be damaged.
    fn forget(&self, name: FileName, range: Range<u64>);

    /// Deletes a file. Succeeds if there is none.
    fn delete(&self, name: FileName, done: Done<()>);

    /// Lists all files.
    fn list(&self, done: Done<Vec<StoredFile>>);

    /// Returns the address for messages and errors, without credentials.
    fn address(&self) -> String;
}

/// A file as a listing shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFile {
    pub name: FileName,
    pub bytes: u64,
}

/// Receives the bytes of a new file. Dropping it before `finish` leaves no file.
pub trait FragmentSink: Send {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Completes the file. It is durable and visible when the outcome is a success.
    fn finish(self: Box<Self>, done: Done<()>);
}

/// The bytes of a read, or the fetch that has to end before it is tried again.
pub enum Part {
    Ready(Bytes),
    Fetch(Arc<Fetch>),
}

/// A fetch under way, shared by all readers of the same bytes.
#[derive(Default)]
pub struct Fetch {
    state: Mutex<FetchState>,
    ended: Condvar,
}

#[derive(Default)]
struct FetchState {
    outcome: Option<Result<Bytes, FetchError>>,
    waiters: Vec<Waiter>,
}

/// Called once with the outcome of a fetch.
type Waiter = Box<dyn FnOnce(Result<Bytes, FetchError>) + Send>;

/// Why a fetch failed; shared by its waiters.
#[derive(Clone, Debug)]
pub struct FetchError {
    pub kind: io::ErrorKind,
    pub message: Arc<str>,
}

impl From<FetchError> for io::Error {
    fn from(error: FetchError) -> io::Error {
        io::Error::new(error.kind, error.message.to_string())
    }
}

impl From<io::Error> for FetchError {
    fn from(error: io::Error) -> FetchError {
        FetchError { kind: error.kind(), message: error.to_string().into() }
    }
}

impl Fetch {
    pub fn new() -> Arc<Fetch> {
        Arc::default()
    }

    /// Ends the fetch and notifies all waiters.
    pub fn finish(&self, outcome: io::Result<Bytes>) {
        let outcome = outcome.map_err(FetchError::from);
        let mut state = self.state.lock();
        let waiters = std::mem::take(&mut state.waiters);
        state.outcome = Some(outcome.clone());
        drop(state);
        self.ended.notify_all();
        waiters.into_iter().for_each(|waiter| waiter(outcome.clone()));
    }

    /// Calls `waiter` when the fetch has ended, or at once if it has.
    pub fn when_ended(&self, waiter: impl FnOnce(Result<Bytes, FetchError>) + Send + 'static) {
        let mut state = self.state.lock();
        match state.outcome.clone() {
            None => state.waiters.push(Box::new(waiter)),
            Some(outcome) => {
                drop(state);
                waiter(outcome);
            }
        }
    }

    /// Blocks until the fetch has ended. For worker threads and commands only.
    pub fn wait(&self) -> Result<Bytes, FetchError> {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = state.outcome.clone() {
                return outcome;
            }
            self.ended.wait(&mut state);
        }
    }
}

/// Starts a request and waits for its outcome, on any executor.
pub async fn wait_for_reply<T: Send + 'static>(start: impl FnOnce(Done<T>)) -> io::Result<T> {
    let (ended, outcome) = oneshot::channel();
    start(Box::new(move |result| {
        // The caller may have been cancelled.
        let _ = ended.send(result);
    }));
    let dropped = |_| Err(io::Error::new(io::ErrorKind::BrokenPipe, "the request was dropped"));
    outcome.await.unwrap_or_else(dropped)
}

/// Starts a request and blocks until it has ended. For worker threads and commands only.
pub fn wait_for<T: Send + 'static>(start: impl FnOnce(Done<T>)) -> io::Result<T> {
    let outcome = Arc::new((Mutex::new(None), Condvar::new()));
    let shared = outcome.clone();
    start(Box::new(move |result| {
        *shared.0.lock() = Some(result);
        shared.1.notify_all();
    }));
    let mut result = outcome.0.lock();
    loop {
        match result.take() {
            Some(result) => return result,
            None => outcome.1.wait(&mut result),
        }
    }
}
