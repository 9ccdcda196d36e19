//! Test fixtures: tables, naming servers on them, and callers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use stele_bigtable::Api;
use stele_bigtable_client::{Client, Options as BigtableOptions};
use stele_mounttable::blessing::Caller;
use stele_mounttable::clock::Clock;
use stele_mounttable::rows::{CacheOptions, Kind, Limits};
use stele_mounttable::{
    Call, Entry, Error, FirstNodes, Found, Mount, Mounttable, Options, create_tables, fsck,
};
use stele_tables::Tables;

/// A time in 2026.
const START_MICROS: i64 = 1_790_000_000_000_000;

/// How long empty nodes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grace {
    None,
    Minute,
}

impl Grace {
    pub fn duration(self) -> Duration {
        match self {
            Grace::None => Duration::ZERO,
            Grace::Minute => Duration::from_secs(60),
        }
    }
}

/// Runs each test without and with a grace period for empty nodes.
#[macro_export]
macro_rules! with_both_graces {
    ($($promise:ident),* $(,)?) => {
        mod without_grace {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise($crate::world::Grace::None).await;
            })*
        }
        mod with_a_minute_of_grace {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise($crate::world::Grace::Minute).await;
            })*
        }
    };
}

/// The storage of rows.
pub struct Rows {
    pub client: Client,
    pub table: String,
    /// The service in this process, if it is used.
    pub api: Option<Api>,
    _dir: Option<tempfile::TempDir>,
}

impl Rows {
    pub async fn new() -> Rows {
        match std::env::var("STELE_NAMES_BIGTABLE") {
            Ok(endpoint) => {
                let options = BigtableOptions::new(endpoint, "names", "tests");
                Rows::reached_by(Client::connect(options).await.unwrap(), None, None).await
            }
            Err(_) => Rows::in_process().await,
        }
    }

    /// Returns Stele in this process, regardless of STELE_NAMES_BIGTABLE.
    pub async fn in_process() -> Rows {
        let dir = tempfile::tempdir().unwrap();
        let mut options = stele_engine::Options::default();
        options.log.sync = false;
        let world = stele_engine::world::World::real();
        let api = Api::new(Tables::open(dir.path(), options, world).unwrap()).unwrap();
        let client = client_of(api.routes().into_axum_router());
        Rows::reached_by(client, Some(api), Some(dir)).await
    }

    async fn reached_by(client: Client, api: Option<Api>, dir: Option<tempfile::TempDir>) -> Rows {
        static TABLES: AtomicU32 = AtomicU32::new(0);
        let number = TABLES.fetch_add(1, Ordering::Relaxed);
        let table = format!("names-{}-{number}", std::process::id());
        create_tables(&client, &table).await.unwrap();
        Rows { client, table, api, _dir: dir }
    }

    /// Returns the service in this process, to be wrapped in layers that intercept
    /// calls.
    pub fn router(&self) -> axum::Router {
        let api = self.api.as_ref().expect("calls to rows in this process can be met");
        api.routes().into_axum_router()
    }

    pub fn server(&self, options: Options) -> Arc<Mounttable> {
        self.server_with(&self.client, options)
    }

    /// Returns a server that accesses the rows through another client.
    pub fn server_with(&self, client: &Client, options: Options) -> Arc<Mounttable> {
        let options = Options { table: self.table.clone(), ..options };
        Mounttable::new(client, options).unwrap()
    }
}

/// Returns a client of a service in this process.
pub fn client_of(router: axum::Router) -> Client {
    let options = BigtableOptions::new("in process", "names", "tests");
    Client::in_process(tonic::service::Routes::from(router), options)
}

/// A server with its own tables and a manual clock.
pub struct World {
    pub rows: Rows,
    pub clock: Clock,
    pub grace: Grace,
    pub table: Arc<Mounttable>,
}

impl World {
    /// Creates a world with open permissions.
    pub async fn open(grace: Grace) -> World {
        World::with(grace, FirstNodes::default(), Limits::default()).await
    }

    /// Creates a world with these first nodes, as JSON.
    pub async fn guarded(grace: Grace, nodes: &str) -> World {
        let nodes = FirstNodes::from_json(nodes.as_bytes()).unwrap();
        World::with(grace, nodes, Limits::default()).await
    }

    pub async fn with(grace: Grace, nodes: FirstNodes, limits: Limits) -> World {
        World::on(Rows::new().await, grace, nodes, limits).await
    }

    /// Creates an open world whose rows are in this process, so that calls can be
    /// intercepted.
    pub async fn in_process(grace: Grace) -> World {
        let rows = Rows::in_process().await;
        World::on(rows, grace, FirstNodes::default(), Limits::default()).await
    }

