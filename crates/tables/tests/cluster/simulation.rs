//! A cluster in one thread: what can go wrong in it, and how a run ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stele_engine::config::{FileName, TabletConfig};
use stele_engine::schema::{Family, Schema};
use stele_engine::world::sim::{
    Agenda, LogFaults, ObjectFaults, SimLogObjects, SimObjects, SimProcess,
};
use stele_engine::world::{Clock, LogSlot};
use stele_engine::{RowRange, Rules, TableId, TabletId};
use stele_tables::coordinate::{Coordinator, EtcdFaults, Keys, Op, SimEtcd, Transaction};
use stele_tables::rows::{Holder, OwnedRow, Owner};
use stele_tables::{ClusterWorld, CollectedGarbage};

use crate::clients::Clients;
use crate::files::Files;
use crate::history::{self, Violation};
use crate::server::{self, Server};

pub const TABLE: TableId = TableId(1);
pub const SCHEMA_GROUPS: usize = 1;
/// Virtual time with faults.
const TIME: Duration = Duration::from_secs(60);
/// Virtual time within which everything must work after the faults are over.
const CALM: Duration = Duration::from_secs(120);

pub fn schema() -> Schema {
    Schema::with_families([Family::new("f")]).unwrap()
}

/// Rules, those of the protocol and those that only a server with data can break. Names are
/// those of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    pub rules: Rules,
    pub lease_gates_acks: bool,
    pub lease_gates_reads: bool,
    pub durable_reads: bool,
}

impl Switches {
    pub const CORRECTED: Switches = Switches {
        rules: Rules::CORRECTED,
        lease_gates_acks: true,
        lease_gates_reads: true,
        durable_reads: true,
    };
}

/// What happens in a run: chances are percentages.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub servers: usize,
    pub clients: usize,
    /// Chance at each step of a server.
    pub flushes: u64,
    pub moves: u64,
    /// Chance that a server claims a row which another one recovers.
    pub rivals: u64,
    /// Chance every second, for one server.
    pub crashes: u64,
    pub pauses: u64,
    pub pause_max: Duration,
    /// Chance every second that the coordinator ends the lease of the owner too early,
    /// while it is paused for a moment.
    pub early_losses: u64,
    /// How long a server must be gone before it is recovered.
    pub absent_for: Duration,
    pub etcd: EtcdFaults,
    pub log: LogFaults,
    /// The longest time that a request to the store of logs takes, each way.
    pub log_delay_max: Duration,
    /// Chance that a client asks any server instead of the owner.
    pub strays: u64,
    /// Whether the servers have the engine instead of a tablet of lists.
    pub engine: bool,
    pub tablets: u8,
    /// Chance at each step of a server that it runs a round of collection.
    pub collections: u64,
    /// Requests to the store of the engine's files.
    pub fragments: ObjectFaults,
}

/// Returns the key of a row in the engine.
pub fn row_key(row: u8) -> Vec<u8> {
    vec![b'a' + row]
}

impl Scenario {
    /// A little of everything.
    pub const MIXED: Scenario = Scenario {
        servers: 3,
        clients: 4,
        flushes: 30,
        moves: 5,
        rivals: 30,
        crashes: 12,
        pauses: 12,
        pause_max: Duration::from_secs(30),
        early_losses: 0,
        absent_for: Duration::ZERO,
        etcd: EtcdFaults { refused: 3, answer_lost: 3, late: 3 },
        log: LogFaults { refused: 3, answer_lost: 3, late: 3, timed_out: 1, doubled: 3 },
        log_delay_max: Duration::from_millis(100),
        strays: 30,
        engine: false,
        tablets: 1,
        collections: 0,
        fragments: NO_FAULTS,
    };

    /// The same with the engine, and a tablet for each row.
    pub const ENGINE: Scenario = Scenario {
        engine: true,
        tablets: 2,
        collections: 15,
        fragments: ObjectFaults { put: 0.05, applied_put: 0.03, late_put: 0.03, ..NO_FAULTS },
        ..Scenario::MIXED
    };

    /// Returns the rows at which tablets meet.
    pub fn splits(&self) -> Vec<Vec<u8>> {
        (1..self.tablets).map(row_key).collect()
    }
}

const NO_FAULTS: ObjectFaults =
    ObjectFaults { put: 0.0, applied_put: 0.0, late_put: 0.0, get: 0.0, list: 0.0, delete: 0.0 };

