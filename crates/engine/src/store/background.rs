//! A store's background work, done by threads or on the caller's thread.
//!
//! The workers form one pool with two lanes. The urgent lane, at normal
//! priority, does what writers wait for or soon will: flushes, and merges of
//! chains so long that writers are delayed. The background lane, at low
//! priority, does all other merges, small ones first. Each job is one flush or
//! one part of a merge, so that no chain waits for a large compaction of
//! another. (A thread that has lowered its priority cannot raise it again
//! without privileges, so a flush on the background lane would block the
//! writers that wait for it.)

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::keeping::Log;
use super::waiters::Stage;
use super::{Shared, serialize};
use crate::error::Result;
use crate::log::GroupLog;
use crate::memory::MemoryFragment;
use crate::recovery::TABLES_STREAM;
use crate::table::Table;
use crate::txn::Txn;
use crate::workers::choose::{self, Choice, Due};
use crate::workers::claims::{Claim, Work};
use crate::workers::compact::{Keeper, compact, compact_part};
use crate::workers::serialize::{LogKeeper, Readiness, Victim};
use crate::world::{Joiner, Priority, Spawner};

/// Minimum number of threads per lane.
const LANE_THREADS_MIN: usize = 2;
/// How often memory that is due by age, but claimed by another thread, is
/// checked again.
const AGE_POLL: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Urgent,
    Background,
}

/// A worker's next job.
struct Job<'a> {
    claim: Claim<'a>,
    task: Task<'a>,
}

enum Task<'a> {
    Flush(Victim),
    Merge(Merge<'a>),
}

struct Merge<'a> {
    table: Arc<Table>,
    choice: Choice,
    /// The slot it occupies in its lane, if slots are limited.
    _place: Option<Place<'a>>,
}

impl Task<'_> {
    /// Whether the task failed because of a damaged file.
    fn met_damage(&self) -> bool {
        let Task::Merge(Merge { table, choice, .. }) = self else { return false };
        let version = table.version();
        let runs =
            version.tablets[choice.tablet].chains[choice.group].runs.get(choice.runs.clone());
        let mut links = runs.into_iter().flatten().flat_map(|run| run.links());
        links.any(|link| !link.is_readable())
    }
}

/// A slot for long work in a lane. One thread per lane is always kept free.
struct Place<'a>(&'a std::sync::atomic::AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Returns the number of threads per lane.
pub fn lane_threads() -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).max(LANE_THREADS_MIN)
}

impl Shared {
    /// Starts the store's workers.
    pub fn spawn_workers(
        self: &Arc<Self>,
        spawner: &dyn Spawner,
    ) -> std::io::Result<Vec<Box<dyn Joiner>>> {
        use Priority::{Low, Normal};
        let mut workers = Vec::new();
        if self.log.own().is_some() {
            let (log, waiters) = (self.clone(), self.waiters.clone());
            let run = move || log.log.own().into_iter().for_each(GroupLog::run);
            workers.push(spawner.spawn("stele-log", Normal, Box::new(run))?);
            let timer = move || waiters.run_timer();
            workers.push(spawner.spawn("stele-admission", Normal, Box::new(timer))?);
        }
        for number in 0..self.lane_threads {
            let lanes =
                [("stele-urgent", Normal, Lane::Urgent), ("stele-merge", Low, Lane::Background)];
            for (name, priority, lane) in lanes {
                let (shared, name) = (self.clone(), format!("{name}-{number}"));
                workers.push(spawner.spawn(
                    &name,
                    priority,
                    Box::new(move || shared.run_lane(lane)),
                )?);
            }
        }
        Ok(workers)
    }

    fn run_lane(&self, lane: Lane) {
        let signal = match lane {
            Lane::Urgent => &self.claims.urgent,
            Lane::Background => &self.claims.background,
        };
        while !self.is_stopping() {
            let Some(job) = self.next_job(lane) else {
                signal.wait(self.until_next(lane));
                continue;
            };
            // There may be work for another thread, too.
            signal.raise();
            self.run_job(job);
        }
    }

