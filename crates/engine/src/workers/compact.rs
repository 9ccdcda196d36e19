//! The compaction worker: merges consecutive runs of a chain, so that reads
//! merge few runs and dead cells are dropped.
//!
//! Rows are rewritten in order. As soon as an output is full, it is published:
//! it is added to the oldest of the runs, and all merged links are clipped to
//! the rows after it. A crash or a close in between leaves such a chain, and
//! the next compaction continues from there.
//!
//! A large compaction takes minutes. The pool writes one output at a time, so that
//! shorter work on any chain can run in between, including on newer runs of
//! the same chain.
//!
//! Runs without common rows need no rewrite: a config edit joins them.

use std::sync::Arc;

use super::choose::{self, Choice};
use super::output::{Inputs, Output, write_output};
use super::publication::{discard, give_up};
use crate::cell::range_tombstone::RangeTombstones;
use crate::cell::rows::RowRange;
use crate::config::{Reference, RowChange, RowEdit, Splice};
use crate::error::{Error, Result};
use crate::fragment::{CursorOptions, Heat};
use crate::merge::{Merge, RewriteRules};
use crate::schema::Schema;
use crate::tablet::{
    Link, Publishing, Run, RunCursor, RunSplice, Table, Tables, Tablet, timestamp_max,
};
use crate::txn::Txn;
use crate::world::WaitScope;

/// At most this much of each input is fetched before a step begins.
const PREFETCH_BYTES_MAX: u64 = 16 << 20;

/// What a compaction needs from its store.
pub trait CompactionHost {
    /// Returns the newest commit that survives a crash.
    fn durable(&self) -> Txn;

    /// Whether to continue; called every few blocks.
    fn proceed(&self, table: &Table) -> bool;

    /// Called when an output has been published; `last` if it completes the
    /// compaction.
    fn step_done(&self, last: bool);

    /// Called when runs were joined without a rewrite.
    fn runs_joined(&self);
}

/// Merges the chosen runs, output by output, until done or until the host stops
/// it. Returns whether the chain changed. The caller has claimed the chain.
pub fn compact(
    tables: &Tables,
    table: &Table,
    choice: Choice,
    host: &dyn CompactionHost,
) -> Result<bool> {
    let mut changed = false;
    let mut rest = Some(choice);
    while let Some(choice) = rest {
        match compact_step(tables, table, &choice, host)? {
            Some(next) => rest = next,
            None => break,
        }
        changed = true;
        let behind = |rest| choose::behind(table, rest, &tables.options.compact);
        if let Some(newer) = rest.as_ref().and_then(behind) {
            compact(tables, table, newer, host)?;
        }
    }
    Ok(changed)
}

/// Merges rows of the chosen runs into one output, or joins the runs. Returns
/// the rest of the work; `None` if the chain did not change, because the host
/// stopped it, the rows of the tablet changed or the table was dropped.
pub fn compact_step(
    tables: &Tables,
    table: &Table,
    choice: &Choice,
    host: &dyn CompactionHost,
) -> Result<Option<Option<Choice>>> {
    let Some(step) = Step::new(tables, table, choice) else { return Ok(None) };
    if choice.joins {
        let joined = step.join()?;
        if joined.is_some() {
            host.runs_joined();
        }
        return Ok(joined.map(|()| None));
    }
    let Some(output) = step.rewrite(host)? else { return Ok(None) };
    let published = step.publish(output)?;
    if let Some(rest) = &published {
        host.step_done(rest.is_none());
    }
    Ok(published)
}

/// One step of a compaction: an output, or a join.
struct Step<'a> {
    tables: &'a Tables,
    table: &'a Table,
    choice: &'a Choice,
    schema: Arc<Schema>,
    tablet: Arc<Tablet>,
}

