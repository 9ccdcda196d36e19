//! The settings of a node.

use std::path::PathBuf;
use std::time::Duration;

use stele_engine::world::World;

use super::admission::Attempt;
use super::cluster::ClusterSettings;
use super::retention::Retention;
use crate::backup::{OpenLocation, open_location};
use crate::command::{Execute, LEVEL_MAX, within};
use crate::error::{Error, Result};
use crate::machine::MachineSettings;
use crate::state::Identity;

/// The settings of a node.
#[derive(Clone)]
pub struct NodeSettings {
    pub dir: PathBuf,
    pub world: World,
    pub machine: MachineSettings,
    /// False writes the log without syncing it, for data that may be lost with
    /// the machine.
    pub sync: bool,
    /// If set, must equal the id stored in the directory, if any. `None` uses
    /// the stored id or chooses one.
    pub cluster_id: Option<u64>,
    pub member_id: Option<u64>,
    /// The limit on bytes of keys and values; 0 means no limit.
    pub quota_bytes: i64,
    pub retention: Retention,
    /// The minimum TTL; shorter ones are raised to it.
    pub lease_ttl_seconds_min: i64,
    pub execute: ExecuteLimits,
    /// The feature level of a store that nothing has been written to. An existing
    /// one keeps its level.
    pub level_at_creation: u32,
    /// Requests that take longer are logged.
    pub slow_request: Duration,
    /// How often the hashes of members are compared, and the stored keys are
    /// checked against their hashes. A check of many keys runs less often, so that it takes at most one hundredth of the
    /// time.
    pub verify_every: Duration,
    /// False runs no duties in the background, for offline tools.
    pub duties: bool,
    /// Where backups are written; `None` for none.
    pub backup: Option<BackupSettings>,
    /// Opens the location of backups.
    pub open_location: OpenLocation,
    /// The other members; `None` for a group of one.
    pub cluster: Option<ClusterSettings>,
}

/// The settings of scheduled backups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupSettings {
    /// As `open_location` takes it.
    pub location: String,
    /// `None` writes backups only on request.
    pub every: Option<Duration>,
    /// The number of full backups to keep, with the deltas that follow them.
    pub keep: usize,
}

impl NodeSettings {
    pub fn new(dir: PathBuf, world: World) -> NodeSettings {
        NodeSettings {
            dir,
            world,
            machine: MachineSettings::default(),
            sync: true,
            cluster_id: None,
            member_id: None,
            quota_bytes: 0,
            retention: Retention::default(),
            lease_ttl_seconds_min: 2,
            execute: ExecuteLimits::default(),
            level_at_creation: LEVEL_MAX,
            slow_request: Duration::from_millis(100),
            verify_every: Duration::from_secs(60),
            duties: true,
            backup: None,
            open_location,
            cluster: None,
        }
    }

    /// Checks that the directory belongs to the configured cluster and member.
    pub(super) fn check_identity(&self, found: Identity) -> Result<()> {
        let dir = self.dir.display();
        if let Some(cluster_id) = self.cluster_id.filter(|id| *id != found.cluster_id) {
            return Err(Error::Config(format!(
                "{dir} belongs to cluster {:x}, not {cluster_id:x}: name another directory, or \
                 leave the cluster id out",
                found.cluster_id
            )));
        }
        if let Some(member_id) = self.member_id.filter(|id| *id != found.member_id) {
            return Err(Error::Config(format!(
                "{dir} belongs to member {:x}, not {member_id:x}: each member needs its own \
                 directory",
                found.member_id
            )));
        }
        Ok(())
    }
}

/// The limits of a serializable transaction.
#[derive(Clone, Copy, Debug)]
pub struct ExecuteLimits {
    pub reads_max: usize,
    pub writes_max: usize,
    pub bytes_max: usize,
    /// The maximum time since the first attempt.
    pub age_max: Duration,
}

impl Default for ExecuteLimits {
    fn default() -> ExecuteLimits {
        ExecuteLimits {
            reads_max: 1024,
            writes_max: 4096,
            bytes_max: 4 << 20,
            age_max: Duration::from_secs(300),
        }
    }
}

impl ExecuteLimits {
    pub(super) fn check(&self, execute: &Execute, attempt: Attempt) -> Result<()> {
        let bytes = execute.writes.iter().map(|write| {
            const WRITE_BYTES: usize = 32;
            write.key.len() + write.value.as_ref().map_or(0, |value| value.len()) + WRITE_BYTES
        });
        within("ranges read by a transaction", execute.reads.len(), self.reads_max)?;
        within("writes of a transaction", execute.writes.len(), self.writes_max)?;
        within("locks that a transaction requires", execute.locks.len(), self.reads_max)?;
        within("bytes written by a transaction", bytes.sum(), self.bytes_max)?;
        let (age, limit) = (attempt.age.as_secs(), self.age_max.as_secs());
        within("seconds since a transaction's first attempt", age as usize, limit as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Write;
    use crate::key::KeyRange;

    fn refusal(execute: Execute, age: Duration) -> String {
        let limits = ExecuteLimits {
            reads_max: 1,
            writes_max: 2,
            bytes_max: 100,
            age_max: Duration::from_secs(10),
        };
        let checked = limits.check(&execute, Attempt { id: 1, age });
        checked.map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn every_limit_is_named_when_it_is_passed() {
        let write =
            |bytes: usize| Write { key: "k".into(), value: Some(vec![0; bytes].into()), lease: 0 };
        let reads = vec![KeyRange::all(), KeyRange::all()];
        let ranges = refusal(Execute { reads, ..Execute::default() }, Duration::ZERO);
        assert_eq!(ranges, "ranges read by a transaction: 2 is over the limit of 1");
        let writes = vec![write(0), write(0), write(0)];
        let writes = refusal(Execute { writes, ..Execute::default() }, Duration::ZERO);
        assert_eq!(writes, "writes of a transaction: 3 is over the limit of 2");
        let bytes =
            refusal(Execute { writes: vec![write(100)], ..Execute::default() }, Duration::ZERO);
        assert_eq!(bytes, "bytes written by a transaction: 133 is over the limit of 100");
        let age = refusal(Execute::default(), Duration::from_secs(11));
        assert_eq!(age, "seconds since a transaction's first attempt: 11 is over the limit of 10");
        assert_eq!(refusal(Execute::default(), Duration::ZERO), "");
    }
}