pub struct Cluster {
    pub agenda: Arc<Agenda>,
    pub etcd: SimEtcd,
    pub logs: SimLogObjects,
    pub files: Files,
    /// The files of the engine.
    pub fragments: SimObjects,
    pub switches: Switches,
    pub scenario: Scenario,
    servers: Mutex<Vec<Option<Server>>>,
    processes: Mutex<Vec<Arc<SimProcess>>>,
    epochs: Mutex<BTreeMap<u64, Holder>>,
    /// The last error of each server.
    errors: Mutex<BTreeMap<usize, String>>,
    /// Numbers of files and objects that were deleted.
    collected: Mutex<(usize, usize)>,
    is_quiet: AtomicBool,
    is_traced: bool,
}

impl Cluster {
    fn new(seed: u64, switches: Switches, scenario: Scenario) -> Arc<Cluster> {
        let agenda = Agenda::new(seed);
        let (etcd, logs) = (SimEtcd::new(&agenda), SimLogObjects::new(&agenda));
        let cluster = Arc::new(Cluster {
            etcd,
            logs,
            files: Files::default(),
            fragments: SimObjects::new(seed),
            switches,
            scenario,
            servers: Mutex::new(vec![None; scenario.servers]),
            processes: Mutex::new(
                (0..scenario.servers).map(|_| SimProcess::start(&agenda)).collect(),
            ),
            epochs: Mutex::default(),
            errors: Mutex::default(),
            collected: Mutex::default(),
            is_quiet: AtomicBool::new(false),
            is_traced: std::env::var_os("STELE_TRACE").is_some(),
            agenda,
        });
        cluster.create_rows();
        cluster.fragments.set_hit_rate(1.0);
        cluster.fragments.set_faults(scenario.fragments);
        cluster.etcd.set_faults(scenario.etcd);
        cluster.logs.set_faults(scenario.log);
        cluster.logs.set_delay_max(scenario.log_delay_max);
        for number in 0..scenario.servers {
            cluster.start(number);
        }
        cluster
    }

    /// Creates the rows of the tablets.
    fn create_rows(&self) {
        let splits = self.scenario.splits();
        let starts = std::iter::once(Vec::new()).chain(splits.iter().cloned());
        let ends = splits.iter().cloned().map(Some).chain([None]);
        let put = |(number, (start, end)): (u32, (Vec<u8>, Option<Vec<u8>>))| {
            let id = TabletId { incarnation: 0, number };
            let key = Keys::of("sim").tablet(TABLE, end.as_deref());
            let mut config = TabletConfig::new(id, RowRange { start, end }, SCHEMA_GROUPS);
            config.loaded = false;
            Op::put(key, OwnedRow::new(config).encode())
        };
        let then = (1..).zip(starts.zip(ends)).map(put).collect();
        let transaction = Transaction { then, ..Transaction::default() };
        let connection = self.etcd.connect(&SimProcess::start(&self.agenda));
        connection.transact(transaction, Box::new(|_| ()));
        self.agenda.run_for(Duration::from_secs(1), || false);
    }

    /// Starts a server in a new process.
    fn start(self: &Arc<Self>, number: usize) {
        let process = SimProcess::start(&self.agenda);
        let last = std::mem::replace(&mut self.processes.lock()[number], process.clone());
        last.crash();
        self.forget(number);
        process.spawn(Server::run(self.clone(), process.clone(), number));
    }

    /// Ends the process of a server, and starts it again after a while.
    fn restart(self: &Arc<Self>, number: usize) {
        self.processes.lock()[number].crash();
        self.forget(number);
        let cluster = self.clone();
        let delay = self.agenda.delay(Duration::from_secs(5));
        self.agenda.after(delay, move || cluster.start(number));
    }

    /// Ends what is left of a server whose process has crashed.
    fn forget(&self, number: usize) {
        let gone = self.servers.lock()[number].take();
        gone.into_iter().for_each(|server| server.crash());
    }

    /// Notes that a server has halted.
    pub fn stopped(self: &Arc<Self>, number: usize, process: &Arc<SimProcess>) {
        let is_current = Arc::ptr_eq(&self.processes.lock()[number], process);
        if is_current {
            self.restart(number);
        }
    }

