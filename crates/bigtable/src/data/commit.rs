//! The commit path of the data service: a commit waits asynchronously for
//! admission, for a bounded time, and is then applied without waiting.

use stele_engine::{Commit, Txn};
use stele_grpc::offload::in_place_if_large;
use stele_tables::{Local, Permit};

use super::{Data, mutation};
use crate::error::{Error, Result};
use crate::table::Table;

impl Data {
    /// Applies a commit of rows of `local`, whose mutations were validated against
    /// `table`, without waiting for the disk. Fails with `SchemaChanged` if the
    /// table has changed since. `cost` is an estimate of how long applying takes;
    /// see `mutation::cost`.
    pub(super) async fn apply(
        &self,
        local: Local<'_>,
        table: &Table,
        commit: &Commit,
        commit_max_txn: Txn,
        cost: usize,
    ) -> Result<Txn> {
        let apply = |permit: Permit<'_>| {
            let applied = local.apply_under_schema(permit, commit_max_txn, &table.schema);
            self.tables.tenure().open(applied)
        };
        // Most commits are admitted on the first attempt.
        let attempt = || local.try_admit(commit)?.map(apply).transpose();
        let applied = match in_place_if_large(cost, attempt) {
            Ok(None) => match local.admit(commit).await {
                Ok(permit) => in_place_if_large(cost, || apply(permit)),
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

    /// Waits until all commits of `local` up to `txn` are durable, sharing syncs with
    /// other calls. Used to complete small writes.
    pub(super) async fn durable(&self, local: Local<'_>, txn: Txn) -> Result<()> {
        let durable = local.durable(txn, tokio::task::yield_now).await;
        self.tables.tenure().open(durable).map_err(Error::Engine)
    }

    /// Like [`Data::durable`], for a large write: the log's own thread writes
    /// and syncs it.
    pub(super) async fn durable_by_log(&self, local: Local<'_>, txn: Txn) -> Result<()> {
        let durable = local.durable_by_log(txn).await;
        self.tables.tenure().open(durable).map_err(Error::Engine)
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
    fn open() -> (Data, Arc<Tables>, Arc<Store>) {
        let (clock, random) = (Arc::new(ManualClock::at(1)), Arc::new(SeededRandom::new(1)));
        let world = World {
            clock: clock.clone(),
            files: Arc::new(SimFiles::new(1)),
            random: random.clone(),
            spawner: None,
        };
        let store = Store::open(Path::new("/store"), Options::default(), world).unwrap();
        let store = Arc::new(store);
        let tables = Tables::open(stele_tables::Tables::new(store.clone())).unwrap();
        let tables = Arc::new(tables);
        (Data::new(tables.clone(), clock, random).unwrap(), tables, store)
    }

    fn set(table: &Table) -> Commit {
        let mut commit = CommitBuilder::new();
        commit.table(table.id).row(b"r").set(b"f", b"q", 1, b"v");
        commit.finish()
    }

    #[tokio::test]
    async fn a_commit_that_was_checked_before_the_table_changed_is_not_applied() {
        let (data, tables, _) = open();
        let old = tables.create(NAME, definition()).unwrap();
        let (commit, local) = (set(&old), tables.local(old.id, b"r"));
        data.apply(local, &old, &commit, Txn::MAX, 0).await.unwrap();

        let emptied = ["f".to_string()].into();
        let again = |_: &Definition| Ok(Successor { definition: definition(), emptied });
        let new = tables.alter(NAME, again).unwrap();
        let error = data.apply(local, &old, &commit, Txn::MAX, 0).await.unwrap_err();
        assert!(is_outdated(&error), "{error}");
        data.apply(local, &new, &commit, Txn::MAX, 0).await.unwrap();
    }

    /// Runs 400 tasks that write ten times each. Returns the number of syncs.
    async fn write_in_tasks() -> u64 {
        let (data, tables, store) = open();
        let table = tables.create(NAME, definition()).unwrap();
        let before = store.stats().log.syncs;
        let data = Arc::new(data);
        let tasks: Vec<_> = (0..400)
            .map(|_| {
                let (data, table, store) = (data.clone(), table.clone(), store.clone());
                tokio::spawn(async move {
                    for _ in 0..10 {
                        let (commit, local) = (set(&table), data.tables.local(table.id, b"r"));
                        let txn = data.apply(local, &table, &commit, Txn::MAX, 0).await.unwrap();
                        data.durable(local, txn).await.unwrap();
                        assert!(store.progress().0 >= txn);
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
