//! A simulated file system in memory, for tests with crashes and faults.
//!
//! Reads see everything written. After a crash everything synced remains; the rest
//! depends on the seed: each write is kept, lost or torn independently, and of the name
//! changes in each directory a prefix is kept. All randomness comes from the seed, so
//! one thread with one seed is deterministic.

mod agenda;
mod content;
mod faults;
mod hold;
mod log_objects;
mod machine;
mod names;
mod objects;
mod process;
mod threads;

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

#[cfg(not(feature = "shuttle"))]
pub use crate::sync::IdleScope;

use super::files::{DirLock, File, Files};
pub use agenda::Agenda;
pub use faults::{Fault, FaultRates, Operation, Planned, disk_error, disk_full};
pub use hold::Hold;
use hold::{Holds, Scope};
pub use log_objects::{LogFaults, SimLogConnection, SimLogObjects};
use machine::Machine;
pub use objects::{ObjectFaults, ObjectRequests, SimObjects};
pub use process::SimProcess;
pub use threads::OnlyThreads;

/// The file system of one simulated machine. Clones share it.
///
/// A new one contains only the directories `/` and `` (of relative paths). A directory
/// created in it is durable only once its parent is synced, as on disk.
#[derive(Clone)]
pub struct SimFiles {
    machine: Arc<Mutex<Machine>>,
    holds: Arc<Holds>,
}

/// Operation counts since the machine was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub syncs: u64,
    pub dir_syncs: u64,
    /// Existing files opened, for reading or writing.
    pub opens: u64,
}

impl SimFiles {
    pub fn new(seed: u64) -> SimFiles {
        SimFiles::on(Machine::new(seed))
    }

    fn on(machine: Machine) -> SimFiles {
        SimFiles { machine: Arc::new(Mutex::new(machine)), holds: Arc::default() }
    }

    /// Simulates a power failure: returns what survived, with locks released. From now
    /// on `self` and its handles fail. Capacity and fault rates are kept; injected
    /// faults that have not occurred yet are not.
    pub fn crash(&self) -> SimFiles {
        SimFiles::on(self.machine.lock().restart(false))
    }

    /// Kills the process but not the machine: everything written remains, but what was
    /// not synced can still be lost in a later crash.
    pub fn crash_keeping_writes(&self) -> SimFiles {
        SimFiles::on(self.machine.lock().restart(true))
    }

    /// Makes the next operation of this kind fail whose path contains `path_part`. A
    /// failed write may have written a part; a failed sync permanently loses some of
    /// the file's unsynced writes.
    pub fn fail_next(&self, operation: Operation, path_part: &str, error: impl Into<io::Error>) {
        self.machine.lock().faults.add(operation, path_part, error.into());
    }

    /// Makes every operation of this kind fail whose path contains `path_part`, until
    /// `clear_faults`.
    pub fn fail_always(&self, operation: Operation, path_part: &str, fault: Fault) {
        self.machine.lock().faults.add_lasting(operation, path_part, fault);
    }

    /// Makes one operation fail, whichever is next at that point.
    pub fn plan_fault(&self, planned: Planned) {
        self.machine.lock().faults.plan(planned);
    }

    /// Returns whether the planned fault has occurred.
    pub fn has_fault_struck(&self) -> bool {
        self.machine.lock().faults.has_struck()
    }

    /// Removes all injected faults.
    pub fn clear_faults(&self) {
        self.machine.lock().faults.clear();
    }

    /// Blocks threads whose name contains `thread_part` before they create, read, write,
    /// sync or remove a file whose path contains `path_part`, until the hold is dropped.
    pub fn hold(&self, operation: Operation, path_part: &str, thread_part: &str) -> Hold {
        self.holds.add(operation, path_part, thread_part, Scope::All)
    }

    /// Like `hold`, but blocks only the first matching operation.
    pub fn hold_first(&self, operation: Operation, path_part: &str, thread_part: &str) -> Hold {
        self.holds.add(operation, path_part, thread_part, Scope::First)
    }

    pub fn set_fault_rates(&self, rates: FaultRates) {
        self.machine.lock().faults.rates = rates;
    }

