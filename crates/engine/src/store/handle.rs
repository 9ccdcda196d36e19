//! The handle of an open store: commits, durability, maintenance and closing.

use std::sync::Arc;

use super::admission::Permit;
use super::engine::Engine;
use super::stats::StoreStats;
use crate::cell::commit::{Commit, TableId};
use crate::config::Configs;
use crate::durability::Durability;
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::sync::atomic::Ordering;
use crate::txn::Txn;
use crate::workers::claims::Work;
use crate::workers::failures::WorkFailure;
use crate::workers::flush::FlushTarget;
use crate::world::Joiner;

/// An open store. Dropping it stops the workers and closes the log.
pub struct Store {
    pub(super) engine: Arc<Engine>,
    pub(super) workers: Vec<Box<dyn Joiner>>,
}

impl Store {
    /// Applies a commit atomically, unless a row that it touches was written
    /// after `commit_max_txn`. Returns its txn once the commit has reached
    /// `durability`.
    ///
    /// `DiskFull` rejects the commit without side effects. If the log fails
    /// after the commit was accepted, the commit may or may not survive, and
    /// the store stops.
    pub fn apply(
        &self,
        commit: &Commit,
        commit_max_txn: Txn,
        durability: Durability,
    ) -> Result<Txn> {
        self.check_open()?;
        self.engine.apply(commit, commit_max_txn, durability)
    }

    /// Like `apply`, for an admitted commit: never waits for memory, the log or
    /// compaction. `commit` must be the one that the permit was issued for.
    pub fn apply_admitted(
        &self,
        permit: Permit<'_>,
        commit: &Commit,
        commit_max_txn: Txn,
    ) -> Result<Txn> {
        self.check_open()?;
        self.engine.apply_admitted(permit, commit, commit_max_txn, None)
    }

    /// Like `apply_admitted`, but fails with `SchemaChanged` if `table` was
    /// altered since [`Store::schema`] returned `schema`.
    pub fn apply_under_schema(
        &self,
        permit: Permit<'_>,
        commit: &Commit,
        commit_max_txn: Txn,
        table: TableId,
        schema: &Arc<Schema>,
    ) -> Result<Txn> {
        self.check_open()?;
        self.engine.apply_admitted(permit, commit, commit_max_txn, Some((table, schema)))
    }

    /// Waits until all commits up to `at_least` are durable (`Txn::MAX`: all
    /// commits so far). Returns the newest durable txn.
    pub fn sync(&self, at_least: Txn) -> Result<Txn> {
        self.check_open()?;
        let target = at_least.min(self.engine.latest());
        self.engine.log.wait_durable(target.raw())?;
        Ok(self.engine.durable())
    }

    /// Makes all commits up to `txn` durable on this thread. Returns `None` if
    /// other threads are syncing them; use `on_durable` to wait for it.
    pub fn sync_if_free(&self, txn: Txn) -> Option<Result<()>> {
        self.engine.log.sync_if_free(txn.raw())
    }

    /// Calls `call` once all commits up to `txn` are durable, or can no longer
    /// become durable.
    pub fn on_durable(&self, txn: Txn, call: impl FnOnce(Result<()>) + Send + 'static) {
        self.engine.log.on_durable(txn.raw(), Box::new(call));
    }

    /// Returns the newest durable and the newest accepted txn.
    pub fn progress(&self) -> (Txn, Txn) {
        (self.engine.durable(), self.engine.latest())
    }

    /// Returns why the store is unhealthy, if it is; for health checks.
    /// `Stopped`: the log or the manifest failed, no more commits are accepted,
    /// and what the store holds is known only after reopening it. Any other
    /// error: flushing has failed for some seconds. It is retried every second;
    /// commits are rejected once memory is full. A full disk is not reported:
    /// the store recovers from it without a restart.
    pub fn failure(&self) -> Option<Error> {
        let flush = || self.engine.failures.of_flush();
        let flush = || flush().filter(|error| !matches!(error, Error::DiskFull { .. }));
        self.engine.failure().or_else(flush)
    }

    /// Returns the tables whose commits are rejected because a chain has reached
    /// its limit and compacting it has failed for some seconds, with the reason;
    /// for health checks. Compaction is retried. A full disk is not reported.
    pub fn stalled_tables(&self) -> Vec<(String, Error)> {
        let engine = &self.engine;
        if !engine.failures.any() {
            return Vec::new();
        }
        let tables = engine.tables.map.all();
        let failing =
            tables.values().filter_map(|table| Some((table, engine.table_failure(table)?)));
        failing
            .filter(|(_, error)| !matches!(error, Error::DiskFull { .. }))
            .map(|(table, error)| (table.name.clone(), error))
            .collect()
    }

    /// Returns the background work that failed and has not succeeded since: a
    /// flush, or the compaction of a chain, possibly because of one damaged
    /// file. For metrics and the status page.
    pub fn work_failures(&self) -> Vec<WorkFailure> {
        self.engine.failures.all()
    }

    /// Flushes a table's memory to disk. A store without its own log flushes
    /// all tables at one index.
    pub fn flush(&self, table: TableId) -> Result<()> {
        self.check_open()?;
        let table = self.engine.tables.map.get(table)?;
        if self.engine.log.external().is_some() {
            let claim = self.engine.claims.take(Work::FlushAll);
            return self.engine.flush_all(&claim).map(drop);
        }
        for group in 0..table.version().memory.len() {
            self.engine.flush_group(&FlushTarget { table: table.clone(), group })?;
        }
        Ok(())
    }

    /// Compacts each chain of a table into one run. Waits for a running
    /// compaction; skips runs flushed in the meantime.
    pub fn compact(&self, table: TableId) -> Result<()> {
        self.check_open()?;
        let table = self.engine.tables.map.get(table)?;
        self.engine.compact_table(&table)
    }

    /// Does one unit of background work on the caller's thread. Returns whether
    /// there was any. For stores opened without a spawner.
    pub fn step(&self) -> Result<bool> {
        self.check_open()?;
        self.engine.log.step()?;
        Ok(self.engine.flush_due()?
            || self.engine.compact_due()?
            || self.engine.change_bounds_due()?)
    }

    /// Returns the current config.
    pub fn configs(&self) -> Result<Arc<Configs>> {
        self.engine.tables.config.read()
    }

    pub fn stats(&self) -> StoreStats {
        self.engine.stats()
    }

    /// Makes everything durable, stops the workers and closes the log. In a
    /// store without its own log, data that is only in memory must be recovered
    /// from the caller's log.
    pub fn close(mut self) -> Result<()> {
        self.shut_down()
    }

    pub(super) fn check_open(&self) -> Result<()> {
        if self.engine.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Fails in a server of a cluster, which does not do this by itself.
    pub(super) fn check_alone(&self, what: &'static str) -> Result<()> {
        self.check_open()?;
        if self.engine.log.is_of_cluster() { Err(Error::InCluster(what)) } else { Ok(()) }
    }

    fn shut_down(&mut self) -> Result<()> {
        if self.engine.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.engine.stopping.store(true, Ordering::Release);
        let drained = self.engine.log.drain();
        self.engine.log.stop();
        self.engine.claims.urgent.end();
        self.engine.claims.background.end();
        self.engine.tables.fragments.end_removals();
        self.engine.waiters.wake_all();
        self.engine.waiters.end_timer();
        for worker in self.workers.drain(..) {
            worker.join();
        }
        drained?;
        self.engine.log.close()?;
        self.engine.tables.config.close()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = self.shut_down() {
            tracing::warn!(%error, "the store was not closed cleanly");
        }
    }
}
