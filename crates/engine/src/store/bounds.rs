//! Splits and joins that the store chooses itself: of tablets that are large or busy, and
//! of neighbours that are small. What to change is decided in `workers/bounds.rs`.
//!
//! Sizes are compared whenever a worker looks for work, from the summaries of the
//! tablet maps. Loads and neighbours are checked every ten seconds: loads of the tablets that
//! have samples, and a limited number of neighbours at a time. No step visits
//! all tablets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::engine::Engine;
use super::pool::{Job, Slot, Task};
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::config::TabletId;
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::tablet::{
    ChainSummary, LOAD_INTERVAL, Link, LoadInterval, Table, TableVersion, Tablet, TabletKey,
    TabletState, is_sampled,
};
use crate::workers::bounds::{self, SplitReason, TabletView};
use crate::workers::claims::Work;

/// Number of references by whose index a large tablet is split.
const SPLIT_REFERENCES: usize = 8;
/// Number of tablets whose neighbours are compared at a time.
const NEIGHBOURS_MAX: usize = 256;
/// Number of tablets that are remembered because they could not be split or joined.
const NOTES_MAX: usize = 1024;

/// What is remembered between choices.
#[derive(Default)]
pub struct Bounds {
    state: Mutex<State>,
    splits: AtomicUsize,
    joins: AtomicUsize,
}

#[derive(Default)]
struct State {
    notes: BTreeMap<TabletId, Note>,
    /// When loads and neighbours are checked next.
    next_check: Duration,
    /// The table and row at which the neighbours compared next begin.
    next_neighbours: Option<(TableId, Vec<u8>)>,
}

/// What is remembered of a tablet that was not split or joined.
#[derive(Clone, Copy, Default)]
struct Note {
    /// Its size when no row was found at which to split it.
    unsplittable_bytes: u64,
    /// When it is considered again, unless it is large.
    not_before: Duration,
}

impl Bounds {
    fn note(&self, tablet: TabletId) -> Note {
        self.state.lock().notes.get(&tablet).copied().unwrap_or_default()
    }

    fn set_note(&self, tablet: TabletId, note: Note) {
        let mut state = self.state.lock();
        if state.notes.len() >= NOTES_MAX {
            // Tablets that no longer exist are forgotten, too.
            state.notes.clear();
        }
        state.notes.insert(tablet, note);
    }
}

/// The busy time of the store, for each of the last intervals.
struct Load {
    by_table: BTreeMap<TableId, Vec<LoadInterval>>,
    total: Vec<Duration>,
}

impl Load {
    /// Returns the percentage of the busy time that a tablet takes.
    fn percent(&self, table: TableId, rows: &RowRange) -> u32 {
        let of_table = self.by_table.get(&table);
        of_table.map_or(0, |intervals| bounds::load_percent(rows, intervals, &self.total))
    }
}

impl Engine {
    /// Starts the measurement of an operation, if it is to be sampled.
    #[inline]
    pub fn begin_sample(&self) -> Option<Duration> {
        is_sampled().then(|| self.tables.world.clock.elapsed())
    }

    /// Ends the measurement of an operation on a row.
    #[inline]
    pub fn end_sample(&self, sample: Option<Duration>, table: &Table, row: &[u8]) {
        if let Some(begun) = sample {
            let now = self.tables.world.clock.elapsed();
            table.samples.add(row, now.saturating_sub(begun), now);
        }
    }

    /// Whether tablets are split and joined automatically.
    fn chooses_bounds(&self) -> bool {
        // Splits and joins of a cluster need the intents of R10.
        let is_alone = self.log.external().is_none() && !self.log.is_of_cluster();
        self.tables.options.tablets.automatic && is_alone
    }

    /// Returns the time until loads and neighbours are checked again.
    pub(super) fn until_bounds_check(&self) -> Option<Duration> {
        let next = self.chooses_bounds().then(|| self.bounds.state.lock().next_check)?;
        Some(next.saturating_sub(self.tables.world.clock.elapsed()).max(LOAD_INTERVAL / 10))
    }

