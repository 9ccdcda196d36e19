//! A member of the metastore, as the services see it.
//!
//! A [`Node`] is a member's state with its share in the Raft group. Writes are
//! proposed and answered when they are applied; reads look at the state, after
//! a `barrier` if they must not be stale. What nobody asks for is done by
//! `duties`: leases run out, history is dropped (`retention`), alarms clear
//! (`quota`). What somebody wants gone at once is purged (`purge`). The time
//! that a write gets is told by `clocks`.
//! Transactions that met a conflict are let through oldest first (`admission`).

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
/// more. Dropping it instead does not wait: a duty or a purge that is under way
/// keeps the directory until it ends, and the next start applies the log again.
pub struct Node {
    shared: Arc<Shared>,
    duties: Duties,
    /// Ends when the work on other threads has.
    work_ended: mpsc::Receiver<Infallible>,
}

/// What requests and duties share.
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
    /// There may be something to do for the duties.
    nudge: Arc<Notify>,
    /// Held by the one that hashes.
    hashing: Arc<tokio::sync::Mutex<()>>,
    /// Held by work on other threads, which may go on without its caller.
    work: mpsc::Sender<Infallible>,
}

/// Bytes of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Keys and values as they are now.
    pub live_bytes: i64,
    /// 0: there is no quota.
    pub quota_bytes: i64,
    /// On disk and in memory, history included.
    pub stored_bytes: i64,
}

/// Who this member is and how far its group is. Read for the header of every
/// response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub cluster_id: u64,
    pub member_id: u64,
    /// 0: there is none.
    pub leader_id: u64,
    pub term: u64,
    /// Indexes of log entries.
    pub last: u64,
    pub committed: u64,
    pub applied: u64,
}

impl Node {
    /// Opens the member in a directory, which is made if it is not there.
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
        // Entries that were applied again have taken their time.
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

    /// Proposes a command. Answered when it is applied.
    pub async fn propose(&self, command: Command) -> Result<Answer> {
        self.shared.check_alarm(&command)?;
        self.shared.check_compares(&command)?;
        self.shared.check_quota(&command).await?;
        let answer = self.shared.propose(&command).await;
        self.shared.nudge_if_due();
        answer
    }

    /// Closes history below a revision to etcd's clients. `physical` drops it
    /// for everybody, and returns when its space has been given back.
    pub async fn compact(&self, revision: i64, physical: bool) -> Result<Answer> {
        let answer = self.propose(Command::Compact { revision }).await?;
        if physical {
            purge::purge(&self.shared, revision).await?;
        }
        Ok(answer)
    }

    /// Runs a serializable transaction. One that meets a conflict is let
    /// through before those that began later, when it comes again.
    pub async fn execute(&self, execute: Execute, attempt: Attempt) -> Result<Answer> {
        self.shared.settings.execute.check(&execute, attempt)?;
        let ranges = execute.writes.iter().map(|write| KeyRange::single(write.key.clone()));
        let ranges = ranges.chain(execute.reads.iter().cloned()).collect();
        let admitted = self.shared.admission.admit(attempt, ranges).await;
        let answer = self.propose(Command::Execute(execute)).await;
        admitted.settle(matches!(answer, Err(Error::Conflict { .. })));
        answer
    }

    /// Grants a lease: chooses an id if it is 0, raises a TTL that is too
    /// short. Answers id and TTL.
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

    /// Revokes a lease. With many keys, most of them go in entries before the
    /// one that ends it.
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

    /// A transaction that only reads, on local state.
    pub fn read_txn(&self, txn: &Txn) -> Result<Answer> {
        machine::read_txn(&self.shared.state, &self.shared.leases, txn)
    }

    /// Bytes of keys and values that a command would return at most if it were
    /// applied now.
    pub fn measure(&self, command: &Command) -> Result<usize> {
        machine::measure(&self.shared.state, &self.shared.leases, command)
    }

    /// Returns when a read of local state is linearizable.
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

    /// The group's share of the node: its log and queue, for numbers about them.
    pub fn group(&self) -> &Group<Applier> {
        &self.shared.group
    }

    /// How long it took to apply entries.
    pub fn apply_times(&self) -> &Histogram {
        self.shared.applier.apply_times()
    }

    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// The newest revision; a fresh store is at 1.
    pub fn revision(&self) -> i64 {
        self.shared.state.revision()
    }

