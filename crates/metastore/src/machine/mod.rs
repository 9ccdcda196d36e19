//! The state machine, which turns proposals into changes.
//!
//! [`Applier`] applies log entries in order. The proposals of an entry run one
//! after another on a [`Batch`](batch::Batch), in which later ones see the
//! changes of earlier ones. The batch becomes one engine commit together with
//! the position in the log, so an entry is applied atomically. A proposal is
//! refused before it changes anything, so a refusal has no effect. After the
//! commit, the changes are published to readers and watchers.

mod batch;
mod execute;
#[cfg(test)]
pub(crate) mod fixture;
mod kv;
mod lease;
mod lock;
mod parts;
mod restore;
mod retention;
mod room;
mod txn;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use stele_engine::fatal::{Mutex, MutexGuard};
use stele_engine::world::{Clock, World};
use stele_engine::{Commit, Resources, Store};

use crate::command::{self, Answer, Command, Op, Proposal, ROW_BYTES_MAX, Reply, Txn, VERSION};
use crate::consensus::{Committed, Machine, Position};
use crate::error::{Error, Result};
use crate::histogram::Histogram;
use crate::lease::Leases;
use crate::state::{Floor, Found, Identity, Numbers, Sample, Seen, State};
use crate::watch::Hub;
use batch::{Batch, Finished};
pub use kv::RESULT_BYTES_MAX;
pub use lease::{EXPIRED_BYTES_MAX, EXPIRED_KEYS_MAX};
use room::Room;
pub use txn::COMPARED_KEYS_MAX;

/// Applies log entries to the state.
pub struct Applier {
    state: Arc<State>,
    hub: Arc<Hub>,
    leases: Arc<Leases>,
    deleted_keys_max: i64,
    clock: Arc<dyn Clock>,
    apply_times: Histogram,
    room: Room,
    core: Mutex<Core>,
}

/// The settings of a member's state.
#[derive(Clone)]
pub struct Settings {
    pub engine: stele_engine::Options,
    /// Memory shared with other stores; with `None` the store creates its own.
    pub resources: Option<Resources>,
    /// The maximum size of the recent changes that are kept for watchers.
    pub ring_bytes_max: usize,
    /// The maximum number of keys that one range may delete, because their
    /// deletions are one commit. Must be the same on all members, which have to
    /// decide alike.
    pub deleted_keys_max: i64,
}

impl Default for Settings {
    fn default() -> Settings {
        let mut engine = stele_engine::Options::default();
        // A key may be as long as a request; the rows of leases have an id
        // before it.
        engine.limits.row_bytes_max = ROW_BYTES_MAX;
        // Everything in the log must fit: the deletions of a large range, or of
        // all keys of a lease.
        engine.limits.commit_bytes_max = 3 << 30;
        // A restart replays what was not flushed.
        engine.flush.replay_bytes_max = 64 << 20;
        // Conflicts are decided by log order, not by the engine.
        engine.memory.conflict_slots = 16;
        Settings { engine, resources: None, ring_bytes_max: 32 << 20, deleted_keys_max: 2_000_000 }
    }
}

/// The parts of a member's state, which belong together.
pub struct Opened {
    pub state: Arc<State>,
    pub hub: Arc<Hub>,
    pub leases: Arc<Leases>,
    pub applier: Arc<Applier>,
}

/// Opens the state in a directory, as of the last flush. A new one gets the
/// identity that `new` returns.
pub fn open(
    dir: &Path,
    settings: Settings,
    world: World,
    new: impl FnOnce() -> Identity,
) -> Result<Opened> {
    let Settings { engine, resources, ring_bytes_max, deleted_keys_max } = settings;
    let clock = world.clock.clone();
    let resources = resources.unwrap_or_else(|| Resources::new(&engine));
    let store = Store::open_external_with(dir, engine, world, resources)?;
    let (state, found) = State::open(store, new)?;
    let state = Arc::new(state);
    let hub = Arc::new(Hub::new(state.clone(), ring_bytes_max));
    let leases = Arc::new(Leases::open(state.clone(), clock.clone())?);
    let core = Core::new(&state, found)?;
    let applier = Applier {
        state: state.clone(),
        hub: hub.clone(),
        leases: leases.clone(),
        deleted_keys_max,
        clock,
        apply_times: Histogram::default(),
        room: Room::default(),
        core: Mutex::new(core),
    };
    Ok(Opened { state, hub, leases, applier: Arc::new(applier) })
}

/// State that only the applying thread needs.
struct Core {
    numbers: Numbers,
    /// From the oldest retained to the newest.
    samples: VecDeque<Sample>,
    /// The waterlines of entries that are not flushed yet: index and line.
    lines: VecDeque<(u64, i64)>,
    /// The state in memory may be ahead of the stored one.
    failed: bool,
}

