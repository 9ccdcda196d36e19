//! A member of the metastore, as the services see it.
//!
//! A [`Node`] is a member's state and its part of the Raft group. A write is
//! proposed and answered once it is applied; a read uses the local state, after
//! a `barrier` if it must be linearizable. Background work is done by `duties`:
//! expiring leases, dropping history (`retention`) and clearing alarms
//! (`quota`). `purge` drops history on request, `clocks` provides the
//! timestamps of writes, and `admission` orders transactions that had a
//! conflict, oldest first.

mod admission;
mod clocks;
mod duties;
mod purge;
mod quota;
mod retention;
mod settings;

use std::convert::Infallible;
use std::sync::Arc;

use admission::Admission;
pub use admission::Attempt;
use clocks::Clocks;
use duties::Duties;
pub use retention::Retention;
pub use settings::{ExecuteLimits, Settings};
use stele_engine::world::Clock;
use tokio::sync::{Notify, mpsc};

use crate::command::{Alarm, Answer, Command, Execute, KeyRange, RangeQuery, Txn, pack};
use crate::consensus::{self, Group};
use crate::error::{Error, Result};
use crate::histogram::Histogram;
use crate::lease::{Leases, TTL_SECONDS_MAX};
use crate::machine::{self, Applier, EXPIRED_BYTES_MAX, EXPIRED_KEYS_MAX, Opened};
use crate::state::{Floor, Hash, Identity, KeyView, RangeScan, RangeSummary, State};
use crate::watch::Hub;

/// An open member. [`Node::close`] returns when nothing uses its directory any
/// more. Dropping the node does not wait: a running duty or purge keeps the
/// directory in use until it ends, and the next start replays the log.
pub struct Node {
    shared: Arc<Shared>,
    duties: Duties,
    /// Ends when all work on other threads has ended.
    work_ended: mpsc::Receiver<Infallible>,
}

/// The state that requests and duties share.
pub(crate) struct Shared {
    group: Group<Applier>,
    applier: Arc<Applier>,
    state: Arc<State>,
    hub: Arc<Hub>,
    leases: Arc<Leases>,
    admission: Admission,
    last: duties::Last,
    settings: Settings,
    clocks: Clocks,
    /// Wakes the duties when one may be due.
    nudge: Arc<Notify>,
    /// Held while a hash is computed.
    hashing: Arc<tokio::sync::Mutex<()>>,
    /// Held by work on other threads, which may outlive its caller.
    work: mpsc::Sender<Infallible>,
}

/// The size of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of the current keys and values.
    pub live_bytes: i64,
    /// 0 means no quota.
    pub quota_bytes: i64,
    /// Bytes on disk and in memory, including history.
    pub stored_bytes: i64,
}

/// The identity of this member and the progress of its group. Read for the
/// header of every response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub cluster_id: u64,
    pub member_id: u64,
    /// 0 if there is no leader.
    pub leader_id: u64,
    pub term: u64,
    /// Indexes of log entries.
    pub last: u64,
    pub committed: u64,
    pub applied: u64,
}

impl Node {
    /// Opens the member in a directory, which is created if it does not exist.
    pub async fn open(settings: Settings) -> Result<Node> {
        let world = settings.world.clone();
        let new = || Identity {
            cluster_id: settings.cluster_id.unwrap_or_else(|| random_id(&settings)),
            member_id: settings.member_id.unwrap_or_else(|| random_id(&settings)),
        };
        let dir = settings.dir.join("state");
        let opened = machine::open(&dir, settings.machine.clone(), world.clone(), new)?;
        let Opened { state, hub, leases, applier } = opened;
        settings.check_identity(state.identity)?;
        let mut of_group =
            consensus::Settings::new(settings.dir.join("log"), world, state.identity.member_id);
        of_group.log.sync = settings.sync;
        let group = Group::open(of_group, applier.clone()).await?;
        // Replaying the log took time that must not count against the leases.
        leases.refresh();
        let clocks = Clocks::start(settings.world.clock.clone(), applier.history().0.clock_micros);
        let admission = Admission::new(settings.world.clock.clone());
        let nudge = leases.earlier();
        let (work, work_ended) = mpsc::channel(1);
        let shared = Arc::new(Shared {
            group,
            applier,
            state,
            hub,
            leases,
            admission,
            last: duties::Last::default(),
            clocks,
            settings,
            nudge,
            hashing: Arc::default(),
            work,
        });
        let duties = Duties::start(&shared);
        Ok(Node { shared, duties, work_ended })
    }

    /// Proposes a command. Returns once it is applied.
    pub async fn propose(&self, command: Command) -> Result<Answer> {
        self.shared.check_alarm(&command)?;
        self.shared.check_compares(&command)?;
        self.shared.check_quota(&command).await?;
        let answer = self.shared.propose(&command).await;
        self.shared.nudge_if_due();
        answer
    }

    /// Makes history below a revision unreadable for etcd's clients. `physical`
    /// also drops it for all clients, and returns once its space has been
    /// reclaimed.
    pub async fn compact(&self, revision: i64, physical: bool) -> Result<Answer> {
        let answer = self.propose(Command::Compact { revision }).await?;
        if physical {
            purge::purge(&self.shared, revision).await?;
        }
        Ok(answer)
    }