    /// Limits the total size of all files; `None` is unlimited.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.machine.lock().capacity = bytes;
    }

    /// Inverts a bit of a stored file.
    pub fn flip_bit(&self, path: &Path, bit: u64) -> io::Result<()> {
        let mut machine = self.machine.lock();
        let content = machine.damaged(path)?;
        if bit / 8 >= content.seen().len() as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        content.flip_bit(bit as usize);
        Ok(())
    }

    /// Truncates a stored file.
    pub fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        let mut machine = self.machine.lock();
        let content = machine.damaged(path)?;
        if len > content.seen().len() as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        content.truncate(len as usize);
        Ok(())
    }

    pub fn counters(&self) -> Counters {
        self.machine.lock().counters
    }

    /// Returns the number of files with an open handle whose path contains `path_part`.
    pub fn open_files(&self, path_part: &str) -> usize {
        self.machine.lock().open_files(path_part)
    }

    /// Returns all files as reads see them.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.machine.lock().files()
    }

    fn handle(&self, path: &Path, number: u64, writable: bool) -> Arc<dyn File> {
        let (machine, holds) = (Arc::clone(&self.machine), Arc::clone(&self.holds));
        Arc::new(SimFile { machine, holds, path: path.to_path_buf(), number, writable })
    }
}

impl Files for SimFiles {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.holds.pass(Operation::Create, path);
        let number = self.machine.lock().create(path)?;
        Ok(self.handle(path, number, true))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let number = self.machine.lock().open(path)?;
        Ok(self.handle(path, number, true))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let number = self.machine.lock().open(path)?;
        Ok(self.handle(path, number, false))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.machine.lock().rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.holds.pass(Operation::Remove, path);
        self.machine.lock().remove(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.machine.lock().create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.machine.lock().list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.machine.lock().exists(path)
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        self.machine.lock().size(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.machine.lock().sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        let number = self.machine.lock().lock(path)?;
        Ok(Box::new(SimLock { machine: Arc::clone(&self.machine), number }))
    }
}

struct SimFile {
    machine: Arc<Mutex<Machine>>,
    holds: Arc<Holds>,
    /// The path it was opened with.
    path: PathBuf,
    number: u64,
    writable: bool,
}

impl SimFile {
    fn expect_writable(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

impl File for SimFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.holds.pass(Operation::Read, &self.path);
        self.machine.lock().read(&self.path, self.number, buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.expect_writable()?;
        self.holds.pass(Operation::Write, &self.path);
        self.machine.lock().write(&self.path, self.number, buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.holds.pass(Operation::Sync, &self.path);
        self.machine.lock().sync(&self.path, self.number)
    }

    /// The write and its sync are two steps: others write, or the power fails, between
    /// them.
    fn write_durable_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let buf: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.write_all_at(&buf, offset)?;
        self.holds.pass(Operation::Sync, &self.path);
        self.machine.lock().sync_range(&self.path, self.number, offset, buf.len())
    }

    fn len(&self) -> io::Result<u64> {
        self.machine.lock().file_len(self.number)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.expect_writable()?;
        self.machine.lock().set_len(&self.path, self.number, len)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.machine.lock().release(self.number);
    }
}

struct SimLock {
    machine: Arc<Mutex<Machine>>,
    number: u64,
}

impl DirLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.machine.lock().unlock(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const DIR: &str = "/d";

    fn path(name: &str) -> PathBuf {
        Path::new(DIR).join(name)
    }

    /// Returns a machine with the durable directory `DIR`.
    fn machine(seed: u64) -> SimFiles {
        let files = SimFiles::new(seed);
        files.create_dir_all(Path::new(DIR)).unwrap();
        files.sync_dir(Path::new("/")).unwrap();
        files
    }

    fn put(files: &SimFiles, name: &str, bytes: &[u8]) -> Arc<dyn File> {
        let file = files.create(&path(name)).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
        result.err().expect("a failure").kind()
    }

    #[test]
    fn what_was_synced_with_its_name_survives_every_crash() {
        for seed in 0..30 {
            let files = machine(seed);
            let file = put(&files, "a", b"kept");
            file.sync_data().unwrap();
            files.sync_dir(Path::new(DIR)).unwrap();
            file.write_all_at(b"later", 4).unwrap();
            let left = files.crash();
            assert_eq!(left.files()[&path("a")][..4], *b"kept");
            let before = left.files();
            assert_eq!(left.crash().files(), before, "after a crash all is durable");
        }
    }

    #[test]
    fn a_synced_file_may_vanish_when_its_directory_was_not_synced() {
        let survived: BTreeSet<bool> = (0..30)
            .map(|seed| {
                let files = machine(seed);
                put(&files, "a", b"x").sync_data().unwrap();
                files.crash().exists(&path("a")).unwrap()
            })
            .collect();
        assert_eq!(survived, [false, true].into());
    }

    #[test]
    fn a_renamed_file_has_its_old_or_its_new_name_after_a_crash() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..30 {
            let files = machine(seed);
            put(&files, "current", b"old").sync_data().unwrap();
            files.sync_dir(Path::new(DIR)).unwrap();
            put(&files, "next", b"new").sync_data().unwrap();
            files.rename(&path("next"), &path("current")).unwrap();
            let left = files.crash().files();
            outcomes.insert((left[&path("current")].clone(), left.contains_key(&path("next"))));
        }
        let (old, new) = (b"old".to_vec(), b"new".to_vec());
        assert_eq!(outcomes, [(old.clone(), false), (old, true), (new, false)].into());
    }

