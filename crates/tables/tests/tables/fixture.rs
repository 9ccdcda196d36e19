//! Tables on a simulated disk, with a test that does the flushes itself.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use stele_engine::schema::{Family, Schema};
use stele_engine::world::sim::{OnlyThreads, SimFiles};
use stele_engine::world::{SeededRandom, SystemClock, World};
use stele_engine::{Commit, CommitBuilder, Options, ScanSpec, Store, TableId, View};
use stele_tables::{Local, Placement, Tables};

/// Longer than anything here takes unless it hangs.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// The workers that are started; the test does the jobs of the others itself.
const STARTED: &[&str] = &["stele-log", "stele-admission"];

/// Tables of one store, which has a table `t` with the family `f`.
pub struct Fixture {
    pub store: Arc<Store>,
    pub tables: Tables,
    pub table: TableId,
    pub sim: SimFiles,
}

impl Fixture {
    pub fn new(options: Options) -> Fixture {
        let sim = SimFiles::new(1);
        let world = World {
            clock: Arc::new(SystemClock::new()),
            files: Arc::new(sim.clone()),
            random: Arc::new(SeededRandom::new(1)),
            spawner: Some(Arc::new(OnlyThreads(STARTED))),
        };
        let store = Arc::new(Store::open(Path::new("/store"), options, world).unwrap());
        let tables = Tables::new(store.clone());
        let table = tables.create("t", schema()).unwrap();
        // The first commit has the log allocate space, for which later ones do not wait.
        let other = tables.create("other", schema()).unwrap();
        write(&tables, other, "first");
        Fixture { store, tables, table, sim }
    }

    pub fn local(&self) -> Local<'_> {
        at(&self.tables, self.table, b"")
    }

    /// Returns a commit that sets one cell.
    pub fn set(&self, row: &str, value_bytes: usize) -> Commit {
        set(self.table, row, value_bytes)
    }

    /// Returns all rows in their newest state.
    pub fn rows(&self) -> Vec<String> {
        let spec = ScanSpec { view: View::Latest, ..ScanSpec::default() };
        rows(&self.tables, self.table, spec)
    }
}

pub fn schema() -> Schema {
    Schema::with_families([Family::new("f")]).unwrap()
}

pub fn at<'t>(tables: &'t Tables, table: TableId, row: &[u8]) -> Local<'t> {
    let Placement::Here(local) = tables.place(table, row);
    local
}

pub fn set(table: TableId, row: &str, value_bytes: usize) -> Commit {
    let mut commit = CommitBuilder::new();
    commit.table(table).row(row.as_bytes()).set(b"f", b"", 0, &vec![7; value_bytes]);
    commit.finish()
}

/// Writes a row durably.
pub fn write(tables: &Tables, table: TableId, row: &str) {
    let local = at(tables, table, row.as_bytes());
    tables.tenure().open(local.apply_blocking(&set(table, row, 1))).unwrap();
}

/// Returns the rows that a scan passes.
pub fn rows(tables: &Tables, table: TableId, spec: ScanSpec) -> Vec<String> {
    let tenure = tables.tenure();
    let mut found = Vec::new();
    let mut keep = |cell: &stele_engine::CellView<'_>| {
        found.push(String::from_utf8(cell.row.to_vec()).unwrap());
    };
    let mut scan = tenure.open(at(tables, table, b"").scan(spec)).unwrap();
    while !tenure.open(scan.next_batch(Default::default(), &mut keep)).unwrap().done {}
    found
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread as an executor would: polls only when woken.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let begun = Instant::now();
        thread::park_timeout(HANG_TIMEOUT);
        assert!(begun.elapsed() < HANG_TIMEOUT, "nobody woke the task");
    }
}
