//! Members on simulated disks and a simulated network. All clocks run at the
//! same speed; the wall clock of each can be set.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stele_engine::world::sim::{Fault, Operation, SimFiles};
use stele_engine::world::{Clock, Random, SeededRandom, World};
use stele_metastore::command::LEVEL_MAX;
use stele_metastore::consensus::{GroupThreads, LogIo, PeerSettings, Published, Rules, SyncTimes};
use stele_metastore::node::{ClusterSettings, NodeSettings};
use stele_metastore::{Error, Node};
use tokio::time::Instant;

use super::network::Network;

/// A simulated second of 2026.
const EPOCH_MICROS: i64 = 1_790_000_000_000_000;

/// Entries that are kept in a log that is purged.
const KEPT_ENTRIES: u64 = 60;

/// How long a healthy disk takes to sync, at most.
const SYNC_MAX: Duration = Duration::from_millis(8);

/// The clock of a member: that of the paused runtime, and a wall clock that may
/// be wrong.
struct SimClock {
    started: Instant,
    step_micros: AtomicI64,
}

impl SimClock {
    fn start() -> SimClock {
        SimClock { started: Instant::now(), step_micros: AtomicI64::new(0) }
    }
}

impl Clock for SimClock {
    fn now_micros(&self) -> i64 {
        let right = EPOCH_MICROS + self.elapsed().as_micros() as i64;
        right + self.step_micros.load(Ordering::Relaxed)
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A member's disk, and how long it takes to sync its log.
struct Disk {
    files: SimFiles,
    syncs: Arc<Mutex<std::ops::Range<Duration>>>,
}

impl Disk {
    fn new(seed: u64) -> Disk {
        let syncs = Arc::new(Mutex::new(Duration::ZERO..SYNC_MAX));
        Disk { files: SimFiles::new(seed), syncs }
    }
}

/// What the members run.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    pub rules: Rules,
    /// The feature level at which the cluster starts.
    pub level: u32,
    /// Keeps so little of the log that members which lag need snapshots.
    pub purges: bool,
    /// All members but the first are of a version that speaks only `level`, until they
    /// are upgraded.
    pub mixed: bool,
}

impl Default for Build {
    fn default() -> Build {
        Build { rules: Rules::default(), level: LEVEL_MAX, purges: false, mixed: false }
    }
}

/// Changes the settings of a member.
pub type Tune = Box<dyn Fn(u64, &mut PeerSettings)>;

/// The members of a cluster.
pub struct Cluster {
    pub network: Arc<Network>,
    /// The number of members at the beginning; others have joined.
    pub size: u64,
    /// Members of a version that speaks only this feature level.
    old: BTreeMap<u64, u32>,
    clocks: BTreeMap<u64, Arc<SimClock>>,
    disks: BTreeMap<u64, Disk>,
    nodes: BTreeMap<u64, Arc<Node>>,
    build: Build,
    seed: u64,
    starts: u64,
    /// Changes the settings of a member before it starts.
    pub tune: Tune,
}

impl Cluster {
    pub fn new(size: u64, seed: u64, build: Build) -> Cluster {
        Cluster {
            network: Network::new(seed ^ 1),
            size,
            old: (2..=size).filter(|_| build.mixed).map(|member| (member, build.level)).collect(),
            clocks: (1..=size).map(|member| (member, Arc::new(SimClock::start()))).collect(),
            disks: (1..=size).map(|member| (member, Disk::new(seed ^ member))).collect(),
            nodes: BTreeMap::new(),
            build,
            seed,
            starts: 0,
            tune: Box::new(|_, _| {}),
        }
    }

    /// Gives a member an empty disk: a new one, or one that has lost its data.
    pub fn add(&mut self, member: u64) {
        self.disks.insert(member, Disk::new(self.seed ^ member ^ (self.starts << 16)));
        self.clocks.entry(member).or_insert_with(|| Arc::new(SimClock::start()));
    }

    /// Forgets a member that has been removed.
    pub fn forget(&mut self, member: u64) {
        self.network.remove(member);
        self.nodes.remove(&member);
        self.disks.remove(&member);
    }

    /// Returns all members, whether they run or not.
    pub fn members(&self) -> Vec<u64> {
        self.disks.keys().copied().collect()
    }

    /// Makes a member one of the newest version, from its next start on. Returns whether
    /// it was not.
    pub fn upgrade(&mut self, member: u64) -> bool {
        self.old.remove(&member).is_some()
    }

