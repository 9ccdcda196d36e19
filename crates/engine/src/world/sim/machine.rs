//! A simulated machine with one disk: the state shared by the handles of a
//! [`SimFiles`].
//!
//! [`SimFiles`]: super::SimFiles

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::Counters;
use super::content::Content;
use super::faults::{Faults, Operation, disk_full};
use super::names::{DirEntry, Names, dir_of};
use crate::world::random::{Random, SeededRandom};

/// Prevents a wild offset from exhausting memory.
const FILE_BYTES_MAX: usize = 1 << 32;

pub struct Machine {
    on: bool,
    random: SeededRandom,
    names: Names,
    contents: BTreeMap<u64, Content>,
    next_file: u64,
    /// The number of handles of each file.
    handles: BTreeMap<u64, usize>,
    locked: BTreeSet<u64>,
    pub faults: Faults,
    /// The maximum total size of all files.
    pub capacity: Option<u64>,
    pub counters: Counters,
}

impl Machine {
    pub fn new(seed: u64) -> Machine {
        Machine {
            on: true,
            random: SeededRandom::new(seed),
            names: Names::default(),
            contents: BTreeMap::new(),
            next_file: 0,
            handles: BTreeMap::new(),
            locked: BTreeSet::new(),
            faults: Faults::default(),
            capacity: None,
            counters: Counters::default(),
        }
    }

    /// Switches the machine off and returns one restarted on its disk.
    pub fn restart(&mut self, keeping_writes: bool) -> Machine {
        self.on = false;
        let mut next = Machine::new(self.random.next_u64());
        next.names = std::mem::take(&mut self.names);
        next.contents = std::mem::take(&mut self.contents);
        next.next_file = self.next_file;
        next.capacity = self.capacity;
        next.faults.rates = self.faults.rates;
        if !keeping_writes {
            next.names = next.names.after_crash(&self.random);
            next.contents = std::mem::take(&mut next.contents)
                .into_iter()
                .map(|(number, content)| (number, content.after_crash(&self.random)))
                .collect();
        }
        next.drop_unreachable();
        next
    }

    /// Starts every operation: checks that the machine is on and injects faults.
    fn begin(&mut self, operation: Operation, path: &Path) -> io::Result<()> {
        self.expect_on()?;
        self.faults.strike(operation, path, &self.random)
    }

    fn expect_on(&self) -> io::Result<()> {
        if self.on { Ok(()) } else { Err(io::Error::other("the machine is off")) }
    }

    pub fn create(&mut self, path: &Path) -> io::Result<u64> {
        self.begin(Operation::Create, path)?;
        if self.names.get(path).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let number = self.add_file(path)?;
        Ok(self.add_handle(number))
    }

    pub fn open(&mut self, path: &Path) -> io::Result<u64> {
        self.begin(Operation::Open, path)?;
        let number = self.file(path)?;
        self.counters.opens += 1;
        Ok(self.add_handle(number))
    }

    /// Returns the number of files with an open handle whose path contains `path_part`.
    pub fn open_files(&self, path_part: &str) -> usize {
        let named =
            self.names.files().filter(|(path, _)| path.to_string_lossy().contains(path_part));
        named.filter(|(_, number)| self.handles.contains_key(number)).count()
    }

    fn add_file(&mut self, path: &Path) -> io::Result<u64> {
        self.expect_dir(dir_of(path))?;
        let number = self.next_file;
        self.next_file += 1;
        self.contents.insert(number, Content::default());
        self.names.link(path, DirEntry::File(number));
        Ok(number)
    }

    fn add_handle(&mut self, number: u64) -> u64 {
        *self.handles.entry(number).or_default() += 1;
        number
    }