    fn run_job(&self, job: Job<'_>) {
        let work = job.claim.work;
        let outcome = match &job.task {
            Task::Flush(victim) => self.serialize_claimed(&job.claim, victim).map(drop),
            Task::Merge(Merge { table, choice, .. }) => {
                compact_part(&self.tables, table, choice, self).map(drop)
            }
        };
        match outcome {
            Ok(()) => self.troubles.succeeded(work),
            Err(error) => {
                if job.task.met_damage() {
                    // The file is excluded from now on, so no backoff is
                    // needed.
                    tracing::error!(%error, ?work, "compaction met damage; the file stays");
                    self.troubles.succeeded(work);
                } else {
                    tracing::error!(%error, ?work, "background work failed; trying again");
                    self.troubles.failed(work, &error);
                }
                // Waiters may have to fail with this error.
                self.waiters.wake_all();
            }
        }
    }

    /// Chooses and claims the next job of a lane.
    fn next_job(&self, lane: Lane) -> Option<Job<'_>> {
        match lane {
            Lane::Urgent => {
                let writers_wait = self.tables.budget.has_waiters();
                let flush = || {
                    self.claim_flush(writers_wait)
                        .map(|(claim, victim)| Job { claim, task: Task::Flush(victim) })
                };
                let merge =
                    || self.claim_merge(|due| self.is_urgent(due), |_| Some(&self.urgent_merges));
                if writers_wait { flush().or_else(merge) } else { merge().or_else(flush) }
            }
            Lane::Background => {
                // Urgent merges are left to the urgent lane unless all its
                // slots are taken.
                let helps = self.urgent_merges.load(Ordering::Acquire) + 1 >= self.lane_threads;
                let mine = |due: &Due| helps || !self.is_urgent(due);
                let large = |due: &Due| due.bytes > self.tables.options.compact.output_bytes;
                self.claim_merge(|due| mine(due) && !large(due), |_| None)
                    .or_else(|| self.claim_merge(mine, |_| Some(&self.large_merges)))
            }
        }
    }

    /// Whether writers are delayed by the length of a chain.
    fn is_urgent(&self, due: &Due) -> bool {
        due.length >= self.tables.options.compact.chain_slow
    }

    /// Claims the longest of the chains that are due and selected by `chosen`.
    /// With `places`, one thread of the lane is kept free for other work.
    fn claim_merge<'a>(
        &'a self,
        chosen: impl Fn(&Due) -> bool,
        places: impl Fn(&Due) -> Option<&'a std::sync::atomic::AtomicUsize>,
    ) -> Option<Job<'a>> {
        let options = &self.tables.options.compact;
        let mut due: Vec<(Arc<Table>, Due)> = Vec::new();
        for table in self.tables.all().values() {
            let of_table = choose::all_due(table, options).into_iter();
            due.extend(of_table.filter(&chosen).map(|due| (table.clone(), due)));
        }
        due.sort_by_key(|(_, due)| std::cmp::Reverse(due.length));
        for (table, due) in due {
            let Choice { tablet, group, .. } = due.choice;
            let work = Work::Compact { table: table.id, tablet, group };
            if self.troubles.rests(work) {
                continue;
            }
            let place = match places(&due) {
                None => None,
                Some(taken) => {
                    let place = Place(taken);
                    if taken.fetch_add(1, Ordering::AcqRel) + 1 >= self.lane_threads {
                        return None;
                    }
                    Some(place)
                }
            };
            let Some(claim) = self.claims.try_take(work) else { continue };
            // Choose again: another thread may have changed the chain before it
            // was claimed.
            let again = choose::all_due(&table, options).into_iter();
            let mut again =
                again.filter(|due| (due.choice.tablet, due.choice.group) == (tablet, group));
            if let Some(Due { choice, .. }) = again.next() {
                let task = Task::Merge(Merge { table, choice, _place: place });
                return Some(Job { claim, task });
            }
        }
        None
    }

    /// Claims the next flush that is due.
    fn claim_flush(&self, writers_wait: bool) -> Option<(Claim<'_>, Victim)> {
        let readiness = |victim: &Victim| {
            let work = self.flush_work(victim);
            match (self.claims.is_held(work), self.troubles.rests(work)) {
                (true, _) => Readiness::Flushing,
                (false, true) => Readiness::Resting,
                (false, false) => Readiness::Free,
            }
        };
        let pinned = |txn| self.pinned_bytes(txn);
        let (victim, reason) = serialize::due(&self.tables, &pinned, &readiness, writers_wait)?;
        let table = &victim.table.name;
        tracing::debug!(%table, group = victim.group, ?reason, "flushing");
        let claim = self.claims.try_take(self.flush_work(&victim))?;
        Some((claim, victim))
    }

    /// Returns the claim needed to flush a group. In a store without its own
    /// log, all groups are flushed together: otherwise one chain would be ahead
    /// of the others after a crash.
    pub(super) fn flush_work(&self, victim: &Victim) -> Work {
        match &self.log {
            Log::Own(_) => Work::Flush { table: victim.table.id, group: victim.group },
            Log::External(_) => Work::FlushAll,
        }
    }

    /// Returns how long a lane may sleep unless it is woken.
    fn until_next(&self, lane: Lane) -> Option<Duration> {
        let age = (lane == Lane::Urgent).then(|| self.until_age_flush()).flatten();
        age.into_iter().chain(self.troubles.next_retry()).min()
    }

    fn until_age_flush(&self) -> Option<Duration> {
        let deadline = serialize::next_age_deadline(&self.tables)?;
        // Memory past its deadline is being flushed, or will be once its claim
        // is free.
        let left = deadline.saturating_sub(self.tables.world.clock.elapsed());
        Some(left.max(AGE_POLL))
    }

    /// Returns how many bytes of log are pinned by a txn and its successors.
    fn pinned_bytes(&self, txn: Txn) -> u64 {
        match &self.log {
            Log::Own(log) => {
                log.with_writer(|writer| writer.pinned_bytes(TABLES_STREAM, txn.raw()))
            }
            Log::External(external) => external.unflushed_bytes(),
        }
    }

    /// Does a flush if one is due.
    pub fn flush_due(&self) -> Result<bool> {
        match self.claim_flush(false) {
            Some((claim, victim)) => self.serialize_claimed(&claim, &victim),
            None => Ok(false),
        }
    }

    /// Flushes the group that frees the most memory and log. Waits for a
    /// running flush of it.
    pub fn flush_best(&self) -> Result<bool> {
        while let Some(victim) = serialize::best(&self.tables, &|txn| self.pinned_bytes(txn)) {
            let claim = self.claims.take(self.flush_work(&victim));
            if self.serialize_claimed(&claim, &victim)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Flushes a group. Waits for a running flush of it.
    pub fn serialize(&self, victim: &Victim) -> Result<bool> {
        let claim = self.claims.take(self.flush_work(victim));
        self.serialize_claimed(&claim, victim)
    }

    fn serialize_claimed(&self, claim: &Claim<'_>, victim: &Victim) -> Result<bool> {
        if self.log.external().is_some() {
            return self.flush_all(claim);
        }
        let done = serialize::serialize(&self.tables, victim, self)?;
        if done {
            self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        }
        Ok(done)
    }

    /// Compacts the longest chain that is due.
    pub fn compact_due(&self) -> Result<bool> {
        let Some(job) = self.claim_merge(|_| true, |_| None) else { return Ok(false) };
        let Task::Merge(Merge { table, choice, .. }) = job.task else { return Ok(false) };
        compact(&self.tables, &table, choice, self)
    }

    /// Compacts each chain of a table into one run. Waits for running
    /// compactions.
    pub fn compact_table(&self, table: &Table) -> Result<()> {
        // Copy the counts: holding the version during the loop would pin its
        // memory.
        let tablets = table.version().tablets.len();
        let groups = table.version().memory.len();
        for tablet in 0..tablets {
            for group in 0..groups {
                let work = Work::Compact { table: table.id, tablet, group };
                let _claim = self.claims.take(work);
                if let Some(choice) = choose::whole_chain(table, tablet, group) {
                    // The compaction may have found damage, in which case
                    // nobody has to wait for the chain any longer.
                    compact(&self.tables, table, choice, self)
                        .inspect_err(|_| self.waiters.wake_all())?;
                    self.troubles.succeeded(work);
                }
            }
        }
        Ok(())
    }

    /// Claims all chains of a table, so that none is compacted meanwhile.
    pub(super) fn claim_chains(&self, table: &Table) -> Vec<Claim<'_>> {
        let version = table.version();
        let groups = version.memory.len();
        let works = (0..version.tablets.len()).flat_map(|tablet| {
            (0..groups).map(move |group| Work::Compact { table: table.id, tablet, group })
        });
        works.map(|work| self.claims.take(work)).collect()
    }
}