impl Core {
    fn new(state: &State, found: Found) -> Result<Core> {
        let Found { numbers, samples } = found;
        // The numbers found are on disk, but the engine may not know the line
        // yet.
        let known = state.tables.engine_waterline(&state.store)?;
        let line =
            (numbers.waterline > known).then_some((numbers.applied.index, numbers.waterline));
        Ok(Core {
            numbers,
            samples: samples.into(),
            lines: line.into_iter().collect(),
            failed: false,
        })
    }
}

/// Decodes the proposals of an entry. An unknown proposal is fatal, because
/// members that know it have applied it.
fn decode_all(entry: &Committed) -> Result<Vec<Proposal>> {
    let decoded = entry.proposals.iter().map(command::decode);
    decoded.collect::<Result<_>>().map_err(|error| {
        let why = error.to_string();
        Error::UnknownEntry { index: entry.index, why }
    })
}

/// A proposal being applied.
pub(crate) struct Running<'a> {
    pub batch: Batch<'a>,
    pub leases: &'a Leases,
    pub deleted_keys_max: i64,
    pub newest_sample: Option<Sample>,
    /// The version of the proposal, which selects the rules.
    pub version: u8,
    /// Whether a caller waits for the answers.
    pub awaited: bool,
    /// Bytes that the current transaction returns, and of the values that it
    /// keeps, as far as they have been checked.
    pub result_bytes: usize,
    /// The number of keys in ranges that compares may still read.
    pub compared_left: usize,
}

impl Applier {
    /// Returns the numbers of the state, and the samples from oldest to newest.
    pub fn history(&self) -> (Numbers, Vec<Sample>) {
        let core = self.core.lock();
        (core.numbers, core.samples.iter().copied().collect())
    }

    /// Returns how long entries took to apply.
    pub fn apply_times(&self) -> &Histogram {
        &self.apply_times
    }

    /// Returns why entries cannot be applied at present; `None` if they can.
    pub fn missing_room(&self) -> Option<Error> {
        self.room.missing()
    }

    /// Lets the engine drop history below a waterline that is on disk outside
    /// the log. Otherwise, if the log were replayed over it, old reads would
    /// see less than they did the first time.
    pub fn settle_waterline(&self) -> Result<()> {
        let flushed = self.state.flushed();
        let mut settled = None;
        let mut core = self.core.lock();
        while let Some((_, line)) = core.lines.pop_front_if(|(index, _)| *index <= flushed) {
            settled = Some(line);
        }
        drop(core);
        if let Some(line) = settled {
            self.state.tables.set_waterline(&self.state.store, line)?;
        }
        Ok(())
    }

    fn apply_entry(
        &self,
        core: &mut MutexGuard<'_, Core>,
        entry: Committed,
    ) -> Result<Vec<Result<Answer>>> {
        let proposals = decode_all(&entry)?;
        let mut numbers = core.numbers;
        numbers.applied = Position { index: entry.index, term: entry.term };
        let newest_sample = core.samples.back().copied();
        let shared = RefCell::new(&mut *core);
        let commit_part = |part: &Commit| {
            let commit = || self.state.commit_part(part);
            let Err(refused) = commit() else { return Ok(()) };
            MutexGuard::unlocked(&mut shared.borrow_mut(), || self.room.wait(refused, commit))
        };
        let mut running = Running {
            batch: Batch::new(&self.state, numbers, self.hub.is_watched(), &commit_part),
            leases: &self.leases,
            deleted_keys_max: self.deleted_keys_max,
            newest_sample,
            version: 0,
            awaited: entry.awaited,
            result_bytes: 0,
            compared_left: usize::MAX,
        };
        let mut answers = Vec::with_capacity(proposals.len());
        for proposal in &proposals {
            let answer = running.run(proposal);
            if let Err(error @ (Error::Engine(_) | Error::Internal(_))) = answer {
                return Err(error);
            }
            answers.push(answer);
        }
        let finished = running.batch.finish();
        let commit = || self.state.commit(&finished.commit, entry.index);
        if let Err(refused) = commit() {
            // Release the lock while waiting, so that others can read the
            // applied state.
            MutexGuard::unlocked(core, || self.room.wait(refused, commit))?;
        }
        self.publish(core, finished)?;
        Ok(answers)
    }

    /// Publishes a finished commit: first the counts, last the watchers.
    fn publish(&self, core: &mut Core, finished: Finished) -> Result<()> {
        let Finished { numbers, counts, created, locked, events, alarms, sample, .. } = finished;
        self.state.counts.write().settle(counts, numbers.revision);
        if let Some(alarms) = alarms {
            self.state.set_alarms(alarms);
        }
        if numbers.waterline > core.numbers.waterline {
            core.lines.push_back((numbers.applied.index, numbers.waterline));
            core.samples.retain(|sample| sample.revision >= numbers.waterline);
        }
        if let Some(sample) = sample {
            self.state.set_sampled(&sample);
            core.samples.push_back(sample);
        }
        core.numbers = numbers;
        self.state.publish(&numbers);
        self.hub.publish(events, numbers.revision);
        self.hub.notify_locks(&locked);
        if created.is_empty() { Ok(()) } else { self.state.cut_large_buckets(&created) }
    }
}

