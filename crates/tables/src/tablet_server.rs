//! A tablet server: one incarnation of a server in a cluster, with its lease, its log, and
//! the engine's store of the tablets that it owns. Tablets are loaded, unloaded and
//! recovered by command; who commands is not decided here. When the lease ends, or
//! another server has taken over, everything halts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_channel::oneshot;
use stele_engine::config::{RowKey, TabletConfig};
use stele_engine::log::objects::{ObjectLog, ObjectLogOptions};
use stele_engine::schema::Schema;
use stele_engine::world::{FragmentStore, LogStore, Priority, World};
use stele_engine::{
    Error, Options, Resources, Result, RowRange, ServerParts, Store, TableId, TabletId,
    TabletState, Txn, fatal,
};

use crate::collect::{CollectedGarbage, Collector, Marks};
use crate::coordinate::{Op, Transaction};
use crate::detached::wait;
use crate::floor::{Floor, FloorKeeper};
use crate::incarnation::{ClusterWorld, Incarnation};
use crate::lease::LeaseTimes;
use crate::load::{base_of_load, claim, is_free};
use crate::messages::ServerInfo;
use crate::recover::{Recovered, Recoverer, Replay};
use crate::rows::{Holder, Owner, RootRows, StoredRow};
use crate::tables::Tables;

/// What a tablet server is made of.
pub struct TabletServerParts {
    pub world: ClusterWorld,
    pub engine: World,
    /// Locked while the server runs. Nothing in it outlives the server.
    pub dir: PathBuf,
    /// The server, which keeps its id over restarts.
    pub id: String,
    /// Where others reach it.
    pub address: String,
    pub times: LeaseTimes,
    /// With the store of the files.
    pub options: Options,
    pub resources: Resources,
    pub logs: Arc<dyn LogStore>,
    pub log: ObjectLogOptions,
}

/// A tablet server. Clones are the same one.
#[derive(Clone)]
pub struct TabletServer {
    shared: Arc<Shared>,
}

struct Shared {
    incarnation: Arc<Incarnation>,
    rows: RootRows,
    log: Arc<ObjectLog>,
    logs: Arc<dyn LogStore>,
    engine: World,
    files: Arc<dyn FragmentStore>,
    store: Arc<Store>,
    tables: Tables,
    /// What rounds of collection have found.
    marks: fatal::Mutex<Marks>,
}

/// A table as the cluster knows it.
#[derive(Clone, Debug)]
pub struct TableEntry {
    pub id: TableId,
    pub name: String,
    pub schema: Arc<Schema>,
}

/// What became of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    pub loaded: usize,
    /// Were loaded here before.
    pub here: usize,
    /// Belong to others, or do not exist.
    pub refused: usize,
}

/// A tablet that is served here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedTablet {
    pub table: TableId,
    pub id: TabletId,
    pub rows: RowRange,
    pub load: u64,
}

/// The servers of a cluster, and the tablets that nobody serves, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    pub live: Vec<(Holder, ServerInfo)>,
    /// Their logs must be recovered. The id is empty if only the epoch is known.
    pub dead: Vec<Holder>,
    /// They can be loaded.
    pub unowned: Vec<(TableId, RowRange)>,
}

impl TabletServer {
    /// Registers a server and opens its store, which begins without tables. Waits for the
    /// lapse of its last incarnation.
    pub async fn begin(parts: TabletServerParts) -> Result<TabletServer> {
        let TabletServerParts { world, engine, dir, id, address, times, options, .. } = parts;
        let incarnation = Incarnation::begin(world, &id, &address, times).await;
        let (clock, random) = (engine.clock.clone(), engine.random.clone());
        let (epoch, base) = (incarnation.epoch, Txn::base(incarnation.epoch));
        let logs = parts.logs;
        let log = ObjectLog::start(epoch, base.raw(), logs.clone(), clock, random, parts.log);
        let log = Arc::new(log);
        let slots = log.clone();
        let rows = RootRows::new(incarnation.clone(), move || slots.next_slot());
        let floor = FloorKeeper::new(Floor::new(incarnation.clone(), log.clone()));
        let (taking, lease) = (incarnation.clone(), incarnation.lease.clone());
        let server = ServerParts {
            epoch,
            log: log.clone(),
            rows: Arc::new(rows.clone()),
            take_generation: Box::new(move || wait(taking.take_generation())),
            on_floor: Box::new(move |slot| floor.raise(slot)),
            on_failure: Arc::new(move |what| lease.halt(what)),
        };
        let files = options.objects.store.clone().ok_or(Error::NoObjectStore)?;
        let resources = parts.resources;
        let store = Store::open_in_cluster(&dir, options, engine.clone(), resources, server)?;
        let store = Arc::new(store);
        let tables = Tables::of_server(store.clone(), incarnation.lease.clone());
        let marks = fatal::Mutex::default();
        let shared = Shared { incarnation, rows, log, logs, engine, files, store, tables, marks };
        Ok(TabletServer { shared: Arc::new(shared) })
    }

