//! Members on simulated disks, a simulated network and one simulated clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::world::sim::SimFiles;
use stele_engine::world::{Clock, SeededRandom, World};
use stele_metastore::consensus::{GroupThreads, LogIo, PeerSettings, Rules};
use stele_metastore::node::{ClusterSettings, NodeSettings};
use stele_metastore::{Error, Node};
use tokio::time::Instant;

use super::network::Network;

/// A simulated second of 2026.
const EPOCH_MICROS: i64 = 1_790_000_000_000_000;

/// The clock of the paused runtime.
pub struct SimClock(Instant);

impl Clock for SimClock {
    fn now_micros(&self) -> i64 {
        EPOCH_MICROS + self.elapsed().as_micros() as i64
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Changes the settings of a member.
pub type Tune = Box<dyn Fn(u64, &mut PeerSettings)>;

/// The members of a cluster.
pub struct Cluster {
    pub network: Arc<Network>,
    pub size: u64,
    clock: Arc<SimClock>,
    disks: BTreeMap<u64, SimFiles>,
    nodes: BTreeMap<u64, Arc<Node>>,
    rules: Rules,
    seed: u64,
    starts: u64,
    /// Changes the settings of a member before it starts.
    pub tune: Tune,
}

impl Cluster {
    pub fn new(size: u64, seed: u64, rules: Rules) -> Cluster {
        Cluster {
            network: Network::new(seed ^ 1),
            size,
            clock: Arc::new(SimClock(Instant::now())),
            disks: (1..=size).map(|member| (member, SimFiles::new(seed ^ member))).collect(),
            nodes: BTreeMap::new(),
            rules,
            seed,
            starts: 0,
            tune: Box::new(|_, _| {}),
        }
    }

    /// Gives a member an empty disk: a new one, or one that has lost its data.
    pub fn add(&mut self, member: u64) {
        self.disks.insert(member, SimFiles::new(self.seed ^ member ^ (self.starts << 16)));
    }

    pub fn disk(&self, member: u64) -> &SimFiles {
        &self.disks[&member]
    }

    /// Starts a member. An error is a refusal of its own data.
    pub async fn start(&mut self, member: u64) -> Result<(), Error> {
        self.starts += 1;
        let seed = self.seed ^ (member << 32) ^ (self.starts << 40);
        let world = World {
            clock: self.clock.clone(),
            files: Arc::new(self.disks[&member].clone()),
            random: Arc::new(SeededRandom::new(seed)),
            spawner: None,
        };
        let mut settings = NodeSettings::new("/member".into(), world);
        (settings.cluster_id, settings.member_id) = (Some(1), Some(member));
        settings.lease_ttl_seconds_min = 1;
        settings.machine.engine.memory.cache_bytes = 1 << 20;
        let members = (1..=self.size).map(|member| (member, format!("sim://{member}"))).collect();
        let mut peers = PeerSettings::new(members, self.network.transport(member));
        // A member that was down for a whole run can be caught up.
        peers.log_kept_bytes = 64 << 20;
        (self.tune)(member, &mut peers);
        settings.cluster = Some(ClusterSettings {
            peers,
            threads: GroupThreads::Current,
            log_io: LogIo::Task {
                sync_max: Duration::from_millis(8),
                random: Arc::new(SeededRandom::new(seed ^ 7)),
            },
            rules: self.rules,
        });
        let node = Node::open(settings).await?;
        self.nodes.insert(member, Arc::new(node));
        Ok(())
    }

    /// Crashes a member: what it had not synced may be lost.
    pub fn crash(&mut self, member: u64) {
        self.network.remove(member);
        if self.nodes.remove(&member).is_some() {
            let disk = self.disks[&member].crash();
            self.disks.insert(member, disk);
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