impl<'a> Step<'a> {
    /// Pins the tablet but not the whole version, so that memory flushed
    /// meanwhile is freed before the compaction ends. Returns `None` if the rows of
    /// the tablet have changed since the choice.
    fn new(tables: &'a Tables, table: &'a Table, choice: &'a Choice) -> Option<Step<'a>> {
        let version = table.version();
        let tablet = choice.tablet.find(&version.tablets)?.clone();
        if !tablet.state.can_read() {
            return None;
        }
        Some(Step { tables, table, choice, schema: version.schema.clone(), tablet })
    }

    /// Whether the tablet still has the same rows and is loaded.
    fn is_current(&self) -> bool {
        let version = self.table.version();
        let tablet = self.choice.tablet.find(&version.tablets);
        tablet.is_some_and(|tablet| tablet.state.can_read())
    }

    fn chain(&self) -> &[Run] {
        &self.tablet.chains[self.choice.group].runs
    }

    fn runs(&self) -> &[Run] {
        &self.chain()[self.choice.runs.clone()]
    }

    /// Rewrites the first rows of the choice into one output.
    fn rewrite(&self, host: &dyn CompactionHost) -> Result<Option<Output>> {
        let _wait = WaitScope::enter();
        let rows = self.choice.rows.intersection(&self.tablet.rows);
        self.prefetch(&rows);
        let older = self.chain()[..self.choice.runs.start].iter();
        let older: Vec<_> = older.flat_map(|run| run.links_of(&rows)).collect();
        let snapshots = self.tables.snapshots.live(|| host.durable());
        let rules = RewriteRules {
            snapshots: &snapshots,
            rooted: older.is_empty(),
            restricted: self.tablet.chains[self.choice.group].is_restricted(),
            older_timestamp_max: timestamp_max(older.into_iter()),
            now_micros: self.tables.world.clock.now_micros(),
            schema: &self.schema,
            group: self.choice.group,
            folds: &self.tables.folds,
            rows: &rows,
        };
        let bytes_max = self.tables.options.compact.output_bytes;
        let proceed = || host.proceed(self.table) && self.is_current();
        let output = self.inputs(&rows).and_then(|mut inputs| {
            write_output(&self.tables.fragments, &mut inputs, &rules, bytes_max, &proceed)
        });
        output.map_err(|error| {
            let error = self.attributed(error, &rows, &proceed);
            self.runs().iter().flat_map(Run::links).for_each(|link| link.note_failure(&error));
            error
        })
    }

    /// Fetches the first bytes of all inputs that are outside the directory at once; the
    /// cursors then read ahead.
    fn prefetch(&self, rows: &RowRange) {
        if self.tables.fragments.remote().is_none() {
            return;
        }
        let links: Vec<_> =
            self.runs().iter().filter_map(|run| run.links_of(rows).first()).collect();
        let share = self.tables.options.compact.output_bytes / links.len().max(1) as u64;
        for link in links {
            // A file that cannot be opened fails the rewrite, with its error.
            if link.fragment().is_ok() {
                link.prefetch(&rows.start, share.min(PREFETCH_BYTES_MAX));
            }
        }
    }

    /// Finds the file that has entries out of order: the merge only detects the
    /// disorder.
    fn attributed(&self, error: Error, rows: &RowRange, proceed: &dyn Fn() -> bool) -> Error {
        if !matches!(error, Error::CellDisorder(_)) {
            return error;
        }
        let links = self.runs().iter().flat_map(|run| run.links_of(rows));
        let mut checked = links.take_while(|_| proceed());
        let wrong = checked.find_map(|link| link.fragment().ok()?.verify().err());
        wrong.unwrap_or(error)
    }

    /// Joins the runs into one, without a new file. Returns `None` if the table was
    /// dropped or the rows of the tablet changed.
    fn join(&self) -> Result<Option<()>> {
        let links = self.runs().iter().flat_map(Run::links);
        let mut links: Vec<Arc<Link>> = links.map(|link| link.of_unit(0)).collect();
        links.sort_by(|a, b| a.rows.start.cmp(&b.rows.start));
        let runs: Vec<Run> = Run::new(links).into_iter().collect();
        let Some(publishing) = self.publishing() else { return Ok(None) };
        self.settle(&runs)?;
        self.swap(&publishing, runs);
        Ok(Some(()))
    }

    /// Waits for the turn to publish. Returns `None` if the table was dropped or the rows
    /// of the tablet have changed.
    fn publishing(&self) -> Option<Publishing<'a>> {
        let publishing = self.table.publish_files(&self.tablet.rows);
        (publishing.check_exists().is_ok() && self.is_current()).then_some(publishing)
    }

    /// Replaces the runs in the config.
    fn settle(&self, runs: &[Run]) -> Result<()> {
        let change = RowChange {
            key: self.tablet.row_key(self.table.id),
            tablet: (self.tablet.id, self.tablet.load),
            lower: None,
            edit: RowEdit::Splice(self.splice(runs)),
        };
        self.tables.settler.settle(vec![change], Vec::new()).map(drop)
    }

    fn inputs(&self, rows: &RowRange) -> Result<Inputs<RunCursor>> {
        let heat = Arc::new(Heat::default());
        let ahead = self.tables.fragments.remote().map(|_| Arc::default());
        let options = CursorOptions { heat: Some(heat.clone()), ahead, ..CursorOptions::default() };
        let mut range_tombstones = RangeTombstones::default();
        let mut cursors = Vec::with_capacity(self.choice.runs.len());
        let mut txns = (Txn::MAX, Txn::ZERO);
        for run in self.runs().iter().rev() {
            let positions = run.positions_of(rows);
            for link in &run.links()[positions.clone()] {
                txns.0 = txns.0.min(link.file.txn_min);
                txns.1 = txns.1.max(link.file.txn_max);
            }
            if let Some(tombstones) = run.range_tombstones(positions.clone())? {
                range_tombstones.merge(&tombstones);
            }
            cursors.push(run.cursor(positions, &options));
        }
        Ok(Inputs { merge: Merge::new(cursors), range_tombstones, txns, heat })
    }

