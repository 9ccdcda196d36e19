//! One run from one seed: members, clients, faults, and the checks at the end.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::world::{Random, SeededRandom};
use stele_metastore::consensus::Rules;
use tokio::time::Instant;

use super::clients::{Clients, Members};
use super::cluster::Cluster;

/// How long clients and faults go on.
const RUN: Duration = Duration::from_secs(20);
/// How long a healed cluster may take to agree.
const RECOVERY: Duration = Duration::from_secs(30);

/// Runs a seed. Returns the trace of the run, or the rule that was violated.
pub fn run(size: u64, seed: u64, rules: Rules) -> Result<String, String> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    let ran = runtime.block_on(async {
        let mut run = Run::new(size, seed, rules);
        let ran = run.run().await;
        let trace = run.trace();
        match ran {
            Ok(()) => Ok(trace),
            Err(what) => Err(format!("{size} members, seed {seed}: {what}\n{trace}")),
        }
    });
    runtime.shutdown_background();
    ran
}

struct Run {
    cluster: Cluster,
    members: Arc<Members>,
    random: SeededRandom,
    start: Instant,
    seed: u64,
    runs: u64,
    /// What happened, and when.
    trace: Vec<(Duration, String)>,
}

impl Run {
    fn new(size: u64, seed: u64, rules: Rules) -> Run {
        Run {
            cluster: Cluster::new(size, seed, rules),
            members: Arc::default(),
            random: SeededRandom::new(seed ^ 0xfa17),
            start: Instant::now(),
            seed,
            runs: 0,
            trace: Vec::new(),
        }
    }

    async fn run(&mut self) -> Result<(), String> {
        for member in 1..=self.cluster.size {
            self.start_member(member).await?;
        }
        let clients = Arc::new(Clients {
            members: self.members.clone(),
            history: Default::default(),
            start: self.start,
            seed: self.seed,
        });
        let mut tasks = tokio::task::JoinSet::new();
        for client in 0..4 {
            tasks.spawn(clients.clone().read_and_write(client, RUN));
        }
        for client in 4..6 {
            tasks.spawn(clients.clone().keep_leases(client, RUN));
        }
        tasks.spawn(clients.clone().watch(6, RUN));
        while self.start.elapsed() < RUN {
            let pause = Duration::from_millis(100 + self.random.next_u64() % 1500);
            tokio::time::sleep(pause).await;
            self.disturb().await?;
        }
        self.recover().await?;
        while tasks.join_next().await.is_some() {}
        self.agree().await?;
        let history = std::mem::take(&mut *clients.history.lock());
        self.trace.extend(history.done.iter().map(|done| (done.ended, format!("{done:?}"))));
        let node = self.cluster.node(1).expect("all members run");
        history.check(&node)?;
        if history.done.len() < 5 {
            return Err(format!("only {} operations were answered", history.done.len()));
        }
        Ok(())
    }

    fn note(&mut self, what: std::fmt::Arguments<'_>) {
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

    async fn start_member(&mut self, member: u64) -> Result<(), String> {
        self.note(format_args!("start {member}"));
        let started = self.cluster.start(member).await;
        started.map_err(|error| format!("member {member} does not start: {error}"))?;
        self.runs += 1;
        let node = self.cluster.node(member).expect("it was started");
        self.members.running.lock().insert(member, (self.runs, node));
        Ok(())
    }

    fn crash(&mut self, member: u64) {
        self.note(format_args!("crash {member}"));
        self.members.running.lock().remove(&member);
        self.cluster.crash(member);
    }

    fn choose(&self, among: u64) -> u64 {
        self.random.next_u64() % among
    }

    /// Does one random thing to the cluster.
    async fn disturb(&mut self) -> Result<(), String> {
        let size = self.cluster.size;
        let member = 1 + self.choose(size);
        let leader = self.cluster.leader().unwrap_or(member);
        self.note(format_args!("leader {leader}"));
        match self.choose(12) {
            0 => self.crash(member),
            1 => self.crash(leader),
            // The whole cluster loses power.
            2 => (1..=size).for_each(|member| self.crash(member)),
            3 => self.isolate(leader),
            4 => self.isolate(member),
            5 => {
                self.note(format_args!("one way from {leader}"));
                let others = (1..=size).filter(|other| *other != leader);
                others.for_each(|other| self.cluster.network.cut(leader, other));
            }
            6 => self.bridge(leader),
            7 => {
                let lost = self.choose(20);
                let (doubled, delay) = (self.choose(20), 1000 + self.choose(60_000));
                self.note(format_args!("degrade {lost} {doubled} {delay}"));
                self.cluster.network.degrade(lost, doubled, delay);
            }
            8 => {
                self.note(format_args!("transfer from {leader}"));
                if let Some(node) = self.cluster.node(leader) {
                    let _ = node.transfer_leader(None).await;
                }
            }
            9 => {
                // What was applied is on disk, what was not synced is lost.
                if let Some(node) = self.cluster.node(member) {
                    node.flush().map_err(|error| format!("flushing {member}: {error}"))?;
                }
                self.crash(member);
            }
            _ => {
                self.note(format_args!("heal"));
                self.cluster.network.heal();
                let alive = self.cluster.alive();
                for member in (1..=size).filter(|member| !alive.contains(member)) {
                    self.start_member(member).await?;
                }
            }
        }
        Ok(())
    }

    fn isolate(&mut self, member: u64) {
        self.note(format_args!("isolate {member}"));
        for other in (1..=self.cluster.size).filter(|other| *other != member) {
            self.cluster.network.cut(member, other);
            self.cluster.network.cut(other, member);
        }
    }

    /// Cuts the members into two halves that only one member connects.
    fn bridge(&mut self, bridge: u64) {
        self.note(format_args!("bridge {bridge}"));
        let others: Vec<u64> = (1..=self.cluster.size).filter(|other| *other != bridge).collect();
        let (left, right) = others.split_at(others.len() / 2);
        for from in left {
            for to in right {
                self.cluster.network.cut(*from, *to);
                self.cluster.network.cut(*to, *from);
            }
        }
    }

    /// Heals everything and starts all members.
    async fn recover(&mut self) -> Result<(), String> {
        self.cluster.network.heal();
        let alive = self.cluster.alive();
        for member in (1..=self.cluster.size).filter(|member| !alive.contains(member)) {
            self.start_member(member).await?;
        }
        Ok(())
    }

    /// Waits until all members have applied the same entries, and compares
    /// their states.
    async fn agree(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + RECOVERY;
        let nodes: Vec<_> =
            (1..=self.cluster.size).filter_map(|member| self.cluster.node(member)).collect();
        loop {
            let states: Vec<_> = nodes.iter().map(|node| node.status()).collect();
            let first = states[0];
            let same = states.iter().all(|state| {
                state.applied == state.last
                    && (state.applied, state.leader_id) == (first.applied, first.leader_id)
            });
            if same && first.leader_id != 0 {
                break;
            }
            if Instant::now() > deadline {
                let failures: Vec<_> = nodes.iter().map(|node| node.group().failure()).collect();
                return Err(format!("the members do not agree: {states:?}, {failures:?}"));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
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