    /// Splits or joins tablets, if that is due.
    pub(super) fn change_bounds_due(&self) -> Result<bool> {
        let Some(job) = self.claim_bounds() else { return Ok(false) };
        self.run_task(&job).map(|()| true)
    }

    /// Chooses and claims a split or a join that is due.
    pub(super) fn claim_bounds(&self) -> Option<Job<'_>> {
        if !self.chooses_bounds() {
            return None;
        }
        let now = self.tables.world.clock.elapsed();
        if let Some(job) = self.claim_split_by_size(now) {
            return Some(job);
        }
        if now < self.bounds.state.lock().next_check {
            return None;
        }
        let load = self.load(now);
        let job = self.claim_split_by_load(&load, now).or_else(|| self.claim_join(&load, now));
        if job.is_none() {
            self.bounds.state.lock().next_check = now + LOAD_INTERVAL;
        }
        job
    }

    fn view(&self, tablet: &Tablet, load_percent: u32, now: Duration) -> TabletView {
        TabletView {
            active: tablet.state == TabletState::Active,
            bytes: tablet.disk_bytes(),
            unsplittable_bytes: self.bounds.note(tablet.id).unsplittable_bytes,
            age: now.saturating_sub(tablet.since),
            load_percent,
        }
    }

    fn claim_split_by_size(&self, now: Duration) -> Option<Job<'_>> {
        let options = &self.tables.options.tablets;
        let large = |summary: ChainSummary| summary.bytes > options.split_bytes;
        for table in self.tables.map.all().values() {
            let version = table.version();
            if !large(version.tablets.summary()) || !version.schema.is_splittable() {
                continue;
            }
            for tablet in version.tablets.iter_chunks(large) {
                let reason = bounds::split_reason(&self.view(tablet, 0, now), options);
                let job = reason.and_then(|reason| self.claim_split(table, tablet, reason));
                if job.is_some() {
                    return job;
                }
            }
        }
        None
    }

    /// Returns the load of the last intervals.
    fn load(&self, now: Duration) -> Load {
        let options = &self.tables.options.tablets;
        let count = options.split_load_time.as_secs().div_ceil(LOAD_INTERVAL.as_secs()).max(1);
        let tables = self.tables.map.all();
        let by_table: BTreeMap<TableId, Vec<LoadInterval>> = tables
            .values()
            .map(|table| (table.id, table.samples.last(count as usize, now)))
            .filter(|(_, intervals)| intervals.iter().any(|interval| !interval.rows.is_empty()))
            .collect();
        let least = LOAD_INTERVAL * options.busy_percent_min / 100;
        let total = (0..count as usize).map(|at| {
            let busy = by_table.values().map(|intervals| intervals[at].busy).sum::<Duration>();
            // In a store that is hardly busy, no tablet is.
            if busy >= least { busy } else { Duration::MAX }
        });
        Load { total: total.collect(), by_table }
    }

    fn claim_split_by_load(&self, load: &Load, now: Duration) -> Option<Job<'_>> {
        let options = &self.tables.options.tablets;
        for (id, intervals) in &load.by_table {
            let Ok(table) = self.tables.map.get(*id) else { continue };
            let version = table.version();
            if !version.schema.is_splittable() {
                continue;
            }
            let last = intervals.last().map_or(&[][..], |interval| &interval.rows);
            let sampled = last.iter().map(|(row, _)| version.tablets.of(row));
            let sampled: BTreeMap<TabletId, &Arc<Tablet>> =
                sampled.map(|tablet| (tablet.id, tablet)).collect();
            for tablet in sampled.into_values() {
                let view = self.view(tablet, load.percent(*id, &tablet.rows), now);
                let is_due = bounds::split_reason(&view, options) == Some(SplitReason::Load)
                    && self.bounds.note(tablet.id).not_before <= now;
                if is_due && let Some(job) = self.claim_split(&table, tablet, SplitReason::Load) {
                    return Some(job);
                }
            }
        }
        None
    }

    fn claim_split(
        &self,
        table: &Arc<Table>,
        tablet: &Tablet,
        reason: SplitReason,
    ) -> Option<Job<'_>> {
        let work = Work::Split { table: table.id, tablet: tablet.id };
        // A split would make a compaction of the tablet useless. Its next step can wait.
        let is_compacted = (0..tablet.chains.len()).any(|group| {
            self.claims.is_held(Work::Compact { table: table.id, tablet: tablet.id, group })
        });
        if is_compacted || self.failures.backs_off(work) {
            return None;
        }
        let slot = Slot::take(&self.bounds.splits, self.tables.options.tablets.changes_max)?;
        let claim = self.claims.try_take(work)?;
        let (table, tablet) = (table.clone(), tablet.key());
        Some(Job { claim, task: Task::Split { table, tablet, reason, _slot: slot } })
    }

    /// Compares some neighbouring tablets, beginning where the last call ended.
    fn claim_join(&self, load: &Load, now: Duration) -> Option<Job<'_>> {
        let next = self.bounds.state.lock().next_neighbours.take();
        let (first, mut row) = next.unwrap_or((TableId(0), Vec::new()));
        let tables = self.tables.map.all();
        let mut left = NEIGHBOURS_MAX;
        for (id, table) in tables.range(first..) {
            if *id != first {
                row.clear();
            }
            let version = table.version();
            let compared = self.join_from(table, &version, &row, load, now, &mut left);
            match compared {
                Neighbours::Join(job, next) => {
                    self.bounds.state.lock().next_neighbours = Some((*id, next));
                    return Some(job);
                }
                Neighbours::Left(next) => {
                    self.bounds.state.lock().next_neighbours = Some((*id, next));
                    return None;
                }
                Neighbours::None => {}
            }
        }
        None
    }

    /// Compares neighbouring tablets of a table, from a row on.
    fn join_from<'a>(
        &'a self,
        table: &Arc<Table>,
        version: &TableVersion,
        row: &[u8],
        load: &Load,
        now: Duration,
        left: &mut usize,
    ) -> Neighbours<'a> {
        let options = &self.tables.options.tablets;
        if version.tablets.len() == 1 {
            return Neighbours::None;
        }
        let view = |tablet: &Tablet| self.view(tablet, load.percent(table.id, &tablet.rows), now);
        let rows = RowRange::from(row);
        let mut before: Option<(TabletView, &Arc<Tablet>)> = None;
        for tablet in version.tablets.overlapping(&rows) {
            if *left == 0 {
                let next = before.map_or(tablet, |(_, lower)| lower);
                return Neighbours::Left(next.rows.start.clone());
            }
            *left -= 1;
            let upper = view(tablet);
            let is_due = before
                .is_some_and(|(lower, _)| bounds::is_joined(&lower, &upper, options))
                && self.bounds.note(tablet.id).not_before <= now;
            if is_due && let Some(job) = self.claim_join_of(table, tablet) {
                let next = before.map_or(tablet, |(_, lower)| lower);
                return Neighbours::Join(job, next.rows.start.clone());
            }
            before = Some((upper, tablet));
        }
        Neighbours::None
    }

    fn claim_join_of(&self, table: &Arc<Table>, upper: &Tablet) -> Option<Job<'_>> {
        let work = Work::Join { table: table.id, tablet: upper.id };
        if self.failures.backs_off(work) {
            return None;
        }
        let slot = Slot::take(&self.bounds.joins, self.tables.options.tablets.changes_max)?;
        let claim = self.claims.try_take(work)?;
        let (table, upper) = (table.clone(), upper.key());
        Some(Job { claim, task: Task::Join { table, upper, _slot: slot } })
    }

    /// Splits a tablet at the row that divides it most evenly, unless it has changed or has
    /// no such row.
    pub(super) fn split_tablet(
        &self,
        table: &Arc<Table>,
        tablet: &TabletKey,
        reason: SplitReason,
    ) -> Result<()> {
        let version = table.pinned_version();
        let Some(tablet) = tablet.find(&version.tablets) else { return Ok(()) };
        let now = self.tables.world.clock.elapsed();
        let (weights, rest) = match reason {
            SplitReason::Size => size_weights(tablet),
            SplitReason::Load => {
                let load = self.load(now);
                let intervals = load.by_table.get(&table.id).map_or(&[][..], |all| all);
                bounds::sampled_weights(&tablet.rows, intervals)
            }
        };
        let Some(row) = bounds::split_row(weights, rest, &tablet.rows) else {
            let mut note = self.bounds.note(tablet.id);
            match reason {
                SplitReason::Size => note.unsplittable_bytes = tablet.disk_bytes(),
                SplitReason::Load => {
                    note.not_before = now + self.tables.options.tablets.change_interval;
                }
            }
            self.bounds.set_note(tablet.id, note);
            return Ok(());
        };
        let split = self.tables.split(table, &row);
        if let Some(true) = unless_changed(table, split)? {
            let (name, row) = (&table.name, row.escape_ascii());
            tracing::info!(table = %name, tablet = %tablet.id, %row, ?reason, "split a tablet");
            self.counters.tablet_splits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Joins a tablet with the one before it, unless it has changed or memory would have to
    /// be flushed.
    pub(super) fn join_tablets(&self, table: &Arc<Table>, upper: &TabletKey) -> Result<()> {
        let version = table.pinned_version();
        if upper.find(&version.tablets).is_none() {
            return Ok(());
        }
        let lower = version.tablets.before(Some(&upper.start)).id;
        let joined = unless_changed(table, self.tables.join(table, &upper.start))?;
        if joined == Some(true) {
            tracing::info!(table = %table.name, tablet = %upper.id, "joined two tablets");
            self.counters.tablet_joins.fetch_add(1, Ordering::Relaxed);
            self.failures.forget_tablet(lower);
        } else {
            let now = self.tables.world.clock.elapsed();
            let not_before = now + self.tables.options.tablets.change_interval;
            self.bounds.set_note(upper.id, Note { not_before, ..self.bounds.note(upper.id) });
        }
        Ok(())
    }
}

/// What a comparison of neighbours has found.
enum Neighbours<'a> {
    /// A join, and the row at which to go on.
    Join(Job<'a>, Vec<u8>),
    /// The row from which on others are left to compare.
    Left(Vec<u8>),
    None,
}

/// Returns `None` if a change was refused because the table has changed.
fn unless_changed(table: &Table, outcome: Result<bool>) -> Result<Option<bool>> {
    match outcome {
        Err(Error::TabletNotLoaded(_) | Error::InvalidSplit(_) | Error::EditRefused { .. }) => {
            Ok(None)
        }
        Err(_) if table.is_dropped() => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// Returns the weights of the rows of a tablet by the indexes of its largest references,
/// and the weight after the last of them.
fn size_weights(tablet: &Tablet) -> (Vec<(Vec<u8>, u64)>, u64) {
    let mut links: Vec<&Arc<Link>> = tablet.links().collect();
    links.sort_by_key(|link| std::cmp::Reverse(link.share()));
    links.truncate(SPLIT_REFERENCES);
    let (mut weights, mut rest) = (Vec::new(), 0);
    for link in links {
        link.for_each_read_stretch(|rows, bytes| {
            let part = rows.intersection(&link.rows);
            match part.end.clone() {
                _ if part.is_empty() => {}
                Some(end) if tablet.rows.contains(&end) => weights.push((end, bytes)),
                _ => rest += bytes,
            }
        });
    }
    (weights, rest)
}
