//! The fragment store on a bucket: reads through the cache, fetches, deletes, listings.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Instant;

use bytes::Bytes;
use stele_engine::config::FileName;
use stele_engine::world::{Done, FetchError, FragmentSink, FragmentStore, Part, StoredFile};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::bucket::Bucket;
use crate::cache::{Cache, PART_BYTES, PartKey, parts_of};
use crate::cluster;
use crate::counters::Counters;
use crate::flights::{Flights, Gather, Join, concatenate, slice};
use crate::key;
use crate::log_objects::LogObjects;
use crate::probe;
use crate::reply::Reply;
use crate::sink::Sink;
use crate::{Address, Error, Result, Settings};

/// Threads that send requests and encrypt.
const THREADS: usize = 2;
/// Files have fewer parts than a part number can count.
const FILE_BYTES_MAX: u64 = PART_BYTES * u32::MAX as u64;

/// Opens the store at a URL: probes it, checks its cluster, and opens the cache. Blocks;
/// it may be called on any thread.
pub fn open(url: &str, settings: Settings) -> Result<Arc<Objects>> {
    let address = Address::parse(url)?;
    if !address.is_tested() {
        tracing::warn!(store = %address, "stores of this kind are not covered by Stele's tests");
    }
    let counters = Arc::new(Counters::default());
    let runtime = start_threads(&address)?;
    let bucket = Arc::new(Bucket::connect(address, &settings, counters.clone())?);
    let entered = enter(bucket.clone(), settings.clone());
    let cluster = wait(runtime.handle(), entered).unwrap_or_else(|| Err(lost_task(&bucket)))?;
    let cache = Cache::open(&settings.cache_dir, settings.cache_bytes, &cluster, counters)?;
    let shared = Shared {
        bucket,
        cache,
        flights: Flights::default(),
        prefetching: AtomicU64::new(0),
        prefetching_max: settings.prefetch_bytes_max,
        handle: runtime.handle().clone(),
    };
    Ok(Arc::new(Objects { shared: Arc::new(shared), cluster, runtime: Some(runtime) }))
}

/// Checks the store and its cluster. Returns the id of the cluster.
async fn enter(bucket: Arc<Bucket>, settings: Settings) -> Result<String> {
    let until = tokio::time::Instant::now() + settings.retry_open_for;
    let expected = settings.cluster.as_deref();
    if settings.read_only {
        return cluster::check(&bucket, expected, until).await;
    }
    if settings.probe {
        probe::probe(&bucket, until).await?;
    }
    cluster::join(&bucket, expected, until).await
}

pub(crate) fn start_threads(address: &Address) -> Result<Stopping> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("objects")
        .enable_all()
        .build()
        .map_err(|why| Error::Threads { address: address.to_string(), why })?;
    Ok(Stopping(Some(runtime)))
}

/// A runtime that may be dropped on any thread, also on one of another runtime.
pub(crate) struct Stopping(Option<Runtime>);

impl Stopping {
    pub fn handle(&self) -> &Handle {
        self.0.as_ref().expect("present until it is dropped").handle()
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Runs a future on the store's threads and blocks until it has ended. `None` if it panicked.
pub(crate) fn wait<T: Send + 'static>(
    handle: &Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let (ended, outcome) = mpsc::sync_channel(1);
    handle.spawn(async move {
        let _ = ended.send(work.await);
    });
    outcome.recv().ok()
}

fn lost_task(bucket: &Bucket) -> Error {
    let why = io::Error::other("a task of the store panicked");
    Error::Threads { address: bucket.address().to_string(), why }
}

/// An open store of fragments.
pub struct Objects {
    shared: Arc<Shared>,
    cluster: String,
    /// Dropped last: its tasks use the rest.
    runtime: Option<Stopping>,
}

pub(crate) struct Shared {
    pub bucket: Arc<Bucket>,
    pub cache: Cache,
    pub handle: Handle,
    flights: Flights,
    /// Bytes of prefetches under way.
    prefetching: AtomicU64,
    prefetching_max: u64,
}

impl Objects {
    /// Returns the id of the cluster that the store belongs to.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Returns the logs in this store.
    pub fn logs(&self) -> Arc<LogObjects> {
        Arc::new(LogObjects::new(self.shared.bucket.clone(), self.shared.handle.clone()))
    }