    pub fn register(&self, number: usize, server: Server) {
        let holder = server.holder();
        self.epochs.lock().insert(holder.epoch, holder);
        self.servers.lock()[number] = Some(server);
    }

    pub fn world(&self, process: &Arc<SimProcess>) -> ClusterWorld {
        server::world(self, process)
    }

    /// Returns the server that had an epoch.
    pub fn holder_of(&self, epoch: u64) -> Holder {
        self.epochs.lock()[&epoch].clone()
    }

    /// Whether nothing goes wrong any more.
    pub fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::SeqCst)
    }

    pub fn server(&self, number: usize) -> Option<Server> {
        self.servers.lock()[number].clone()
    }

    /// Returns the number of the server that owns the last tablet, if it has an owner.
    pub fn owner(&self) -> Option<usize> {
        self.owner_of_end(None)
    }

    /// Returns the number of the server that owns the tablet of a row.
    pub fn owner_of(&self, row: u8) -> Option<usize> {
        let splits = self.scenario.splits();
        let end = splits.into_iter().find(|split| *split > row_key(row));
        self.owner_of_end(end)
    }

    fn owner_of_end(&self, end: Option<Vec<u8>>) -> Option<usize> {
        let keys = self.etcd.keys();
        let key = Keys::of("sim").tablet(TABLE, end.as_deref());
        let row = OwnedRow::decode(&keys.get(&key)?.value).ok()?;
        let Owner::Server(holder) = row.owner else { return None };
        holder.id.strip_prefix('s')?.parse().ok()
    }

    /// Crashes and pauses servers.
    fn disturb(self: &Arc<Self>) {
        let number = self.agenda.below(self.scenario.servers as u64) as usize;
        if self.agenda.chance(self.scenario.crashes) {
            self.restart(number);
        }
        if self.agenda.chance(self.scenario.pauses) {
            // The owner is the most interesting one.
            let number = self.owner().filter(|_| self.agenda.chance(70)).unwrap_or(number);
            let time = self.agenda.delay(self.scenario.pause_max * 2).min(self.scenario.pause_max);
            self.processes.lock()[number].pause(time);
        }
        if self.agenda.chance(self.scenario.early_losses) {
            self.lose_lease();
        }
    }

    /// Ends the lease of the owner before its time. The owner is paused meanwhile, so that
    /// it finds out late.
    fn lose_lease(&self) {
        let Some(number) = self.owner() else { return };
        let key = Keys::of("sim").server(&format!("s{number}"));
        if let Some(lease) = self.etcd.keys().get(&key).and_then(|found| found.lease) {
            self.processes.lock()[number].pause(Duration::from_secs(1 + self.agenda.below(5)));
            self.etcd.lose_lease(lease);
        }
    }

    /// Returns the keys of the coordinator, the slots of the logs and the last errors, for
    /// a run that is stuck.
    fn describe(&self) -> String {
        let keys = self.etcd.keys();
        let key = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        let row = keys.get(&Keys::of("sim").tablet(TABLE, None));
        let row = row.map(|row| OwnedRow::decode(&row.value));
        let others = keys.values().filter(|it| it.value.len() < 20);
        let others: Vec<_> = others.map(|it| (key(&it.key), key(&it.value))).collect();
        let slots: Vec<String> =
            self.logs.objects().keys().map(|at| format!("{}/{}", at.epoch, at.slot)).collect();
        format!("{row:?}\n{others:?}\n{slots:?}\n{:?}", self.errors.lock())
    }

    /// Prints what a server does, if `STELE_TRACE` is set.
    pub fn trace(&self, server: &Holder, what: impl FnOnce() -> String) {
        if self.is_traced {
            let Holder { id, epoch } = server;
            println!(
                "{:>12.6} {id} epoch {epoch}: {}",
                self.agenda.elapsed().as_secs_f64(),
                what()
            );
        }
    }

    /// Notes why a server has halted, or a tablet is offline.
    pub fn note(&self, server: usize, error: &stele_engine::Error) {
        let mut errors = self.errors.lock();
        errors.insert(server, format!("{:?}: {error}", self.agenda.elapsed()));
    }

    /// Checks that every file that a row names exists.
    fn check_files(&self) -> Result<(), Violation> {
        let keys = self.etcd.keys();
        let rows = keys.iter().filter(|(key, _)| key.starts_with(&Keys::of("sim").all_tablets()));
        let files = self.fragments.files();
        for (_, found) in rows.filter(|_| self.scenario.engine) {
            let row = OwnedRow::decode(&found.value).expect("the row is sound");
            if let Some(lost) = row.config.files().find(|file| !files.contains_key(&file.name)) {
                return Err(Violation::FileLost(lost.name.to_string()));
            }
        }
        Ok(())
    }

    pub fn note_collected(&self, collected: &CollectedGarbage) {
        let mut sum = self.collected.lock();
        sum.0 += collected.deleted_files;
        sum.1 += collected.deleted_objects;
    }

    /// Returns the files that no row names, and the objects of recovered logs apart from
    /// their SEALs.
    fn garbage(&self) -> Vec<String> {
        let (keys, names) = (self.etcd.keys(), Keys::of("sim"));
        let rows = keys.iter().filter(|(key, _)| key.starts_with(&names.all_tablets()));
        let rows = rows.map(|(_, it)| OwnedRow::decode(&it.value).expect("the row is sound"));
        let named: BTreeSet<FileName> =
            rows.flat_map(|row| row.config.files().map(|it| it.name).collect::<Vec<_>>()).collect();
        let files = self.fragments.files().into_keys().filter(|name| !named.contains(name));
        let is_left = |at: &LogSlot| {
            let end = keys
                .get(&names.end(at.epoch))
                .map(|end| &*end.value == at.slot.to_string().as_bytes());
            keys.contains_key(&names.recovered(at.epoch)) && end != Some(true)
        };
        let objects = self.logs.objects().into_keys().filter(is_left);
        files.map(|name| name.to_string()).chain(objects.map(|at| at.to_string())).collect()
    }

    /// Waits until collections have left no garbage.
    fn check_garbage(&self) -> Result<(), Violation> {
        let collects = self.scenario.engine && self.scenario.collections > 0;
        if !collects || self.agenda.run_for(CALM, || self.garbage().is_empty()) {
            return Ok(());
        }
        Err(Violation::Garbage(self.garbage()))
    }

    /// Ends all faults.
    fn calm_down(&self) {
        self.is_quiet.store(true, Ordering::SeqCst);
        self.etcd.set_faults(EtcdFaults::default());
        self.logs.set_faults(LogFaults::default());
        self.fragments.set_faults(ObjectFaults::default());
    }
}

