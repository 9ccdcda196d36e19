//! A server of the simulation: the parts of a cluster, put together around a tablet of
//! lists, or a tablet server with the engine (`engine_server`). It loads the tablet if nobody
//! has it, flushes and unloads at times, and recovers it from servers that have died.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stele_engine::config::TabletConfig;
use stele_engine::log::objects::{ObjectLog, ObjectLogOptions};
use stele_engine::world::sim::{Agenda, SimProcess};
use stele_engine::{Error, Result, Txn};
use stele_tables::recover::{Recovered, Recoverer};
use stele_tables::rows::{Holder, OwnedRow, Owner, RootRows, StoredRow};
use stele_tables::{ClusterWorld, Floor, Incarnation, LeaseTimes, load, unload};

use crate::engine_server::EngineServer;
use crate::files::{Append, Builder, Files, Names};
use crate::simulation::{Cluster, SCHEMA_GROUPS, Switches};

/// The answer to a call.
pub enum Reply {
    Appended,
    /// It certainly has no effect.
    Refused,
    /// It may have an effect.
    Unknown,
    Found(Vec<u64>),
}

pub type OnReply = Box<dyn FnOnce(Reply) + Send>;

/// A server, with tablets of one or the other kind.
#[derive(Clone)]
pub enum Server {
    Lists(Arc<ListServer>),
    Engine(Arc<EngineServer>),
}

impl Server {
    /// Registers a server and lets it work until it halts.
    pub async fn run(cluster: Arc<Cluster>, process: Arc<SimProcess>, number: usize) {
        match cluster.scenario.engine {
            true => EngineServer::run(cluster, process, number).await,
            false => ListServer::run(cluster, process, number).await,
        }
    }

    pub fn process(&self) -> &Arc<SimProcess> {
        match self {
            Server::Lists(server) => &server.process,
            Server::Engine(server) => &server.process,
        }
    }

    pub fn holder(&self) -> Holder {
        match self {
            Server::Lists(server) => server.holder(),
            Server::Engine(server) => server.holder(),
        }
    }

    /// Ends what the process of the server still does when it has crashed: it waits for
    /// nothing any more.
    pub fn crash(&self) {
        if let Server::Engine(server) = self {
            server.crash();
        }
    }

    /// Appends a number to a row. The reply may come at any later time.
    pub fn append(&self, row: u8, number: u64, reply: OnReply) {
        match self {
            Server::Lists(server) => server.append(row, number, reply),
            Server::Engine(server) => server.append(row, number, reply),
        }
    }

    /// Reads a row.
    pub fn read(&self, row: u8, reply: OnReply) {
        match self {
            Server::Lists(server) => server.read(row, reply),
            Server::Engine(server) => server.read(row, reply),
        }
    }
}

/// A server whose only tablet is made of lists.
pub struct ListServer {
    pub process: Arc<SimProcess>,
    cluster: Arc<Cluster>,
    switches: Switches,
    incarnation: Arc<Incarnation>,
    rows: RootRows,
    log: Arc<ObjectLog>,
    floor: Floor,
    files: Files,
    names: Arc<Names>,
    state: Mutex<State>,
}

struct State {
    tablet: Option<Tablet>,
    next: Txn,
}

/// The tablet while it is loaded.
struct Tablet {
    stored: StoredRow,
    /// Commits that are not in files.
    memory: Vec<Append>,
    accepts_writes: bool,
}

impl ListServer {
    async fn run(cluster: Arc<Cluster>, process: Arc<SimProcess>, number: usize) {
        let world = cluster.world(&process);
        let id = format!("s{number}");
        let incarnation = Incarnation::begin(world, &id, "sim", LeaseTimes::default()).await;
        let server = ListServer::new(&cluster, &process, incarnation);
        cluster.register(number, Server::Lists(server.clone()));
        process.spawn(server.incarnation.clone().keep());
        process.spawn(server.clone().step_log());
        // A halt ends the incarnation.
        if let Err(error) = server.work().await {
            server.trace(|| format!("halts: {error}"));
            cluster.note(number, &error);
        }
        cluster.stopped(number, &process);
    }

    fn new(
        cluster: &Arc<Cluster>,
        process: &Arc<SimProcess>,
        incarnation: Arc<Incarnation>,
    ) -> Arc<ListServer> {
        let agenda: Arc<Agenda> = cluster.agenda.clone();
        let rules = cluster.switches.rules;
        let options = ObjectLogOptions { rules, group_bytes_max: 200, ..Default::default() };
        let store = cluster.logs.connect(process);
        let log = ObjectLog::start(incarnation.epoch, 0, store, agenda.clone(), agenda, options);
        let log = Arc::new(log);
        let slots = log.clone();
        let rows = RootRows::new(incarnation.clone(), move || slots.next_slot());
        Arc::new(ListServer {
            process: process.clone(),
            cluster: cluster.clone(),
            switches: cluster.switches,
            floor: Floor::new(incarnation.clone(), log.clone()),
            files: cluster.files.clone(),
            names: Arc::new(Names::of(incarnation.epoch)),
            state: Mutex::new(State { tablet: None, next: Txn::base(1) }),
            incarnation,
            rows,
            log,
        })
    }

