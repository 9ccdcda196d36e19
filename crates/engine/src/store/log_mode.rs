//! The log of a store: either its own, or an external one that the caller keeps
//! and replays after a crash.

use super::external::ExternalLog;
use crate::durability::Durability;
use crate::error::Result;
use crate::log::{Callback, GroupLog, LogStats, LogWriter};

#[expect(clippy::large_enum_variant, reason = "a store has one, in an Arc")]
pub enum LogMode {
    Own(GroupLog),
    External(ExternalLog),
}

impl LogMode {
    pub fn external(&self) -> Option<&ExternalLog> {
        match self {
            LogMode::Own(_) => None,
            LogMode::External(external) => Some(external),
        }
    }

    /// Returns the newest durable txn. With an external log, applied commits
    /// are durable from the start.
    pub fn durable(&self) -> u64 {
        match self {
            LogMode::Own(log) => log.durable(),
            LogMode::External(external) => external.latest(),
        }
    }

    /// Asks the log's thread to write the queue.
    pub fn request_write(&self) {
        self.own().into_iter().for_each(GroupLog::request_write);
    }

    pub fn failed(&self) -> Option<crate::error::Error> {
        self.own().and_then(GroupLog::failed)
    }

    pub fn queued_bytes(&self) -> u64 {
        self.own().map_or(0, GroupLog::queued_bytes)
    }

    pub fn wait_queue_below(&self, bytes: u64) -> Result<()> {
        self.own().map_or(Ok(()), |log| log.wait_queue_below(bytes))
    }

    pub fn wait(&self, txn: u64, durability: Durability) -> Result<()> {
        self.own().map_or(Ok(()), |log| log.wait(txn, durability))
    }

    pub fn wait_durable(&self, txn: u64) -> Result<()> {
        self.own().map_or(Ok(()), |log| log.wait_durable(txn))
    }

    pub fn wait_durable_idly(&self, txn: u64) -> Result<()> {
        self.own().map_or(Ok(()), |log| log.wait_durable_idly(txn))
    }

    pub fn on_durable(&self, txn: u64, callback: Callback) {
        match self {
            LogMode::Own(log) => log.on_durable(txn, callback),
            LogMode::External(_) => callback(Ok(())),
        }
    }

    pub fn sync_if_free(&self, txn: u64) -> Option<Result<()>> {
        self.own().map_or(Some(Ok(())), |log| log.sync_if_free(txn))
    }

    pub fn drive(&self, durability: Durability) -> Result<()> {
        self.own().map_or(Ok(()), |log| log.drive(durability))
    }

    pub fn stop(&self) {
        self.own().into_iter().for_each(GroupLog::stop);
    }

    pub fn close(&self) -> Result<()> {
        self.with_writer(LogWriter::close).unwrap_or(Ok(()))
    }

    /// Gives access to the writer of the store's own log.
    pub fn with_writer<T>(&self, use_it: impl FnOnce(&mut LogWriter) -> T) -> Option<T> {
        self.own().map(|log| log.with_writer(use_it))
    }

    pub fn stats(&self) -> LogStats {
        self.own().map_or_else(LogStats::default, GroupLog::stats)
    }

    pub fn own(&self) -> Option<&GroupLog> {
        match self {
            LogMode::Own(log) => Some(log),
            LogMode::External(_) => None,
        }
    }
}
