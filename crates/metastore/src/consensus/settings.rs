//! The settings of a group.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::log::LogOptions;
use stele_engine::world::World;

use super::disk::LogIo;
use super::rules::Rules;
use super::transport::Transport;

/// The settings of a group.
#[derive(Clone)]
pub struct GroupSettings {
    /// The directory of the log; created if it does not exist.
    pub dir: PathBuf,
    pub world: World,
    /// This member's id: never 0, and the same at every open.
    pub member: u64,
    pub log: LogOptions,
    /// The limits of an entry in proposals and bytes.
    pub entry_proposals_max: usize,
    pub entry_bytes_max: usize,
    /// The limits of the queue; further proposals are refused.
    pub queue_proposals_max: usize,
    pub queue_bytes_max: usize,
    /// The other members; `None` for a group of one.
    pub peers: Option<PeerSettings>,
    pub log_io: LogIo,
    pub threads: GroupThreads,
    pub rules: Rules,
}

/// Where a group runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupThreads {
    /// On one thread of its own.
    One,
    /// On several, so that applying an entry does not delay heartbeats.
    Several,
    /// On the runtime of the caller, for the simulator.
    Current,
}

/// The settings of a group of several members.
#[derive(Clone)]
pub struct PeerSettings {
    /// The members of a new group with their addresses, including this one. Later,
    /// the members are in the log.
    pub members: BTreeMap<u64, String>,
    pub transport: Arc<dyn Transport>,
    pub heartbeat: Duration,
    /// A follower that does not hear of the leader for one and a half to two times this
    /// long starts an election, and votes for no other member before this has passed.
    pub election_timeout: Duration,
    /// The time after which a request without an outcome fails.
    pub request_timeout: Duration,
    /// How many bytes of applied entries are kept for members that lag, and how
    /// many entries at least. The library panics if a purge passes an entry that is
    /// queued to be applied (openraft issue 2116).
    pub log_kept_bytes: usize,
    pub log_kept_entries: u64,
    pub purge_interval: Duration,
    /// The rate at which a snapshot is sent.
    pub snapshot_bytes_per_second: u64,
    /// This member joins a group that exists: it waits until the leader sends it
    /// the log.
    pub joining: bool,
    /// What this member publishes when it has started.
    pub published: Option<Published>,
}

/// What a member publishes about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub name: String,
    pub client_urls: Vec<String>,
}

impl PeerSettings {
    pub fn new(members: BTreeMap<u64, String>, transport: Arc<dyn Transport>) -> PeerSettings {
        PeerSettings {
            members,
            transport,
            heartbeat: Duration::from_millis(100),
            election_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(7),
            log_kept_bytes: 128 << 20,
            log_kept_entries: 1000,
            purge_interval: Duration::from_secs(1),
            snapshot_bytes_per_second: 64 << 20,
            joining: false,
            published: None,
        }
    }
}

impl GroupSettings {
    pub fn new(dir: PathBuf, world: World, member: u64) -> GroupSettings {
        GroupSettings {
            dir,
            world,
            member,
            log: LogOptions { segment_bytes: 16 << 20, ..LogOptions::default() },
            entry_proposals_max: 4096,
            entry_bytes_max: 4 << 20,
            queue_proposals_max: 50_000,
            queue_bytes_max: 128 << 20,
            peers: None,
            log_io: LogIo::Inline,
            threads: GroupThreads::One,
            rules: Rules::default(),
        }
    }
}