    pub fn holder(&self) -> Holder {
        self.rows.holder()
    }

    /// Sends again what is due.
    async fn step_log(self: Arc<Self>) {
        while self.log.failed().is_none() {
            self.log.step();
            self.process.sleep(Duration::from_millis(40)).await;
        }
    }

    /// Works until the server has to halt.
    async fn work(&self) -> Result<()> {
        let (agenda, scenario) = (&self.cluster.agenda, &self.cluster.scenario);
        loop {
            self.process.sleep(Duration::from_millis(20 + agenda.below(400))).await;
            // Without this rule it is a zombie until it finds out in another way.
            if self.switches.lease_gates_acks {
                self.incarnation.lease.check()?;
            }
            self.log.failed().map_or(Ok(()), Err)?;
            let is_loaded = self.state.lock().tablet.is_some();
            if !is_loaded {
                self.find_work().await?;
            } else if !self.cluster.is_quiet() && agenda.chance(scenario.moves) {
                self.unload().await?;
                // Others get a chance.
                self.process.sleep(Duration::from_millis(1500)).await;
            } else if agenda.chance(scenario.flushes) {
                self.flush().await?;
            }
        }
    }

    async fn find_work(&self) -> Result<()> {
        let Ok(rows) = self.rows.all().await else { return Ok(()) };
        let Some(found) = rows?.into_iter().next() else { return Ok(()) };
        match &found.row.owner {
            Owner::Nobody => self.load(&found).await,
            Owner::Server(owner) if *owner == self.holder() => Ok(()),
            Owner::Server(owner) => self.recover(owner).await,
            Owner::Recoverer(_) => {
                // Who claims a row over disturbs nobody.
                let Some(log) = found.row.log else { return Ok(()) };
                if !self.cluster.agenda.chance(self.cluster.scenario.rivals) {
                    return Ok(());
                }
                self.recover(&self.cluster.holder_of(log.epoch)).await
            }
        }
    }

    async fn load(&self, found: &StoredRow) -> Result<()> {
        let raise = |base: Txn| {
            let mut state = self.state.lock();
            state.next = state.next.max(base);
        };
        if let Some(stored) = load(&self.incarnation, &self.rows, found, raise).await? {
            self.trace(|| format!("has loaded the tablet: {:?}", stored.row.log));
            let tablet = Tablet { stored, memory: Vec::new(), accepts_writes: true };
            self.state.lock().tablet = Some(tablet);
        }
        Ok(())
    }

