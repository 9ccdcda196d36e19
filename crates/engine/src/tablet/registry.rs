//! The file registry: how many references the rows of the tables have to each file, and
//! the file that the links to it share. A file without a reference is removed from the
//! directory after its last reader, unless a checkpoint needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use super::link::LinkedFile;
use super::removals::{Removals, Unused};
use crate::config::{Configs, FileName};
use crate::fragment::Fragment;
use crate::sync::Mutex;
use crate::world::Files;

pub struct FileRegistry {
    dir: PathBuf,
    names: Mutex<Names>,
    removals: Removals,
}

#[derive(Default)]
struct Names {
    entries: BTreeMap<FileName, Entry>,
    /// The files that checkpoints need, as of this revision of the config.
    pinned: BTreeSet<FileName>,
    pins_revision: u64,
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
            names: Mutex::default(),
            removals: Removals::new(files),
        }
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

    /// Marks a linked file for removal after its last reader, whatever its references.
    pub fn doom(&self, name: FileName) {
        self.names.lock().entries.entry(name).or_default().doomed = true;
    }

    /// Returns the number of references to a file.
    #[cfg(test)]
    pub fn references(&self, name: FileName) -> usize {
        self.names.lock().entries.get(&name).map_or(0, |entry| entry.references)
    }

    /// Pins the files that the checkpoints in `configs` need, and no others. Ignores a
    /// config older than the last one.
    pub fn update_pins(&self, configs: &Configs) {
        let pinned = configs.pinned_files().map(|file| file.name).collect();
        let mut names = self.names.lock();
        if configs.revision >= names.pins_revision {
            names.pinned = pinned;
            names.pins_revision = configs.revision;
        }
    }

    /// Whether a checkpoint needs the file.
    pub fn is_pinned(&self, name: FileName) -> bool {
        self.names.lock().pinned.contains(&name)
    }

    /// Removes a file that neither tables nor checkpoints refer to, after its last
    /// reader.
    pub fn remove(&self, name: FileName) {
        let mut names = self.names.lock();
        if let Some(entry) = names.entries.get_mut(&name)
            && entry.linked.strong_count() > 0
        {
            entry.doomed = true;
            return;
        }
        names.entries.remove(&name);
        drop(names);
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
        doomed && !names.pinned.contains(&name)
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
    fn an_older_config_does_not_release_the_files_of_a_newer_checkpoint() {
        let sim = SimFiles::new(1);
        let registry = registry(&sim);
        let newer = Configs { revision: 5, ..Configs::default() };
        registry.update_pins(&newer);
        registry.names.lock().pinned.insert(NAME);
        registry.update_pins(&Configs { revision: 4, ..Configs::default() });
        assert!(registry.is_pinned(NAME));
        registry.update_pins(&newer);
        assert!(!registry.is_pinned(NAME));
    }
}