    /// Publishes an output: first in the config, then to readers. Returns the rest
    /// of the work; `None` if the table was dropped or the rows of the tablet
    /// changed.
    fn publish(&self, output: Output) -> Result<Option<Option<Choice>>> {
        let added = || output.file.iter();
        let prepared = self.tables.fragments.sync_names().and_then(|()| self.open_added(&output));
        let prepared = prepared.map_err(|error| give_up(self.tables, added(), error))?;
        let runs = self.runs_after(prepared, output.end.as_deref());
        let Some(publishing) = self.publishing() else {
            discard(self.tables, added());
            return Ok(None);
        };
        self.settle(&runs).map_err(|error| give_up(self.tables, added(), error))?;
        self.tables.outcome_known(added());
        let Choice { tablet, group, runs: replaced, rows, .. } = self.choice;
        let runs_after = replaced.start..replaced.start + runs.len();
        self.swap(&publishing, runs);
        let rest = output.end.map(|start| Choice {
            tablet: tablet.clone(),
            group: *group,
            runs: runs_after,
            rows: RowRange { start, end: rows.end.clone() },
            joins: false,
        });
        Ok(Some(rest))
    }

    fn open_added(&self, output: &Output) -> Result<Option<Arc<Link>>> {
        let Some(file) = &output.file else { return Ok(None) };
        let _wait = WaitScope::enter();
        let rows = file.live_rows(&self.tablet.rows);
        let link = self.tables.fragments.link_cached(file, rows, output.warmed.id());
        output.warmed.hand_over(link.fragment()?);
        Ok(Some(link))
    }

    /// Returns the runs after the rows up to `end` have moved to `added`. If there is
    /// more to do, all links of the compaction carry its number.
    fn runs_after(&self, added: Option<Arc<Link>>, end: Option<&[u8]>) -> Vec<Run> {
        let rows = &self.choice.rows;
        let unit = if end.is_some() { self.unit() } else { 0 };
        let marked = |link: Arc<Link>| {
            let is_part = link.file.unit != 0 || link.rows.overlaps(rows);
            if is_part { link.of_unit(unit) } else { link }
        };
        let before = RowRange { start: Vec::new(), end: Some(rows.start.clone()) };
        let end = end.map(<[u8]>::to_vec).or_else(|| rows.end.clone());
        let behind = end.map(RowRange::from);
        let mut added = added;
        let mut runs = Vec::with_capacity(self.choice.runs.len());
        for run in self.runs() {
            let mut links: Vec<Arc<Link>> =
                run.links().iter().filter_map(|link| link.clipped(&before)).collect();
            links.extend(added.take());
            if let Some(behind) = &behind {
                links.extend(run.links().iter().filter_map(|link| link.clipped(behind)));
            }
            runs.extend(Run::new(links.into_iter().map(marked).collect()));
        }
        runs
    }

    /// Returns the number of the compaction: that of the one that it continues, or a
    /// new one.
    fn unit(&self) -> u64 {
        let links = self.runs().iter().flat_map(|run| run.links_of(&self.choice.rows));
        let mut units = links.map(|link| link.file.unit);
        let known = units.next().filter(|&first| first != 0 && units.all(|unit| unit == first));
        known.unwrap_or_else(|| self.tables.fragments.mint_unit())
    }

    /// Returns the edit that replaces the current runs with `runs`, without the
    /// unchanged files at either end.
    fn splice(&self, runs: &[Run]) -> Splice {
        let (before, after) = (flat(self.runs()), flat(runs));
        let shorter = before.len().min(after.len());
        let same = |pair: &(&Reference, &Reference)| pair.0 == pair.1;
        let mut head = before.iter().zip(&after).take_while(same).count();
        let pairs = before.iter().rev().zip(after.iter().rev());
        let mut tail = pairs.take_while(same).count().min(shorter - head);
        // A splice that removes nothing would append.
        if before.len() == head + tail {
            if head > 0 { head -= 1 } else { tail -= 1 }
        }
        Splice {
            table: self.table.id,
            tablet: self.tablet.id,
            load: self.tablet.load,
            start: self.tablet.rows.start.clone(),
            group: self.choice.group,
            remove: before[head..before.len() - tail].iter().map(Reference::key).collect(),
            add: after[head..after.len() - tail].to_vec(),
            flushed: None,
        }
    }

    /// Replaces the runs in the table's version. Others have only added runs
    /// meanwhile.
    fn swap(&self, publishing: &Publishing<'_>, runs: Vec<Run>) {
        let splice = RunSplice {
            tablet: self.choice.tablet.clone(),
            group: self.choice.group,
            replaced: Some(self.choice.runs.clone()),
            runs,
            flushed: None,
        };
        publishing.splice_runs(&[splice], |_| ());
    }
}

/// Returns the files of runs as a config lists them.
fn flat(runs: &[Run]) -> Vec<Reference> {
    let of_run = |run: &Run| {
        let files = run.links().iter().enumerate();
        files.map(|(at, link)| Reference { joins: at > 0, ..link.file.clone() }).collect::<Vec<_>>()
    };
    runs.iter().flat_map(of_run).collect()
}
