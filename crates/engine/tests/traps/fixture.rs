//! A store on a simulated machine whose syncs a test can block, and helpers for the
//! trap tests.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use stele_engine::schema::{Family, Group, Schema};
use stele_engine::world::sim::SimFiles;
use stele_engine::world::{DirLock, File, Files, ManualClock, SeededRandom, Threads, World};
use stele_engine::*;

pub const DIR: &str = "/store";

pub struct Machine {
    pub sim: SimFiles,
    pub gate: Gate,
    pub clock: Arc<ManualClock>,
}

impl Machine {
    pub fn new(seed: u64) -> Machine {
        Machine::on(SimFiles::new(seed))
    }

    pub fn on(sim: SimFiles) -> Machine {
        Machine { sim, gate: Gate::default(), clock: Arc::new(ManualClock::at(1_000_000_000)) }
    }

    pub fn world(&self) -> World {
        World {
            clock: self.clock.clone(),
            files: Arc::new(Gated { files: Arc::new(self.sim.clone()), gate: self.gate.clone() }),
            random: Arc::new(SeededRandom::new(1)),
            spawner: None,
        }
    }

    pub fn open_with(&self, options: Options) -> Store {
        Store::open(Path::new(DIR), options, self.world()).unwrap()
    }

    pub fn open(&self) -> Store {
        self.open_with(Options::default())
    }

    /// Opens the store with worker threads.
    pub fn open_threaded(&self, options: Options) -> Store {
        let world = World { spawner: Some(Arc::new(Threads)), ..self.world() };
        Store::open(Path::new(DIR), options, world).unwrap()
    }

    /// Closes the store and reopens it.
    pub fn open_again(&self, store: Store) -> Store {
        store.close().unwrap();
        self.open()
    }

    /// Simulates a power failure; returns the machine with what is left.
    pub fn crash(&self, store: Store) -> Machine {
        let next = Machine::on(self.sim.crash());
        drop(store);
        next
    }

    /// Kills the process; the machine keeps running.
    pub fn kill(&self, store: Store) -> Machine {
        let next = Machine::on(self.sim.crash_keeping_writes());
        drop(store);
        next
    }
}

/// Blocks syncs of files whose path contains a given part.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Default)]
struct GateState {
    closed: Option<&'static str>,
    waiting: usize,
}

impl Gate {
    /// Closes the gate until the result is dropped, so that a failing test does not
    /// hang.
    pub fn close(&self, path_part: &'static str) -> Closed {
        self.0.0.lock().closed = Some(path_part);
        Closed(self.clone())
    }

    pub fn somebody_waits(&self) -> bool {
        self.0.0.lock().waiting > 0
    }

    /// Waits until a thread is blocked.
    pub fn until_somebody_waits(&self) {
        let mut state = self.0.0.lock();
        while state.waiting == 0 {
            self.0.1.wait(&mut state);
        }
    }

    fn pass(&self, path: &Path) {
        let mut state = self.0.0.lock();
        while state.closed.is_some_and(|part| path.to_string_lossy().contains(part)) {
            state.waiting += 1;
            self.0.1.notify_all();
            self.0.1.wait(&mut state);
            state.waiting -= 1;
        }
    }
}

pub struct Closed(Gate);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.0.0.lock().closed = None;
        self.0.0.1.notify_all();
    }
}

struct Gated {
    files: Arc<dyn Files>,
    gate: Gate,
}

struct GatedFile {
    file: Arc<dyn File>,
    path: PathBuf,
    gate: Gate,
}

impl Gated {
    fn wrap(&self, path: &Path, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(GatedFile { file, path: path.to_path_buf(), gate: self.gate.clone() })
    }
}

impl Files for Gated {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(path, self.files.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(path, self.files.open(path)?))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.files.open_read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.remove(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.files.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.files.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.files.exists(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.files.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        self.files.lock(path)
    }
}

impl File for GatedFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.gate.pass(&self.path);
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}

/// Returns one group with the families f and g.
pub fn schema() -> Schema {
    Schema::with_families([Family::new("f"), Family::new("g")]).unwrap()
}

/// Returns one group for f and one for g.
pub fn two_groups() -> Schema {
    let groups = vec![Group::new("f", [Family::new("f")]), Group::new("g", [Family::new("g")])];
    Schema::new(groups).unwrap()
}

/// Returns a commit to one row of one table.
pub fn to_row(
    table: TableId,
    row: &[u8],
    build: impl for<'c> FnOnce(&'c mut CommitBuilder) -> &'c mut CommitBuilder,
) -> Commit {
    let mut commit = CommitBuilder::new();
    build(commit.table(table).row(row));
    commit.finish()
}

/// Returns a commit that sets one cell.
pub fn set(table: TableId, row: &str, value: &str) -> Commit {
    to_row(table, row.as_bytes(), |c| c.set(b"f", b"q", 1, value.as_bytes()))
}

/// Returns a commit that increments a row's counter.
pub fn count(table: TableId, row: &str) -> Commit {
    let one = 1i64.to_be_bytes();
    to_row(table, row.as_bytes(), |c| c.merge(FoldId::SUM, b"f", b"n", 1, &one))
}

pub fn put(store: &Store, commit: &Commit) -> Txn {
    store.apply(commit, Txn::MAX, Wait::Durable).unwrap()
}

/// Returns rows and values, in order.
pub fn cells_in(store: &Store, table: TableId, spec: ScanSpec) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let read = store.read(table, spec, |cell| {
        let show = |bytes: &[u8]| bytes.escape_ascii().to_string();
        found.push((show(cell.row), show(cell.value)));
    });
    read.unwrap();
    found
}

pub fn cells(store: &Store, table: TableId, view: View) -> Vec<(String, String)> {
    cells_in(store, table, ScanSpec { view, ..ScanSpec::default() })
}

/// Returns the sum in the last cell of the table.
pub fn sum(store: &Store, table: TableId, view: View) -> i64 {
    let mut sum = 0;
    let spec = ScanSpec { view, ..ScanSpec::default() };
    let read = store.read(table, spec, |cell| {
        sum = i64::from_be_bytes(cell.value.try_into().unwrap());
    });
    read.unwrap();
    sum
}

pub fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(row, value)| (row.to_string(), value.to_string())).collect()
}

/// Returns the number of segments in the log's directory.
pub fn segments(sim: &SimFiles) -> usize {
    sim.files().keys().filter(|path| path.starts_with("/store/log")).count()
}