    pub fn counters(&self) -> &Arc<Counters> {
        &self.shared.bucket.counters
    }

    /// Saves the index of the cache. Dropping the store does the same.
    pub fn close(&self) {
        if let Err(error) = self.shared.cache.save() {
            tracing::warn!(%error, "the index of the cache was not saved: the next start reads all slots");
        }
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        self.close();
        drop(self.runtime.take());
    }
}

impl FragmentStore for Objects {
    fn create(&self, name: FileName) -> Box<dyn FragmentSink> {
        Box::new(Sink::new(self.shared.clone(), name))
    }

    fn read(&self, name: FileName, file_bytes: u64, range: Range<u64>) -> io::Result<Part> {
        check(name, file_bytes, &range)?;
        if range.is_empty() {
            return Ok(Part::Ready(Bytes::new()));
        }
        let counters = &self.shared.bucket.counters;
        let local = self.shared.local(name, file_bytes, &range);
        if let Some(bytes) = local.or_else(|| self.shared.flights.held(name, &range)) {
            counters.cache_hits.fetch_add(1, Relaxed);
            return Ok(Part::Ready(bytes));
        }
        counters.cache_misses.fetch_add(1, Relaxed);
        let (fetch, new) = self.shared.flights.read(name, &range);
        if new {
            let keys: Vec<PartKey> = parts_of(name, &range).collect();
            let gather = Gather::new(fetch.clone(), range.clone(), keys.len());
            for (index, key) in keys.into_iter().enumerate() {
                self.shared.want(key, file_bytes, gather.clone(), index);
            }
            let shared = Arc::downgrade(&self.shared);
            fetch.when_ended(move |outcome| {
                if let (Err(_), Some(shared)) = (outcome, shared.upgrade()) {
                    shared.flights.drop_reads(name, &range);
                }
            });
        }
        Ok(Part::Fetch(fetch))
    }

    fn prefetch(&self, name: FileName, file_bytes: u64, range: Range<u64>) {
        let range = range.start..range.end.min(file_bytes);
        if range.is_empty() || check(name, file_bytes, &range).is_err() {
            return;
        }
        for key in parts_of(name, &range) {
            if !self.shared.prefetch(key, file_bytes) {
                return;
            }
        }
    }

    fn forget(&self, name: FileName, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        for key in parts_of(name, &range) {
            self.shared.cache.forget(key);
        }
        self.shared.flights.drop_reads(name, &range);
    }

    fn delete(&self, name: FileName, done: Done<()>) {
        let shared = self.shared.clone();
        let reply = Reply::new(done);
        self.shared.handle.spawn(async move {
            shared.cache.forget_file(name);
            let until = shared.bucket.deadline();
            let outcome = shared.bucket.delete(&key::of_fragment(name), until).await;
            reply.send(outcome.map_err(io::Error::from));
        });
    }

    fn list(&self, done: Done<Vec<StoredFile>>) {
        let bucket = self.shared.bucket.clone();
        let reply = Reply::new(done);
        self.shared.handle.spawn(async move {
            let objects = bucket.list(key::FRAGMENTS, bucket.deadline()).await;
            let file = |(key, bytes): &(String, u64)| {
                Some(StoredFile { name: key::parse_fragment(key)?, bytes: *bytes })
            };
            let files = objects.map(|all| all.iter().filter_map(file).collect());
            reply.send(files.map_err(io::Error::from));
        });
    }

