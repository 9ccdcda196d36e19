//! Requests to a store: conditions, retries, deadlines and counters. Keys are relative to
//! the prefix of the store.

mod connect;
mod failure;
mod upload;

use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::counters::{Counters, Outcome, Request};
use crate::{Address, Error, Result, Settings};

pub use upload::{Part, Upload};

/// Delays before retries, doubled from the first to the longest.
const DELAY_FIRST: Duration = Duration::from_millis(50);
const DELAY_LONGEST: Duration = Duration::from_secs(5);
/// An attempt may consist of several HTTP requests and of many pieces of a body.
const ATTEMPT_TIMEOUTS: u32 = 4;

/// An open store.
pub struct Bucket {
    address: Address,
    prefix: String,
    store: Arc<dyn ObjectStore>,
    /// Absent for a directory, which writes the parts of a file one after the other.
    parts: Option<Arc<dyn MultipartStore>>,
    permits: Semaphore,
    attempt_timeout: Duration,
    retry_for: Duration,
    pub counters: Arc<Counters>,
}

/// The outcome of a conditional create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    New,
    /// There is an object with this key already.
    Exists,
}

impl Bucket {
    /// Creates a client. Sends no request.
    pub fn connect(
        address: Address,
        settings: &Settings,
        counters: Arc<Counters>,
    ) -> Result<Bucket> {
        let connected = connect::connect(&address, settings)?;
        Ok(Bucket {
            address,
            prefix: connected.prefix,
            store: connected.store,
            parts: connected.parts,
            permits: Semaphore::new(settings.requests_max.max(1)),
            attempt_timeout: settings.request_timeout * ATTEMPT_TIMEOUTS,
            retry_for: settings.retry_for,
            counters,
        })
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the time until which an operation that starts now is retried.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.retry_for
    }

    /// Creates an object if there is none. An attempt in doubt that turns out to have
    /// been applied is reported as `Exists`.
    pub async fn create(&self, key: &str, chunks: &[Bytes], until: Instant) -> Result<Created> {
        let path = self.path(key);
        let bytes: usize = chunks.iter().map(Bytes::len).sum();
        let put = self.retry(Request::Put, until, || {
            let payload = PutPayload::from_iter(chunks.iter().cloned());
            let options = PutOptions::from(PutMode::Create);
            self.store.put_opts(&path, payload, options)
        });
        match put.await {
            Ok(_) => {
                self.counters.sent_bytes.fetch_add(bytes as u64, Relaxed);
                Ok(Created::New)
            }
            Err(StoreError::AlreadyExists { .. }) => Ok(Created::Exists),
            Err(error) => Err(self.failed(Request::Put, key, &error)),
        }
    }

    /// Creates an object whose key no other writer uses. Succeeds if an earlier attempt,
    /// whose outcome was not known, has created it.
    pub async fn create_own(&self, key: &str, chunks: &[Bytes], until: Instant) -> Result<()> {
        let digest = Digest::of(chunks);
        let mut earlier = 0;
        loop {
            if self.create(key, chunks, until).await? == Created::New {
                return Ok(());
            }
            if self.holds(key, digest, until).await? {
                return Ok(());
            }
            // The store reported a conflict with a write that was not completed.
            self.pause(Request::Put, key, &mut earlier, until).await?;
        }
    }

    /// Reports whether an object exists and has these contents. Fails if it has others.
    async fn holds(&self, key: &str, digest: Digest, until: Instant) -> Result<bool> {
        let Some(found) = self.digest(key, until).await? else { return Ok(false) };
        if found == digest {
            return Ok(true);
        }
        let why = "an object of this name with other contents exists";
        Err(self.error(Request::Put, key, io::ErrorKind::AlreadyExists, why))
    }

    /// Returns bytes of an object.
    pub async fn get(&self, key: &str, range: Range<u64>, until: Instant) -> Result<Bytes> {
        let path = self.path(key);
        let get = self.retry(Request::Get, until, || async {
            let bytes = self.store.get_range(&path, range.clone()).await?;
            match bytes.len() as u64 == range.end - range.start {
                true => Ok(bytes),
                false => Err(failure::generic("the response has the wrong length")),
            }
        });
        let bytes = get.await.map_err(|error| self.failed(Request::Get, key, &error))?;
        self.counters.received_bytes.fetch_add(bytes.len() as u64, Relaxed);
        Ok(bytes)
    }