    /// Reads below this revision are refused to etcd's clients; -1 before the
    /// first Compact.
    pub fn compacted(&self) -> i64 {
        self.shared.state.compacted()
    }

    /// Reads below this revision are refused to everybody.
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

    /// Gives the keys of a range to `sink`, as etcd's Range has it. With
    /// `keys_only` the tails have no value.
    pub fn range(
        &self,
        query: &RangeQuery,
        sink: &mut impl FnMut(KeyView<'_>),
    ) -> Result<RangeSummary> {
        self.check_readable()?;
        self.shared.state.range(query, Floor::Compacted, sink)
    }

    /// As `range`, down to the waterline.
    pub fn range_retained(
        &self,
        query: &RangeQuery,
        sink: &mut impl FnMut(KeyView<'_>),
    ) -> Result<RangeSummary> {
        self.check_readable()?;
        self.shared.state.range(query, Floor::Retained, sink)
    }

    /// Begins to read a range batch by batch, under whatever memory limit the
    /// caller has.
    pub fn open_range(&self, query: &RangeQuery, floor: Floor) -> Result<RangeScan> {
        self.check_readable()?;
        self.shared.state.open_range(query, floor)
    }

    /// The next keys of a range that was opened, about `bytes_max` of them. The
    /// summary comes with the last.
    pub fn next_of_range(
        &self,
        range: &mut RangeScan,
        bytes_max: usize,
        sink: &mut impl FnMut(KeyView<'_>),
    ) -> Result<Option<RangeSummary>> {
        range.next(&self.shared.state, bytes_max, sink)
    }

    /// Keys in a range at a revision (0: the newest).
    pub fn count(&self, range: &KeyRange, revision: i64) -> Result<i64> {
        let (at, _) = self.shared.state.resolve(revision, Floor::Retained)?;
        self.shared.state.count(range, at)
    }

    /// The newest revision at a moment.
    pub fn revision_at(&self, time_micros: i64) -> Result<i64> {
        self.shared.state.revision_at(time_micros)
    }

    /// The lock of a key: who holds it and who waits.
    pub fn lock(&self, key: &[u8]) -> Result<Option<crate::state::KeyLockInfo>> {
        self.shared.state.lock_info(key)
    }

    /// A checksum of the keys at a revision (0: the newest).
    pub async fn hash(&self, revision: i64) -> Result<Hash> {
        // One at a time: each reads everything.
        let turn = self.shared.hashing.clone().lock_owned().await;
        let (state, work) = (self.shared.state.clone(), self.shared.work.clone());
        offload(move || {
            let hash = state.hash(revision);
            // The state first: whoever closes the node waits for the work.
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

    /// Does now what the duties would do later. For tests that move the clock.
    pub async fn run_duties(&self) -> Result<()> {
        duties::run(&self.shared).await
    }

    /// Stops the duties and the group, and leaves everything on disk. Returns
    /// when the directory can be opened again, unless a cursor is left.
    pub async fn close(self) -> Result<()> {
        let Node { shared, duties, mut work_ended } = self;
        duties.stop().await;
        // The duties have ended, and calls only borrow the node.
        let Some(shared) = Arc::into_inner(shared) else {
            return Err(Error::Internal("the metastore is still in use: it was not closed".into()));
        };
        let Shared { group, state, work, .. } = shared;
        let closed = match group.close().await {
            // So that the next start has no log to apply again.
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

    /// Refuses a transaction whose compares would keep all others waiting while
    /// they read a large range. Ranges that are not large need no look.
    fn check_compares(&self, command: &Command) -> Result<()> {
        let Command::Txn(txn) = command else { return Ok(()) };
        if !txn.compares_ranges()
            || self.state.counts.read().total() <= machine::COMPARED_KEYS_MAX as i64
        {
            return Ok(());
        }
        stele_grpc::offload::in_place(|| machine::check_compares(&self.state, &self.leases, txn))
    }

    /// Tells the duties when a write gave them something to do.
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

/// Runs work that may take long on a thread that no other call waits for.
async fn offload<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    stele_grpc::offload::offload(work).await.map_err(|status| match status.code() {
        tonic::Code::ResourceExhausted => Error::TooManyRequests,
        tonic::Code::Unavailable => Error::Stopped,
        _ => Error::Internal(status.message().to_string()),
    })?
}
