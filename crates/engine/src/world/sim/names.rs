//! The names of a simulated file system: the entries of each directory, and the changes
//! that a crash can undo.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::world::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirEntry {
    Dir,
    /// The file's number.
    File(u64),
}

/// A change of names that is not durable yet.
#[derive(Clone)]
enum Change {
    Link(PathBuf, DirEntry),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
}

type Map = BTreeMap<PathBuf, DirEntry>;

impl Change {
    fn apply(&self, names: &mut Map) {
        match self {
            Change::Link(path, entry) => {
                names.insert(path.clone(), *entry);
            }
            Change::Unlink(path) => {
                names.remove(path);
            }
            Change::Rename(from, to) => {
                let entry = names.remove(from).expect("a renamed name is older than the renaming");
                names.insert(to.clone(), entry);
            }
        }
    }

    /// Returns the directories that it changes.
    fn dirs(&self) -> impl Iterator<Item = &Path> {
        let (first, second) = match self {
            Change::Link(path, _) | Change::Unlink(path) => (path, None),
            Change::Rename(from, to) => (from, Some(to)),
        };
        std::iter::once(first).chain(second).map(|path| dir_of(path))
    }
}

#[derive(Clone, Default)]
pub struct Names {
    seen: Map,
    durable: Map,
    /// In the order in which they were made.
    unsynced: Vec<Change>,
}

impl Names {
    pub fn get(&self, path: &Path) -> Option<DirEntry> {
        if is_root(path) {
            return Some(DirEntry::Dir);
        }
        self.seen.get(path).copied()
    }

    pub fn link(&mut self, path: &Path, entry: DirEntry) {
        self.change(Change::Link(path.to_path_buf(), entry));
    }

    pub fn unlink(&mut self, path: &Path) {
        self.change(Change::Unlink(path.to_path_buf()));
    }

    pub fn rename(&mut self, from: &Path, to: &Path) {
        self.change(Change::Rename(from.to_path_buf(), to.to_path_buf()));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.seen);
        self.unsynced.push(change);
    }

    /// Returns the entries of a directory.
    pub fn inside<'a>(&'a self, dir: &'a Path) -> impl Iterator<Item = &'a Path> {
        self.seen.keys().filter(move |path| dir_of(path) == dir).map(PathBuf::as_path)
    }

    pub fn files(&self) -> impl Iterator<Item = (&Path, u64)> {
        self.seen.iter().filter_map(|(path, entry)| match entry {
            DirEntry::File(number) => Some((path.as_path(), *number)),
            DirEntry::Dir => None,
        })
    }

    /// Returns the files that have a name, or regain one if a crash undoes changes.
    pub fn reachable(&self) -> BTreeSet<u64> {
        let linked = self.unsynced.iter().filter_map(|change| match change {
            Change::Link(_, entry) => Some(entry),
            _ => None,
        });
        let entries = self.seen.values().chain(self.durable.values()).chain(linked);
        entries
            .filter_map(|entry| match entry {
                DirEntry::File(number) => Some(*number),
                DirEntry::Dir => None,
            })
            .collect()
    }

    /// Makes the changes of a directory durable, together with those of other
    /// directories that they depend on (a file renamed from there).
    pub fn sync(&mut self, dir: &Path) {
        let mut dirs = BTreeSet::from([dir.to_path_buf()]);
        let mut due = vec![false; self.unsynced.len()];
        for (change, due) in self.unsynced.iter().zip(&mut due).rev() {
            if change.dirs().any(|dir| dirs.contains(dir)) {
                *due = true;
                dirs.extend(change.dirs().map(Path::to_path_buf));
            }
        }
        let mut due = due.into_iter();
        self.unsynced.retain(|change| {
            let now = due.next().expect("one mark per change");
            if now {
                change.apply(&mut self.durable);
            }
            !now
        });
    }

    /// Returns what is left after a power failure: of each directory's unsynced changes
    /// a random prefix. A rename between directories is in both or neither.
    pub fn after_crash(mut self, random: &dyn Random) -> Names {
        let mut ended = BTreeSet::new();
        let mut left: BTreeMap<PathBuf, u64> = BTreeMap::new();
        for change in &self.unsynced {
            for dir in change.dirs().collect::<BTreeSet<_>>() {
                *left.entry(dir.to_path_buf()).or_default() += 1;
            }
        }
        for kept in left.values_mut() {
            *kept = random.next_u64() % (*kept + 1);
        }
        for change in std::mem::take(&mut self.unsynced) {
            let dirs: BTreeSet<_> = change.dirs().map(Path::to_path_buf).collect();
            if dirs.iter().any(|dir| ended.contains(dir) || left[dir] == 0) {
                ended.extend(dirs);
                continue;
            }
            for dir in &dirs {
                *left.get_mut(dir).expect("counted above") -= 1;
            }
            change.apply(&mut self.durable);
        }
        self.drop_orphans();
        self.seen = self.durable.clone();
        self
    }

    /// Drops names whose directory no longer exists.
    fn drop_orphans(&mut self) {
        let durable = &mut self.durable;
        // A parent sorts before its entries.
        let mut dirs = BTreeSet::new();
        durable.retain(|path, entry| {
            let dir = dir_of(path);
            let kept = is_root(dir) || dirs.contains(dir);
            if kept && *entry == DirEntry::Dir {
                dirs.insert(path.clone());
            }
            kept
        });
    }
}

