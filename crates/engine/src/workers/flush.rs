//! The flush worker: writes memory fragments to disk, so that memory and log
//! can be released.

use std::sync::Arc;
use std::time::Duration;

use super::output::{Inputs, Output, write_output};
use crate::cell::range_tombstone::RangeTombstones;
use crate::config::{ConfigEdit, FileConfig, Splice};
use crate::error::{Error, Result};
use crate::memory::MemoryFragment;
use crate::merge::{Merge, RewriteRules};
use crate::tablet::{Link, Run, Table, Tables, timestamp_max};
use crate::txn::Txn;

/// What a flush needs from the owner of the log: a store, or recovery.
pub trait FlushLog {
    /// Seals a group's active memory fragment while writers are locked out.
    fn seal(&self, table: &Table, group: usize);

    /// Waits until all commits up to `txn` are durable. The config must not
    /// include a commit before that; otherwise a crash could keep it and lose
    /// an earlier one of another table.
    fn wait_durable(&self, txn: Txn) -> Result<()>;

    /// Returns the newest commit that survives a crash.
    fn durable(&self) -> Txn;

    /// Returns the first log segment needed once these fragments are on disk;
    /// `None` if the log must not be released.
    fn head_without(&self, flushed: &[Arc<MemoryFragment>]) -> Option<u64>;

    /// Releases the log segments before `segment`.
    fn release_below(&self, segment: u64) -> Result<()>;
}

/// A group of a table to flush.
#[derive(Clone)]
pub struct FlushTarget {
    pub table: Arc<Table>,
    pub group: usize,
}

/// Why a flush is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The fragment has reached its target size.
    Size,
    /// The memory budget is running out.
    Memory,
    /// The cells have been only in memory for too long.
    Age,
    /// Too much log would have to be replayed.
    Replay,
}

/// Whether a group can be flushed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    Free,
    /// Being flushed: its memory will soon be free.
    Flushing,
    /// Its flush failed and is backing off: its memory stays in use.
    BackingOff,
}

struct Candidate {
    target: FlushTarget,
    bytes: usize,
    txn_min: Txn,
    since: Option<Duration>,
    sealed: bool,
}

/// Returns the flush that is due, if any, among the groups that are free.
/// `pinned` returns how many bytes of log are pinned by a txn and its
/// successors.
pub fn due(
    tables: &Tables,
    pinned: &dyn Fn(Txn) -> u64,
    readiness: &dyn Fn(&FlushTarget) -> Readiness,
    writers_wait: bool,
) -> Option<(FlushTarget, Reason)> {
    let options = &tables.options.flush;
    let (mut free, mut flushing, mut flushing_bytes, mut backing_off_bytes) =
        (Vec::new(), false, 0, 0);
    for candidate in candidates(tables) {
        match readiness(&candidate.target) {
            Readiness::Free => free.push(candidate),
            Readiness::Flushing => {
                flushing = true;
                flushing_bytes += candidate.bytes;
            }
            Readiness::BackingOff => backing_off_bytes += candidate.bytes,
        }
    }
    let candidates = free;
    // Memory whose flush backs off is not available to the other groups.
    let used = tables.resources.budget.used().saturating_sub(flushing_bytes + backing_off_bytes);
    let limit = tables.resources.budget.limit().saturating_sub(backing_off_bytes);
    let short = used > limit / 100 * options.budget_percent || (writers_wait && !flushing);
    let largest = candidates.iter().max_by_key(|candidate| candidate.bytes)?;
    if largest.bytes >= options.fragment_bytes {
        return Some((largest.target.clone(), Reason::Size));
    }
    if let Some(left_over) = candidates.iter().find(|candidate| candidate.sealed) {
        return Some((left_over.target.clone(), Reason::Size));
    }
    if short {
        let target = best_of(candidates, tables, pinned)?;
        return Some((target, Reason::Memory));
    }
    let oldest = candidates.iter().min_by_key(|candidate| candidate.txn_min)?;
    if pinned(oldest.txn_min) > options.replay_bytes_max {
        return Some((oldest.target.clone(), Reason::Replay));
    }
    let now = tables.world.clock.elapsed();
    let aged = |candidate: &&Candidate| {
        candidate.since.is_some_and(|since| now.saturating_sub(since) >= options.age_max)
    };
    candidates.iter().find(aged).map(|candidate| (candidate.target.clone(), Reason::Age))
}

