//! Changes of the directory. Each has one transaction that decides; it is sent until its
//! outcome is known, and the change is finished when all live servers use it.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use stele_engine::schema::Schema;
use stele_engine::{TableId, Txn};
use stele_tables::coordinate::{Compare, Op, Transacted, Transaction, Unreachable};
use tokio::time::Instant;

use super::{Directory, record};

/// The keys and values of the rows of a new table.
pub type NewRows = Vec<(Vec<u8>, Bytes)>;

/// The steps of a transaction, which coordinators limit to 128.
const OPS_MAX: usize = 100;
/// How long a change waits for the servers: longer than the lease of one that is dead.
const SEEN_WAIT: Duration = Duration::from_secs(30);
const SEEN_POLL: Duration = Duration::from_millis(20);
/// How long a change is tried while the coordinator does not answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
const RETRY_PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("table {0} already exists")]
    Exists(String),
    #[error("table {0} not found")]
    NotFound(String),
    /// Another server changed it in between.
    #[error("table {0} was changed by another call at the same time: try again")]
    Conflict(String),
    #[error("{0}")]
    Unsupported(String),
    #[error("{0}: the change of table {1} may have been applied")]
    Unreachable(Unreachable, String),
    #[error(
        "the change of table {table} is durable, but these servers do not use it yet: {servers}"
    )]
    NotSeen { table: String, servers: String },
    #[error(transparent)]
    Engine(#[from] stele_engine::Error),
}

impl Directory {
    /// Creates a table. `rows` are those of its tablets, which exist before the table does.
    pub async fn create(
        &self,
        name: &str,
        schema: &Schema,
        rows: impl FnOnce(TableId) -> stele_engine::Result<NewRows>,
    ) -> Result<TableId, ChangeError> {
        let unreachable = |error| ChangeError::Unreachable(error, name.into());
        let name_key = self.name_key(name);
        if self.coordinator.get(name_key.clone()).await.map_err(unreachable)?.is_some() {
            return Err(ChangeError::Exists(name.into()));
        }
        let id = self.take_id().await.map_err(unreachable)?;
        let rows = rows(id)?;
        for rows in rows.chunks(OPS_MAX) {
            // Nobody else has this id, so it does no harm to put a row again.
            let then = rows.iter().map(|(key, value)| Op::put(key.clone(), value.clone()));
            let transaction = Transaction { then: then.collect(), ..Transaction::default() };
            self.insist(&transaction).await.map_err(unreachable)?;
        }
        let create = Transaction {
            when: vec![Compare::Absent(name_key.clone())],
            then: vec![
                Op::put(name_key.clone(), id.0.to_string()),
                Op::put(self.id_key(id), record::encode(name, schema)),
                self.changed(),
            ],
            otherwise: vec![Op::Get(name_key)],
        };
        let created = self.insist(&create).await.map_err(unreachable)?;
        // An earlier attempt may have been applied without an answer.
        let is_ours = created.found.iter().any(|found| found.value == id.0.to_string());
        if !created.applied && !is_ours {
            self.remove(rows.into_iter().map(|(key, _)| key).collect()).await;
            return Err(ChangeError::Exists(name.into()));
        }
        self.wait_seen(name).await?;
        Ok(id)
    }

    /// Replaces the schema of a table, if it is still the one that this server uses.
    pub async fn alter(&self, id: TableId, schema: Schema) -> Result<(), ChangeError> {
        let known = self.known.read().by_id.get(&id).cloned();
        let Some((table, modified)) = known else {
            return Err(ChangeError::NotFound(format!("{}", id.0)));
        };
        let name = table.name.clone();
        check_successor(&table.schema, &schema)?;
        // Families that stay keep the txn since which their cells count. New ones have no
        // old cells: none was ever dropped.
        let schema = schema.succeeding(&table.schema, &[], Txn::ZERO);
        let value = record::encode(&name, &schema);
        let key = self.id_key(id);
        let alter = Transaction {
            when: vec![Compare::Modified(key.clone(), modified)],
            then: vec![Op::put(key.clone(), value.clone()), self.changed()],
            otherwise: vec![Op::Get(key)],
        };
        let altered = self.insist(&alter).await;
        let altered = altered.map_err(|error| ChangeError::Unreachable(error, name.clone()))?;
        let is_ours = altered.found.iter().any(|found| found.value == value);
        if !altered.applied && !is_ours {
            let _ = self.refresh().await;
            return Err(ChangeError::Conflict(name));
        }
        self.wait_seen(&name).await
    }

    /// Drops a table with its rows.
    pub async fn drop_table(&self, id: TableId) -> Result<(), ChangeError> {
        let Some(table) = self.table(id) else {
            return Err(ChangeError::NotFound(format!("{}", id.0)));
        };
        let (name, id_key) = (table.name, self.id_key(id));
        let unreachable = |error| ChangeError::Unreachable(error, name.clone());
        let found = self.coordinator.get(id_key.clone()).await.map_err(unreachable)?;
        if let Some(found) = found {
            let drop = Transaction {
                when: vec![Compare::Created(id_key.clone(), found.created)],
                then: vec![Op::Delete(id_key), Op::Delete(self.name_key(&name)), self.changed()],
                otherwise: Vec::new(),
            };
            // Not applied: an earlier attempt was.
            self.insist(&drop).await.map_err(unreachable)?;
        }
        self.wait_seen(&name).await?;
        let rows = self.coordinator.get_all(self.keys.tablets(id)).await.map_err(unreachable)?;
        self.remove(rows.into_iter().map(|row| row.key).collect()).await;
        Ok(())
    }

