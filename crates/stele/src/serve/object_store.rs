//! The object store that holds the files of the tables, if they are not in the data
//! directory: which one it is, its cache, and the collection of unused files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, bail};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use stele_engine::world::{Disk, Files, FragmentStore};
use stele_engine::{Collected, FRAGMENTS_DIR, Store};
use stele_grpc::offload::offload;
use stele_metrics::Text;
use stele_objects::Objects;

use super::data_dir::DataDir;
use super::settings::StoreSettings;
use super::shutdown::Phases;

/// The file in the data directory that says where the files of the tables are.
pub const FILE: &str = "object-store.json";
/// The cache, unless a directory is given.
pub const CACHE_DIR: &str = "cache";
const VERSION: u32 = 1;

/// The object store of a server.
pub struct ObjectStore {
    objects: Arc<Objects>,
    collections: Collections,
}

/// The collections so far.
#[derive(Default)]
struct Collections {
    rounds: AtomicU64,
    deleted: AtomicU64,
    deleted_bytes: AtomicU64,
    /// The reason if the last round failed.
    failure: Mutex<Option<String>>,
}

/// The contents of the file in the data directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Location {
    version: u32,
    /// Where the files were when the server was last started.
    url: String,
    /// The id that the store has, too.
    cluster: String,
    /// Whether tables were ever opened with it.
    in_use: bool,
}

impl Location {
    fn read(dir: &Path) -> anyhow::Result<Option<Location>> {
        let path = dir.join(FILE);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("reading {}", path.display()))?,
        };
        let location: Location = serde_json::from_slice(&text)
            .with_context(|| format!("{} is damaged: restore it from a backup", path.display()))?;
        if location.version > VERSION {
            let found = location.version;
            bail!(
                "{} has version {found}, this program reads up to {VERSION}: use a newer stele",
                path.display()
            );
        }
        Ok(Some(location))
    }

    /// Replaces the file, durably.
    fn write(&self, dir: &Path) -> anyhow::Result<()> {
        let (path, new) = (dir.join(FILE), dir.join(format!("{FILE}.new")));
        let replace = || -> std::io::Result<()> {
            // It may be written before the store creates its directory.
            Disk.create_dir_all(dir)?;
            let mut file = std::fs::File::create(&new)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            std::fs::rename(&new, &path)?;
            std::fs::File::open(dir)?.sync_all()
        };
        replace().with_context(|| format!("writing {}", path.display()))
    }
}

/// Returns the object store in which the tables of a data directory are, if any.
fn object_store_of(dir: &Path) -> anyhow::Result<Option<String>> {
    Ok(Location::read(dir)?.filter(|location| location.in_use).map(|location| location.url))
}

/// Opens the object store in which the tables of a data directory are, if any, without
/// writing to it. `url` says where it is now, if it was moved.
pub fn open_to_read(
    dir: &Path,
    url: Option<&str>,
    cache: &Path,
    cache_bytes: u64,
) -> anyhow::Result<Option<Arc<dyn FragmentStore>>> {
    let location = Location::read(dir)?.filter(|location| location.in_use);
    let Some(location) = location else {
        let dir = dir.display();
        return match url {
            None => Ok(None),
            Some(url) => bail!("the tables of {dir} are in the directory itself, not in {url}"),
        };
    };
    let url = url.unwrap_or(&location.url);
    let mut open = stele_objects::Settings::new(cache, cache_bytes);
    open.cluster = Some(location.cluster.clone());
    open.read_only = true;
    let objects = stele_objects::open(url, open).with_context(|| format!("object store {url}"))?;
    Ok(Some(objects))
}

impl ObjectStore {
    /// Opens the store of the settings. Fails if it is not the one in which the tables of
    /// this data directory are.
    pub fn open(
        settings: Option<&StoreSettings>,
        data_dir: &DataDir,
    ) -> anyhow::Result<Option<Arc<ObjectStore>>> {
        let dir = &data_dir.path;
        let Some(settings) = settings else {
            if let Some(url) = object_store_of(dir)? {
                let dir = dir.display();
                bail!(
                    "the tables of {dir} are in the object store {url}: start with --store {url}"
                );
            }
            return Ok(None);
        };
        let url = settings.url.clone();
        let location = match Location::read(dir)? {
            Some(known) => Location { url: url.clone(), ..known },
            None => {
                check_no_local_files(dir, &url)?;
                // Kept before the store gets it, so that a crash cannot lose it.
                let cluster = stele_objects::new_cluster()?;
                let new = Location { version: VERSION, url: url.clone(), cluster, in_use: false };
                new.write(dir)?;
                new
            }
        };
        let cache = settings.cache.clone().unwrap_or_else(|| dir.join(CACHE_DIR));
        let mut open = stele_objects::Settings::new(cache, settings.cache_size.0);
        open.cluster = Some(location.cluster.clone());
        let objects = stele_objects::open(&url, open).with_context(|| format!("--store {url}"))?;
        Location { in_use: true, ..location }.write(dir)?;
        Ok(Some(Arc::new(ObjectStore { objects, collections: Collections::default() })))
    }

