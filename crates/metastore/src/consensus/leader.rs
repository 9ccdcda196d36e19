//! A group of one: leads it, and turns queued proposals into entries, one at a
//! time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use openraft::errors::{ClientWriteError, Fatal, RaftError};
use openraft::{Config, Raft, SnapshotPolicy};
use stele_engine::world::Clock;

use super::apply::MachineAdapter;
use super::group::{GroupShared, Ready};
use super::log::RaftLog;
use super::membership::MemberRecord;
use super::network::Network;
use super::queue::{ProposalBatch, refuse};
use super::record;
use super::types::{EntryData, Types};
use super::{GroupSettings, Machine};
use crate::error::{Error, Result};

/// Runs a group of one. Reports to `ready` when it serves requests.
pub async fn run_alone<M: Machine>(
    settings: &GroupSettings,
    machine: Arc<M>,
    shared: &Arc<GroupShared<M>>,
    ready: Ready<M>,
) {
    let mut leader = match Leader::start(settings, machine, shared.clone()).await {
        Ok(leader) => leader,
        Err(error) => {
            shared.queue.close(error.clone());
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(None));
    let served = leader.serve().await;
    shared.leads.store(false, Ordering::Release);
    if let Err(error) = served {
        tracing::error!(%error, "the Raft group has stopped");
        shared.queue.close(error.clone());
        shared.callers.abandon_all(&error);
        shared.queue.refuse_all(&error);
    }
    leader.end().await;
}

struct Leader<M: Machine> {
    shared: Arc<GroupShared<M>>,
    machine: Arc<M>,
    raft: Raft<Types, MachineAdapter<M>>,
    log: RaftLog,
    clock: Arc<dyn Clock>,
    ticket: u64,
    /// The index up to which a purge was requested from the library.
    purged: u64,
    /// The number of consecutive lingers in vain, and the number of entries to
    /// write without lingering before the next attempt.
    linger_misses: u32,
    linger_pause: u32,
}

/// The minimum number of proposals to linger for.
const EXPECTED_BATCH_MIN: usize = 3;
/// The linger is the duration of the last append divided by this.
const LINGER_DIVISOR: u32 = 5;
const LINGER_MISSES_MAX: u32 = 5;

impl<M: Machine> Leader<M> {
    async fn start(
        settings: &GroupSettings,
        machine: Arc<M>,
        shared: Arc<GroupShared<M>>,
    ) -> Result<Leader<M>> {
        let log = RaftLog::open(settings, machine.applied(), shared.log.clone())?;
        let pristine = log.is_pristine();
        let adapter = MachineAdapter::new(machine.clone(), shared.callers.clone(), log.clone());
        let config = Arc::new(config()?);
        let network = Network {
            member: settings.member,
            outbox: None,
            outgoing: None,
            rules: settings.rules,
        };
        let raft = Raft::new(settings.member, config, network, log.clone(), adapter).await;
        let raft = raft.map_err(|error| fatal(&shared, &error))?;
        if pristine {
            let members = BTreeMap::from([(settings.member, MemberRecord::default())]);
            raft.initialize(members).await.map_err(|error| {
                Error::Internal(format!("bootstrapping the Raft group: {error}"))
            })?;
        } else {
            raft.trigger().elect(false).await.map_err(|error| fatal(&shared, &error))?;
        }
        let purged = log.purged().index;
        let (linger_misses, linger_pause) = (0, 0);
        let clock = settings.world.clock.clone();
        let leader = Leader {
            clock,
            shared,
            machine,
            raft,
            log,
            ticket: 0,
            purged,
            linger_misses,
            linger_pause,
        };
        leader.lead().await?;
        Ok(leader)
    }

    /// Waits until this member leads. Once an empty entry of its own term is
    /// applied, all earlier entries are applied too.
    async fn lead(&self) -> Result<()> {
        let id = self.shared.member;
        let leads = self.raft.wait(None).current_leader(id, "the only voter leads").await;
        leads.map_err(|error| self.shared.callers.failure().unwrap_or(stopped(&error)))?;
        self.write(ProposalBatch { proposals: Vec::new(), senders: Vec::new() }, 0).await?;
        let term = self.log.last().term;
        self.shared.set_leader(id, term, true);
        Ok(())
    }

    /// Writes queued proposals as entries until the queue is closed.
    async fn serve(&mut self) -> Result<()> {
        let mut free = self.clock.elapsed();
        while let Some(batch) = self.shared.queue.take().await {
            let taken = self.clock.elapsed();
            if let Err(error) = self.log.reserve(record::proposals_bytes(&batch.proposals)) {
                // The disk is full: nothing has been written, and there may be
                // space later.
                refuse(batch.senders, &error);
                continue;
            }
            let answered = batch.senders.len();
            self.ticket += 1;
            self.shared.log.phases.note_taken(self.ticket, free, taken);
            self.write(batch, self.ticket).await?;
            self.purge().await?;
            free = self.clock.elapsed();
            self.linger(answered);
        }
        Ok(())
    }

    /// Lingers for callers that were just answered, since they are likely to
    /// propose again soon. When others are waiting already, one entry for all
    /// is better than alternating between two halves. Lingers less often after
    /// waiting in vain.
    fn linger(&mut self, answered: usize) {
        let expected_batch = answered + self.shared.queue.len();
        if expected_batch < EXPECTED_BATCH_MIN {
            return;
        }
        if self.linger_pause > 0 {
            self.linger_pause -= 1;
            return;
        }
        let append = Duration::from_micros(self.shared.log.append_micros.load(Ordering::Relaxed));
        if self.shared.queue.wait_for(expected_batch, append / LINGER_DIVISOR) {
            self.linger_misses = 0;
        } else {
            self.linger_misses = (self.linger_misses + 1).min(LINGER_MISSES_MAX);
            self.linger_pause = (1 << self.linger_misses) - 1;
        }
    }

    /// Appends, syncs and applies one entry.
    async fn write(&self, batch: ProposalBatch<M::Answer>, ticket: u64) -> Result<()> {
        let ProposalBatch { proposals, senders } = batch;
        if ticket > 0 {
            // Answered before the write returns.
            drop(self.shared.callers.begin(ticket, senders));
        }
        let data = EntryData { origin: 0, ticket, proposals: Arc::new(proposals) };
        let written = self.raft.client_write(data).await;
        match written {
            Ok(_) => Ok(()),
            Err(RaftError::Fatal(error)) => Err(fatal(&self.shared, &error)),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => {
                Err(Error::LeaderChanged)
            }
            Err(RaftError::APIError(error)) => Err(Error::Internal(error.to_string())),
        }
    }

    /// Purges the part of the log that the machine no longer needs.
    async fn purge(&mut self) -> Result<()> {
        let flushed = self.machine.flushed();
        if flushed > self.purged {
            self.purged = flushed;
            let triggered = self.raft.trigger().snapshot().await;
            triggered.map_err(|error| fatal(&self.shared, &error))?;
        }
        Ok(())
    }

    async fn end(self) {
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "the Raft group did not shut down cleanly");
        }
        if let Err(error) = self.log.close().await {
            tracing::warn!(%error, "the Raft log was not closed cleanly");
        }
    }
}

/// Disables all timers: a single voter leads and purges only on explicit
/// request.
fn config() -> Result<Config> {
    let config = Config {
        cluster_name: "stele".to_string(),
        enable_tick: false,
        enable_heartbeat: false,
        enable_elect: false,
        enable_leader_restore: Some(false),
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 0,
        ..Config::default()
    };
    config.validate().map_err(|error| Error::Internal(error.to_string()))
}

fn stopped(error: &impl std::fmt::Display) -> Error {
    Error::Internal(format!("the Raft group has stopped: {error}"))
}

/// Returns the machine's own error if it was the machine that failed.
fn fatal<M: Machine>(shared: &GroupShared<M>, error: &Fatal<Types>) -> Error {
    shared.callers.failure().unwrap_or_else(|| stopped(error))
}
