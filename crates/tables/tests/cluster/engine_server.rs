//! A server of the simulation with the engine: a tablet server whose loads, unloads,
//! flushes and recoveries are chosen at random. A row is a list of numbers, which appends
//! extend by an operand: one that is lost, doubled or moved shows in the list.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::log::objects::ObjectLogOptions;
use stele_engine::world::World;
use stele_engine::world::sim::{SimFiles, SimProcess};
use stele_engine::{
    Commit, CommitBuilder, Error, Fold, FoldId, Options, Resources, Result, ScanSpec, Txn,
};
use stele_tables::recover::Recovered;
use stele_tables::rows::{Holder, Owner};
use stele_tables::{
    LeaseTimes, Local, Placement, TableEntry, TabletServer, TabletServerParts, Tenure,
};

use crate::server::{OnReply, Reply, world};
use crate::simulation::{Cluster, TABLE, row_key, schema};

/// Appends 8 bytes.
const APPEND: FoldId = FoldId(40);

struct Append;

impl Fold for Append {
    fn check(&self, operand: &[u8]) -> std::result::Result<(), String> {
        if operand.len() == 8 { Ok(()) } else { Err("a number has 8 bytes".into()) }
    }

    fn fold(&self, older: &[u8], newer: &[u8]) -> Vec<u8> {
        [older, newer].concat()
    }
}

pub struct EngineServer {
    pub process: Arc<SimProcess>,
    cluster: Arc<Cluster>,
    server: TabletServer,
}

/// Returns options with which a few commits fill files and chains.
fn options(cluster: &Cluster) -> Options {
    let mut options = Options::default();
    options.folds.register(APPEND, Arc::new(Append));
    options.memory.budget_bytes = 8 << 20;
    options.memory.cache_bytes = 1 << 20;
    options.memory.conflict_slots = 1 << 8;
    options.compact.chain_min = 3;
    options.compact.chain_max = 4;
    options.objects.store = Some(Arc::new(cluster.fragments.clone()));
    options
}

impl EngineServer {
    /// Registers a server and lets it work until it halts.
    pub async fn run(cluster: Arc<Cluster>, process: Arc<SimProcess>, number: usize) {
        let agenda = &cluster.agenda;
        let options = options(&cluster);
        let engine = World {
            clock: agenda.clone(),
            files: Arc::new(SimFiles::new(agenda.below(u64::MAX))),
            random: agenda.clone(),
            spawner: None,
        };
        let rules = cluster.switches.rules;
        let parts = TabletServerParts {
            world: world(&cluster, &process),
            engine,
            dir: Path::new("/server").to_path_buf(),
            id: format!("s{number}"),
            address: "sim".into(),
            times: LeaseTimes::default(),
            resources: Resources::new(&options),
            options,
            logs: cluster.logs.connect(&process),
            log: ObjectLogOptions { rules, group_bytes_max: 200, ..Default::default() },
        };
        let server = TabletServer::begin(parts).await.expect("a new directory");
        let entry = TableEntry { id: TABLE, name: "t".into(), schema: Arc::new(schema()) };
        server.adopt(entry).expect("a new table");
        let server = Arc::new(EngineServer { process: process.clone(), cluster, server });
        server.cluster.register(number, crate::server::Server::Engine(server.clone()));
        let keeper = server.clone();
        process.spawn(async move { drop(keeper.server.keep().await) });
        process.spawn(server.clone().step_log());
        if let Err(error) = server.work().await {
            server.trace(|| format!("halts: {error}"));
            server.cluster.note(number, &error);
        }
        server.server.halt("it stops");
        server.cluster.stopped(number, &process);
    }

    pub fn holder(&self) -> Holder {
        self.server.holder()
    }

    /// Ends waits of a process that has crashed: their answers never come.
    pub fn crash(&self) {
        self.server.halt("it has crashed");
    }

    /// Sends again what is due.
    async fn step_log(self: Arc<Self>) {
        while self.server.log().failed().is_none() {
            self.server.log().step();
            self.process.sleep(Duration::from_millis(40)).await;
        }
    }

    /// Works until the server has to halt.
    async fn work(&self) -> Result<()> {
        let (agenda, scenario) = (&self.cluster.agenda, &self.cluster.scenario);
        let is_quiet = || self.cluster.is_quiet();
        loop {
            self.process.sleep(Duration::from_millis(20 + agenda.below(400))).await;
            if self.cluster.switches.lease_gates_acks {
                self.server.incarnation().lease.check()?;
            }
            self.server.log().failed().map_or(Ok(()), Err)?;
            self.find_work().await?;
            if !is_quiet() && agenda.chance(scenario.moves) {
                self.unload().await?;
                // Others get a chance.
                self.process.sleep(Duration::from_millis(1500)).await;
            } else if agenda.chance(scenario.flushes) {
                self.retried("flushes", self.server.store().flush(TABLE))?;
            } else if agenda.chance(scenario.collections) {
                self.collect().await?;
            } else if agenda.chance(20) {
                self.retried("works", self.server.store().step())?;
            }
        }
    }