    async fn on(rows: Rows, grace: Grace, nodes: FirstNodes, limits: Limits) -> World {
        let clock = Clock::manual(START_MICROS);
        let table = rows.server(options(&clock, grace, limits));
        table.set_up(&nodes).await.unwrap();
        World { rows, clock, grace, table }
    }

    /// Returns another server on the same tables, with the same clock.
    pub fn another_server(&self) -> Arc<Mounttable> {
        self.rows.server(options(&self.clock, self.grace, Limits::default()))
    }

    pub fn options(&self) -> Options {
        options(&self.clock, self.grace, Limits::default())
    }

    /// Advances the clock so that empty nodes can be removed.
    pub fn pass_grace(&self) {
        self.clock.advance(self.grace.duration() + Duration::from_millis(1));
    }

    pub async fn mount(&self, who: &Person, name: &str, server: &str, ttl: u32) -> Done {
        self.table.mount(&who.call(), name, &Mount::new(server, ttl)).await.map(drop)
    }

    pub async fn unmount(&self, who: &Person, name: &str, server: &str) -> Done {
        self.table.unmount(&who.call(), name, server).await
    }

    pub async fn delete(&self, who: &Person, name: &str, subtree: bool) -> Done {
        self.table.delete(&who.call(), name, subtree).await
    }

    pub async fn resolve(&self, who: &Person, name: &str) -> Result<Entry, Error> {
        self.table.resolve_step(&who.call(), name).await
    }

    /// Returns the full names that a name resolves to.
    pub async fn names(&self, who: &Person, name: &str) -> Vec<String> {
        self.resolve(who, name).await.unwrap().names()
    }

    /// Asserts that a name does not resolve.
    pub async fn assert_gone(&self, who: &Person, name: &str) {
        let resolved = self.resolve(who, name).await;
        assert!(matches!(resolved, Err(Error::NoSuchName { .. })), "{name}: {resolved:?}");
    }

    pub async fn glob(&self, who: &Person, name: &str, pattern: &str) -> Vec<Found> {
        glob(&self.table, who, name, pattern).await
    }

    /// Returns the names that match a pattern, sorted; there must be no errors.
    pub async fn found(&self, who: &Person, name: &str, pattern: &str) -> Vec<String> {
        let entry = |found: Found| match found {
            Found::Entry(entry) => entry.name,
            Found::Error { name, error } => panic!("{name}: {error}"),
        };
        let mut names: Vec<_> =
            self.glob(who, name, pattern).await.into_iter().map(entry).collect();
        names.sort();
        names
    }

    pub async fn count(&self, kind: Kind, user: &str) -> i64 {
        self.table.rows().counters.get(kind, user).await.unwrap()
    }

    /// Returns the number of nodes; all rows must be consistent.
    pub async fn nodes(&self) -> u64 {
        sound(&self.table).await.nodes
    }
}

pub fn options(clock: &Clock, grace: Grace, limits: Limits) -> Options {
    Options {
        clock: clock.clone(),
        grace: grace.duration(),
        limits,
        cache: CacheOptions::default(),
        watch_interval: Duration::from_millis(100),
        // The duration of writes must not affect tests.
        clearing_wait: Duration::from_secs(3600),
        ..Options::default()
    }
}

pub async fn glob(table: &Mounttable, who: &Person, name: &str, pattern: &str) -> Vec<Found> {
    let (out, mut answers) = tokio::sync::mpsc::channel(4);
    let call = who.call();
    let searching = table.glob(&call, name, pattern, &out);
    let mut found = Vec::new();
    tokio::pin!(searching);
    loop {
        tokio::select! {
            done = &mut searching => {
                done.unwrap();
                break;
            }
            Some(answer) = answers.recv() => found.push(answer),
        }
    }
    while let Ok(answer) = answers.try_recv() {
        found.push(answer);
    }
    found
}

/// Returns the report of fsck, which must contain no problems.
pub async fn sound(table: &Mounttable) -> fsck::Report {
    let report = fsck::check(table.rows()).await.unwrap();
    assert!(report.is_sound(), "{:#?}", report.problems);
    report
}

pub type Done = Result<(), Error>;

/// A caller.
pub struct Person(Caller);

impl Person {
    pub fn named(blessing: &str) -> Person {
        Person(Caller::with([blessing]))
    }

    pub fn nobody() -> Person {
        Person(Caller::anonymous())
    }

    /// Returns a call with a deadline that no test reaches.
    pub fn call(&self) -> Call {
        Call::by(self.0.clone()).within(Duration::from_secs(3600))
    }
}

pub fn root() -> Person {
    Person::named("root")
}

pub fn alice() -> Person {
    Person::named("alice")
}

pub fn bob() -> Person {
    Person::named("bob")
}

