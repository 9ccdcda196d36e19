//! The file registry: how many references the rows of the tables have to each file, and
//! the file that the links to it share. Backups, deleted tables and checkpoints have
//! references without links. A file without a reference is removed from the directory
//! after its last reader.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use super::link::LinkedFile;
use super::removals::{Removals, Unused};
use crate::config::FileName;
use crate::fragment::Fragment;
use crate::sync::NoIoMutex;
use crate::world::Files;

pub struct FileRegistry {
    dir: PathBuf,
    names: NoIoMutex<Names>,
    removals: Removals,
    /// Whether files without references are removed.
    removes: bool,
}

#[derive(Default)]
struct Names {
    entries: BTreeMap<FileName, Entry>,
}

#[derive(Default)]
struct Entry {
    /// Zero for a new file that no table refers to yet.
    references: usize,
    /// Whether there were references and there will be none any more.
    doomed: bool,
    /// The file as its links share it, while there are any.
    linked: Weak<LinkedFile>,
}

impl FileRegistry {
    pub fn new(dir: &Path, files: Arc<dyn Files>) -> FileRegistry {
        FileRegistry {
            dir: dir.to_path_buf(),
            names: NoIoMutex::default(),
            removals: Removals::new(files),
            removes: true,
        }
    }

    /// Like `new`, for files that are never removed here.
    pub fn without_removals(dir: &Path, files: Arc<dyn Files>) -> FileRegistry {
        FileRegistry { removes: false, ..FileRegistry::new(dir, files) }
    }

    pub fn path_of(&self, name: FileName) -> PathBuf {
        self.dir.join(name.to_string())
    }

    pub fn removals(&self) -> &Removals {
        &self.removals
    }

    /// Counts a reference.
    pub fn add_reference(&self, name: FileName) {
        self.names.lock().entries.entry(name).or_default().references += 1;
    }

    /// Removes a reference from the count. The last one dooms the file.
    pub fn remove_reference(&self, name: FileName) {
        let mut names = self.names.lock();
        let entry = names.entries.entry(name).or_default();
        assert!(entry.references > 0, "a reference is removed once");
        entry.references -= 1;
        entry.doomed |= entry.references == 0;
    }

    /// Returns the number of references to a file.
    #[cfg(test)]
    pub fn references(&self, name: FileName) -> usize {
        self.names.lock().entries.get(&name).map_or(0, |entry| entry.references)
    }

    /// Like `remove_reference`, for a reference without a link. Removes the file if it
    /// was the last one and nobody reads the file.
    pub fn release(&self, name: FileName) {
        let mut names = self.names.lock();
        let entry = names.entries.entry(name).or_default();
        assert!(entry.references > 0, "a reference is removed once");
        entry.references -= 1;
        if entry.references > 0 {
            return;
        }
        entry.doomed = true;
        if entry.linked.strong_count() > 0 {
            return;
        }
        names.entries.remove(&name);
        drop(names);
        if !self.removes {
            return;
        }
        self.removals.submit(Unused { fragment: None, path: Some(self.path_of(name)) });
    }

    /// Returns the file that all links to it share; `create` makes it for the first.
    pub fn linked(&self, name: FileName, create: impl FnOnce() -> LinkedFile) -> Arc<LinkedFile> {
        let mut names = self.names.lock();
        let entry = names.entries.entry(name).or_default();
        entry.linked.upgrade().unwrap_or_else(|| {
            let linked = Arc::new(create());
            entry.linked = Arc::downgrade(&linked);
            linked
        })
    }

    /// Whether a file has links or references.
    pub fn is_linked(&self, name: FileName) -> bool {
        let in_use = |entry: &Entry| entry.references > 0 || entry.linked.strong_count() > 0;
        self.names.lock().entries.get(&name).is_some_and(in_use)
    }

    /// Returns all files that have links.
    pub fn all_linked(&self) -> Vec<Weak<LinkedFile>> {
        self.names.lock().entries.values().map(|entry| entry.linked.clone()).collect()
    }

    /// Called when the last link and the last reader of a file are gone.
    pub fn released(&self, name: FileName, fragment: Option<Arc<Fragment>>) {
        let path = self.forget(name).then(|| self.path_of(name));
        if fragment.is_some() || path.is_some() {
            self.removals.submit(Unused { fragment, path });
        }
    }

    /// Forgets a file without links. Returns whether it is to be removed.
    fn forget(&self, name: FileName) -> bool {
        let mut names = self.names.lock();
        let Some(entry) = names.entries.get(&name) else { return false };
        // Another thread may have linked the file again.
        if entry.linked.strong_count() > 0 {
            return false;
        }
        let doomed = entry.doomed;
        if doomed || entry.references == 0 {
            names.entries.remove(&name);
        }
        self.removes && doomed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::BlockCache;
    use crate::fragment::{FileHandle, FileHandles, KnownSize};
    use crate::world::sim::SimFiles;

    const NAME: FileName = FileName { incarnation: 1, number: 1 };

    fn registry(sim: &SimFiles) -> Arc<FileRegistry> {
        let registry = FileRegistry::new(Path::new("/"), Arc::new(sim.clone()));
        sim.create(&registry.path_of(NAME)).unwrap();
        Arc::new(registry)
    }

    fn linked(registry: &Arc<FileRegistry>, sim: &SimFiles) -> Arc<LinkedFile> {
        registry.linked(NAME, || {
            let files: Arc<dyn Files> = Arc::new(sim.clone());
            let handle = FileHandle::new(&files, &registry.path_of(NAME), &FileHandles::new(1));
            let cache = BlockCache::new(0);
            LinkedFile::new(NAME, handle, KnownSize::default(), 1, cache, registry.clone())
        })
    }

    #[test]
    fn scale_2_14_a_file_is_removed_without_references_and_readers() {
        let sim = SimFiles::new(1);
        let registry = registry(&sim);
        let exists = || sim.exists(&registry.path_of(NAME)).unwrap();
        let link = linked(&registry, &sim);
        assert!(Arc::ptr_eq(&link, &linked(&registry, &sim)), "links share the file");
        registry.add_reference(NAME);
        registry.add_reference(NAME);
        let reader = link.clone();
        drop(link);
        registry.remove_reference(NAME);
        assert_eq!(registry.references(NAME), 1);
        drop(linked(&registry, &sim));
        registry.remove_reference(NAME);
        assert!(exists(), "it is still being read");
        drop(reader);
        assert!(!exists());
    }

    #[test]
    fn scale_2_14_a_file_that_no_config_names_yet_stays() {
        let sim = SimFiles::new(1);
        let registry = registry(&sim);
        drop(linked(&registry, &sim));
        assert!(sim.exists(&registry.path_of(NAME)).unwrap(), "whether it is named is unknown");
    }

    #[test]
    fn scale_6_9_a_file_that_only_backups_refer_to_is_removed_with_the_last_of_them() {
        let sim = SimFiles::new(1);
        let registry = registry(&sim);
        let exists = || sim.exists(&registry.path_of(NAME)).unwrap();
        registry.add_reference(NAME);
        registry.add_reference(NAME);
        let link = linked(&registry, &sim);
        registry.add_reference(NAME);
        drop(link);
        registry.remove_reference(NAME);
        registry.release(NAME);
        assert!(exists() && registry.references(NAME) == 1);
        let reader = linked(&registry, &sim);
        registry.release(NAME);
        assert!(exists(), "it is still being read");
        drop(reader);
        assert!(!exists());
    }
}