    fn address(&self) -> String {
        self.shared.bucket.address().to_string()
    }
}

fn check(name: FileName, file_bytes: u64, range: &Range<u64>) -> io::Result<()> {
    if range.start <= range.end && range.end <= file_bytes && file_bytes <= FILE_BYTES_MAX {
        return Ok(());
    }
    let what = format!("{name} has {file_bytes} bytes, but {range:?} were wanted");
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

impl Shared {
    /// Returns bytes that are all on this machine.
    fn local(&self, name: FileName, file_bytes: u64, range: &Range<u64>) -> Option<Bytes> {
        let mut pieces = Vec::with_capacity(1);
        for key in parts_of(name, range) {
            pieces.push(self.local_part(key, file_bytes, range)?);
        }
        Some(concatenate(pieces.into_iter()))
    }

    /// Returns the wanted bytes of one part.
    fn local_part(&self, key: PartKey, file_bytes: u64, range: &Range<u64>) -> Option<Bytes> {
        let part = key.range(file_bytes);
        let from = range.start.max(part.start) - part.start;
        let to = range.end.min(part.end) - part.start;
        if let Some(bytes) = self.cache.read(key, from as usize..to as usize) {
            return Some(bytes);
        }
        self.flights.fetched(key).map(|bytes| slice(&bytes, part.start, range))
    }

    /// Brings one part of a read to its gathering: from the cache, from a fetch under way,
    /// or by a new fetch.
    fn want(self: &Arc<Shared>, key: PartKey, file_bytes: u64, gather: Arc<Gather>, index: usize) {
        let part = key.range(file_bytes);
        let whole = 0..(part.end - part.start) as usize;
        loop {
            if let Some(bytes) = self.cache.read(key, whole.clone()) {
                return gather.arrived(index, part.start, Ok(bytes));
            }
            let gather = gather.clone();
            let waiter = move |outcome| gather.arrived(index, part.start, outcome);
            match self.flights.join(key, || self.cache.contains(key), waiter) {
                Join::Cached => {}
                Join::UnderWay => return,
                Join::Start => {
                    let shared = self.clone();
                    self.handle.spawn(async move { shared.fetch(key, file_bytes).await });
                    return;
                }
            }
        }
    }

    /// Starts the fetch of a part ahead of its use. False if no more may be started.
    fn prefetch(self: &Arc<Shared>, key: PartKey, file_bytes: u64) -> bool {
        let part = key.range(file_bytes);
        let bytes = part.end - part.start;
        if self.cache.contains(key) {
            return true;
        }
        let reserve = |used: u64| Some(used + bytes).filter(|used| *used <= self.prefetching_max);
        if self.prefetching.fetch_update(Relaxed, Relaxed, reserve).is_err() {
            self.bucket.counters.prefetches_skipped.fetch_add(1, Relaxed);
            return false;
        }
        if !self.flights.begin(key, || self.cache.contains(key)) {
            self.prefetching.fetch_sub(bytes, Relaxed);
            return true;
        }
        self.bucket.counters.prefetches.fetch_add(1, Relaxed);
        let shared = self.clone();
        self.handle.spawn(async move {
            shared.fetch(key, file_bytes).await;
            shared.prefetching.fetch_sub(bytes, Relaxed);
        });
        true
    }

    /// Fetches a part, reports it, and adds it to the cache.
    async fn fetch(self: &Arc<Shared>, key: PartKey, file_bytes: u64) {
        let started = Instant::now();
        let object = key::of_fragment(key.name);
        let until = self.bucket.deadline();
        let outcome = self.bucket.get(&object, key.range(file_bytes), until).await;
        self.bucket.counters.fetches.record(started.elapsed());
        let bytes = match outcome {
            Ok(bytes) => bytes,
            Err(error) => {
                return self.flights.ended(key, Err(FetchError::from(io::Error::from(error))));
            }
        };
        self.flights.ended(key, Ok(bytes.clone()));
        let shared = self.clone();
        let cached = tokio::task::spawn_blocking(move || shared.cache.insert(key, &bytes)).await;
        if cached.is_err() {
            tracing::error!(file = %key.name, "adding a part to the cache panicked");
        }
        self.flights.landed(key);
    }
}
