//! One run from one seed: members, clients, a scenario of faults, and the checks
//! at the end.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stele_engine::world::{Random, SeededRandom};
use stele_metastore::{Error, Node};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::clients::{Clients, Members};
use super::cluster::{Build, Cluster};
use super::history::History;
use super::scenarios::Scenario;

/// How long a healed cluster may take to agree, or to elect a leader.
const RECOVERY: Duration = Duration::from_secs(20);

/// Runs a seed. Returns the trace of the run, or the rule that was violated.
pub fn run(scenario: Scenario, size: u64, seed: u64, build: Build) -> Result<String, String> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    let ran = runtime.block_on(async {
        let mut run = Run::new(scenario, size, seed, build);
        let network = run.cluster.network.clone();
        let ran = tokio::select! {
            biased;
            ran = run.run(scenario) => ran,
            violation = network.exhausted() => Err(violation),
        };
        let trace = run.trace();
        match ran {
            Ok(()) => Ok(trace),
            Err(what) => Err(format!("{scenario:?}, {size} members, seed {seed}: {what}\n{trace}")),
        }
    });
    runtime.shutdown_background();
    ran
}

/// A run in progress.
pub struct Run {
    pub cluster: Cluster,
    pub members: Arc<Members>,
    pub clients: Arc<Clients>,
    random: SeededRandom,
    start: Instant,
    runs: u64,
    pub seed: u64,
    /// Whether some members are of a former version at the beginning.
    pub mixed: bool,
    /// The members whose disks were full since they were healed: they stop.
    pub full: BTreeSet<u64>,
    /// What happened, and when.
    trace: Vec<(Duration, String)>,
}

impl Run {
    fn new(scenario: Scenario, size: u64, seed: u64, build: Build) -> Run {
        let (members, start): (Arc<Members>, _) = (Arc::default(), Instant::now());
        // A scenario is short and needs answers at the moment of its faults.
        let pause_millis_max = if scenario == Scenario::Random { 60 } else { 15 };
        let clients = Clients {
            members: members.clone(),
            history: Default::default(),
            start,
            seed,
            pause_max: Duration::from_millis(pause_millis_max),
            ended: Default::default(),
        };
        Run {
            cluster: Cluster::new(size, seed, build),
            members,
            clients: Arc::new(clients),
            random: SeededRandom::new(seed ^ 0xfa17),
            start,
            runs: 0,
            seed,
            mixed: build.mixed,
            full: BTreeSet::new(),
            trace: Vec::new(),
        }
    }

    async fn run(&mut self, scenario: Scenario) -> Result<(), String> {
        for member in 1..=self.cluster.size {
            self.start_member(member).await?;
        }
        let mut tasks = self.start_clients();
        self.play(scenario).await?;
        self.recover().await?;
        self.clients.ended.store(true, Ordering::Relaxed);
        while tasks.join_next().await.is_some() {}
        let history = std::mem::take(&mut *self.clients.history.lock());
        self.trace.extend(history.done.iter().map(|done| (done.ended, format!("{done:?}"))));
        self.check(&history).await
    }

    fn start_clients(&self) -> JoinSet<()> {
        let (mut tasks, clients) = (JoinSet::new(), &self.clients);
        for client in 0..4 {
            tasks.spawn(clients.clone().read_and_write(client));
        }
        for client in 4..6 {
            tasks.spawn(clients.clone().keep_leases(client));
        }
        tasks.spawn(clients.clone().watch(6));
        tasks.spawn(clients.clone().abandon_leases(7));
        for client in 8..10 {
            tasks.spawn(clients.clone().transact(client));
        }
        for client in 10..13 {
            tasks.spawn(clients.clone().hold_locks(client));
        }
        tasks
    }

    /// Checks every rule. If the members do not agree, a change that one of them
    /// has lost says more than that.
    async fn check(&mut self, history: &History) -> Result<(), String> {
        // Before the upgrade, each leader gives leases their full TTL.
        history.check_answers(!self.mixed)?;
        let agreed = self.agree().await;
        for node in self.nodes() {
            history.check_values(&node)?;
        }
        agreed?;
        self.nodes().first().map_or(Ok(()), |node| history.check_all(node))?;
        match history.done.len() {
            few @ 0..5 => Err(format!("only {few} operations were answered")),
            _ => Ok(()),
        }
    }

    /// Returns the members that run and have not been removed.
    fn nodes(&self) -> Vec<Arc<Node>> {
        let nodes = self.cluster.members().into_iter();
        let nodes = nodes.filter_map(|member| self.cluster.node(member));
        let removed = |node: &Node| matches!(node.group().failure(), Some(Error::Removed { .. }));
        nodes.filter(|node| !removed(node)).collect()
    }

