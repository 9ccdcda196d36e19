//! The tables of the cluster: names, ids and schemas, as keys of the coordinator. Every
//! server knows all of them.
//!
//! | key | value |
//! |---|---|
//! | `tables/last` | the id that was given last |
//! | `tables/id/<id>` | name and schema of a table |
//! | `tables/name/<name>` | its id; a table exists when this key does |
//! | `tables/changed` | put with each change: its revision is the version of the directory |
//! | `tables/seen/<server>` | the version that a server uses |
//!
//! `record` are the values, `change` creates, alters and drops tables. A change is finished
//! when all live servers use it.

mod change;
mod record;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use stele_engine::TableId;
use stele_engine::schema::Schema;
use stele_tables::coordinate::{
    Compare, Coordinator, KeyValue, Keys, Op, Transaction, Unreachable, Watch,
};
use tokio::sync::Notify;

pub use change::{ChangeError, NewRows};

/// How often the directory is read although nothing was reported.
const POLL: Duration = Duration::from_secs(10);

/// A table as the directory has it.
#[derive(Clone, Debug)]
pub struct ListedTable {
    pub id: TableId,
    pub name: String,
    pub schema: Arc<Schema>,
}

/// What a server does with the tables of the directory. Called from threads that may
/// block, for one table at a time.
pub trait TableSink: Send + Sync {
    /// Begins to serve a table, or its new schema.
    fn adopt(&self, table: &ListedTable) -> stele_engine::Result<()>;

    /// Forgets a table that was dropped.
    fn forget(&self, table: TableId) -> stele_engine::Result<()>;

    /// Called after the tables of a version were adopted.
    fn adopted(&self) {}
}

/// The server that reads the directory.
pub struct Member {
    pub id: String,
    /// The condition that it has its lease.
    pub has_lease: Compare,
    pub sink: Arc<dyn TableSink>,
}

/// The directory, as it was read last.
pub struct Directory {
    coordinator: Arc<dyn Coordinator>,
    keys: Keys,
    member: Option<Member>,
    known: RwLock<Arc<Known>>,
    /// Held while the directory is read.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    /// The revision of `tables/changed`; 0 before there are tables.
    version: i64,
    /// Whether the directory was read at all.
    is_read: bool,
    by_name: HashMap<String, TableId>,
    by_id: BTreeMap<TableId, (ListedTable, i64)>,
}