impl Keeper for Shared {
    fn durable(&self) -> Txn {
        Shared::durable(self)
    }

    fn proceed(&self, table: &Table) -> bool {
        !self.is_stopping() && !table.is_dropped()
    }

    fn part_done(&self, last: bool) {
        self.counters.compaction_parts.fetch_add(1, Ordering::Relaxed);
        self.counters.compactions.fetch_add(last.into(), Ordering::Relaxed);
        self.waiters.wake(Stage::Chains);
    }

    fn runs_joined(&self) {
        self.counters.joins.fetch_add(1, Ordering::Relaxed);
        self.waiters.wake(Stage::Chains);
    }
}

impl LogKeeper for Shared {
    fn seal(&self, table: &Table, group: usize) {
        let _no_writers = self.sequencer.lock();
        table.seal(group, &self.tables.budget);
    }

    fn wait_durable(&self, txn: Txn) -> Result<()> {
        self.log.wait_durable_idly(txn.raw())
    }

    fn durable(&self) -> Txn {
        Shared::durable(self)
    }

    /// A commit enters memory before the log, so every entry of a segment is in
    /// memory, on disk, or newer than `latest` was.
    fn head_without(&self, flushed: &[Arc<MemoryFragment>]) -> Option<u64> {
        let latest = self.latest();
        let floor = self.tables.txn_min(flushed).unwrap_or(Txn::MAX).min(latest.next());
        let floors = [(TABLES_STREAM, floor.raw())];
        self.log.with_writer(|writer| writer.head_for(&floors))
    }

