//! Admission: a commit that cannot be admitted at once waits without blocking a thread,
//! in order of arrival, for a bounded time, and only for the limits that apply to it.

use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use stele_engine::schema::{Family, Schema};
use stele_engine::world::sim::{OnlyThreads, Operation, SimFiles, disk_error};
use stele_engine::world::{SeededRandom, SystemClock, World};
use stele_engine::*;

/// Longer than anything here takes unless it hangs.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);
const VALUE_BYTES: usize = 300_000;

/// The workers that are started; the test does the jobs of the others itself.
const STARTED: &[&str] = &["stele-log", "stele-admission"];

fn options() -> Options {
    let mut options = Options::default();
    options.memory.budget_bytes = 1 << 20;
    options.flush.fragment_bytes = 64 << 20;
    options.compact.chain_min = 2;
    options.compact.chain_slow = 3;
    options.compact.chain_stop = 3;
    options
}

fn open(sim: &SimFiles, options: Options) -> (Store, TableId) {
    let world = World {
        clock: Arc::new(SystemClock::new()),
        files: Arc::new(sim.clone()),
        random: Arc::new(SeededRandom::new(1)),
        spawner: Some(Arc::new(OnlyThreads(STARTED))),
    };
    let store = Store::open(Path::new("/store"), options, world).unwrap();
    let table = create_table(&store, "t");
    (store, table)
}

fn create_table(store: &Store, name: &str) -> TableId {
    store.create_table(name, Schema::with_families([Family::new("f")]).unwrap()).unwrap()
}

fn commit(table: TableId, row: &str, value_bytes: usize) -> Commit {
    let mut commit = CommitBuilder::new();
    commit.table(table).row(row.as_bytes()).set(b"f", b"", 0, &vec![7; value_bytes]);
    commit.finish()
}

fn write(store: &Store, table: TableId, row: &str, value_bytes: usize) {
    store.apply(&commit(table, row, value_bytes), Txn::MAX, Durability::Durable).unwrap();
}

fn rows(store: &Store, table: TableId) -> Vec<String> {
    let mut found = Vec::new();
    let spec = ScanSpec { view: View::Latest, ..ScanSpec::default() };
    let row = |cell: &CellView<'_>| String::from_utf8(cell.row.to_vec()).unwrap();
    store.read(table, spec, |cell| found.push(row(cell))).unwrap();
    found
}

/// Writes until a commit of this size has to wait for memory.
fn fill(store: &Store, table: TableId) {
    let free = |stats: StoreStats| stats.memory_limit_bytes.saturating_sub(stats.memory_used_bytes);
    while free(store.stats()) > VALUE_BYTES + 1000 {
        write(store, table, "filler", VALUE_BYTES);
    }
}

fn poll_once<'a>(admission: &mut Pin<Box<Admission<'a>>>) -> Poll<Result<Permit<'a>>> {
    admission.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread as an executor would: polls only when woken.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let begun = std::time::Instant::now();
        thread::park_timeout(HANG_TIMEOUT);
        assert!(begun.elapsed() < HANG_TIMEOUT, "nobody woke the commit");
    }
}

#[test]
fn commits_that_wait_for_memory_enter_in_their_order_when_it_is_free() {
    let (store, table) = open(&SimFiles::new(1), options());
    fill(&store, table);
    let [large, small] = [commit(table, "large", VALUE_BYTES), commit(table, "small", 10)];
    let mut first = Box::pin(store.admit(&large));
    let mut second = Box::pin(store.admit(&small));
    assert!(poll_once(&mut first).is_pending());
    assert!(poll_once(&mut second).is_pending(), "it would fit, but is second");
    assert!(store.try_admit(&small).unwrap().is_none(), "nobody overtakes");
    store.flush(table).unwrap();
    for (admission, commit) in [(first, &large), (second, &small)] {
        let permit = block_on(admission).unwrap();
        store.apply_admitted(permit, commit, Txn::MAX).unwrap();
    }
    assert_eq!(rows(&store, table), ["filler", "large", "small"]);
    let stats = store.stats();
    assert_eq!(stats.throttled, 2, "{stats:?}");
}

#[test]
fn a_dropped_wait_and_a_dropped_permit_release_what_they_held() {
    let (store, table) = open(&SimFiles::new(1), options());
    let before = store.stats();
    drop(block_on(store.admit(&commit(table, "r", VALUE_BYTES))).unwrap());
    assert_eq!(store.stats().memory_used_bytes, before.memory_used_bytes);
    fill(&store, table);
    let full = store.stats().memory_used_bytes;
    let (one, other) = (commit(table, "r", VALUE_BYTES), commit(table, "s", VALUE_BYTES));
    let mut granted = Box::pin(store.admit(&one));
    let mut waiting = Box::pin(store.admit(&other));
    assert!(poll_once(&mut granted).is_pending() && poll_once(&mut waiting).is_pending());
    drop(waiting);
    store.flush(table).unwrap();
    // Granted but never used.
    drop(granted);
    assert!(store.stats().memory_used_bytes < full);
    fill(&store, table);
}

