//! Access to a cluster: its coordinator, its id and its secret. Servers and commands begin
//! with it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};
use stele_cluster::{ClusterSecret, CoordinatorAddress, Etcd};
use stele_grpc::{Tls, Transport};
use stele_tables::coordinate::{Compare, Coordinator, Keys, Op, Transaction, Unreachable};
use tokio::time::Instant;

use super::settings::check_name;
use crate::private;

const VERSION: u32 = 1;
/// How long to try to reach a coordinator, which may still be starting.
const REACH_WAIT: Duration = Duration::from_secs(60);
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// The first version of etcd that never ends a lease too early (etcd issue 15247).
const KEEPS_LEASES: (u64, u64, u64) = (3, 5, 13);

/// What the coordinator has of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRecord {
    pub version: u32,
    /// The id that the store has, too.
    pub id: String,
    /// Where the files were when the cluster was created.
    pub store: String,
}

pub struct Access {
    pub coordinator: Arc<dyn Coordinator>,
    pub keys: Keys,
    pub name: String,
    /// How the coordinator is called in messages.
    pub address: String,
    /// Whether it never ends a lease before its time.
    pub keeps_leases: bool,
}

impl Access {
    /// Connects to the coordinator of a cluster. `embedded` is the way to the metastore of
    /// this process, if there is one.
    pub async fn open(
        name: &str,
        coordinator: &CoordinatorAddress,
        embedded: Option<Transport>,
    ) -> anyhow::Result<Access> {
        check_name(name)?;
        let address = coordinator.to_string();
        let is_embedded = *coordinator == CoordinatorAddress::Embedded;
        let etcd = match (coordinator, embedded) {
            (CoordinatorAddress::Etcd { addresses, prefix }, _) => {
                Etcd::connect(addresses, prefix, &Tls::default())
                    .with_context(|| format!("--coordinator {address}"))?
            }
            (CoordinatorAddress::Embedded, Some(transport)) => Etcd::over(transport, ""),
            (CoordinatorAddress::Embedded, None) => {
                bail!(
                    "--coordinator embedded needs a metastore in this process: use etcd:// with \
                     the address of a server's metastore, or do not turn --metastore-port off"
                )
            }
        };
        let until = Instant::now() + REACH_WAIT;
        let version = loop {
            match etcd.version().await {
                Ok(version) => break version,
                Err(error) if Instant::now() >= until => {
                    return Err(error).with_context(|| format!("--coordinator {address}"));
                }
                Err(error) => {
                    tracing::info!(%error, coordinator = address, "waiting for the coordinator");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        };
        Ok(Access {
            coordinator: Arc::new(etcd),
            keys: Keys::of(name),
            name: name.into(),
            address,
            keeps_leases: is_embedded || keeps_leases(&version),
        })
    }

    /// Returns the record of the cluster; `None` if it was never created.
    pub async fn record(&self) -> anyhow::Result<Option<ClusterRecord>> {
        let found = self.retry(|| self.coordinator.get(self.keys.key("cluster"))).await?;
        let Some(found) = found else { return Ok(None) };
        let record: ClusterRecord = serde_json::from_slice(&found.value)
            .with_context(|| format!("the record of cluster {} is damaged", self.name))?;
        if record.version > VERSION {
            bail!(
                "cluster {} has version {}, this program reads up to {VERSION}: use a newer stele",
                self.name,
                record.version
            );
        }
        Ok(Some(record))
    }

    /// Creates the cluster, unless it exists. Returns its record and whether it is new.
    pub async fn create(&self, store: &str) -> anyhow::Result<(ClusterRecord, bool)> {
        let id = stele_objects::new_cluster()?;
        let secret = stele_objects::new_cluster()?;
        let record = ClusterRecord { version: VERSION, id, store: store.into() };
        let (cluster, secret_key) = (self.keys.key("cluster"), self.keys.key("secret"));
        let create = Transaction {
            when: vec![Compare::Absent(cluster.clone()), Compare::Absent(secret_key.clone())],
            then: vec![Op::put(cluster, serde_json::to_vec(&record)?), Op::put(secret_key, secret)],
            otherwise: Vec::new(),
        };
        self.retry(|| self.coordinator.run(create.clone())).await?;
        let found = self.record().await?;
        let found = found.with_context(|| format!("cluster {} was not created", self.name))?;
        let is_new = found == record;
        Ok((found, is_new))
    }

    /// Removes a cluster that was created and cannot be used.
    pub async fn remove(&self, record: &ClusterRecord) -> anyhow::Result<()> {
        let key = self.keys.key("cluster");
        let Some(found) = self.retry(|| self.coordinator.get(key.clone())).await? else {
            return Ok(());
        };
        if found.value != serde_json::to_vec(record)? {
            return Ok(());
        }
        let remove = Transaction {
            when: vec![Compare::Modified(key.clone(), found.modified)],
            then: vec![Op::Delete(key), Op::Delete(self.keys.key("secret"))],
            otherwise: Vec::new(),
        };
        self.retry(|| self.coordinator.run(remove.clone())).await.map(drop)
    }

    /// Returns the secret of the cluster: that in a file, or that in the coordinator.
    pub async fn secret(&self, file: Option<&Path>) -> anyhow::Result<ClusterSecret> {
        if let Some(path) = file {
            let what = || format!("--cluster-secret {}", path.display());
            let text = private::read_secret_text(path).with_context(what)?;
            return ClusterSecret::parse(text.expose()).with_context(what);
        }
        let found = self.retry(|| ClusterSecret::read(&self.coordinator, &self.keys)).await?;
        let missing = || anyhow!("cluster {} has no secret: run `stele cluster init`", self.name);
        found.ok_or_else(missing)?.with_context(|| format!("the secret of cluster {}", self.name))
    }

    /// Makes a request that may be repeated until it has an answer.
    pub async fn retry<T, F>(&self, mut request: impl FnMut() -> F) -> anyhow::Result<T>
    where
        F: Future<Output = Result<T, Unreachable>>,
    {
        let until = Instant::now() + REACH_WAIT;
        loop {
            match request().await {
                Ok(answer) => return Ok(answer),
                Err(error) if Instant::now() >= until => {
                    return Err(error).with_context(|| format!("--coordinator {}", self.address));
                }
                Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }
}

fn keeps_leases(version: &str) -> bool {
    let mut numbers = version.split(['.', '-', '+']).map_while(|part| part.parse::<u64>().ok());
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next()) >= KEEPS_LEASES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_of_old_versions_of_etcd_are_not_trusted() {
        for good in ["3.5.13", "3.5.21", "3.6.0", "3.6.0-rc.1", "4.0"] {
            assert!(keeps_leases(good), "{good}");
        }
        for old in ["3.4.23", "3.5.12", "3.5", "", "x"] {
            assert!(!keeps_leases(old), "{old}");
        }
    }
}