    pub fn disk(&self, member: u64) -> &SimFiles {
        &self.disks[&member].files
    }

    /// Starts a member. An error is a refusal of its own data.
    pub async fn start(&mut self, member: u64) -> Result<(), Error> {
        self.starts += 1;
        let seed = self.seed ^ (member << 32) ^ (self.starts << 40);
        let world = World {
            clock: self.clocks[&member].clone(),
            files: Arc::new(self.disks[&member].files.clone()),
            random: Arc::new(SeededRandom::new(seed)),
            spawner: None,
        };
        let mut settings = NodeSettings::new("/member".into(), world);
        (settings.cluster_id, settings.member_id) = (Some(1), Some(member));
        settings.lease_ttl_seconds_min = 1;
        settings.level_at_creation = self.build.level;
        settings.machine.engine.memory.cache_bytes = 1 << 20;
        settings.machine.level_spoken = *self.old.get(&member).unwrap_or(&LEVEL_MAX);
        let members = (1..=self.size).map(|member| (member, format!("sim://{member}"))).collect();
        let mut peers = PeerSettings::new(members, self.network.transport(member));
        peers.joining = member > self.size;
        let client_urls = vec![format!("sim://clients/{member}")];
        peers.published = Some(Published { name: format!("m{member}"), client_urls });
        match self.build.purges {
            true => {
                (peers.log_kept_bytes, peers.log_kept_entries) = (4 << 10, KEPT_ENTRIES);
                peers.purge_interval = Duration::from_millis(200);
            }
            // A member that was down for a whole run can be caught up.
            false => peers.log_kept_bytes = 64 << 20,
        }
        (self.tune)(member, &mut peers);
        settings.cluster = Some(ClusterSettings {
            peers,
            threads: GroupThreads::Current,
            log_io: LogIo::Task(self.sync_times(member, seed ^ 7)),
            rules: self.build.rules,
        });
        let node = Node::open(settings).await?;
        self.nodes.insert(member, Arc::new(node));
        Ok(())
    }

    /// Crashes a member: what it had not synced may be lost.
    pub fn crash(&mut self, member: u64) {
        self.network.remove(member);
        if self.nodes.remove(&member).is_some() {
            let disk = self.disks.get_mut(&member).expect("every member has a disk");
            disk.files = disk.files.crash();
        }
    }

    fn sync_times(&self, member: u64, seed: u64) -> SyncTimes {
        let (syncs, random) = (self.disks[&member].syncs.clone(), SeededRandom::new(seed));
        Arc::new(move || {
            let syncs = syncs.lock().clone();
            let micros = (syncs.end - syncs.start).as_micros().max(1) as u64;
            syncs.start + Duration::from_micros(random.next_u64() % micros)
        })
    }

    /// Makes the syncs of a member's log take this long from now on.
    pub fn set_sync_times(&self, member: u64, syncs: std::ops::Range<Duration>) {
        *self.disks[&member].syncs.lock() = syncs;
    }

    /// Lets every write to a member's log fail, because the disk is full.
    pub fn fill_disk(&self, member: u64) {
        let files = &self.disks[&member].files;
        files.fail_always(Operation::Write, "/member/log", Fault::Full);
    }

    /// Sets the wall clock of a member.
    pub fn step_clock(&self, member: u64, micros: i64) {
        self.clocks[&member].step_micros.store(micros, Ordering::Relaxed);
    }

    /// Returns the members that have stopped, with the error.
    pub fn failed(&self) -> Vec<(u64, Error)> {
        let failure =
            |node: &Node| node.group().failure().filter(|error| !matches!(error, Error::NoLeader));
        let failed = self.nodes.iter();
        failed.filter_map(|(member, node)| Some((*member, failure(node)?))).collect()
    }

    /// Makes all disks healthy.
    pub fn heal_disks(&self) {
        for disk in self.disks.values() {
            disk.files.clear_faults();
            *disk.syncs.lock() = Duration::ZERO..SYNC_MAX;
        }
    }

    pub fn node(&self, member: u64) -> Option<Arc<Node>> {
        self.nodes.get(&member).cloned()
    }

    pub fn alive(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    /// Returns the member that leads, by its own account.
    pub fn leader(&self) -> Option<u64> {
        let leads = |node: &Node| node.status().leader_id == node.status().member_id;
        self.nodes.iter().find(|(_, node)| leads(node)).map(|(member, _)| *member)
    }
}
