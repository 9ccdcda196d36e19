//! What the tests of stores share.
#![allow(dead_code)]

pub mod s3d;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use s3d::S3d;
use stele_engine::config::FileName;
use stele_engine::world::{FragmentStore, Part, StoredFile};
use stele_objects::{Environment, Objects, Settings};
use tempfile::TempDir;

pub const BUCKET: &str = "bucket";
pub const URL: &str = "s3://bucket/some/prefix";
pub const MIB: usize = 1 << 20;

/// A server and the directory that holds its objects and the cache of its client.
pub struct Fixture {
    pub dir: TempDir,
    pub server: S3d,
}

impl Fixture {
    pub fn start() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let server = S3d::start(&dir.path().join("s3"), BUCKET);
        Fixture { dir, server }
    }

    pub fn settings(&self) -> Settings {
        let mut settings = settings(self.dir.path());
        settings.environment = Environment(self.server.variables());
        settings
    }

    /// Opens the store as the cluster "one".
    pub fn open(&self) -> Arc<Objects> {
        stele_objects::open(URL, self.settings()).unwrap()
    }

    /// Opens the store without the probe, with an empty cache.
    pub fn open_uncached(&self) -> Arc<Objects> {
        let mut settings = self.settings();
        settings.probe = false;
        settings.cache_dir = self.dir.path().join(format!("cache-{}", next()));
        stele_objects::open(URL, settings).unwrap()
    }
}

/// Returns settings with a cache of 32 MiB and short retries.
pub fn settings(dir: &Path) -> Settings {
    let mut settings = Settings::new(dir.join("cache"), 32 << 20);
    settings.cluster = Some("one".into());
    settings.retry_for = Duration::from_secs(20);
    settings
}

fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, SeqCst)
}

pub fn name(number: u64) -> FileName {
    FileName { incarnation: 3, number }
}

pub fn contents(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes
}

pub fn write(store: &Objects, name: FileName, bytes: &[u8]) -> io::Result<()> {
    let mut sink = store.create(name);
    for chunk in bytes.chunks(300_007) {
        sink.append(chunk)?;
    }
    outcome(|done| sink.finish(done))
}

/// Reads as a worker does: waits for fetches and holds them until the read succeeds.
pub fn read(
    store: &Objects,
    name: FileName,
    size: usize,
    range: std::ops::Range<usize>,
) -> io::Result<Bytes> {
    let range = range.start as u64..range.end as u64;
    let mut held = Vec::new();
    for _ in 0..100 {
        match store.read(name, size as u64, range.clone())? {
            Part::Ready(bytes) => return Ok(bytes),
            Part::Fetch(fetch) => {
                fetch.wait()?;
                held.push(fetch);
            }
        }
    }
    panic!("a read of {range:?} makes no progress");
}

pub fn list(store: &Objects) -> io::Result<Vec<StoredFile>> {
    outcome(|done| store.list(done))
}

pub fn delete(store: &Objects, name: FileName) -> io::Result<()> {
    outcome(|done| store.delete(name, done))
}

/// Waits for the outcome of a request.
pub fn outcome<T: Send + 'static>(
    start: impl FnOnce(Box<dyn FnOnce(io::Result<T>) + Send>),
) -> io::Result<T> {
    let (sent, outcome) = mpsc::channel();
    start(Box::new(move |outcome| sent.send(outcome).unwrap()));
    outcome.recv().expect("every request has an outcome")
}

/// Waits until something that happens in the background has happened.
pub fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let started = Instant::now();
    while !happened() {
        assert!(started.elapsed() < Duration::from_secs(30), "{what} did not happen");
        std::thread::yield_now();
    }
}