    /// Called when a handle is dropped.
    pub fn release(&mut self, number: u64) {
        if let Some(held) = self.handles.get_mut(&number) {
            *held -= 1;
            if *held == 0 {
                self.handles.remove(&number);
            }
        }
    }

    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.begin(Operation::Rename, from)?;
        self.file(from)?;
        self.expect_dir(dir_of(to))?;
        if self.names.get(to) == Some(DirEntry::Dir) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.names.rename(from, to);
        Ok(())
    }

    pub fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.begin(Operation::Remove, path)?;
        self.file(path)?;
        self.names.unlink(path);
        Ok(())
    }

    pub fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        self.begin(Operation::CreateDir, path)?;
        let mut ancestors: Vec<_> = path.ancestors().collect();
        ancestors.reverse();
        for dir in ancestors {
            match self.names.get(dir) {
                None => self.names.link(dir, DirEntry::Dir),
                Some(DirEntry::Dir) => {}
                Some(DirEntry::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
            }
        }
        Ok(())
    }

    pub fn list(&mut self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.begin(Operation::List, dir)?;
        self.expect_dir(dir)?;
        let names = self.names.inside(dir).filter_map(Path::file_name);
        Ok(names.map(PathBuf::from).collect())
    }

    pub fn exists(&self, path: &Path) -> io::Result<bool> {
        self.expect_on()?;
        Ok(self.names.get(path).is_some())
    }

    pub fn size(&self, path: &Path) -> io::Result<u64> {
        self.expect_on()?;
        self.file_len(self.file(path)?)
    }

    pub fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.begin(Operation::SyncDir, dir)?;
        self.expect_dir(dir)?;
        self.names.sync(dir);
        self.counters.dir_syncs += 1;
        self.drop_unreachable();
        Ok(())
    }

    pub fn lock(&mut self, path: &Path) -> io::Result<u64> {
        self.begin(Operation::Lock, path)?;
        let number = match self.names.get(path) {
            Some(_) => self.file(path)?,
            None => self.add_file(path)?,
        };
        if !self.locked.insert(number) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(number)
    }

    pub fn unlock(&mut self, number: u64) {
        self.locked.remove(&number);
    }

    pub fn read(&mut self, path: &Path, number: u64, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.begin(Operation::Read, path)?;
        let seen = self.content(number).seen();
        let from = usize::try_from(at).unwrap_or(usize::MAX);
        let bytes = seen.get(from..).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        self.counters.reads += 1;
        self.counters.read_bytes += buf.len() as u64;
        Ok(())
    }

    /// Writes to a file. A failed write may have written a part.
    pub fn write(&mut self, path: &Path, number: u64, buf: &[u8], at: u64) -> io::Result<()> {
        self.expect_on()?;
        let outcome = self.begin(Operation::Write, path);
        let offset = usize::try_from(at).unwrap_or(usize::MAX);
        let end = offset.saturating_add(buf.len());
        if end > FILE_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let space = self.longest(number).saturating_sub(offset).min(buf.len());
        let outcome = outcome.and(if space < buf.len() { Err(disk_full()) } else { Ok(()) });
        let written = match outcome {
            Ok(()) => space,
            Err(_) => self.random.next_u64() as usize % (space + 1),
        };
        if written > 0 {
            self.content_mut(number).write(offset, &buf[..written]);
        }
        self.counters.writes += 1;
        self.counters.written_bytes += written as u64;
        outcome
    }

    pub fn set_len(&mut self, path: &Path, number: u64, len: u64) -> io::Result<()> {
        self.begin(Operation::SetLen, path)?;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > FILE_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if len > self.longest(number) {
            return Err(disk_full());
        }
        self.content_mut(number).set_len(len);
        Ok(())
    }

    /// Returns the maximum length of the file, given the disk's capacity.
    fn longest(&self, number: u64) -> usize {
        let Some(capacity) = self.capacity else { return FILE_BYTES_MAX };
        let used: usize = self.names.files().map(|(_, other)| self.len(other)).sum();
        let free = usize::try_from(capacity).unwrap_or(usize::MAX).saturating_sub(used);
        self.len(number).saturating_add(free)
    }

    fn len(&self, number: u64) -> usize {
        self.content(number).seen().len()
    }

    pub fn file_len(&self, number: u64) -> io::Result<u64> {
        self.expect_on()?;
        Ok(self.len(number) as u64)
    }

    pub fn sync(&mut self, path: &Path, number: u64) -> io::Result<()> {
        self.sync_with(path, number, Content::sync)
    }

    /// Syncs a range of bytes.
    pub fn sync_range(&mut self, path: &Path, number: u64, at: u64, len: usize) -> io::Result<()> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        self.sync_with(path, number, |content| content.sync_range(at, len))
    }

    fn sync_with(
        &mut self,
        path: &Path,
        number: u64,
        sync: impl FnOnce(&mut Content),
    ) -> io::Result<()> {
        self.expect_on()?;
        let outcome = self.begin(Operation::Sync, path);
        let content = self.contents.get_mut(&number).expect("a held file has content");
        match outcome {
            Ok(()) => sync(content),
            Err(_) => content.fail_sync(&self.random),
        }
        self.counters.syncs += 1;
        outcome
    }

    /// Returns the content of a named file, to damage it.
    pub fn damaged(&mut self, path: &Path) -> io::Result<&mut Content> {
        let number = self.file(path)?;
        Ok(self.content_mut(number))
    }

    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let seen = |number| self.content(number).seen().to_vec();
        self.names.files().map(|(path, number)| (path.to_path_buf(), seen(number))).collect()
    }

    fn file(&self, path: &Path) -> io::Result<u64> {
        match self.names.get(path) {
            Some(DirEntry::File(number)) => Ok(number),
            Some(DirEntry::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn expect_dir(&self, path: &Path) -> io::Result<()> {
        match self.names.get(path) {
            Some(DirEntry::Dir) => Ok(()),
            Some(DirEntry::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn content(&self, number: u64) -> &Content {
        self.contents.get(&number).expect("a named or held file has content")
    }

    fn content_mut(&mut self, number: u64) -> &mut Content {
        self.contents.get_mut(&number).expect("a named or held file has content")
    }

    /// Drops files without a name or a handle.
    fn drop_unreachable(&mut self) {
        let reachable = self.names.reachable();
        let handles = &self.handles;
        self.contents
            .retain(|number, _| reachable.contains(number) || handles.contains_key(number));
    }
}