    /// Returns a small object whole, or `None` if it does not exist.
    pub async fn get_whole(&self, key: &str, until: Instant) -> Result<Option<Bytes>> {
        let path = self.path(key);
        let get = self.retry(Request::Get, until, || async {
            self.store.get_opts(&path, GetOptions::default()).await?.bytes().await
        });
        match get.await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(Request::Get, key, &error)),
        }
    }

    /// Reports whether an object exists.
    pub async fn exists(&self, key: &str, until: Instant) -> Result<bool> {
        let path = self.path(key);
        match self.retry(Request::Get, until, || self.store.head(&path)).await {
            Ok(_) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.failed(Request::Get, key, &error)),
        }
    }

    /// Returns the error of a create that met another write of the same object, of which
    /// nothing was found.
    pub fn conflict(&self, key: &str) -> Error {
        let why = "the store reports a conflict with another write";
        self.error(Request::Put, key, io::ErrorKind::WouldBlock, why)
    }

    /// Returns the digest of an object, or `None` if it does not exist.
    async fn digest(&self, key: &str, until: Instant) -> Result<Option<Digest>> {
        let path = self.path(key);
        let get = self.retry(Request::Get, until, || async {
            let object = self.store.get_opts(&path, GetOptions::default()).await?;
            let fold = |digest: Digest, chunk: Bytes| async move { Ok(digest.with(&chunk)) };
            object.into_stream().try_fold(Digest::default(), fold).await
        });
        match get.await {
            Ok(digest) => Ok(Some(digest)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(Request::Get, key, &error)),
        }
    }

    /// Deletes an object. Succeeds if there is none.
    pub async fn delete(&self, key: &str, until: Instant) -> Result<()> {
        let path = self.path(key);
        match self.retry(Request::Delete, until, || self.store.delete(&path)).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(Request::Delete, key, &error)),
        }
    }

    /// Lists the keys and sizes of all objects in a folder. It fails unless it has seen
    /// the end of the listing.
    pub async fn list(&self, folder: &str, until: Instant) -> Result<Vec<(String, u64)>> {
        let path = self.path(folder);
        let listing = self
            .retry(Request::List, until, || self.store.list(Some(&path)).try_collect::<Vec<_>>());
        let objects = listing.await.map_err(|error| self.failed(Request::List, folder, &error))?;
        let key = |location: &Path| self.key(location.as_ref()).map(str::to_string);
        Ok(objects
            .iter()
            .filter_map(|object| Some((key(&object.location)?, object.size)))
            .collect())
    }

    fn path(&self, key: &str) -> Path {
        match self.prefix.as_str() {
            "" => Path::from(key),
            prefix => Path::from(format!("{prefix}/{key}")),
        }
    }

    /// Returns a location without the prefix.
    fn key<'a>(&self, location: &'a str) -> Option<&'a str> {
        match self.prefix.as_str() {
            "" => Some(location),
            prefix => location.strip_prefix(prefix)?.strip_prefix('/'),
        }
    }

    /// Makes attempts until one succeeds, fails for good, or the time is over.
    async fn retry<T, F>(
        &self,
        request: Request,
        until: Instant,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut earlier = 0;
        loop {
            let error = match self.attempt(attempt()).await {
                Ok(value) => {
                    self.counters.count(request, Outcome::Ok);
                    return Ok(value);
                }
                Err(error) => error,
            };
            let delay = delay(earlier);
            if failure::is_answer(&error) {
                self.counters.count(request, Outcome::Ok);
                return Err(error);
            }
            if !failure::is_transient(&error) || Instant::now() + delay > until {
                self.counters.count(request, Outcome::Error);
                return Err(error);
            }
            self.counters.count(request, Outcome::Retry);
            tracing::debug!(
                store = %self.address, request = request.name(), error = failure::shown(&error),
                "retrying a request to the object store"
            );
            tokio::time::sleep(delay).await;
            earlier += 1;
        }
    }

    async fn attempt<T>(
        &self,
        attempt: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let _permit = self.permits.acquire().await.expect("the semaphore is never closed");
        match tokio::time::timeout(self.attempt_timeout, attempt).await {
            Ok(outcome) => outcome,
            Err(_) => Err(failure::generic("the request took too long")),
        }
    }

    /// Waits before an operation is started over, or fails if the time is over.
    async fn pause(
        &self,
        request: Request,
        key: &str,
        earlier: &mut u32,
        until: Instant,
    ) -> Result<()> {
        let delay = delay(*earlier);
        if Instant::now() + delay > until {
            let why = "the store keeps reporting a conflict with another write";
            return Err(self.error(request, key, io::ErrorKind::Other, why));
        }
        tokio::time::sleep(delay).await;
        *earlier += 1;
        Ok(())
    }

    fn failed(&self, request: Request, key: &str, error: &StoreError) -> Error {
        self.error(request, key, failure::kind(error), &failure::shown(error))
    }

    fn error(&self, request: Request, key: &str, kind: io::ErrorKind, why: &str) -> Error {
        let what = format!("{} of {key}", request.name());
        Error::Request { address: self.address.to_string(), what, kind, why: why.into() }
    }
}

/// Returns a random delay before a retry.
fn delay(earlier: u32) -> Duration {
    let bound = DELAY_FIRST.saturating_mul(1 << earlier.min(20)).min(DELAY_LONGEST);
    bound / 2 + (bound / 2).mul_f64(fastrand::f64())
}

/// Length and checksum of contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    bytes: u64,
    crc: u32,
}

impl Digest {
    pub fn of(chunks: &[Bytes]) -> Digest {
        chunks.iter().fold(Digest::default(), |digest, chunk| digest.with(chunk))
    }

    /// Returns the digest of these contents followed by `chunk`.
    pub fn with(self, chunk: &[u8]) -> Digest {
        Digest {
            bytes: self.bytes + chunk.len() as u64,
            crc: crc32c::crc32c_append(self.crc, chunk),
        }
    }
}