impl Directory {
    /// Returns the directory of a cluster, as an observer sees it.
    pub fn new(coordinator: Arc<dyn Coordinator>, keys: Keys) -> Directory {
        Directory {
            coordinator,
            keys,
            member: None,
            known: RwLock::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the directory for a server, which adopts its tables.
    pub fn of_member(coordinator: Arc<dyn Coordinator>, keys: Keys, member: Member) -> Directory {
        Directory { member: Some(member), ..Directory::new(coordinator, keys) }
    }

    /// Returns the id of a table that this server uses.
    pub fn known(&self, name: &str) -> Option<TableId> {
        self.known.read().by_name.get(name).copied()
    }

    /// Returns a table as this server uses it.
    pub fn table(&self, id: TableId) -> Option<ListedTable> {
        self.known.read().by_id.get(&id).map(|(table, _)| table.clone())
    }

    /// Returns all tables, ordered by id.
    pub fn all(&self) -> Vec<ListedTable> {
        self.known.read().by_id.values().map(|(table, _)| table.clone()).collect()
    }

    /// Returns the id of a table. Reads the directory if it is not known.
    pub async fn find(&self, name: &str) -> Result<Option<TableId>, Unreachable> {
        if let Some(id) = self.known(name) {
            return Ok(Some(id));
        }
        self.refresh().await?;
        Ok(self.known(name))
    }

    /// Reads the directory if it has changed, and adopts its tables.
    pub async fn refresh(&self) -> Result<(), Unreachable> {
        let _reading = self.reading.lock().await;
        let changed = self.coordinator.get(self.changed_key()).await?;
        let version = changed.map_or(0, |changed| changed.modified);
        let before = self.known.read().clone();
        if before.is_read && before.version == version {
            return Ok(());
        }
        let (version, tables) = self.read().await?;
        let next = self.adopt(&before, version, tables).await;
        let is_complete = next.is_read;
        *self.known.write() = Arc::new(next);
        if let Some(member) = &self.member {
            member.sink.adopted();
            if is_complete {
                self.report_seen(member, version).await?;
            }
        }
        Ok(())
    }

    /// Reads all tables at one moment.
    async fn read(&self) -> Result<(i64, Vec<(ListedTable, i64)>), Unreachable> {
        let then = vec![Op::Get(self.changed_key()), Op::GetAll(self.keys.key("tables/id/"))];
        let read = self.coordinator.run(Transaction { then, ..Transaction::default() }).await?;
        let changed = self.changed_key();
        let (mut version, mut tables) = (0, Vec::new());
        for found in read.found {
            if found.key == changed {
                version = found.modified;
            } else if let Some(table) = self.decode(&found) {
                tables.push((table, found.modified));
            }
        }
        Ok((version, tables))
    }

    fn decode(&self, found: &KeyValue) -> Option<ListedTable> {
        let prefix = self.keys.key("tables/id/");
        let decoded = record::decode(found.key.strip_prefix(&prefix[..])?, &found.value);
        decoded
            .inspect_err(|error| {
                let key = String::from_utf8_lossy(&found.key).into_owned();
                tracing::error!(%error, key, "a table of the directory is damaged: it is not served");
            })
            .ok()
    }

    /// Adopts what is new. Tables that cannot be adopted are left out, and tried again.
    async fn adopt(
        &self,
        before: &Arc<Known>,
        version: i64,
        tables: Vec<(ListedTable, i64)>,
    ) -> Known {
        let mut next = Known { version, is_read: true, ..Known::default() };
        for (table, modified) in tables {
            let is_new = before.by_id.get(&table.id).is_none_or(|(_, at)| *at != modified);
            if is_new && let Some(member) = &self.member {
                let (sink, adopting) = (member.sink.clone(), table.clone());
                let adopted = blocking(move || sink.adopt(&adopting)).await;
                if let Err(error) = adopted {
                    tracing::error!(%error, table = table.name, "cannot serve a table of the cluster");
                    next.is_read = false;
                    continue;
                }
            }
            next.by_name.insert(table.name.clone(), table.id);
            next.by_id.insert(table.id, (table, modified));
        }
        let gone = before.by_id.keys().filter(|id| !next.by_id.contains_key(id)).copied();
        let gone: Vec<TableId> = gone.collect();
        for id in gone {
            let Some(member) = &self.member else { break };
            let sink = member.sink.clone();
            if let Err(error) = blocking(move || sink.forget(id)).await {
                tracing::error!(%error, table = id.0, "cannot drop a table of the cluster");
                next.is_read = false;
            }
        }
        next
    }

    /// Notes which version this server uses.
    async fn report_seen(&self, member: &Member, version: i64) -> Result<(), Unreachable> {
        let put = Op::put(self.seen_key(&member.id), version.to_string());
        let when = vec![member.has_lease.clone()];
        let transaction = Transaction { when, then: vec![put], ..Transaction::default() };
        self.coordinator.run(transaction).await.map(drop)
    }

    /// Follows the changes of the directory, for ever.
    pub async fn follow(&self) {
        let changed = Arc::new(Notify::new());
        let notified = changed.clone();
        let each = Box::new(move |_| notified.notify_one());
        let after = self.known.read().version;
        let _watch: Box<dyn Watch> = self.coordinator.watch(self.changed_key(), after, each);
        loop {
            if let Err(error) = self.refresh().await {
                tracing::debug!(%error, "the directory of tables was not read");
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
            let _ = tokio::time::timeout(POLL, changed.notified()).await;
        }
    }

    fn changed_key(&self) -> Vec<u8> {
        self.keys.key("tables/changed")
    }

    fn id_key(&self, id: TableId) -> Vec<u8> {
        self.keys.key(&format!("tables/id/{:08x}", id.0))
    }

    fn name_key(&self, name: &str) -> Vec<u8> {
        self.keys.key(&format!("tables/name/{name}"))
    }

    fn seen_key(&self, server: &str) -> Vec<u8> {
        self.keys.key(&format!("tables/seen/{server}"))
    }
}

/// Runs what may block on a thread for that.
async fn blocking(
    work: impl FnOnce() -> stele_engine::Result<()> + Send + 'static,
) -> stele_engine::Result<()> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // The runtime is shutting down.
        Err(_) => Err(stele_engine::Error::Closed),
    }
}