    fn release_below(&self, segment: u64) -> Result<()> {
        self.log.with_writer(|writer| writer.release_below(segment)).unwrap_or(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cell::commit::{CommitBuilder, TableId};
    use crate::cell::key::{self, Kind};
    use crate::cell::rows::RowRange;
    use crate::config::{ConfigEdit, FileConfig, Splice};
    use crate::error::Error;
    use crate::fragment::{FragmentOptions, FragmentWriter};
    use crate::options::Options;
    use crate::run::Run;
    use crate::schema::{Family, Schema};
    use crate::store::{Store, Wait};
    use crate::workers::serialize::Reason;
    use crate::world::sim::SimFiles;
    use crate::world::{ManualClock, SeededRandom, World};

    fn open(options: Options) -> Store {
        let world = World {
            clock: Arc::new(ManualClock::at(1_000_000)),
            files: Arc::new(SimFiles::new(1)),
            random: Arc::new(SeededRandom::new(1)),
            spawner: None,
        };
        Store::open(Path::new("/store"), options, world).unwrap()
    }

    fn make(store: &Store, name: &str) -> TableId {
        store.create_table(name, Schema::with_families([Family::new("f")]).unwrap()).unwrap()
    }

    fn write(store: &Store, table: TableId, row: &[u8], value_bytes: usize) {
        let mut commit = CommitBuilder::new();
        commit.table(table).row(row).set(b"f", b"", 0, &vec![7; value_bytes]);
        store.apply(&commit.finish(), Txn::MAX, Wait::Durable).unwrap();
    }

    #[test]
    fn a_flush_that_rests_keeps_no_other_table_from_being_flushed() {
        let mut options = Options::default();
        options.memory.budget_bytes = 1 << 20;
        options.flush.budget_percent = 50;
        let store = open(options);
        let [failing, sound] = ["failing", "sound"].map(|name| make(&store, name));
        write(&store, failing, b"r", 400_000);
        write(&store, sound, b"r", 100_000);
        let due = |failing_is: Readiness, writers_wait: bool| {
            let readiness = |victim: &Victim| {
                if victim.table.id == failing { failing_is } else { Readiness::Free }
            };
            let due = serialize::due(&store.shared.tables, &|_| 0, &readiness, writers_wait);
            due.map(|(victim, reason)| (victim.table.id, reason))
        };
        assert_eq!(due(Readiness::Free, true), Some((failing, Reason::Memory)));
        // Its memory will soon be free: no other table has to be flushed.
        assert_eq!(due(Readiness::Flushing, true), None);
        // Memory whose flush backs off stays in use.
        assert_eq!(due(Readiness::Resting, true), Some((sound, Reason::Memory)));
        assert_eq!(due(Readiness::Resting, false), None, "half of the rest is free");
        write(&store, sound, b"s", 250_000);
        assert_eq!(due(Readiness::Resting, false), Some((sound, Reason::Memory)));
    }

    /// Adds a file to the chain whose cells are out of order.
    fn add_disordered_file(store: &Store, table: TableId) -> FileConfig {
        let tables = &store.shared.tables;
        let (name, path) = tables.mint();
        let files = &tables.world.files;
        let options = FragmentOptions::default();
        let mut writer = FragmentWriter::create(files, &path, options).unwrap();
        writer.accept_any_order();
        let txn = Txn::from_raw(1).unwrap();
        for row in [b"a", b"c", b"b", b"d"] {
            let mut cell = Vec::new();
            key::push_column(&mut cell, row, b"f", b"q");
            key::push_cell_tail(&mut cell, 0, txn, Kind::Put);
            writer.add(&cell, b"v").unwrap();
        }
        let meta = writer.finish().unwrap();
        let rows = RowRange::new("a", "e");
        let (bytes, cells) = (meta.stored_bytes, meta.cells);
        let file =
            FileConfig { name, bytes, cells, rows, txn_min: txn, txn_max: txn, joins: false };
        tables.sync_names().unwrap();
        let splice = Splice {
            table,
            tablet: 0,
            group: 0,
            remove: Vec::new(),
            add: vec![file.clone()],
            flushed_through: None,
        };
        tables.edit(&[ConfigEdit::Splice(splice)]).unwrap();
        let run = Run::new(vec![tables.open_link(&file).unwrap()]);
        let table = tables.get(table).unwrap();
        table.change(|version| version.tablets[0].chains[0].runs.extend(run.clone()));
        file
    }

    #[test]
    fn a_file_whose_cells_are_out_of_order_is_set_aside_and_the_others_are_compacted() {
        let mut options = Options::default();
        options.compact.chain_min = 2;
        let store = open(options);
        let table = make(&store, "t");
        let bad = add_disordered_file(&store, table);
        for row in [b"b", b"c"] {
            write(&store, table, row, 10);
            store.flush(table).unwrap();
        }
        assert_eq!(store.stats().fragments_damaged, 0);
        let error = store.compact(table).unwrap_err();
        let path = store.shared.tables.path(bad.name);
        assert!(matches!(&error, Error::DataLoss { path: of, .. } if *of == path), "{error}");
        assert_eq!((store.stats().fragments_damaged, store.stats().chain_longest), (1, 3));
        // The file stays, and newer runs are merged after it.
        while store.step().unwrap() {}
        assert_eq!((store.stats().fragments_damaged, store.stats().chain_longest), (1, 2));
    }
}