/// Returns the group whose flush frees the most memory and log.
pub fn best(tables: &Tables, pinned: &dyn Fn(Txn) -> u64) -> Option<FlushTarget> {
    best_of(candidates(tables), tables, pinned)
}

fn best_of(
    candidates: Vec<Candidate>,
    tables: &Tables,
    pinned: &dyn Fn(Txn) -> u64,
) -> Option<FlushTarget> {
    let weight = tables.options.flush.log_weight_percent;
    let score =
        |candidate: &Candidate| candidate.bytes as u64 + pinned(candidate.txn_min) / 100 * weight;
    candidates.into_iter().max_by_key(score).map(|candidate| candidate.target)
}

/// Returns when the next flush by age is due.
pub fn next_age_deadline(tables: &Tables) -> Option<Duration> {
    let first = candidates(tables).iter().filter_map(|candidate| candidate.since).min()?;
    Some(first + tables.options.flush.age_max)
}

fn candidates(tables: &Tables) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for table in tables.map.all().values() {
        for (group, memory) in table.version().memory.iter().enumerate() {
            if let Some(txn_min) = memory.txn_min() {
                candidates.push(Candidate {
                    target: FlushTarget { table: table.clone(), group },
                    bytes: memory.bytes(),
                    txn_min,
                    since: memory.active_since.get().copied(),
                    sealed: !memory.sealed.is_empty(),
                });
            }
        }
    }
    candidates
}

/// Flushes the current memory of a group; later writes stay in memory. Returns
/// whether there was any.
pub fn flush(tables: &Tables, target: &FlushTarget, log: &dyn FlushLog) -> Result<bool> {
    log.seal(&target.table, target.group);
    flush_sealed(tables, target, log)
}

/// Like `flush`, but only for memory that is already sealed.
pub fn flush_sealed(tables: &Tables, target: &FlushTarget, log: &dyn FlushLog) -> Result<bool> {
    let Some(written) = write(tables, target, log)? else { return Ok(false) };
    let head = log.head_without(&written.sealed);
    let edit = head.map(|segment| ConfigEdit::SetLogHead { segment });
    if publish(tables, vec![written], edit)? {
        head.map_or(Ok(()), |segment| log.release_below(segment))?;
    }
    Ok(true)
}

/// Flushes the sealed memory of all these groups and publishes it together with
/// `edit` in one atomic config edit.
pub fn flush_all_sealed(
    tables: &Tables,
    targets: &[FlushTarget],
    log: &dyn FlushLog,
    edit: ConfigEdit,
) -> Result<bool> {
    let mut all = Vec::with_capacity(targets.len());
    for target in targets {
        match write(tables, target, log) {
            Ok(written) => all.extend(written),
            Err(error) => {
                discard(tables, all.iter().flat_map(Written::files));
                return Err(error);
            }
        }
    }
    publish(tables, all, Some(edit))
}

/// The memory of one group written to files, at most one per tablet, which are
/// not yet in the config.
struct Written {
    target: FlushTarget,
    sealed: Vec<Arc<MemoryFragment>>,
    files: Vec<Option<FileConfig>>,
    txn_max: Txn,
}

impl Written {
    fn files(&self) -> impl Iterator<Item = &FileConfig> {
        self.files.iter().flatten()
    }

    fn edits(&self) -> impl Iterator<Item = ConfigEdit> {
        self.files.iter().enumerate().map(|(tablet, file)| {
            ConfigEdit::Splice(Splice {
                table: self.target.table.id,
                tablet,
                group: self.target.group,
                remove: Vec::new(),
                add: file.iter().cloned().collect(),
                flushed_through: Some(self.txn_max),
            })
        })
    }
}

fn write(tables: &Tables, target: &FlushTarget, log: &dyn FlushLog) -> Result<Option<Written>> {
    let sealed = target.table.version().memory[target.group].sealed.clone();
    let Some(txn_max) = sealed.iter().filter_map(|fragment| fragment.txn_max()).max() else {
        return Ok(None);
    };
    log.wait_durable(txn_max)?;
    let files = write_tablets(tables, target, &sealed, log)?;
    Ok(Some(Written { target: target.clone(), sealed, files, txn_max }))
}