    async fn recover(&self, dead: &Holder) -> Result<()> {
        let recoverer = Recoverer {
            incarnation: self.incarnation.clone(),
            rows: self.rows.clone(),
            logs: self.cluster.logs.connect(&self.process),
            random: self.cluster.agenda.clone(),
            rebuild: Arc::new(Builder {
                files: self.files.clone(),
                names: self.names.clone(),
                skip_flushed: self.switches.rules.skip_flushed,
            }),
        };
        self.trace(|| format!("recovers {dead:?}"));
        let recovered = recoverer.recover(dead).await;
        self.trace(|| format!("has recovered {dead:?}: {recovered:?}"));
        match recovered {
            Ok(Recovered::Alive | Recovered::All | Recovered::Some) => Ok(()),
            // The tablet stays offline: the history will show it.
            Err(error @ Error::DataLoss { .. }) => {
                self.cluster.note(usize::MAX, &error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Writes what is in memory to a file, and truncates the log.
    async fn flush(&self) -> Result<()> {
        let (stored, appends) = {
            let state = self.state.lock();
            let Some(tablet) = &state.tablet else { return Ok(()) };
            let durable = self.log.durable();
            let is_durable = |append: &&Append| append.txn.raw() <= durable;
            let appends: Vec<Append> = tablet.memory.iter().filter(is_durable).copied().collect();
            (tablet.stored.clone(), appends)
        };
        let Some(last) = appends.last().map(|append| append.txn) else { return Ok(()) };
        let numbers: Vec<u64> = appends.iter().map(|append| append.number).collect();
        self.trace(|| format!("flushes {numbers:?} up to {last}"));
        if !self.switches.rules.floor_after_config {
            self.floor.raise(self.log.floor_for(last.raw() + 1)).await?;
        }
        let config = self.files.add(&stored.row.config, self.names.next(), appends);
        let changed = OwnedRow { config: Arc::new(config), ..stored.row.clone() };
        let Some(stored) = self.rows.change(&stored, changed).await? else {
            return Err(self.taken_over());
        };
        let oldest = {
            let mut state = self.state.lock();
            let next = state.next.raw() + 1;
            let Some(tablet) = &mut state.tablet else { return Ok(()) };
            tablet.stored = stored;
            tablet.memory.retain(|append| append.txn > last);
            tablet.memory.first().map_or(next, |append| append.txn.raw())
        };
        let floor = self.log.floor_for(oldest);
        self.trace(|| format!("has flushed up to {last}, raises the floor to {floor}"));
        self.floor.raise(floor).await
    }

    /// Gives the tablet up.
    async fn unload(&self) -> Result<()> {
        let last = {
            let mut state = self.state.lock();
            let Some(tablet) = &mut state.tablet else { return Ok(()) };
            tablet.accepts_writes = false;
            tablet.memory.last().map_or(0, |append| append.txn.raw())
        };
        while self.log.durable() < last {
            self.log.failed().map_or(Ok(()), Err)?;
            self.process.sleep(Duration::from_millis(20)).await;
        }
        self.flush().await?;
        let Some(tablet) = self.state.lock().tablet.take() else { return Ok(()) };
        assert!(tablet.memory.is_empty(), "nobody has written meanwhile");
        let config: TabletConfig = (*tablet.stored.row.config).clone();
        assert_eq!(config.chains.len(), SCHEMA_GROUPS);
        match unload(&self.rows, &tablet.stored, config).await? {
            Some(_) => {
                self.trace(|| "has unloaded the tablet".into());
                Ok(())
            }
            None => Err(self.taken_over()),
        }
    }

    /// Returns the error of a server that finds that a row which it holds has changed.
    fn taken_over(&self) -> Error {
        let what = "another server has taken over a tablet".to_string();
        self.incarnation.lease.halt(what.clone());
        Error::Fenced { epoch: self.incarnation.epoch, what }
    }

    /// Appends a number to a row. The reply may come at any later time.
    pub fn append(self: &Arc<Self>, row: u8, number: u64, reply: OnReply) {
        let mut state = self.state.lock();
        let accepts = state.tablet.as_ref().is_some_and(|tablet| tablet.accepts_writes);
        if !accepts || !self.may_acknowledge() || self.log.check_accepts().is_err() {
            drop(state);
            return reply(Reply::Refused);
        }
        let txn = state.next.next();
        let append = Append { txn, row, number };
        if self.log.enqueue(append.entry()).is_err() {
            drop(state);
            return reply(Reply::Refused);
        }
        state.next = txn;
        if let Some(tablet) = &mut state.tablet {
            tablet.memory.push(append);
        }
        drop(state);
        self.trace(|| format!("appends {number} at {txn}"));
        let server = self.clone();
        let acknowledge = move |outcome: Result<()>| {
            let is_applied = outcome.is_ok() && server.may_acknowledge();
            server.trace(|| format!("acknowledges {number}: {is_applied}"));
            reply(if is_applied { Reply::Appended } else { Reply::Unknown });
        };
        self.log.on_durable(txn.raw(), Box::new(acknowledge));
    }

    fn trace(&self, what: impl FnOnce() -> String) {
        self.cluster.trace(&self.holder(), what);
    }

    fn may_acknowledge(&self) -> bool {
        !self.switches.lease_gates_acks || self.incarnation.lease.check().is_ok()
    }

    /// Reads a row.
    pub fn read(&self, row: u8, reply: OnReply) {
        let state = self.state.lock();
        let Some(tablet) = &state.tablet else {
            drop(state);
            return reply(Reply::Unknown);
        };
        let durable = if self.switches.durable_reads { self.log.durable() } else { u64::MAX };
        let mut appends = self.files.of(&tablet.stored.row.config);
        let visible = |append: &&Append| append.txn.raw() <= durable;
        appends.extend(tablet.memory.iter().filter(visible));
        drop(state);
        appends.retain(|append| append.row == row);
        appends.sort_by_key(|append| append.txn);
        let leased = !self.switches.lease_gates_reads || self.incarnation.lease.check().is_ok();
        let found = appends.iter().map(|append| append.number).collect();
        reply(if leased { Reply::Found(found) } else { Reply::Unknown });
    }
}

/// Returns the world of a server of the cluster.
pub fn world(cluster: &Cluster, process: &Arc<SimProcess>) -> ClusterWorld {
    let sleeper = process.clone();
    ClusterWorld {
        clock: cluster.agenda.clone(),
        sleep: Arc::new(move |time| Box::pin(sleeper.sleep(time))),
        coordinator: cluster.etcd.connect(process),
        absent_for: cluster.scenario.absent_for,
        keys: stele_tables::coordinate::Keys::of("sim"),
        rules: cluster.switches.rules,
    }
}