impl Machine for Applier {
    type Answer = Result<Answer>;

    fn apply(&self, entry: Committed) -> Result<Vec<Result<Answer>>> {
        let mut core = self.core.lock();
        if core.failed {
            return Err(Error::Stopped);
        }
        let begun = self.clock.elapsed();
        let answers = self.apply_entry(&mut core, entry);
        self.apply_times.add(self.clock.elapsed().saturating_sub(begun));
        core.failed = answers.is_err();
        answers
    }

    fn applied(&self) -> Position {
        self.state.applied()
    }

    fn flushed(&self) -> u64 {
        self.state.flushed()
    }

    fn close(&self) {
        self.room.close();
    }
}

impl Running<'_> {
    fn run(&mut self, proposal: &Proposal) -> Result<Answer> {
        self.batch.begin(proposal.time_micros)?;
        (self.version, self.result_bytes) = (proposal.version, 0);
        let reply = self.obey(&proposal.command)?;
        Ok(Answer { revision: self.batch.revision(), reply })
    }

    fn obey(&mut self, command: &Command) -> Result<Reply> {
        if !matches!(command, Command::Alarm(_) | Command::Sample { .. }) {
            self.check_alarms(takes_space(command))?;
        }
        match command {
            Command::Put(put) => self.put(put).map(Reply::Put),
            Command::Delete(delete) => self.delete(delete).map(Reply::Delete),
            Command::Txn(txn) => self.txn(txn).map(Reply::Txn),
            Command::Compact { revision } => self.compact(*revision).map(done),
            Command::LeaseGrant { id, ttl_seconds } => self.grant_lease(*id, *ttl_seconds),
            Command::LeaseRevoke { id } => self.revoke_lease(*id).map(done),
            Command::Expire { ids } => self.expire(ids).map(done),
            Command::Alarm(action) => {
                self.alarm(*action);
                Ok(Reply::Done)
            }
            Command::Execute(execute) => self.execute(execute).map(|()| Reply::Execute),
            Command::Acquire(acquire) => self.acquire(acquire).map(Reply::Acquire),
            Command::Release { key, session, place } => {
                self.release(key, *session, *place).map(done)
            }
            Command::Sample { clock_micros } => {
                self.sample(*clock_micros);
                Ok(Reply::Done)
            }
            Command::Waterline { revision } => self.move_waterline(*revision).map(done),
            Command::Restore(restore) => self.restore(restore).map(done),
        }
    }
}

/// Runs a read-only transaction on the current state.
pub fn read_txn(state: &State, leases: &Leases, txn: &Txn) -> Result<Answer> {
    assert!(txn.is_read_only(), "a transaction that writes is proposed");
    on_newest(state, leases, |running| {
        running.check_alarms(false)?;
        let reply = Reply::Txn(running.txn(txn)?);
        Ok(Answer { revision: running.batch.revision(), reply })
    })
}

/// Refuses a transaction whose compares would read too many keys of the current
/// state.
pub fn check_compares(state: &State, leases: &Leases, txn: &Txn) -> Result<()> {
    on_newest(state, leases, |running| running.path(txn).map(drop))
}

/// Returns an upper bound on the bytes that a command would return if it were
/// applied now.
pub fn measure(state: &State, leases: &Leases, command: &Command) -> Result<usize> {
    on_newest(state, leases, |running| running.measure_results(command))
}

/// Runs a read-only operation on the current state.
fn on_newest<T>(
    state: &State,
    leases: &Leases,
    mut run: impl FnMut(&mut Running<'_>) -> Result<T>,
) -> Result<T> {
    state.read_retained(0, Floor::Retained, |revision, _| {
        let numbers = Numbers {
            revision,
            compacted: state.compacted(),
            waterline: state.waterline(),
            ..Numbers::default()
        };
        let nothing = |_: &Commit| Ok(());
        let mut running = Running {
            batch: Batch::new(state, numbers, false, &nothing),
            leases,
            deleted_keys_max: 0,
            newest_sample: None,
            version: VERSION,
            awaited: true,
            result_bytes: 0,
            compared_left: COMPARED_KEYS_MAX + 1,
        };
        run(&mut running).map(Seen::MaybeLess)
    })
}

fn done((): ()) -> Reply {
    Reply::Done
}

/// Returns whether a command is refused under the no-space alarm.
pub fn takes_space(command: &Command) -> bool {
    match command {
        Command::Put(_) | Command::LeaseGrant { .. } | Command::Acquire(_) => true,
        Command::Txn(txn) => puts(txn),
        Command::Execute(execute) => execute.writes.iter().any(|write| write.value.is_some()),
        _ => false,
    }
}

fn puts(txn: &Txn) -> bool {
    txn.success.iter().chain(&txn.failure).any(|op| match op {
        Op::Put(_) => true,
        Op::Txn(txn) => puts(txn),
        Op::Range(_) | Op::Delete(_) => false,
    })
}
