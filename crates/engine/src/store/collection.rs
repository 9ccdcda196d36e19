//! Collection of unused files in a store outside the directory.
//!
//! A round first notes the oldest name that is still pending, then lists the files, then
//! reads the config, and only then decides: a file that was listed and is older than
//! that name was either in the config when it was read, or never will be again. It is
//! deleted if two consecutive rounds found it unused. Whatever cannot be listed or read
//! ends a round without a deletion.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::engine::Engine;
use super::handle::Store;
use crate::config::FileName;
use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex};
use crate::world::{FragmentStore, wait_for};

/// The maximum number of deletions under way.
const DELETIONS_MAX: usize = 16;

/// What the last round found.
#[derive(Default)]
pub struct Collection {
    /// Held during a round, so that there is one at a time.
    round: Mutex<Marked>,
}

/// The files that the last round found unused.
#[derive(Default)]
struct Marked(BTreeSet<FileName>);

/// The outcome of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The files in the store, and their bytes.
    pub listed: u64,
    pub listed_bytes: u64,
    /// Those that tables, backups or readers use.
    pub used: u64,
    /// Those that were being written when the round began.
    pub pending: u64,
    /// Unused files, in the order of their names.
    pub unused: Vec<UnusedFile>,
    /// Files deleted, and their bytes.
    pub deleted: u64,
    pub deleted_bytes: u64,
    /// Files that could not be deleted; the next round tries again.
    pub failed: u64,
}

/// A file that nothing refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnusedFile {
    pub name: FileName,
    pub bytes: u64,
    /// Whether the previous round found it unused, too: this one deletes it.
    pub marked: bool,
}

impl Store {
    /// Whether the files are outside the directory.
    pub fn has_object_store(&self) -> bool {
        self.engine.tables.fragments.remote().is_some()
    }

    /// Finds files outside the directory that nothing refers to, and deletes those that
    /// the last round found, too. With `dry_run` it deletes and marks nothing. Blocks
    /// this thread. Returns `None` if the files are in the directory, where they are
    /// removed without a collection.
    pub fn collect(&self, dry_run: bool) -> Result<Option<Collected>> {
        // This store does not name the files of other servers.
        self.check_alone("collect files")?;
        self.engine.collect(dry_run)
    }
}

impl Engine {
    fn collect(&self, dry_run: bool) -> Result<Option<Collected>> {
        let Some(store) = self.tables.fragments.remote() else { return Ok(None) };
        let mut marked = self.collection.round.lock();
        let mut collected = self.find_unused(store, &marked.0)?;
        if dry_run {
            return Ok(Some(collected));
        }
        let (old, new): (Vec<UnusedFile>, Vec<UnusedFile>) =
            collected.unused.iter().partition(|file| file.marked);
        marked.0 = new.iter().map(|file| file.name).collect();
        for (file, outcome) in delete_all(store, old) {
            match outcome {
                Ok(()) => {
                    collected.deleted += 1;
                    collected.deleted_bytes += file.bytes;
                }
                Err(error) => {
                    let (name, store) = (file.name, store.address());
                    tracing::warn!(%name, %store, %error, "an unused fragment could not be deleted");
                    collected.failed += 1;
                    marked.0.insert(file.name);
                }
            }
        }
        Ok(Some(collected))
    }

    /// Compares the files in the store with those in use, in this order: pending names,
    /// listing, config.
    fn find_unused(
        &self,
        store: &Arc<dyn FragmentStore>,
        marked: &BTreeSet<FileName>,
    ) -> Result<Collected> {
        let fragments = &self.tables.fragments;
        let oldest_pending = fragments.oldest_pending();
        let listed = wait_for(|done| store.list(done));
        let listing = |error| Error::io("listing", Path::new(&store.address()), error);
        let listed: BTreeMap<FileName, u64> =
            listed.map_err(listing)?.into_iter().map(|file| (file.name, file.bytes)).collect();
        let configs = self.tables.config.read()?;
        // A config that has failed may name less than the one on disk.
        self.check_failure()?;
        let named: BTreeSet<FileName> =
            configs.files().chain(configs.pinned_files()).map(|file| file.name).collect();
        let mut collected = Collected {
            listed: listed.len() as u64,
            listed_bytes: listed.values().sum(),
            ..Collected::default()
        };
        for (name, bytes) in listed {
            if named.contains(&name) || fragments.is_linked(name) {
                collected.used += 1;
            } else if name >= oldest_pending {
                collected.pending += 1;
            } else {
                let marked = marked.contains(&name);
                collected.unused.push(UnusedFile { name, bytes, marked });
            }
        }
        Ok(collected)
    }
}

/// Deletes files, several at a time, and returns the outcome of each.
fn delete_all(
    store: &Arc<dyn FragmentStore>,
    files: Vec<UnusedFile>,
) -> Vec<(UnusedFile, io::Result<()>)> {
    let shared = Arc::new((Mutex::new(Vec::with_capacity(files.len())), Condvar::new()));
    for (started, &file) in files.iter().enumerate() {
        let mut ended = shared.0.lock();
        while started - ended.len() >= DELETIONS_MAX {
            shared.1.wait(&mut ended);
        }
        drop(ended);
        let outcomes = shared.clone();
        store.delete(
            file.name,
            Box::new(move |outcome| {
                outcomes.0.lock().push((file, outcome));
                outcomes.1.notify_all();
            }),
        );
    }
    let mut ended = shared.0.lock();
    while ended.len() < files.len() {
        shared.1.wait(&mut ended);
    }
    std::mem::take(&mut *ended)
}
