//! The flush worker: writes memory fragments to disk, so that memory and log
//! can be released.

use std::sync::Arc;
use std::time::Duration;

use super::flush_files::write_files;
use super::publication::{Published, Written, discard, publish, publish_all};
use crate::config::ConfigEdit;
use crate::error::Result;
use crate::memory::MemoryFragment;
use crate::tablet::{GroupMemory, Table, Tables};
use crate::txn::Txn;

/// Memory smaller than this fraction of the log that it pins is small.
const SMALL_SHARE: u64 = 8;

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

    /// Whether the log is released only when the config has the files. Always, except in a
    /// simulation without that rule.
    fn releases_after_config(&self) -> bool {
        true
    }
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
    /// The size at which it is flushed.
    flush_bytes: usize,
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
    let full = candidates.iter().filter(|candidate| candidate.bytes >= candidate.flush_bytes);
    if let Some(largest) = full.max_by_key(|candidate| candidate.bytes) {
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
    let pinned_bytes = pinned(oldest.txn_min);
    if pinned_bytes > options.replay_bytes_max.min(log_bytes_max(tables, oldest, pinned_bytes)) {
        return Some((oldest.target.clone(), Reason::Replay));
    }
    let now = tables.world.clock.elapsed();
    let aged = |candidate: &&Candidate| {
        candidate.since.is_some_and(|since| now.saturating_sub(since) >= options.age_max)
    };
    candidates.iter().find(aged).map(|candidate| (candidate.target.clone(), Reason::Age))
}

/// Returns how much log memory may pin: the log stays within twice the memory
/// budget, and memory that is small compared with the log that it pins, such as that
/// of a table that is rarely written, is flushed earlier, so that segments can be
/// reused.
fn log_bytes_max(tables: &Tables, oldest: &Candidate, pinned_bytes: u64) -> u64 {
    let budget = tables.resources.budget.limit() as u64;
    if (oldest.bytes as u64) < pinned_bytes / SMALL_SHARE { budget / 2 } else { budget }
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
    let fragment_bytes = tables.options.flush.fragment_bytes;
    let budget_bytes = tables.resources.budget.limit();
    let mut candidates = Vec::new();
    for table in tables.map.all().values() {
        let version = table.version();
        let flush_bytes = version.flush_bytes(fragment_bytes, budget_bytes);
        for (group, memory) in version.memory.iter().enumerate() {
            if let Some(txn_min) = memory.txn_min() {
                candidates.push(Candidate {
                    target: FlushTarget { table: table.clone(), group },
                    bytes: memory.bytes(),
                    flush_bytes,
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
    if !log.releases_after_config() {
        head.map_or(Ok(()), |segment| log.release_below(segment))?;
    }
    let edit = head.map(|segment| ConfigEdit::SetLogHead { segment });
    // The log is needed until the new head is durable, after the files of all tablets.
    if let Published::Shown { riders: true } = publish(tables, &written, edit)? {
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
) -> Result<()> {
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
    publish_all(tables, &all, edit)
}

fn write(tables: &Tables, target: &FlushTarget, log: &dyn FlushLog) -> Result<Option<Written>> {
    let memory = target.table.version().memory.get(target.group).cloned();
    let Some(GroupMemory { sealed, .. }) = memory else { return Ok(None) };
    let Some(txn_max) = sealed.iter().filter_map(|fragment| fragment.txn_max()).max() else {
        return Ok(None);
    };
    log.wait_durable(txn_max)?;
    let files = write_files(tables, target, &sealed, &|| log.durable())?;
    Ok(Some(Written { target: target.clone(), sealed, files, txn_max }))
}
