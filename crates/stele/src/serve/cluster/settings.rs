//! The settings of a server in a cluster.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use stele_cluster::CoordinatorAddress;
use stele_tables::LeaseTimes;

use super::super::settings::{Data, PartialSettings};

const LEASE: Duration = Duration::from_secs(10);
/// Coordinators grant no shorter ones, and a slow disk must not end one.
const LEASE_MIN: Duration = Duration::from_secs(2);
const LEASE_MAX: Duration = Duration::from_secs(300);
const NAME_MAX: usize = 50;

#[derive(Clone, Debug)]
pub struct ClusterSettings {
    pub name: String,
    pub coordinator: CoordinatorAddress,
    /// Where other servers reach this one; `None` means where it listens.
    pub advertise: Option<String>,
    /// The file with the secret of the cluster; `None` means that the coordinator has it.
    pub secret: Option<PathBuf>,
    pub lease: Duration,
}

impl ClusterSettings {
    /// Returns the settings, if the server belongs to a cluster.
    pub fn new(given: &PartialSettings, data: &Data) -> anyhow::Result<Option<ClusterSettings>> {
        let Some(name) = given.cluster.clone() else {
            for (flag, is_given) in [
                ("--coordinator", given.coordinator.is_some()),
                ("--advertise", given.advertise.is_some()),
                ("--cluster-secret", given.cluster_secret.is_some()),
                ("--cluster-lease", given.cluster_lease.is_some()),
            ] {
                if is_given {
                    bail!("{flag} requires --cluster");
                }
            }
            return Ok(None);
        };
        check_name(&name)?;
        let Some(coordinator) = &given.coordinator else {
            bail!("--cluster requires --coordinator etcd://host:port, or embedded");
        };
        if given.store.is_none() {
            bail!("--cluster requires --store: the servers share the files of tables");
        }
        if *data == Data::Ephemeral {
            bail!("--cluster conflicts with --ephemeral: a server keeps its id in --data");
        }
        let lease = given.cluster_lease.map_or(LEASE, |time| time.0);
        if !(LEASE_MIN..=LEASE_MAX).contains(&lease) {
            bail!("--cluster-lease {lease:?} is out of range: use 2s to 5m");
        }
        Ok(Some(ClusterSettings {
            name,
            coordinator: coordinator.parse().context("--coordinator")?,
            advertise: given.advertise.clone(),
            secret: given.cluster_secret.clone(),
            lease,
        }))
    }

    /// Returns the times of a lease. The shares are those of the default.
    pub fn times(&self) -> LeaseTimes {
        LeaseTimes { ttl: self.lease, keep_alive: self.lease / 4, margin: self.lease / 5 }
    }
}

/// Checks the name of a cluster, which is a part of keys.
pub fn check_name(name: &str) -> anyhow::Result<()> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_letter) {
        bail!(
            "invalid cluster name {name:?}: use 1 to {NAME_MAX} letters, digits, `_`, `-` and `.`"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::settings::TimeSpan;
    use super::*;

    fn given(cluster: Option<&str>) -> PartialSettings {
        PartialSettings {
            cluster: cluster.map(Into::into),
            coordinator: Some("etcd://a:1".into()),
            store: Some("file:///s".into()),
            ..PartialSettings::default()
        }
    }

    fn refusal(given: &PartialSettings) -> String {
        let data = Data::Dir("d".into());
        ClusterSettings::new(given, &data).unwrap_err().to_string()
    }

    #[test]
    fn a_cluster_needs_a_coordinator_and_a_store() {
        let data = Data::Dir("d".into());
        let sound = ClusterSettings::new(&given(Some("c")), &data).unwrap().unwrap();
        assert_eq!(sound.times(), LeaseTimes::default());
        let none = PartialSettings { coordinator: None, ..given(Some("c")) };
        assert!(refusal(&none).contains("--coordinator"));
        let none = PartialSettings { store: None, ..given(Some("c")) };
        assert!(refusal(&none).contains("requires --store"));
        assert!(refusal(&given(None)).contains("requires --cluster"));
        assert!(refusal(&given(Some("a/b"))).contains("invalid cluster name"));
        let short = TimeSpan(Duration::from_secs(1));
        let short = PartialSettings { cluster_lease: Some(short), ..given(Some("c")) };
        assert!(refusal(&short).contains("--cluster-lease"));
        assert!(ClusterSettings::new(&given(Some("c")), &Data::Ephemeral).is_err());
        let none = PartialSettings::default();
        assert!(ClusterSettings::new(&none, &data).unwrap().is_none());
    }
}