    /// Returns the store for the engine.
    pub fn fragments(&self) -> Arc<dyn FragmentStore> {
        self.objects.clone()
    }

    /// Returns the address of the store.
    pub fn address(&self) -> String {
        self.objects.address()
    }

    /// Returns the bytes in the cache, and how many there may be.
    pub fn cached_bytes(&self) -> (u64, u64) {
        let counters = self.objects.counters();
        (counters.cache_used_bytes.load(Relaxed), counters.cache_limit_bytes.load(Relaxed))
    }

    /// Returns why unused files are not collected, if that fails.
    pub fn warning(&self) -> Option<String> {
        let failure = self.collections.failure.lock();
        let reason = failure.as_ref()?;
        Some(format!("unused files in the object store are not deleted: {reason}; retrying"))
    }

    pub fn write_metrics(&self, text: &mut Text) {
        self.objects.counters().write(text);
        let Collections { rounds, deleted, deleted_bytes, failure } = &self.collections;
        for (name, help, value) in [
            ("collections_total", "Completed collections of unused files.", rounds),
            ("collected_files_total", "Unused files deleted from the object store.", deleted),
            ("collected_bytes_total", "Bytes of deleted unused files.", deleted_bytes),
        ] {
            text.counter(&format!("stele_objects_{name}"), help, value.load(Relaxed));
        }
        let name = "stele_objects_collection_failing";
        let failing = u64::from(failure.lock().is_some());
        text.gauge(name, "Whether the last collection of unused files failed (1).", failing);
    }

    /// Collects unused files every so often, until the server shuts down.
    pub async fn collect_every(
        self: Arc<Self>,
        interval: Duration,
        store: Arc<Store>,
        phases: &'static Phases,
    ) {
        loop {
            tokio::select! {
                () = phases.draining.cancelled() => return,
                () = tokio::time::sleep(interval) => {}
            }
            let store = store.clone();
            let collected = offload(move || store.collect(false)).await;
            self.note(match collected {
                Ok(Ok(collected)) => Ok(collected.unwrap_or_default()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(status) => Err(status.message().to_string()),
            });
        }
    }

    fn note(&self, outcome: Result<Collected, String>) {
        let collections = &self.collections;
        let failure = match outcome {
            Ok(collected) => {
                collections.rounds.fetch_add(1, Relaxed);
                collections.deleted.fetch_add(collected.deleted, Relaxed);
                collections.deleted_bytes.fetch_add(collected.deleted_bytes, Relaxed);
                if collected.deleted > 0 {
                    let (files, bytes) = (collected.deleted, collected.deleted_bytes);
                    tracing::info!(files, bytes, "deleted unused files from the object store");
                }
                (collected.failed > 0).then(|| format!("{} deletions failed", collected.failed))
            }
            Err(reason) => {
                tracing::warn!(%reason, "unused files in the object store were not collected");
                Some(reason)
            }
        };
        *collections.failure.lock() = failure;
    }
}

/// Fails if the data directory has files of tables.
fn check_no_local_files(dir: &Path, url: &str) -> anyhow::Result<()> {
    let fragments: PathBuf = dir.join(FRAGMENTS_DIR);
    let mut files = match std::fs::read_dir(&fragments) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        files => files.with_context(|| format!("reading {}", fragments.display()))?,
    };
    if files.next().is_some() {
        bail!(
            "the tables of {} are in the directory itself, not in {url}: start without --store, \
             or with an empty --data directory",
            dir.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_survives_and_a_newer_or_damaged_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Location::read(dir.path()).unwrap().is_none());
        let location =
            Location { version: 1, url: "s3://b/p".into(), cluster: "c".into(), in_use: true };
        location.write(dir.path()).unwrap();
        let read = Location::read(dir.path()).unwrap().unwrap();
        assert_eq!(
            (read.url.as_str(), read.cluster.as_str(), read.in_use),
            ("s3://b/p", "c", true)
        );
        Location { version: 2, ..location }.write(dir.path()).unwrap();
        let error = Location::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("version 2"), "{error}");
        std::fs::write(dir.path().join(FILE), b"{").unwrap();
        let error = Location::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("damaged"), "{error}");
    }

    #[test]
    fn a_directory_with_files_of_tables_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        check_no_local_files(dir.path(), "s3://b").unwrap();
        let fragments = dir.path().join(FRAGMENTS_DIR);
        std::fs::create_dir(&fragments).unwrap();
        check_no_local_files(dir.path(), "s3://b").unwrap();
        std::fs::write(fragments.join("00000001-00000001.frag"), b"x").unwrap();
        let error = check_no_local_files(dir.path(), "s3://b").unwrap_err().to_string();
        assert!(error.contains("without --store"), "{error}");
    }
}