    /// Keeps the lease until it ends; then halts, and returns why.
    pub async fn keep(&self) -> Error {
        self.shared.incarnation.clone().keep().await;
        let ended = self.shared.incarnation.lease.check();
        let why = ended.err().unwrap_or(Error::Closed);
        self.halt(why.to_string());
        why
    }

    /// Ends this incarnation: it acknowledges, serves and publishes nothing any more.
    pub fn halt(&self, what: impl Into<String>) {
        let what = what.into();
        self.shared.incarnation.lease.halt(what.clone());
        self.shared.store.halt(&what);
    }

    /// Unloads everything and gives the lease up.
    pub async fn end(&self) -> Result<()> {
        let unloaded = self.unload_all().await;
        self.shared.incarnation.end().await;
        self.halt("the server stops");
        unloaded.map(drop)
    }

    /// Returns the tables. Those rows are served whose tablets are loaded here.
    pub fn tables(&self) -> &Tables {
        &self.shared.tables
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.shared.store
    }

    pub fn log(&self) -> &Arc<ObjectLog> {
        &self.shared.log
    }

    pub fn incarnation(&self) -> &Arc<Incarnation> {
        &self.shared.incarnation
    }

    /// Returns this incarnation, as rows name it.
    pub fn holder(&self) -> Holder {
        self.shared.rows.holder()
    }

    pub fn rows(&self) -> &RootRows {
        &self.shared.rows
    }

    /// Makes a table known, or its schema as it is now. Nothing of it is loaded by that.
    pub fn adopt(&self, table: TableEntry) -> Result<()> {
        let TableEntry { id, name, schema } = table;
        self.shared.rows.adopt(id, schema.clone());
        self.shared.store.adopt_table(id, &name, schema)
    }

    /// Forgets a table that was dropped, with its rows that are here.
    pub fn forget(&self, table: TableId) -> Result<()> {
        self.shared.store.forget_table(table)?;
        self.shared.rows.forget(table);
        Ok(())
    }

    /// Returns keys of the coordinator with the rows of a new table, whose tablets meet at
    /// `splits`. They must exist before anybody knows the table.
    pub fn rows_of_new_table(
        &self,
        table: TableId,
        schema: &Schema,
        splits: &[Vec<u8>],
    ) -> Result<Vec<(Vec<u8>, Bytes)>> {
        self.shared.rows.rows_of_new_table(table, schema, splits)
    }

    /// Loads the tablets of a table that end before these rows; the last one with `None`.
    pub async fn load(&self, table: TableId, ends: &[Option<Vec<u8>>]) -> Result<Loads> {
        let ends = ends.to_vec();
        self.run(move |server| server.load_now(table, &ends)).await
    }

    /// Unloads those of the tablets that are loaded here. Returns how many.
    pub async fn unload(&self, table: TableId, ends: &[Option<Vec<u8>>]) -> Result<usize> {
        let ends: BTreeSet<Option<Vec<u8>>> = ends.iter().cloned().collect();
        self.run(move |server| {
            let is_chosen =
                |tablet: &LoadedTablet| tablet.table == table && ends.contains(&tablet.rows.end);
            server.unload_now(is_chosen)
        })
        .await
    }

    /// Unloads all tablets. Returns how many.
    pub async fn unload_all(&self) -> Result<usize> {
        self.run(move |server| server.unload_now(|_| true)).await
    }

    /// Recovers the tablets that depend on the log of another server. Their tables must be
    /// known here.
    pub async fn recover(&self, dead: &Holder) -> Result<Recovered> {
        let dead = dead.clone();
        self.run(move |server| wait(server.recoverer().recover(&dead))).await
    }

    fn recoverer(&self) -> Recoverer {
        let Shared { incarnation, rows, logs, engine, store, .. } = &*self.shared;
        let replay = Replay { store: store.clone(), rules: incarnation.world.rules };
        Recoverer {
            incarnation: incarnation.clone(),
            rows: rows.clone(),
            logs: logs.clone(),
            random: engine.random.clone(),
            rebuild: Arc::new(replay),
        }
    }

    /// Returns the tablets that are served here.
    pub fn loaded(&self) -> Vec<LoadedTablet> {
        let mut loaded = Vec::new();
        for (table, _) in self.shared.store.tables() {
            let Ok(tablets) = self.shared.store.tablets(table) else { continue };
            let active = tablets.into_iter().filter(|it| it.state == TabletState::Active);
            loaded.extend(active.map(|it| LoadedTablet {
                table,
                id: it.id,
                rows: it.rows,
                load: it.load,
            }));
        }
        loaded
    }