    #[test]
    fn a_dead_process_loses_nothing_until_the_machine_dies_too() {
        let mut lost = 0;
        for seed in 0..30 {
            let files = machine(seed);
            put(&files, "a", b"x");
            let killed = files.crash_keeping_writes();
            assert_eq!(killed.files()[&path("a")], b"x");
            lost += usize::from(killed.crash().files().is_empty());
        }
        assert!(lost > 0);
    }

    #[test]
    fn handles_of_a_machine_that_is_off_fail() {
        let files = machine(1);
        let file = put(&files, "a", b"x");
        let lock = files.lock(&path("LOCK")).unwrap();
        let left = files.crash_keeping_writes();
        assert!(file.read_exact_at(&mut [0], 0).is_err());
        assert!(file.write_all_at(b"y", 0).is_err());
        assert!(file.sync_data().is_err() && file.len().is_err() && file.set_len(0).is_err());
        assert!(files.open(&path("a")).is_err() && files.list(Path::new(DIR)).is_err());
        let again = left.lock(&path("LOCK")).unwrap();
        drop(lock);
        assert_eq!(kind(left.lock(&path("LOCK"))), io::ErrorKind::WouldBlock);
        drop(again);
        left.lock(&path("LOCK")).unwrap();
    }

    #[test]
    fn a_full_disk_refuses_growth_until_there_is_space() {
        let files = machine(1);
        files.set_capacity(Some(1000));
        let file = put(&files, "a", &[1; 900]);
        let error = file.write_all_at(&[2; 200], 900).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!((900..=1000).contains(&file.len().unwrap()), "a part may have been written");
        file.write_all_at(&[3; 900], 0).unwrap();
        assert_eq!(kind(file.set_len(1001)), io::ErrorKind::StorageFull);
        files.set_capacity(Some(1100));
        file.write_all_at(&[2; 200], 900).unwrap();
        let other = files.create(&path("b")).unwrap();
        assert_eq!(kind(other.write_all_at(b"x", 0)), io::ErrorKind::StorageFull);
        files.remove(&path("a")).unwrap();
        other.write_all_at(b"x", 0).unwrap();
    }

    #[test]
    fn a_failed_write_may_have_written_a_part() {
        let lengths: BTreeSet<u64> = (0..50)
            .map(|seed| {
                let files = machine(seed);
                let file = files.create(&path("a")).unwrap();
                files.fail_next(Operation::Write, "/a", disk_error());
                assert!(file.write_all_at(&[1; 10], 0).is_err());
                file.len().unwrap()
            })
            .collect();
        assert!(lengths.len() > 5 && *lengths.last().unwrap() <= 10);
    }