#[test]
fn only_so_many_commits_wait_and_the_next_is_refused_at_once() {
    let mut options = options();
    options.admission.waiters_max = 2;
    let (store, table) = open(&SimFiles::new(1), options);
    fill(&store, table);
    let commit = commit(table, "r", VALUE_BYTES);
    let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(store.admit(&commit))).collect();
    assert!(poll_once(&mut waiting[0]).is_pending());
    assert!(poll_once(&mut waiting[1]).is_pending());
    let refused = poll_once(&mut waiting[2]).map(|outcome| outcome.map(drop));
    assert!(matches!(refused, Poll::Ready(Err(Error::Overloaded { .. }))), "{refused:?}");
    waiting.remove(0);
    let mut next = Box::pin(store.admit(&commit));
    assert!(poll_once(&mut next).is_pending(), "there is a place again");
}

#[test]
fn nobody_waits_longer_than_allowed() {
    let mut options = options();
    options.admission.wait_max = Duration::from_millis(20);
    let (store, table) = open(&SimFiles::new(1), options);
    fill(&store, table);
    let commit = commit(table, "r", VALUE_BYTES);
    for outcome in [
        block_on(store.admit(&commit)).map(drop),
        store.apply(&commit, Txn::MAX, Durability::Accepted).map(drop),
    ] {
        let Err(error @ Error::Overloaded { .. }) = outcome else { panic!("{outcome:?}") };
        let text = "overloaded: memory is full and flushing is behind: try again in 1 s";
        assert_eq!(error.to_string(), text);
    }
    store.flush(table).unwrap();
    block_on(store.admit(&commit)).map(drop).unwrap();
}

#[test]
fn only_the_chains_of_the_tables_that_a_commit_touches_count() {
    let (store, long) = open(&SimFiles::new(1), options());
    let short = create_table(&store, "short");
    for row in ["a", "b", "c"] {
        write(&store, long, row, 10);
        store.flush(long).unwrap();
    }
    let to_long = commit(long, "r", 10);
    assert!(store.try_admit(&to_long).unwrap().is_none());
    write(&store, short, "r", 10);
    let mut both = CommitBuilder::new();
    both.table(long).row(b"r").set(b"f", b"", 0, b"v");
    both.table(short).row(b"r").set(b"f", b"", 0, b"v");
    assert!(store.try_admit(&both.finish()).unwrap().is_none());
    let mut waiting = Box::pin(store.admit(&to_long));
    assert!(poll_once(&mut waiting).is_pending());
    store.compact(long).unwrap();
    let permit = block_on(waiting).unwrap();
    store.apply_admitted(permit, &to_long, Txn::MAX).unwrap();
    assert_eq!(rows(&store, long), ["a", "b", "c", "r"]);
}

#[test]
fn a_delay_for_long_chains_ends_by_itself() {
    let mut options = options();
    options.compact.chain_stop = 100;
    let (store, table) = open(&SimFiles::new(1), options);
    for row in ["a", "b", "c"] {
        write(&store, table, row, 10);
        store.flush(table).unwrap();
    }
    let commit = commit(table, "r", 10);
    assert!(store.try_admit(&commit).unwrap().is_none());
    // A thread that is preempted for longer than the delay does not notice it.
    while store.stats().throttled_by_chains == 0 {
        let permit = block_on(store.admit(&commit)).unwrap();
        store.apply_admitted(permit, &commit, Txn::MAX).unwrap();
    }
}

#[test]
fn a_full_log_queue_is_written_for_those_who_wait() {
    let mut options = options();
    options.memory.log_queue_bytes_max = 1000;
    options.log.linger = HANG_TIMEOUT * 2;
    let sim = SimFiles::new(1);
    let (store, table) = open(&sim, options);
    write(&store, table, "000", 900);
    // The log writes nothing until the first commit has to wait for it.
    let mut held = Some(sim.hold(Operation::Write, "log", ""));
    let commits: Vec<_> = (1..20).map(|row| commit(table, &format!("{row:03}"), 900)).collect();
    for commit in &commits {
        let mut admission = Box::pin(store.admit(commit));
        let permit = match poll_once(&mut admission) {
            Poll::Ready(permit) => permit.unwrap(),
            Poll::Pending => {
                held.take();
                block_on(admission).unwrap()
            }
        };
        store.apply_admitted(permit, commit, Txn::MAX).unwrap();
    }
    assert_eq!(rows(&store, table).len(), 1 + commits.len());
    assert!(held.is_none() && store.stats().throttled_by_log > 0, "{:?}", store.stats());
}

#[test]
fn waiters_are_notified_when_the_store_fails() {
    let sim = SimFiles::new(1);
    let mut options = options();
    options.log.linger = HANG_TIMEOUT * 2;
    let (store, table) = open(&sim, options);
    fill(&store, table);
    let (commit, small) = (commit(table, "r", VALUE_BYTES), commit(table, "s", 1));
    // A commit that is not durable yet.
    store.apply(&small, Txn::MAX, Durability::Accepted).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(store.admit(&commit)).map(drop));
        while store.stats().throttled == 0 {
            thread::yield_now();
        }
        sim.fail_next(Operation::Sync, "log", disk_error());
        assert!(store.sync(Txn::MAX).is_err());
        let outcome = waiting.join().unwrap();
        assert!(matches!(outcome, Err(Error::Stopped(_))), "{outcome:?}");
    });
    let refused = store.try_admit(&small).map(|_| ());
    assert!(matches!(refused, Err(Error::Stopped(_))), "{refused:?}");
    assert!(store.failure().is_some());
}