    /// Ignores failures of the store of files, after which the engine tries again.
    fn retried<T>(&self, what: &str, outcome: Result<T>) -> Result<()> {
        match outcome {
            Ok(_) => self.trace(|| format!("{what}, now {:?}", self.server.loaded())),
            Err(error @ (Error::Io { .. } | Error::Overloaded { .. })) => {
                self.trace(|| format!("{what} in vain: {error}"));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn find_work(&self) -> Result<()> {
        let survey = self.server.survey().await?;
        for dead in &survey.dead {
            self.recover(dead).await?;
        }
        if self.cluster.agenda.chance(self.cluster.scenario.rivals) {
            self.rival().await?;
        }
        let agenda = &self.cluster.agenda;
        let free = survey.unowned.into_iter().map(|(_, rows)| rows.end);
        let chosen: Vec<Option<Vec<u8>>> = free.filter(|_| agenda.chance(50)).collect();
        if !chosen.is_empty() {
            let loads = self.server.load(TABLE, &chosen).await;
            self.trace(|| format!("loads {chosen:?}: {loads:?}"));
            self.retried("has loaded", loads)?;
        }
        Ok(())
    }

    /// Claims a row which another server recovers. Who does that disturbs nobody.
    async fn rival(&self) -> Result<()> {
        let Ok(rows) = self.server.rows().all().await else { return Ok(()) };
        let recovered = rows?.into_iter().find_map(|stored| match stored.row.owner {
            Owner::Recoverer(_) => stored.row.log,
            _ => None,
        });
        match recovered {
            Some(log) => self.recover(&self.cluster.holder_of(log.epoch)).await,
            None => Ok(()),
        }
    }

    async fn recover(&self, dead: &Holder) -> Result<()> {
        self.trace(|| format!("recovers {dead:?}"));
        let recovered = self.server.recover(dead).await;
        self.trace(|| format!("has recovered {dead:?}: {recovered:?}"));
        match recovered {
            Ok(Recovered::Alive | Recovered::All | Recovered::Some) => Ok(()),
            // The tablet stays offline: the history will show it.
            Err(error @ Error::DataLoss { .. }) => {
                self.cluster.note(usize::MAX, &error);
                Ok(())
            }
            outcome => self.retried("recovers", outcome),
        }
    }

    /// Deletes what nobody needs.
    async fn collect(&self) -> Result<()> {
        let published = self.server.publish_pending().await?;
        let collected = self.server.collect(Duration::ZERO).await?;
        self.trace(|| format!("collects {collected:?}, published: {published}"));
        self.cluster.note_collected(&collected);
        Ok(())
    }

    /// Gives one of the tablets up.
    async fn unload(&self) -> Result<()> {
        let loaded = self.server.loaded();
        let chosen = self.cluster.agenda.below(loaded.len() as u64) as usize;
        let Some(tablet) = loaded.into_iter().nth(chosen) else { return Ok(()) };
        let unloaded = self.server.unload(TABLE, std::slice::from_ref(&tablet.rows.end)).await;
        self.trace(|| format!("unloads {tablet:?}: {unloaded:?}"));
        self.retried("has unloaded", unloaded)
    }

    fn local(&self, row: &[u8]) -> Local<'_> {
        let Placement::Here(local) = self.server.tables().place(TABLE, row);
        local
    }

    /// Returns what opens answers.
    fn tenure(&self, gated: bool) -> &Tenure {
        if gated { self.server.tables().tenure() } else { &Tenure::Always }
    }

    /// Appends a number to a row. The reply may come at any later time.
    pub fn append(self: &Arc<Self>, row: u8, number: u64, reply: OnReply) {
        let gated = self.cluster.switches.lease_gates_acks;
        let mut commit = CommitBuilder::new();
        commit.table(TABLE).row(&row_key(row));
        commit.merge(APPEND, b"f", b"", 0, &number.to_be_bytes());
        let applied = match self.apply(&commit.finish(), row, gated) {
            Err(error) => {
                self.trace(|| format!("refuses {number}: {error}"));
                return reply(Reply::Refused);
            }
            Ok(applied) => applied,
        };
        let Ok(txn) = applied else { return reply(Reply::Unknown) };
        self.trace(|| format!("appends {number} at {txn}"));
        let server = self.clone();
        let acknowledge = move |outcome: Result<()>| {
            let leased = !gated || server.server.incarnation().lease.check().is_ok();
            let is_applied = outcome.is_ok() && leased;
            server.trace(|| format!("acknowledges {number}: {is_applied}"));
            reply(if is_applied { Reply::Appended } else { Reply::Unknown });
        };
        self.server.store().on_durable(txn, acknowledge);
    }

    /// Applies a commit. An error of the first kind means that it has no effect.
    fn apply(&self, commit: &Commit, row: u8, gated: bool) -> Result<Result<Txn>> {
        let row = row_key(row);
        let local = self.local(&row);
        let Some(permit) = local.try_admit(commit)? else {
            return Err(Error::Closed);
        };
        if gated {
            self.server.incarnation().lease.check()?;
        }
        match self.tenure(gated).open(local.apply(permit, Txn::MAX)) {
            Err(error @ Error::TabletNotLoaded(_)) => Err(error),
            applied => Ok(applied),
        }
    }

    /// Reads a row.
    pub fn read(&self, row: u8, reply: OnReply) {
        let key = row_key(row);
        let mut found = Vec::new();
        let read = self.local(&key).read_row(&key, &ScanSpec::default(), |cell| {
            found.extend_from_slice(cell.value);
        });
        let tenure = self.tenure(self.cluster.switches.lease_gates_reads);
        let opened = tenure.open(read);
        let numbers = found.chunks(8);
        let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("8 bytes"));
        let numbers: Vec<u64> = numbers.map(number).collect();
        self.trace(|| format!("reads {row}: {opened:?} {:?}", numbers.last()));
        reply(match opened {
            Ok(_) => Reply::Found(numbers),
            Err(_) => Reply::Unknown,
        });
    }

    fn trace(&self, what: impl FnOnce() -> String) {
        self.cluster.trace(&self.holder(), what);
    }
}