/// Writes one file per tablet that has rows in the sealed memory.
fn write_tablets(
    tables: &Tables,
    target: &FlushTarget,
    sealed: &[Arc<MemoryFragment>],
    log: &dyn FlushLog,
) -> Result<Vec<Option<FileConfig>>> {
    let version = target.table.pinned_version();
    let snapshots = tables.snapshots.live(|| log.durable());
    let mut range_tombstones = RangeTombstones::default();
    sealed.iter().for_each(|fragment| range_tombstones.merge(&fragment.range_tombstones()));
    let txn_min = sealed.iter().filter_map(|fragment| fragment.txn_min()).min();
    let txn_max = sealed.iter().filter_map(|fragment| fragment.txn_max()).max();
    let txns = (txn_min.unwrap_or(Txn::ZERO), txn_max.unwrap_or(Txn::ZERO));
    let mut files = Vec::with_capacity(version.tablets.len());
    for tablet in &version.tablets {
        let older = &tablet.chains[target.group];
        let merge = Merge::new(sealed.iter().map(|fragment| fragment.cursor()).collect());
        let range_tombstones = range_tombstones.clone();
        let mut inputs = Inputs { merge, range_tombstones, txns, heat: Arc::default() };
        let rules = RewriteRules {
            snapshots: &snapshots,
            rooted: older.runs.is_empty(),
            older_timestamp_max: timestamp_max(older.links()),
            now_micros: tables.world.clock.now_micros(),
            schema: &version.schema,
            group: target.group,
            folds: &tables.folds,
            rows: &tablet.rows,
        };
        match write_output(&tables.fragments, &mut inputs, &rules, u64::MAX, &|| true) {
            Ok(output) => files.push(output.and_then(|Output { file, .. }| file)),
            Err(error) => {
                discard(tables, files.iter().flatten());
                return Err(error);
            }
        }
    }
    Ok(files)
}

/// Adds the new files to the config and the chains, then releases the memory.
/// Returns false if it failed because a table was dropped.
fn publish(tables: &Tables, all: Vec<Written>, edit: Option<ConfigEdit>) -> Result<bool> {
    let edits: Vec<ConfigEdit> = all.iter().flat_map(Written::edits).chain(edit).collect();
    let open = || all.iter().map(|written| open_links(tables, &written.files)).collect();
    let links: Result<Vec<_>> = tables.fragments.sync_names().and_then(|()| open());
    let links = match links.and_then(|links| tables.config.edit(&edits).map(|_| links)) {
        Ok(links) => links,
        Err(error) => {
            let dropped = all.iter().any(|written| written.target.table.is_dropped());
            give_up(tables, dropped, all.iter().flat_map(Written::files), error)?;
            return Ok(false);
        }
    };
    for (written, links) in all.into_iter().zip(links) {
        let Written { target, sealed, txn_max, .. } = written;
        links.iter().flatten().for_each(|link| link.add_reference());
        let run = |link: Option<Arc<Link>>| link.and_then(|link| Run::new(vec![link]));
        let runs: Vec<Option<Run>> = links.into_iter().map(run).collect();
        target.table.change(|version| {
            version.memory[target.group].sealed.drain(..sealed.len());
            for (tablet, run) in version.tablets.iter_mut().zip(&runs) {
                let chain = &mut tablet.chains[target.group];
                chain.runs.extend(run.clone());
                chain.flushed_through = txn_max;
            }
        });
    }
    Ok(true)
}

fn open_links(tables: &Tables, files: &[Option<FileConfig>]) -> Result<Vec<Option<Arc<Link>>>> {
    files
        .iter()
        .map(|file| {
            let Some(file) = file else { return Ok(None) };
            let link = tables.fragments.link(file);
            link.fragment()?;
            Ok(Some(link))
        })
        .collect()
}

/// Handles a failed publication: removes the files if the config cannot name
/// them.
pub fn give_up<'a>(
    tables: &Tables,
    dropped: bool,
    files: impl Iterator<Item = &'a FileConfig>,
    error: Error,
) -> Result<()> {
    if tables.config.edit_left_no_trace() {
        discard(tables, files);
    }
    if dropped { Ok(()) } else { Err(error) }
}

/// Removes files that no config will ever name.
fn discard<'a>(tables: &Tables, files: impl Iterator<Item = &'a FileConfig>) {
    let fragments = &tables.fragments;
    files.for_each(|file| fragments.discard(&fragments.path_of(file.name)));
}
