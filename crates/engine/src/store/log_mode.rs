//! The log of a store: its own, in segments on the local disk; that of a server in a
//! cluster, in objects; or an external one that the caller keeps and replays after a
//! crash. The rest of the store does not distinguish them.

use std::sync::Arc;

use super::external::ExternalLog;
use super::recovery::TABLES_STREAM;
use crate::config::VolatileConfig;
use crate::durability::Durability;
use crate::error::{Error, Result};
use crate::log::objects::ObjectLog;
use crate::log::{Callback, GroupLog, LogEntry, LogEvent, LogReservation, LogStats};
use crate::rules::Rules;
use crate::txn::Txn;

#[expect(clippy::large_enum_variant, reason = "a store has one, in an Arc")]
pub enum LogMode {
    Own(GroupLog),
    Objects(ServerLog),
    External(ExternalLog),
}

/// The log of a server in a cluster.
pub struct ServerLog {
    pub log: Arc<ObjectLog>,
    /// Called with the lowest slot that recovery needs, whenever it rises: the slots before
    /// it may be deleted once that is published.
    pub on_floor: Box<dyn Fn(u64) + Send + Sync>,
    /// Called when the log has stopped, with its lock held.
    pub on_failure: Arc<dyn Fn(String) + Send + Sync>,
    /// The tables that the server knows.
    pub config: Arc<VolatileConfig>,
}

/// Space in the log for one entry.
pub enum LogSpace<'a> {
    Reserved(LogReservation<'a>),
    /// Objects are not limited by the space of a disk.
    Unlimited,
}

impl LogMode {
    pub fn external(&self) -> Option<&ExternalLog> {
        match self {
            LogMode::Own(_) | LogMode::Objects(_) => None,
            LogMode::External(external) => Some(external),
        }
    }

    /// Whether other servers have tablets of the same tables.
    pub fn is_of_cluster(&self) -> bool {
        matches!(self, LogMode::Objects(_))
    }

    /// Returns the rules of a cluster.
    pub fn rules(&self) -> Rules {
        match self {
            LogMode::Objects(server) => server.log.rules(),
            LogMode::Own(_) | LogMode::External(_) => Rules::CORRECTED,
        }
    }

    /// Continues the numbering of entries after `index`, if that is above the last one.
    pub fn raise(&self, index: u64) {
        if let LogMode::Objects(server) = self {
            server.log.raise(index);
        }
    }

    /// Stops for ever, if the log belongs to a server in a cluster.
    pub fn halt(&self, cause: Error) {
        if let LogMode::Objects(server) = self {
            server.log.halt(cause);
        }
    }

    /// Returns the newest durable txn. With an external log, applied commits
    /// are durable from the start.
    pub fn durable(&self) -> u64 {
        match self {
            LogMode::Own(log) => log.durable(),
            LogMode::Objects(server) => server.log.durable(),
            LogMode::External(external) => external.latest(),
        }
    }

    /// Sets what is called on every event. It must not call back into the log.
    pub fn set_listener(&self, listener: impl Fn(LogEvent) + Send + Sync + 'static) {
        match self {
            LogMode::Own(log) => log.set_listener(Box::new(listener)),
            LogMode::Objects(server) => {
                let on_failure = server.on_failure.clone();
                server.log.set_listener(Box::new(move |event| {
                    if event == LogEvent::Failed {
                        on_failure("its log has stopped".into());
                    }
                    listener(event);
                }));
            }
            LogMode::External(_) => {}
        }
    }