/// Asserts that a call was rejected because a tag is missing.
#[track_caller]
pub fn assert_refused<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::NoPermissions { .. })), "{result:?}");
}

/// A client that counts the calls by name.
pub struct Counted {
    pub client: Client,
    calls: Arc<parking_lot::Mutex<BTreeMap<String, u32>>>,
}

impl Counted {
    pub fn new(rows: &Rows) -> Counted {
        let calls: Arc<parking_lot::Mutex<BTreeMap<String, u32>>> = Arc::default();
        let noted = calls.clone();
        let count = move |request: axum::extract::Request, next: axum::middleware::Next| {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_string();
            *noted.lock().entry(name).or_default() += 1;
            next.run(request)
        };
        let router = rows.router().layer(axum::middleware::from_fn(count));
        Counted { client: client_of(router), calls }
    }

    /// Returns the calls since the last `take`.
    pub fn take(&self) -> BTreeMap<String, u32> {
        std::mem::take(&mut *self.calls.lock())
    }
}

/// A client on which writes are rejected, or never answered, while the switch is on; it
/// counts those writes.
pub struct ReadOnly {
    pub client: Client,
    pub refused: Arc<AtomicU32>,
}

/// The outcome of a write on a full disk.
#[derive(Clone, Copy, Debug)]
pub enum Writes {
    Fail,
    Hang,
}

impl ReadOnly {
    pub fn new(rows: &Rows, writes: Writes) -> ReadOnly {
        let refused = Arc::new(AtomicU32::new(0));
        let count = refused.clone();
        let guard = move |request: axum::extract::Request, next: axum::middleware::Next| {
            let count = count.clone();
            async move {
                let path = request.uri().path();
                if !path.contains("MutateRow") && !path.contains("ReadModifyWrite") {
                    return next.run(request).await;
                }
                count.fetch_add(1, Ordering::SeqCst);
                if matches!(writes, Writes::Hang) {
                    std::future::pending::<()>().await;
                }
                let status = [("grpc-status", "9"), ("content-type", "application/grpc")];
                axum::response::IntoResponse::into_response(status)
            }
        };
        let router = rows.router().layer(axum::middleware::from_fn(guard));
        ReadOnly { client: client_of(router), refused }
    }
}

/// When a crash happens, relative to its write.
#[derive(Clone, Copy, Debug)]
pub enum CrashPoint {
    BeforeWrite,
    AfterWrite,
}

/// A client that crashes at a write: that call and all later ones never return.
pub struct Mortal {
    pub client: Client,
    state: Arc<Fate>,
}

struct Fate {
    writes: AtomicU32,
    at: u32,
    point: CrashPoint,
    /// Gets a permit at the crash, and another one if it is only a stall.
    dead: tokio::sync::Semaphore,
    revived: tokio::sync::Semaphore,
}

impl Mortal {
    /// Crashes at the write with that number, counted from zero.
    pub fn new(rows: &Rows, at: u32, point: CrashPoint) -> Mortal {
        use tokio::sync::Semaphore;
        let (dead, revived) = (Semaphore::new(0), Semaphore::new(0));
        let state = Arc::new(Fate { writes: AtomicU32::new(0), at, point, dead, revived });
        let fate = state.clone();
        let guard = move |request: axum::extract::Request, next: axum::middleware::Next| {
            let fate = fate.clone();
            async move { fate.meet(request, next).await }
        };
        let router = rows.router().layer(axum::middleware::from_fn(guard));
        Mortal { client: client_of(router), state }
    }

    /// Stalls before the write with that number until it is revived.
    pub fn stalling(rows: &Rows, at: u32) -> Mortal {
        Mortal::new(rows, at, CrashPoint::BeforeWrite)
    }

    pub async fn died(&self) {
        let _ = self.state.dead.acquire().await.unwrap();
    }

    pub fn go_on(&self) {
        self.state.revived.add_permits(1);
    }
}

impl Fate {
    async fn meet(
        &self,
        request: axum::extract::Request,
        next: axum::middleware::Next,
    ) -> axum::response::Response {
        let path = request.uri().path();
        let writes = path.contains("MutateRow") || path.contains("ReadModifyWrite");
        let number = match writes {
            true => self.writes.fetch_add(1, Ordering::SeqCst),
            false => self.writes.load(Ordering::SeqCst).saturating_sub(1),
        };
        let is_hit = writes && number == self.at;
        if is_hit && matches!(self.point, CrashPoint::AfterWrite) {
            next.clone().run(request).await;
            self.dead.add_permits(1);
            return std::future::pending().await;
        }
        if is_hit || number > self.at || (!writes && self.dead.available_permits() > 0) {
            self.dead.add_permits(1);
            let _ = self.revived.acquire().await.unwrap();
        }
        next.run(request).await
    }
}