    #[test]
    fn a_sync_that_succeeds_after_one_that_failed_proves_nothing() {
        let mut lost = 0;
        for seed in 0..30 {
            let files = machine(seed);
            let file = put(&files, "a", b"x");
            files.sync_dir(Path::new(DIR)).unwrap();
            files.fail_next(Operation::Sync, "a", disk_error());
            assert!(file.sync_data().is_err());
            file.sync_data().unwrap();
            assert_eq!(files.files()[&path("a")], b"x");
            lost += usize::from(files.crash().files()[&path("a")].is_empty());
        }
        assert!((1..30).contains(&lost), "{lost} of 30");
    }

    #[test]
    fn damage_is_seen_and_survives() {
        let files = machine(1);
        put(&files, "a", &[0; 4]).sync_data().unwrap();
        files.sync_dir(Path::new(DIR)).unwrap();
        files.flip_bit(&path("a"), 9).unwrap();
        files.truncate(&path("a"), 3).unwrap();
        assert_eq!(files.crash().files()[&path("a")], [0, 2, 0]);
        let files = machine(1);
        put(&files, "a", b"x");
        assert_eq!(kind(files.flip_bit(&path("a"), 8)), io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(files.truncate(&path("b"), 0)), io::ErrorKind::NotFound);
    }

    #[test]
    fn names_behave_as_on_disk() {
        let files = machine(1);
        let file = put(&files, "b", b"x");
        put(&files, "a", b"y");
        files.create_dir_all(&path("sub/dir")).unwrap();
        let names = ["a", "b", "sub"].map(PathBuf::from);
        assert_eq!(files.list(Path::new(DIR)).unwrap(), names);
        assert_eq!(kind(files.create(&path("a"))), io::ErrorKind::AlreadyExists);
        assert_eq!(kind(files.open(&path("c"))), io::ErrorKind::NotFound);
        assert_eq!(kind(files.create(&path("none/a"))), io::ErrorKind::NotFound);
        assert_eq!(kind(files.remove(&path("sub"))), io::ErrorKind::IsADirectory);
        assert_eq!(kind(files.sync_dir(&path("a"))), io::ErrorKind::NotADirectory);
        let reader = files.open_read(&path("a")).unwrap();
        assert_eq!(kind(reader.write_all_at(b"z", 0)), io::ErrorKind::PermissionDenied);
        assert_eq!(kind(reader.read_exact_at(&mut [0; 2], 0)), io::ErrorKind::UnexpectedEof);
        files.remove(&path("b")).unwrap();
        files.sync_dir(Path::new(DIR)).unwrap();
        let mut buf = [0];
        file.read_exact_at(&mut buf, 0).unwrap();
        assert_eq!(buf, *b"x", "an open file outlives its name");
    }

    /// Runs a few hundred random steps; returns everything visible at the end.
    fn run(seed: u64) -> (BTreeMap<PathBuf, Vec<u8>>, Counters) {
        use crate::world::random::{Random, SeededRandom};
        let steps = SeededRandom::new(seed);
        let mut files = machine(seed);
        files.set_fault_rates(FaultRates { read: 0.0, write: 0.05, sync: 0.05 });
        for step in 0..300u64 {
            let name = path(&format!("{}", steps.next_u64() % 4));
            let file = files.open(&name).or_else(|_| files.create(&name)).unwrap();
            let choice = steps.next_u64() % 10;
            if choice == 9 {
                files = files.crash();
                continue;
            }
            // Failures are part of the run.
            let _ = match choice {
                0..5 => file.write_all_at(&step.to_le_bytes().repeat(200), choice * 700),
                5 | 6 => file.sync_data(),
                7 => files.sync_dir(Path::new(DIR)),
                _ => files.rename(&name, &path("renamed")),
            };
        }
        (files.files(), files.counters())
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        for seed in 0..10 {
            assert_eq!(run(seed), run(seed));
        }
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn counters_count_what_was_done() {
        let files = machine(1);
        let file = put(&files, "a", b"four");
        file.sync_data().unwrap();
        file.read_exact_at(&mut [0; 3], 0).unwrap();
        let expected = Counters {
            reads: 1,
            read_bytes: 3,
            writes: 1,
            written_bytes: 4,
            syncs: 1,
            dir_syncs: 1,
            opens: 0,
        };
        assert_eq!(files.counters(), expected);
    }
}
