//! The commit path of the data service: a commit waits asynchronously for
//! admission, for a bounded time, and is then applied without waiting.

use stele_engine::{Commit, Txn};
use stele_grpc::offload::in_place_if_large;

use super::{Data, mutation};
use crate::error::{Error, Result};
use crate::table::Table;

impl Data {
    /// Applies a commit whose mutations were validated against `table`, without
    /// waiting for the disk. Fails with `SchemaChanged` if the table has changed
    /// since. `cost` is an estimate of how long applying takes; see
    /// `mutation::cost`.
    pub(super) async fn apply(
        &self,
        table: &Table,
        commit: &Commit,
        commit_max_txn: Txn,
        cost: usize,
    ) -> Result<Txn> {
        let store = self.tables.store();
        // Most commits are admitted on the first attempt.
        let attempt = || match store.try_admit(commit)? {
            None => Ok::<_, stele_engine::Error>(None),
            Some(permit) => {
                let (id, schema) = (table.id, &table.schema);
                store.apply_under_schema(permit, commit, commit_max_txn, id, schema).map(Some)
            }
        };
        let applied = match in_place_if_large(cost, attempt) {
            Ok(None) => match store.admit(commit).await {
                Ok(permit) => {
                    let (id, schema) = (table.id, &table.schema);
                    in_place_if_large(cost, || {
                        store.apply_under_schema(permit, commit, commit_max_txn, id, schema)
                    })
                }
                Err(error) => Err(error),
            },
            Ok(Some(txn)) => Ok(txn),
            Err(error) => Err(error),
        };
        applied.map_err(|error| match error {
            stele_engine::Error::UnknownColumnFamily { table, family } => {
                mutation::unknown_family(&table, &String::from_utf8_lossy(&family.0))
            }
            other => Error::Engine(other),
        })
    }

    /// Waits until everything up to `txn` is durable, sharing syncs with other
    /// calls. Used to complete small writes.
    pub(super) async fn durable(&self, txn: Txn) -> Result<()> {
        let durable = self.tables.store().durable(txn, tokio::task::yield_now);
        durable.await.map_err(Error::Engine)
    }

    /// Like [`Data::durable`], for a large write: the log's own thread writes
    /// and syncs it.
    pub(super) async fn durable_by_log(&self, txn: Txn) -> Result<()> {
        self.tables.store().durable_by_log(txn).await.map_err(Error::Engine)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use stele_engine::world::sim::SimFiles;
    use stele_engine::world::{ManualClock, SeededRandom, World};
    use stele_engine::{CommitBuilder, Options, Store};

    use super::*;
    use crate::data::retries::is_outdated;
    use crate::table::{Definition, Family, Successor, Tables};

    const NAME: &str = "projects/p/instances/i/tables/t";

    fn definition() -> Definition {
        Definition { families: [("f".to_string(), Family::default())].into(), ..Default::default() }
    }

    /// Returns a service over a simulated disk.
    fn open() -> (Data, Arc<Tables>) {
        let (clock, random) = (Arc::new(ManualClock::at(1)), Arc::new(SeededRandom::new(1)));
        let world = World {
            clock: clock.clone(),
            files: Arc::new(SimFiles::new(1)),
            random: random.clone(),
            spawner: None,
        };
        let store = Store::open(Path::new("/store"), Options::default(), world).unwrap();
        let tables = Arc::new(Tables::open(Arc::new(store)).unwrap());
        (Data::new(tables.clone(), clock, random).unwrap(), tables)
    }

    fn set(table: &Table) -> Commit {
        let mut commit = CommitBuilder::new();
        commit.table(table.id).row(b"r").set(b"f", b"q", 1, b"v");
        commit.finish()
    }

    #[tokio::test]
    async fn a_commit_that_was_checked_before_the_table_changed_is_not_applied() {
        let (data, tables) = open();
        let old = tables.create(NAME, definition()).unwrap();
        let commit = set(&old);
        data.apply(&old, &commit, Txn::MAX, 0).await.unwrap();

        let emptied = ["f".to_string()].into();
        let again = |_: &Definition| Ok(Successor { definition: definition(), emptied });
        let new = tables.alter(NAME, again).unwrap();
        let error = data.apply(&old, &commit, Txn::MAX, 0).await.unwrap_err();
        assert!(is_outdated(&error), "{error}");
        data.apply(&new, &commit, Txn::MAX, 0).await.unwrap();
    }
    /// Runs 400 tasks that write ten times each. Returns the number of syncs.
    async fn write_in_tasks() -> u64 {
        let (data, tables) = open();
        let table = tables.create(NAME, definition()).unwrap();
        let store = tables.store().clone();
        let before = store.stats().log.syncs;
        let data = Arc::new(data);
        let tasks: Vec<_> = (0..400)
            .map(|_| {
                let (data, table) = (data.clone(), table.clone());
                tokio::spawn(async move {
                    for _ in 0..10 {
                        let txn = data.apply(&table, &set(&table), Txn::MAX, 0).await.unwrap();
                        data.durable(txn).await.unwrap();
                        assert!(data.tables.store().progress().0 >= txn);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        store.stats().log.syncs - before
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_task_returns_before_its_commit_is_durable() {
        assert!(write_in_tasks().await <= 4000);
    }

    /// On a single thread, the other tasks are sure to run before the leader
    /// syncs.
    #[tokio::test]
    async fn tasks_share_syncs() {
        let syncs = write_in_tasks().await;
        assert!(syncs <= 400, "{syncs} syncs for 4000 commits");
    }
}