/// What a run did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub appended: usize,
    pub read: usize,
    /// Number of epochs that were used.
    pub epochs: usize,
    /// The load of the tablet at the end: the number of its owners and recoverers.
    pub loads: u64,
    /// Files and objects of logs that were collected.
    pub collected: (usize, usize),
    /// A digest of all events.
    pub trace: u64,
}

/// Runs a cluster and checks what its clients saw.
pub fn simulate(seed: u64, switches: Switches, scenario: Scenario) -> Result<Run, Violation> {
    let cluster = Cluster::new(seed, switches, scenario);
    // The engine waits: meanwhile everything else goes on.
    let _running = cluster.agenda.runs_while_waiting();
    let clients = Clients::start(&cluster);
    let end = cluster.agenda.elapsed() + TIME;
    while cluster.agenda.elapsed() < end {
        cluster.agenda.run_for(Duration::from_secs(1), || false);
        cluster.disturb();
    }
    cluster.calm_down();
    clients.stop();
    cluster.agenda.run_for(Duration::from_secs(10), || false);
    let mut last = BTreeMap::new();
    for row in 0..clients.rows() {
        let read = clients.last_read(row, CALM);
        last.insert(row, read.ok_or_else(|| Violation::NoProgress(cluster.describe()))?);
    }
    let calls = clients.calls();
    for (row, last) in &last {
        history::check(*row, &calls, last)?;
    }
    cluster.check_files()?;
    cluster.check_garbage()?;
    cluster.check_files()?;
    let keys = cluster.etcd.keys();
    let row = &keys[&Keys::of("sim").tablet(TABLE, None)];
    Ok(Run {
        appended: last.values().map(Vec::len).sum(),
        read: clients.reads(),
        epochs: cluster.epochs.lock().len(),
        loads: OwnedRow::decode(&row.value).expect("the row is sound").config.load,
        collected: *cluster.collected.lock(),
        trace: cluster.agenda.trace(),
    })
}