    /// Returns a random member, whether it runs or not.
    pub fn choose_member(&self) -> u64 {
        let members = self.cluster.members();
        members[self.choose(members.len() as u64) as usize]
    }

    pub fn others(&self, member: u64) -> Vec<u64> {
        let mut members = self.cluster.members();
        members.retain(|other| *other != member);
        members
    }

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub fn choose(&self, among: u64) -> u64 {
        self.random.next_u64() % among
    }

    /// Lets a random number of milliseconds pass.
    pub async fn pause(&mut self, millis: Range<u64>) {
        let millis = millis.start + self.choose(millis.end - millis.start);
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    pub fn note(&mut self, what: std::fmt::Arguments<'_>) {
        self.trace.push((self.start.elapsed(), what.to_string()));
    }

    /// Returns what happened, in order.
    fn trace(&mut self) -> String {
        self.trace.sort_by_key(|(at, _)| *at);
        let mut lines = String::new();
        for (at, what) in &self.trace {
            let _ = writeln!(lines, "{at:?} {what}");
        }
        lines
    }

    pub async fn start_member(&mut self, member: u64) -> Result<(), String> {
        self.note(format_args!("start {member}"));
        let started = self.cluster.start(member).await;
        started.map_err(|error| format!("member {member} does not start: {error}"))?;
        self.runs += 1;
        let node = self.cluster.node(member).expect("it was started");
        self.members.running.lock().insert(member, (self.runs, node));
        Ok(())
    }

    pub fn crash(&mut self, member: u64) {
        self.note(format_args!("crash {member}"));
        self.members.running.lock().remove(&member);
        self.cluster.crash(member);
    }

    pub fn flush(&mut self, member: u64) -> Result<(), String> {
        self.note(format_args!("flush {member}"));
        let Some(node) = self.cluster.node(member) else { return Ok(()) };
        node.flush().map_err(|error| format!("flushing {member}: {error}"))
    }

    pub fn isolate(&mut self, member: u64) {
        self.note(format_args!("isolate {member}"));
        for other in self.others(member) {
            self.cluster.network.cut(member, other);
            self.cluster.network.cut(other, member);
        }
    }

    /// Heals everything and starts all members.
    pub async fn recover(&mut self) -> Result<(), String> {
        self.note(format_args!("heal"));
        self.cluster.network.heal();
        self.cluster.heal_disks();
        for (member, error) in self.cluster.failed() {
            if matches!(error, Error::Removed { .. }) {
                self.note(format_args!("{member} was removed"));
                self.members.running.lock().remove(&member);
                self.cluster.forget(member);
                continue;
            }
            if !self.full.contains(&member) {
                return Err(format!("member {member} has stopped: {error}"));
            }
            self.crash(member);
        }
        self.full.clear();
        let alive = self.cluster.alive();
        for member in self.cluster.members() {
            if !alive.contains(&member) {
                self.start_member(member).await?;
            }
        }
        Ok(())
    }

    /// Waits until a member leads, and returns it.
    pub async fn await_leader(&mut self) -> Result<u64, String> {
        let deadline = Instant::now() + RECOVERY;
        loop {
            if let Some(leader) = self.cluster.leader() {
                self.note(format_args!("leader {leader}"));
                return Ok(leader);
            }
            if Instant::now() > deadline {
                return Err(format!("no leader: {:?}", self.failures()));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn failures(&self) -> Vec<Option<Error>> {
        self.nodes().iter().map(|node| node.group().failure()).collect()
    }

    /// Waits until all members have applied the same entries, and compares
    /// their states.
    async fn agree(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + RECOVERY;
        let nodes = loop {
            let nodes = self.nodes();
            let states: Vec<_> = nodes.iter().map(|node| node.status()).collect();
            let first = states[0];
            let same = states.iter().all(|state| {
                state.applied == state.last
                    && (state.applied, state.leader_id) == (first.applied, first.leader_id)
            });
            if same && first.leader_id != 0 {
                break nodes;
            }
            if Instant::now() > deadline {
                let failures = self.failures();
                return Err(format!("the members do not agree: {states:?}, {failures:?}"));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        let mut hashes = Vec::new();
        for node in &nodes {
            let hash = node.hash_now().map_err(|error| format!("hashing: {error}"))?;
            hashes.push((node.revision(), hash));
        }
        self.note(format_args!("hashes {hashes:?}"));
        if hashes.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(format!("the members differ: {hashes:?}"));
        }
        Ok(())
    }
}
