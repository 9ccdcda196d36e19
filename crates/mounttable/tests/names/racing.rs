//! Two servers on one table, racing and crashing, compared with a sequential model.
//!
//! Clients mount, unmount, delete subtrees and resolve, and each operation is recorded
//! with its start and end. For each name there must be a sequential order of the
//! operations that explains every response; operations without a response may have
//! happened or not. Rows left by crashes contain no servers. Then fsck repairs the
//! rows, and no acknowledged mount may be lost.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use stele_mounttable::clock::random;
use stele_mounttable::rows::{CacheOptions, Limits};
use stele_mounttable::{Error, Mount, Mounttable, Options, fsck};

use crate::world::{CrashPoint, Grace, Mortal, World, options, root};

const NAMES: [&str; 5] = ["x/1/a", "x/1/b", "x/2/a", "y/a", "z"];
const TOPS: [&str; 4] = ["x/1", "x", "y", "z"];
const CLIENTS: usize = 2;
const LIVES: usize = 8;

/// An operation from the view of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Mount(u32),
    Unmount(u32),
    /// The node itself was deleted, which changes one row.
    Delete,
    /// A node above was deleted with its subtree, which proceeds node by node.
    DeleteAbove,
    /// The servers that were returned, as bits.
    Resolve(u32),
}

#[derive(Clone, Debug)]
struct Event {
    name: &'static str,
    deed: Deed,
    began: u64,
    /// `None` if there was no response.
    ended: Option<u64>,
}

#[derive(Default)]
struct History {
    clock: AtomicU64,
    events: Mutex<Vec<Event>>,
}

impl History {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Records the start of operations, each at its name.
    fn begin(&self, deeds: &[(&'static str, Deed)]) -> Vec<usize> {
        let began = self.now();
        let mut events = self.events.lock();
        let first = events.len();
        let event =
            |(name, deed): &(&'static str, Deed)| Event { name, deed: *deed, began, ended: None };
        events.extend(deeds.iter().map(event));
        (first..events.len()).collect()
    }

    fn end(&self, places: &[usize]) {
        let ended = self.now();
        let mut events = self.events.lock();
        places.iter().for_each(|place| events[*place].ended = Some(ended));
    }
}

/// Returns the effect of deleting a subtree on each name in it.
fn deletions(top: &str) -> Vec<(&'static str, Deed)> {
    let deletion = |name: &'static str| match name.strip_prefix(top)? {
        "" => Some((name, Deed::Delete)),
        rest if rest.starts_with('/') => Some((name, Deed::DeleteAbove)),
        _ => None,
    };
    NAMES.into_iter().filter_map(deletion).collect()
}

fn address(client: u32) -> String {
    format!("/h:{client}")
}

/// Runs one random operation and records it.
async fn step(table: &Mounttable, history: &History, client: u32) {
    let name = NAMES[(random() % NAMES.len() as u64) as usize];
    let call = root().call();
    match random() % 10 {
        0..4 => {
            let noted = history.begin(&[(name, Deed::Mount(1 << client))]);
            table.mount(&call, name, &Mount::new(address(client), 0)).await.unwrap();
            history.end(&noted);
        }
        4..6 => {
            let noted = history.begin(&[(name, Deed::Unmount(1 << client))]);
            table.unmount(&call, name, &address(client)).await.unwrap();
            history.end(&noted);
        }
        6 => {
            let top = TOPS[(random() % TOPS.len() as u64) as usize];
            let noted = history.begin(&deletions(top));
            table.delete(&call, top, true).await.unwrap();
            history.end(&noted);
        }
        _ => resolve(table, history, name).await,
    }
}

async fn resolve(table: &Mounttable, history: &History, name: &'static str) {
    let began = history.now();
    let servers = match table.resolve_step(&root().call(), name).await {
        Ok(entry) => (0..8)
            .filter(|client| entry.servers.iter().any(|server| server.address == address(*client)))
            .fold(0, |all, client| all | 1 << client),
        Err(Error::NoSuchName { .. }) => 0,
        Err(error) => panic!("{name}: {error}"),
    };
    let ended = Some(history.now());
    history.events.lock().push(Event { name, deed: Deed::Resolve(servers), began, ended });
}

/// Runs the lives of one server: each with its own runtime, which stops with all its
/// tasks at some write.
fn live_and_die(world: &World, history: &Arc<History>, server: u32) {
    for _ in 0..LIVES {
        let at = 4 + (random() % 60) as u32;
        let point = if random().is_multiple_of(2) {
            CrashPoint::BeforeWrite
        } else {
            CrashPoint::AfterWrite
        };
        let mortal = Mortal::new(&world.rows, at, point);
        let table = world.rows.server_with(&mortal.client, racing(world));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        for client in 0..CLIENTS {
            let (table, history) = (table.clone(), history.clone());
            let client = server * CLIENTS as u32 + client as u32;
            runtime.spawn(async move {
                loop {
                    step(&table, &history, client).await;
                }
            });
        }
        runtime.block_on(mortal.died());
        // A write in progress is finished before the next life starts.
        runtime.shutdown_timeout(std::time::Duration::from_secs(10));
    }
}

/// Returns options without caching, so that responses show the current rows.
fn racing(world: &World) -> Options {
    let cache = CacheOptions { fresh: std::time::Duration::ZERO, ..CacheOptions::default() };
    Options { cache, ..options(&world.clock, Grace::None, Limits::default()) }
}

/// Searches an order that explains all responses at one name.
struct Search<'a> {
    events: &'a [Event],
    seen: HashSet<(u128, u32)>,
}

impl Search<'_> {
    fn explains(&mut self, done: u128, servers: u32) -> bool {
        assert!(self.seen.len() < 3_000_000, "undecided");
        let open = |at: &usize| done & (1 << at) == 0;
        let answered = |at: &usize| self.events[*at].ended.is_some();
        let places = 0..self.events.len();
        if !places.clone().filter(open).any(|at| answered(&at)) {
            return true;
        }
        if !self.seen.insert((done, servers)) {
            return false;
        }
        let first_end = places
            .clone()
            .filter(open)
            .filter_map(|at| self.events[at].ended)
            .min()
            .expect("some answered event is open");
        // Operations that started before the first end may come next; answered ones
        // first.
        let mut next: Vec<_> =
            places.filter(open).filter(|at| self.events[*at].began < first_end).collect();
        next.sort_by_key(|at| self.events[*at].ended.unwrap_or(u64::MAX));
        next.into_iter().any(|at| {
            let after = match self.events[at].deed {
                Deed::Mount(client) => servers | client,
                Deed::Unmount(client) => servers & !client,
                Deed::Delete | Deed::DeleteAbove => 0,
                Deed::Resolve(returned) if returned == servers => servers,
                Deed::Resolve(_) => return false,
            };
            // A server mounted while a subtree is being deleted may be removed too,
            // although the name was seen deleted before.
            let goes_on = self.events[at].deed == Deed::DeleteAbove && servers != 0;
            self.explains(done | 1 << at, after) || (goes_on && self.explains(done, 0))
        })
    }
}