    fn changed(&self) -> Op {
        Op::put(self.changed_key(), "")
    }

    /// Takes the next id of a table. One whose taking had no answer is lost.
    async fn take_id(&self) -> Result<TableId, Unreachable> {
        let key = self.keys.key("tables/last");
        loop {
            let found = self.insist(&read(key.clone())).await?.found.pop();
            let last = found
                .as_ref()
                .and_then(|found| std::str::from_utf8(&found.value).ok()?.parse::<u32>().ok());
            let next = last.unwrap_or(0) + 1;
            let expected = match found {
                Some(found) => Compare::Modified(key.clone(), found.modified),
                None => Compare::Absent(key.clone()),
            };
            let then = vec![Op::put(key.clone(), next.to_string())];
            let take = Transaction { when: vec![expected], then, otherwise: Vec::new() };
            // Without an answer the next round finds a higher number, or the same.
            if self.coordinator.run(take).await.is_ok_and(|taken| taken.applied) {
                return Ok(TableId(next));
            }
            tokio::time::sleep(RETRY_PAUSE / 10).await;
        }
    }

    /// Sends a transaction until it has an answer.
    async fn insist(&self, transaction: &Transaction) -> Result<Transacted, Unreachable> {
        let until = Instant::now() + ANSWER_WAIT;
        loop {
            match self.coordinator.run(transaction.clone()).await {
                Err(error) if Instant::now() >= until => return Err(error),
                Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
                answered => return answered,
            }
        }
    }

    /// Removes keys, as far as possible.
    async fn remove(&self, keys: Vec<Vec<u8>>) {
        for keys in keys.chunks(OPS_MAX) {
            let then = keys.iter().cloned().map(Op::Delete).collect();
            let removed = self.insist(&Transaction { then, ..Transaction::default() }).await;
            if let Err(error) = removed {
                tracing::warn!(%error, "rows of a table that does not exist were left behind");
                return;
            }
        }
    }

    /// Waits until all live servers use the directory as it is now.
    async fn wait_seen(&self, table: &str) -> Result<(), ChangeError> {
        let until = Instant::now() + SEEN_WAIT;
        let changed = self.insist(&read(self.changed_key())).await;
        let version = match changed {
            Ok(mut changed) => changed.found.pop().map_or(0, |changed| changed.modified),
            Err(error) => return Err(ChangeError::Unreachable(error, table.into())),
        };
        loop {
            // This server at once, not when it is notified.
            let refreshed = self.refresh().await;
            let missing = match refreshed {
                Ok(()) => self.not_seen(version).await,
                Err(error) => Err(error),
            };
            match missing {
                Ok(missing) if missing.is_empty() => return Ok(()),
                Ok(missing) if Instant::now() >= until => {
                    let servers = missing.join(", ");
                    return Err(ChangeError::NotSeen { table: table.into(), servers });
                }
                Err(error) if Instant::now() >= until => {
                    return Err(ChangeError::Unreachable(error, table.into()));
                }
                _ => tokio::time::sleep(SEEN_POLL).await,
            }
        }
    }

    /// Returns the live servers that use an older version.
    async fn not_seen(&self, version: i64) -> Result<Vec<String>, Unreachable> {
        let (servers, seen) = (self.keys.servers(), self.keys.key("tables/seen/"));
        let then = vec![Op::GetAll(servers.clone()), Op::GetAll(seen.clone())];
        let read = self.coordinator.run(Transaction { then, ..Transaction::default() }).await?;
        let mut missing = BTreeMap::new();
        for found in &read.found {
            if let Some(server) = found.key.strip_prefix(&servers[..]) {
                missing.insert(server, ());
            } else if let Some(server) = found.key.strip_prefix(&seen[..]) {
                let at = std::str::from_utf8(&found.value).ok().and_then(|at| at.parse().ok());
                if at.is_some_and(|at: i64| at >= version) {
                    missing.remove(server);
                }
            }
        }
        Ok(missing.keys().map(|server| String::from_utf8_lossy(server).into_owned()).collect())
    }
}

fn read(key: Vec<u8>) -> Transaction {
    Transaction { then: vec![Op::Get(key)], ..Transaction::default() }
}

/// Refuses what servers cannot adopt one after the other.
fn check_successor(old: &Schema, new: &Schema) -> Result<(), ChangeError> {
    if !old.keeps_groups(new) {
        let what = "locality groups cannot be changed in a cluster yet";
        return Err(ChangeError::Unsupported(what.into()));
    }
    let lost = old.lost_in(new);
    if !lost.is_empty() {
        let what = format!("families cannot be dropped in a cluster yet: {}", lost.join(", "));
        return Err(ChangeError::Unsupported(what));
    }
    Ok(())
}