/// Returns the directory of a path; empty for a bare name.
pub fn dir_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn is_root(path: &Path) -> bool {
    path.parent().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::random::SeededRandom;

    fn with_dirs(dirs: &[&str]) -> Names {
        let mut names = Names::default();
        for dir in dirs {
            names.link(Path::new(dir), DirEntry::Dir);
            names.sync(dir_of(Path::new(dir)));
        }
        names
    }

    fn survivors(names: &Names) -> BTreeSet<Vec<(String, u64)>> {
        (0..200)
            .map(|seed| {
                let left = names.clone().after_crash(&SeededRandom::new(seed));
                left.files().map(|(path, file)| (path.display().to_string(), file)).collect()
            })
            .collect()
    }

    fn listing(files: &[(&str, u64)]) -> Vec<(String, u64)> {
        files.iter().map(|(path, file)| (path.to_string(), *file)).collect()
    }

    #[test]
    fn unsynced_names_survive_as_a_first_part_of_their_order() {
        let mut names = with_dirs(&["d"]);
        names.link(Path::new("d/a"), DirEntry::File(1));
        names.sync(Path::new("d"));
        names.link(Path::new("d/b"), DirEntry::File(2));
        names.unlink(Path::new("d/a"));
        names.rename(Path::new("d/b"), Path::new("d/a"));
        let expected = [
            listing(&[("d/a", 1)]),
            listing(&[("d/a", 1), ("d/b", 2)]),
            listing(&[("d/b", 2)]),
            listing(&[("d/a", 2)]),
        ];
        assert_eq!(survivors(&names), expected.into());
    }

    #[test]
    fn a_file_renamed_to_another_directory_is_in_exactly_one_after_a_crash() {
        let mut names = with_dirs(&["d", "e"]);
        names.link(Path::new("d/a"), DirEntry::File(1));
        names.sync(Path::new("d"));
        names.rename(Path::new("d/a"), Path::new("e/a"));
        let expected = [listing(&[("d/a", 1)]), listing(&[("e/a", 1)])];
        assert_eq!(survivors(&names), expected.into());
        names.sync(Path::new("e"));
        assert_eq!(survivors(&names), [listing(&[("e/a", 1)])].into());
    }

    #[test]
    fn directories_lose_their_changes_independently() {
        let mut names = with_dirs(&["d", "e"]);
        names.link(Path::new("d/a"), DirEntry::File(1));
        names.link(Path::new("e/b"), DirEntry::File(2));
        assert_eq!(survivors(&names).len(), 4);
        names.sync(Path::new("e"));
        let expected = [listing(&[("e/b", 2)]), listing(&[("d/a", 1), ("e/b", 2)])];
        assert_eq!(survivors(&names), expected.into());
    }

    #[test]
    fn a_directory_that_was_not_synced_takes_its_files_with_it() {
        let mut names = Names::default();
        names.link(Path::new("/d"), DirEntry::Dir);
        names.link(Path::new("/d/a"), DirEntry::File(1));
        names.sync(Path::new("/d"));
        assert_eq!(survivors(&names), [listing(&[]), listing(&[("/d/a", 1)])].into());
        names.sync(Path::new("/"));
        assert_eq!(survivors(&names), [listing(&[("/d/a", 1)])].into());
    }
}