#[test]
fn the_search_tells_right_from_wrong() {
    let event = |deed, began, ended| Event { name: "z", deed, began, ended };
    let judge = |events: &[Event]| Search { events, seen: HashSet::new() }.explains(0, 0);
    let lost = [event(Deed::Mount(1), 0, Some(1)), event(Deed::Resolve(0), 2, Some(3))];
    assert!(!judge(&lost));
    let unanswered = [event(Deed::Mount(1), 0, None), event(Deed::Resolve(0), 2, Some(3))];
    assert!(judge(&unanswered));
    let flicker = [
        event(Deed::Mount(1), 0, None),
        event(Deed::Resolve(1), 2, Some(3)),
        event(Deed::Resolve(0), 4, Some(5)),
    ];
    assert!(!judge(&flicker));
    let overlap = [
        event(Deed::Mount(1), 0, Some(9)),
        event(Deed::Delete, 1, Some(8)),
        event(Deed::Resolve(1), 10, Some(11)),
    ];
    assert!(judge(&overlap));
    let twice = [
        event(Deed::Mount(1), 0, Some(1)),
        event(Deed::DeleteAbove, 2, Some(9)),
        event(Deed::Resolve(0), 3, Some(4)),
        event(Deed::Mount(1), 5, Some(6)),
        event(Deed::Resolve(0), 7, Some(8)),
    ];
    assert!(judge(&twice));
    let at_once = twice.clone().map(|event| match event.deed {
        Deed::DeleteAbove => Event { deed: Deed::Delete, ..event },
        _ => event,
    });
    assert!(!judge(&at_once));
    let after = [event(Deed::Mount(1), 10, Some(11)), event(Deed::Resolve(0), 12, Some(13))];
    assert!(!judge(&[&twice[..], &after].concat()));
}

#[test]
fn two_servers_that_race_and_crash_lose_no_acknowledged_operation() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let world = runtime.block_on(World::in_process(Grace::None));
    let history = Arc::new(History::default());
    std::thread::scope(|scope| {
        for server in 0..2 {
            let (world, history) = (&world, &history);
            scope.spawn(move || live_and_die(world, history, server));
        }
    });
    runtime.block_on(async {
        let table = world.rows.server(racing(&world));
        let left = fsck::check(table.rows()).await.unwrap();
        for problem in left.problems.iter().filter(|problem| problem.kind() == "orphan") {
            let name = problem.node().unwrap();
            let row = table.rows().get_branch(&name).await.unwrap().unwrap();
            assert!(row.node.servers.is_empty() && row.children.is_empty(), "{row:?}");
        }
        let (mended, report) = fsck::repair(table.rows()).await.unwrap();
        assert!(report.is_sound(), "{:?}", report.problems);
        let kinds: BTreeSet<_> = mended.iter().map(fsck::Problem::kind).collect();
        let allowed = BTreeSet::from(["counter", "dangling", "orphan"]);
        assert!(kinds.is_subset(&allowed), "{mended:?}");
        for name in NAMES {
            resolve(&table, &history, name).await;
        }
    });
    let events = history.events.lock();
    for name in NAMES {
        let of_name: Vec<_> = events.iter().filter(|event| event.name == name).cloned().collect();
        assert!(of_name.len() <= 128, "{} events at {name}", of_name.len());
        let mut search = Search { events: &of_name, seen: HashSet::new() };
        assert!(search.explains(0, 0), "{name}: {of_name:#?}");
    }
}