    /// Runs a serializable transaction. If it fails with a conflict, its retry
    /// has priority over transactions that began later.
    pub async fn execute(&self, execute: Execute, attempt: Attempt) -> Result<Answer> {
        self.shared.settings.execute.check(&execute, attempt)?;
        let ranges = execute.writes.iter().map(|write| KeyRange::single(write.key.clone()));
        let ranges = ranges.chain(execute.reads.iter().cloned()).collect();
        let admitted = self.shared.admission.admit(attempt, ranges).await;
        let answer = self.propose(Command::Execute(execute)).await;
        admitted.settle(matches!(answer, Err(Error::Conflict { .. })));
        answer
    }

    /// Grants a lease and returns its id and TTL. Chooses an id if `id` is 0,
    /// and raises a TTL that is below the minimum.
    pub async fn lease_grant(&self, id: i64, ttl_seconds: i64) -> Result<Answer> {
        if ttl_seconds > TTL_SECONDS_MAX {
            return Err(Error::LeaseTtlTooLarge);
        }
        let settings = &self.shared.settings;
        let ttl_seconds = ttl_seconds.max(settings.lease_ttl_seconds_min);
        let random = || settings.world.random.next_u64();
        let id = if id == 0 { self.shared.leases.choose_id(random) } else { id };
        self.propose(Command::LeaseGrant { id, ttl_seconds }).await
    }

    /// Revokes a lease. If it has many keys, entries before the final one
    /// delete most of them.
    pub async fn lease_revoke(&self, id: i64) -> Result<Answer> {
        let state = &self.shared.state;
        loop {
            let (table, bytes_max) = (state.tables.lease_keys, EXPIRED_BYTES_MAX + 1);
            let keys = state.owned_rows_some(table, id, EXPIRED_KEYS_MAX + 1, bytes_max)?;
            let bytes = keys.iter().map(Vec::len).sum::<usize>();
            if keys.len() <= EXPIRED_KEYS_MAX && bytes <= EXPIRED_BYTES_MAX {
                return self.propose(Command::LeaseRevoke { id }).await;
            }
            let answer = self.propose(Command::Expire { ids: vec![id] }).await?;
            if !self.shared.leases.exists(id) {
                return Ok(answer);
            }
        }
    }

    /// Runs a read-only transaction on the local state.
    pub fn read_txn(&self, txn: &Txn) -> Result<Answer> {
        machine::read_txn(&self.shared.state, &self.shared.leases, txn)
    }

    /// Returns an upper bound on the bytes of keys and values that a command
    /// would return if it were applied now.
    pub fn measure(&self, command: &Command) -> Result<usize> {
        machine::measure(&self.shared.state, &self.shared.leases, command)
    }

    /// Waits until a read of the local state is linearizable.
    pub async fn barrier(&self) -> Result<()> {
        self.shared.group.barrier().await
    }

    pub fn status(&self) -> Status {
        let Identity { cluster_id, member_id } = self.shared.state.identity;
        let of_group = self.shared.group.status();
        Status {
            cluster_id,
            member_id,
            leader_id: of_group.leader,
            term: of_group.term,
            last: of_group.last,
            committed: of_group.committed,
            applied: of_group.applied,
        }
    }

    /// Returns the Raft group, for statistics about its log and queue.
    pub fn group(&self) -> &Group<Applier> {
        &self.shared.group
    }

    /// Returns how long entries took to apply.
    pub fn apply_times(&self) -> &Histogram {
        self.shared.applier.apply_times()
    }

    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Returns the newest revision; a fresh store is at 1.
    pub fn revision(&self) -> i64 {
        self.shared.state.revision()
    }

    /// Returns the compacted revision, below which etcd's clients cannot read;
    /// -1 before the first Compact.
    pub fn compacted(&self) -> i64 {
        self.shared.state.compacted()
    }

    /// Returns the waterline, the revision below which nobody can read.
    pub fn waterline(&self) -> i64 {
        self.shared.state.waterline()
    }

    pub fn alarms(&self) -> Vec<(u64, Alarm)> {
        self.shared.state.alarms()
    }

    pub fn usage(&self) -> Usage {
        let stats = self.shared.state.store.stats();
        let stored = stats.fragment_bytes.saturating_add(stats.memory_used_bytes as u64);
        Usage {
            live_bytes: self.shared.state.live_bytes(),
            quota_bytes: self.shared.settings.quota_bytes,
            stored_bytes: i64::try_from(stored).unwrap_or(i64::MAX),
        }
    }