    /// Returns which servers are alive, and which tablets nobody serves.
    pub async fn survey(&self) -> Result<Survey> {
        let Shared { incarnation, .. } = &*self.shared;
        let keys = &incarnation.world.keys;
        let then = vec![Op::GetAll(keys.servers()), Op::GetAll(keys.all_tablets())];
        let transaction = Transaction { then, ..Transaction::default() };
        let coordinator = &incarnation.world.coordinator;
        let read = incarnation.insist(|| coordinator.run(transaction.clone())).await?;
        let mut survey = Survey::default();
        let mut dead = BTreeMap::new();
        let servers = keys.servers();
        for found in read.found {
            if let Some(id) = found.key.strip_prefix(&servers[..]) {
                if let Some(info) = ServerInfo::decode(&found.value) {
                    let id = String::from_utf8_lossy(id).into_owned();
                    survey.live.push((Holder { id, epoch: info.epoch }, info));
                }
                continue;
            }
            let stored = StoredRow::of(keys, found)?;
            let is_live = |holder: &Holder| survey.live.iter().any(|(live, _)| live == holder);
            match (&stored.row.owner, stored.row.log) {
                (Owner::Nobody, None) => {
                    survey.unowned.push((stored.table, stored.row.config.rows.clone()));
                }
                (Owner::Server(holder), _) if !is_live(holder) => {
                    dead.insert(holder.epoch, holder.clone());
                }
                (Owner::Recoverer(holder), Some(log)) if !is_live(holder) => {
                    let id = String::new();
                    dead.entry(log.epoch).or_insert(Holder { id, epoch: log.epoch });
                }
                _ => {}
            }
        }
        survey.dead = dead.into_values().collect();
        Ok(survey)
    }

    /// Tells the collections of all servers which names of files this one has given to rows
    /// or to nothing. To be called now and then: until then its garbage stays.
    pub async fn publish_pending(&self) -> Result<bool> {
        let Shared { incarnation, store, .. } = &*self.shared;
        incarnation.publish_pending(store.oldest_pending()).await
    }

    /// Runs a round of collection: deletes files that no row names and that a round of this
    /// server has found `age_min` ago, and the logs of servers that were recovered.
    pub async fn collect(&self, age_min: Duration) -> Result<CollectedGarbage> {
        self.run(move |server| {
            let Shared { incarnation, rows, files, logs, marks, .. } = &*server.shared;
            let collector =
                Collector { incarnation, rows, files: &**files, logs: &**logs, age_min };
            // One round at a time; the marks are lost if the server ends.
            let mut found = std::mem::take(&mut *marks.lock());
            let collected = wait(collector.collect(&mut found));
            *marks.lock() = found;
            collected
        })
        .await
    }

    fn load_now(&self, table: TableId, ends: &[Option<Vec<u8>>]) -> Result<Loads> {
        let Shared { incarnation, rows, store, .. } = &*self.shared;
        let keys: Vec<RowKey> = ends.iter().map(|end| RowKey { table, end: end.clone() }).collect();
        let found = wait(incarnation.insist(|| rows.some(keys.iter())))??;
        let holder = Owner::Server(self.holder());
        let here = found.iter().filter(|found| found.row.owner == holder).count();
        let free: Vec<StoredRow> = found.into_iter().filter(is_free).collect();
        let mut loads = Loads { loaded: 0, here, refused: keys.len() - here };
        if free.is_empty() {
            return Ok(loads);
        }
        let base = wait(base_of_load(incarnation, &free))?;
        let configs: Vec<Arc<TabletConfig>> =
            free.iter().map(|found| found.row.config.clone()).collect();
        let claim_all = |chosen: &[TabletId]| {
            let mut claimed = Vec::with_capacity(chosen.len());
            for found in free.iter().filter(|found| chosen.contains(&found.row.config.id)) {
                claimed.extend(wait(claim(rows, found))?.map(|stored| stored.row.config));
            }
            Ok(claimed)
        };
        loads.loaded = store.load_rows(table, &configs, base.generation(), claim_all)?;
        loads.refused -= loads.loaded;
        Ok(loads)
    }

    fn unload_now(&self, is_chosen: impl Fn(&LoadedTablet) -> bool) -> Result<usize> {
        let mut chosen: BTreeMap<TableId, Vec<RowRange>> = BTreeMap::new();
        for tablet in self.loaded().into_iter().filter(is_chosen) {
            chosen.entry(tablet.table).or_default().push(tablet.rows);
        }
        let mut unloaded = 0;
        for (table, rows) in chosen {
            unloaded += self.shared.store.unload(table, &rows)?;
        }
        Ok(unloaded)
    }

    /// Runs a job that blocks: on a thread of its own, or on this one if the server has no
    /// threads.
    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&TabletServer) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let Some(spawner) = &self.shared.engine.spawner else { return job(self) };
        let (ended, outcome) = oneshot::channel();
        let server = self.clone();
        let body = move || {
            // The caller may have been cancelled.
            let _ = ended.send(job(&server));
        };
        let spawned = spawner.spawn("stele-tablets", Priority::Normal, Box::new(body));
        let dir = std::path::Path::new("a tablet server");
        drop(spawned.map_err(|error| Error::io("starting a thread for", dir, error))?);
        outcome.await.unwrap_or(Err(Error::Closed))
    }
}
