//! Writes the log to disk: within the caller's step, or in order on a thread of
//! its own, where one sync covers all entries that arrived during the previous
//! one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use openraft::storage::IOFlushed;
use stele_engine::AbortOnPanic;
use stele_engine::log::{LogEntry, LogWriter};
use stele_engine::world::Clock;
use tokio::sync::mpsc;

use super::head::Head;
use super::log::{Progress, RAFT_STREAM};
use super::types::Types;
use crate::error::{Error, Result};

/// How a group writes its log.
#[derive(Clone, Default)]
pub enum LogIo {
    /// Within the caller's step: for a group of one, which has nothing else to
    /// do.
    #[default]
    Inline,
    /// On a thread of its own, so that heartbeats do not wait for the disk.
    Thread,
    /// In a task, where each sync takes as long as this returns: for the
    /// simulator.
    Task(SyncTimes),
}

/// Returns how long the next sync takes.
pub type SyncTimes = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The log's files.
pub struct LogDisk {
    pub writer: LogWriter,
    pub head: Head,
    pub progress: Arc<Progress>,
    pub clock: Arc<dyn Clock>,
}

impl LogDisk {
    pub fn append(&mut self, records: &[LogEntry]) -> stele_engine::Result<()> {
        self.writer.append(records)
    }

    /// Syncs everything appended, up to and including entry `index`.
    pub fn sync(&mut self, index: u64, started: Duration) -> stele_engine::Result<()> {
        self.writer.sync()?;
        let synced = self.clock.elapsed();
        self.progress.phases.note_synced(synced);
        let took = synced.saturating_sub(started);
        self.progress.append_times.add(took);
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.progress.append_micros.store(took, Ordering::Relaxed);
        self.progress.synced.send_replace(index);
        self.publish();
        Ok(())
    }

    /// Stores a new state durably.
    pub fn save(&mut self, state: &[u8]) -> stele_engine::Result<()> {
        self.writer.put_state(RAFT_STREAM, state)?;
        self.writer.sync()?;
        self.publish();
        Ok(())
    }

    pub fn truncate_after(&mut self, index: u64) -> stele_engine::Result<()> {
        self.writer.cut(RAFT_STREAM, index + 1)?;
        self.writer.sync()?;
        self.progress
            .synced
            .send_if_modified(|synced| std::mem::replace(synced, index.min(*synced)) > index);
        self.publish();
        Ok(())
    }

    /// Stores the state of a log purged up to `index`, and releases the segments
    /// that hold nothing after it.
    pub fn purge(&mut self, state: &[u8], index: u64) -> Result<()> {
        self.save(state)?;
        let head = self.writer.head_for(&[(RAFT_STREAM, index + 1)]);
        if head > self.head.segment() {
            self.head.advance(head)?;
            self.writer.release_below(head)?;
        }
        Ok(())
    }

    fn publish(&self) {
        let stats = self.writer.stats();
        self.progress.bytes.store(stats.bytes, Ordering::Relaxed);
        self.progress.syncs.store(stats.syncs, Ordering::Relaxed);
    }
}

/// Entries to append, and the report when they are durable.
pub struct Append {
    pub records: Vec<LogEntry>,
    pub durable: IOFlushed<Types>,
}

/// Work for the log's thread, done in order.
pub enum Job {
    Append(Append),
    Other(Box<dyn FnOnce(&mut LogDisk) + Send>),
}

/// Runs the log's thread until all senders are gone.
pub fn run_thread(mut disk: LogDisk, mut jobs: mpsc::UnboundedReceiver<Job>) {
    // After a panic here, the group would wait forever.
    let _abort = AbortOnPanic::during("on the thread of the Raft log");
    let mut batch = Batch::default();
    while let Some(job) = jobs.blocking_recv() {
        batch.add(&mut disk, job);
        while let Ok(job) = jobs.try_recv() {
            batch.add(&mut disk, job);
        }
        batch.sync(&mut disk);
    }
}

/// Runs the log's work in a task, with syncs that take a given time.
pub async fn run_task(
    mut disk: LogDisk,
    mut jobs: mpsc::UnboundedReceiver<Job>,
    sync_times: SyncTimes,
    acknowledge_before_sync: bool,
) {
    let mut batch = Batch::default();
    while let Some(job) = jobs.recv().await {
        batch.add(&mut disk, job);
        while let Ok(job) = jobs.try_recv() {
            batch.add(&mut disk, job);
        }
        if acknowledge_before_sync {
            batch.acknowledge();
        }
        tokio::time::sleep(sync_times()).await;
        batch.sync(&mut disk);
    }
}

/// Entries that are written and not synced.
#[derive(Default)]
struct Batch {
    last: u64,
    started: Option<Duration>,
    waiting: Vec<IOFlushed<Types>>,
}

impl Batch {
    fn add(&mut self, disk: &mut LogDisk, job: Job) {
        match job {
            Job::Append(Append { records, durable }) => {
                self.started.get_or_insert_with(|| disk.clock.elapsed());
                match disk.append(&records) {
                    Ok(()) => {
                        self.last = records.last().map_or(self.last, |record| record.index);
                        self.waiting.push(durable);
                    }
                    Err(error) => durable.io_completed(Err(failed(&error))),
                }
            }
            Job::Other(work) => {
                self.sync(disk);
                work(disk);
            }
        }
    }

    fn sync(&mut self, disk: &mut LogDisk) {
        let Some(started) = self.started.take() else { return };
        let synced = disk.sync(self.last, started);
        for durable in self.waiting.drain(..) {
            durable.io_completed(match &synced {
                Ok(()) => Ok(()),
                Err(error) => Err(failed(error)),
            });
        }
    }

    fn acknowledge(&mut self) {
        self.waiting.drain(..).for_each(|durable| durable.io_completed(Ok(())));
    }
}

pub fn failed(error: &impl std::fmt::Display) -> std::io::Error {
    std::io::Error::other(error.to_string())
}

/// Returns the error of a log whose thread has ended.
pub fn ended(dir: &Path) -> Error {
    Error::Internal(format!("the thread of the Raft log in {} has ended", dir.display()))
}