    /// Reserves space for an entry, waiting for it if necessary. Fails if the log accepts no
    /// entries now.
    pub fn reserve(&self, bytes: usize) -> Result<LogSpace<'_>> {
        match self {
            LogMode::Own(log) => log.reserve(bytes).map(LogSpace::Reserved),
            LogMode::Objects(server) => server.log.check_accepts().map(|()| LogSpace::Unlimited),
            LogMode::External(_) => Err(Error::HasExternalLog),
        }
    }

    /// Like `reserve`, but never waits: returns `None` if space must be allocated first.
    pub fn try_reserve(&self, bytes: usize) -> Result<Option<LogSpace<'_>>> {
        match self {
            LogMode::Own(log) => Ok(log.try_reserve(bytes)?.map(LogSpace::Reserved)),
            LogMode::Objects(_) | LogMode::External(_) => self.reserve(bytes).map(Some),
        }
    }

    /// Asks the log's thread to allocate space for an entry.
    pub fn request_space(&self, bytes: usize) {
        if let LogMode::Own(log) = self {
            log.request_space(bytes);
        }
    }

    /// Returns and clears the error of the last failed attempt to allocate space.
    pub fn take_space_error(&self) -> Option<Error> {
        match self {
            LogMode::Own(log) => log.take_space_error(),
            LogMode::Objects(_) | LogMode::External(_) => None,
        }
    }

    /// Queues an entry. Indices must increase: the caller holds the lock that assigned this
    /// one.
    pub fn enqueue(&self, entry: LogEntry, space: LogSpace<'_>) -> Result<()> {
        match (self, space) {
            (LogMode::Own(log), LogSpace::Reserved(space)) => log.enqueue_reserved(entry, space),
            (LogMode::Objects(server), LogSpace::Unlimited) => server.log.enqueue(entry),
            _ => Err(Error::HasExternalLog),
        }
    }

    /// Asks the log to write the queue.
    pub fn request_write(&self) {
        match self {
            LogMode::Own(log) => log.request_write(),
            LogMode::Objects(server) => server.log.send_queued(),
            LogMode::External(_) => {}
        }
    }

    pub fn failed(&self) -> Option<Error> {
        match self {
            LogMode::Own(log) => log.failed(),
            LogMode::Objects(server) => server.log.failed(),
            LogMode::External(_) => None,
        }
    }

    pub fn queued_bytes(&self) -> u64 {
        match self {
            LogMode::Own(log) => log.queued_bytes(),
            LogMode::Objects(server) => server.log.queued_bytes(),
            LogMode::External(_) => 0,
        }
    }

    pub fn wait_queue_below(&self, bytes: u64) -> Result<()> {
        match self {
            LogMode::Own(log) => log.wait_queue_below(bytes),
            LogMode::Objects(server) => server.log.drain(),
            LogMode::External(_) => Ok(()),
        }
    }

    pub fn wait(&self, txn: u64, durability: Durability) -> Result<()> {
        match self {
            LogMode::Own(log) => log.wait(txn, durability),
            LogMode::Objects(_) if durability == Durability::Accepted => Ok(()),
            LogMode::Objects(server) => server.log.wait_durable(txn),
            LogMode::External(_) => Ok(()),
        }
    }

    pub fn wait_durable(&self, txn: u64) -> Result<()> {
        self.wait(txn, Durability::Durable)
    }

    /// Like `wait_durable`, for threads of low priority.
    pub fn wait_durable_idly(&self, txn: u64) -> Result<()> {
        match self {
            LogMode::Own(log) => log.wait_durable_idly(txn),
            LogMode::Objects(_) | LogMode::External(_) => self.wait_durable(txn),
        }
    }

    pub fn on_durable(&self, txn: u64, callback: Callback) {
        match self {
            LogMode::Own(log) => log.on_durable(txn, callback),
            LogMode::Objects(server) => server.log.on_durable(txn, callback),
            LogMode::External(_) => callback(Ok(())),
        }
    }

    /// Whether callers that wait sync for each other. Otherwise the log does it.
    pub fn is_synced_by_callers(&self) -> bool {
        !matches!(self, LogMode::Objects(_))
    }

    pub fn sync_if_free(&self, txn: u64) -> Option<Result<()>> {
        match self {
            LogMode::Own(log) => log.sync_if_free(txn),
            LogMode::Objects(_) => None,
            LogMode::External(_) => Some(Ok(())),
        }
    }

    /// Whether a txn belongs to a group that is being synced, or is durable.
    pub fn is_under_way(&self, txn: u64) -> bool {
        match self {
            LogMode::Own(log) => log.is_under_way(txn),
            LogMode::Objects(server) => server.log.is_under_way(txn),
            LogMode::External(_) => true,
        }
    }

    /// Does the work of the log's thread that is due, for stores without threads.
    pub fn step(&self) -> Result<()> {
        match self {
            LogMode::Own(log) => log.drive(Durability::Durable),
            LogMode::Objects(server) => {
                server.log.step();
                Ok(())
            }
            LogMode::External(_) => Ok(()),
        }
    }

    /// Whether the log needs a thread, which calls `run`.
    pub fn has_thread(&self) -> bool {
        !matches!(self, LogMode::External(_))
    }

    /// The body of the log's thread.
    pub fn run(&self) {
        match self {
            LogMode::Own(log) => log.run(),
            LogMode::Objects(server) => server.log.run(),
            LogMode::External(_) => {}
        }
    }

    /// Makes everything durable that was accepted. What a server in a cluster has not sent
    /// when it has lost its log, others do not have either.
    pub fn drain(&self) -> Result<()> {
        match self {
            LogMode::Own(log) => log.drive(Durability::Durable),
            LogMode::Objects(server) if server.log.failed().is_some() => Ok(()),
            LogMode::Objects(server) => server.log.drain(),
            LogMode::External(_) => Ok(()),
        }
    }

    pub fn stop(&self) {
        match self {
            LogMode::Own(log) => log.stop(),
            LogMode::Objects(server) => server.log.stop(),
            LogMode::External(_) => {}
        }
    }

    pub fn close(&self) -> Result<()> {
        match self {
            LogMode::Own(log) => log.with_writer(|writer| writer.close()),
            LogMode::Objects(_) | LogMode::External(_) => Ok(()),
        }
    }

    /// Returns how many bytes of log are pinned by a txn and its successors.
    pub fn pinned_bytes(&self, txn: Txn) -> u64 {
        match self {
            LogMode::Own(log) => {
                log.with_writer(|writer| writer.pinned_bytes(TABLES_STREAM, txn.raw()))
            }
            LogMode::Objects(server) => server.log.pinned_bytes(txn.raw()),
            LogMode::External(external) => external.unflushed_bytes(),
        }
    }

    /// Returns the first segment, or slot, that is needed if commits from `needed` on are.
    pub fn head_for(&self, needed: Txn) -> Option<u64> {
        match self {
            LogMode::Own(log) => {
                let floors = [(TABLES_STREAM, needed.raw())];
                Some(log.with_writer(|writer| writer.head_for(&floors)))
            }
            LogMode::Objects(server) => Some(server.log.floor_for(needed.raw())),
            LogMode::External(_) => None,
        }
    }

    /// Releases what is before a segment, or a slot.
    pub fn release_below(&self, head: u64) -> Result<()> {
        match self {
            LogMode::Own(log) => log.with_writer(|writer| writer.release_below(head)),
            LogMode::Objects(server) => {
                (server.on_floor)(head);
                Ok(())
            }
            LogMode::External(_) => Ok(()),
        }
    }

    pub fn stats(&self) -> LogStats {
        match self {
            LogMode::Own(log) => log.stats(),
            LogMode::Objects(_) | LogMode::External(_) => LogStats::default(),
        }
    }
}