    /// Passes the keys of a range to `sink`, with the semantics of etcd's
    /// Range. With `keys_only` the tails have no value.
    pub fn range(
        &self,
        query: &RangeQuery,
        sink: &mut impl FnMut(KeyView<'_>),
    ) -> Result<RangeSummary> {
        self.check_readable()?;
        self.shared.state.range(query, Floor::Compacted, sink)
    }

    /// Like `range`, but reads down to the waterline.
    pub fn range_retained(
        &self,
        query: &RangeQuery,
        sink: &mut impl FnMut(KeyView<'_>),
    ) -> Result<RangeSummary> {
        self.check_readable()?;
        self.shared.state.range(query, Floor::Retained, sink)
    }

    /// Opens a range to be read in batches, so that the caller can limit
    /// memory.
    pub fn open_range(&self, query: &RangeQuery, floor: Floor) -> Result<RangeScan> {
        self.check_readable()?;
        self.shared.state.open_range(query, floor)
    }

    /// Passes the next keys of an open range, about `bytes_max` bytes, to
    /// `sink`. Returns the summary with the last batch.
    pub fn next_of_range(
        &self,
        range: &mut RangeScan,
        bytes_max: usize,
        sink: &mut impl FnMut(KeyView<'_>),
    ) -> Result<Option<RangeSummary>> {
        range.next(&self.shared.state, bytes_max, sink)
    }

    /// Returns the number of keys in a range at a revision (0: the newest).
    pub fn count(&self, range: &KeyRange, revision: i64) -> Result<i64> {
        let (at, _) = self.shared.state.resolve(revision, Floor::Retained)?;
        self.shared.state.count(range, at)
    }

    /// Returns the revision that was the newest at a time.
    pub fn revision_at(&self, time_micros: i64) -> Result<i64> {
        self.shared.state.revision_at(time_micros)
    }

    /// Returns the holders and waiters of a key's lock.
    pub fn lock(&self, key: &[u8]) -> Result<Option<crate::state::KeyLockInfo>> {
        self.shared.state.lock_info(key)
    }

    /// Returns a checksum of the keys at a revision (0: the newest).
    pub async fn hash(&self, revision: i64) -> Result<Hash> {
        // One at a time, because each reads all keys.
        let turn = self.shared.hashing.clone().lock_owned().await;
        let (state, work) = (self.shared.state.clone(), self.shared.work.clone());
        offload(move || {
            let hash = state.hash(revision);
            // Drop the state first: closing the node waits for `work` to be
            // dropped.
            drop(state);
            drop((turn, work));
            hash
        })
        .await
    }

    pub fn watch(&self) -> &Arc<Hub> {
        &self.shared.hub
    }

    pub fn leases(&self) -> &Leases {
        &self.shared.leases
    }

    /// Runs the duties now. For tests that control the clock.
    pub async fn run_duties(&self) -> Result<()> {
        duties::run(&self.shared).await
    }

    /// Stops the duties and the group, and flushes everything to disk. When it
    /// returns, the directory can be opened again, unless a cursor still
    /// exists.
    pub async fn close(self) -> Result<()> {
        let Node { shared, duties, mut work_ended } = self;
        duties.stop().await;
        // The duties have ended, and calls only borrow the node.
        let Some(shared) = Arc::into_inner(shared) else {
            return Err(Error::Internal("the metastore is still in use: it was not closed".into()));
        };
        let Shared { group, state, work, .. } = shared;
        let closed = match group.close().await {
            // Flush, so that the next start has no log to replay.
            Ok(()) => state.store.flush(state.tables.user).map_err(Error::from),
            Err(error) => Err(error),
        };
        drop(work);
        while work_ended.recv().await.is_some() {}
        closed
    }

    fn check_readable(&self) -> Result<()> {
        if self.shared.state.has_alarm(Alarm::Corrupt) { Err(Error::Corrupt) } else { Ok(()) }
    }
}

impl Shared {
    async fn propose(&self, command: &Command) -> Result<Answer> {
        if let Some(error) = self.applier.missing_room() {
            return Err(error);
        }
        let time_micros = self.clocks.proposal_micros(|| self.state.sampled_time());
        self.group.propose(pack(command, time_micros)?).await?
    }

    /// Refuses a transaction whose compares would block all others while they
    /// read a large range. Not evaluated if the store is too small for that.
    fn check_compares(&self, command: &Command) -> Result<()> {
        let Command::Txn(txn) = command else { return Ok(()) };
        if !txn.compares_ranges()
            || self.state.counts.read().total() <= machine::COMPARED_KEYS_MAX as i64
        {
            return Ok(());
        }
        stele_grpc::offload::in_place(|| machine::check_compares(&self.state, &self.leases, txn))
    }

    /// Wakes the duties if a write made one due.
    fn nudge_if_due(&self) {
        if self.clears_alarm() || self.samples_by_bytes() {
            self.nudge.notify_one();
        }
    }

    fn samples_by_bytes(&self) -> bool {
        let step = self.settings.retention.sample_bytes();
        self.state.written_bytes() - self.state.sampled_bytes() >= step
    }

    fn clock(&self) -> &dyn Clock {
        &*self.settings.world.clock
    }
}

fn random_id(settings: &Settings) -> u64 {
    settings.world.random.next_u64().max(1)
}

/// Runs long work on a thread that no other call waits for.
async fn offload<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    stele_grpc::offload::offload(work).await.map_err(|status| match status.code() {
        tonic::Code::ResourceExhausted => Error::TooManyRequests,
        tonic::Code::Unavailable => Error::Stopped,
        _ => Error::Internal(status.message().to_string()),
    })?
}
