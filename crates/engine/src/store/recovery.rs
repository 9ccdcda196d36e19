//! Recovery: replays the log into memory when a store is opened.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::cell::commit::{Commit, TableId};
use crate::cell::rows::RowRange;
use crate::error::{Error, Result};
use crate::log::{self, Extent, ItemKind, LogEnd, LogItem, LogReader};
use crate::memory::MemoryFragment;
use crate::options::Limits;
use crate::tablet::{Table, Tables, Tablet, TabletMap};
use crate::txn::Txn;
use crate::workers::flush::{self, FlushLog, FlushTarget, Readiness};
use crate::write::{Prepared, PreparedTable, Unknown};

/// The log stream with the commits to tables.
pub const TABLES_STREAM: u16 = 0;

/// The result of a replay.
pub struct Recovered {
    pub end: LogEnd,
    /// The newest commit in the log.
    pub last: Txn,
}

/// Replays all commits that are not yet in fragments.
pub fn replay(tables: &Tables, log_dir: &Path, head: u64) -> Result<Recovered> {
    let reader = LogReader::open(&*tables.world.files, log_dir, head)?;
    let mut replay = Replay::new(tables, log_dir, &reader)?;
    let end = reader.replay(|item| replay.item(&item))?;
    if end.segments.is_empty() && head > 0 {
        return Err(head_missing(log_dir, head));
    }
    if let Some(torn) = &end.torn {
        let path = torn.path.display();
        tracing::info!(%path, offset = torn.offset, "the log ends with an incomplete record, which is ignored");
    }
    if replay.commits > 0 {
        tracing::info!(commits = replay.commits, last = %replay.last, "replayed the log");
    }
    Ok(Recovered { end, last: replay.last })
}

/// Returns the error for a log without its head segment. A head is recorded
/// only while its segment exists, and the segment is kept until a later head is
/// recorded, so its absence is data loss.
pub fn head_missing(log_dir: &Path, head: u64) -> Error {
    let what = format!("segment {head}, the first of the log, is missing");
    Error::data_loss(log_dir, 0, what)
}

struct Replay<'a> {
    tables: &'a Tables,
    log_dir: &'a Path,
    paths: BTreeMap<u64, PathBuf>,
    limits: Limits,
    unknown: Unknown,
    last: Txn,
    commits: u64,
    bytes: u64,
    /// Bytes replayed since memory usage was last checked.
    unchecked_bytes: usize,
    reported_at: Duration,
    /// The segments, until they are synced.
    unsynced: Vec<Extent>,
}

/// Interval between progress messages of a long replay.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// How many times memory usage is checked per budget's worth of replayed bytes.
const CHECKS_PER_BUDGET: usize = 1024;

impl<'a> Replay<'a> {
    fn new(tables: &'a Tables, log_dir: &'a Path, reader: &LogReader) -> Result<Replay<'a>> {
        let limits = no_limits();
        let unsynced = if tables.options.log.sync { reader.extents() } else { Vec::new() };
        let last_table = TableId(tables.config.read()?.last_table);
        Ok(Replay {
            tables,
            log_dir,
            paths: reader.paths(),
            limits,
            unknown: Unknown::Dropped { last_table },
            last: Txn::ZERO,
            commits: 0,
            bytes: 0,
            unchecked_bytes: 0,
            reported_at: tables.world.clock.elapsed(),
            unsynced,
        })
    }

    fn item(&mut self, item: &LogItem) -> Result<()> {
        if item.stream != TABLES_STREAM || item.kind != ItemKind::Data {
            return Ok(());
        }
        let damaged = |what: String| {
            let path = self.paths.get(&item.segment).cloned().unwrap_or_default();
            Error::data_loss(&path, item.offset, what)
        };
        let txn = Txn::from_raw(item.index).filter(|&txn| txn > self.last);
        let txn = txn.ok_or_else(|| damaged(format!("txn {} is out of order", item.index)))?;
        // The payload may be a slice of a large read buffer; keep only the
        // commit.
        let commit = Commit::from_bytes(Bytes::copy_from_slice(&item.payload));
        let known = self.tables.map.all();
        let folds = &self.tables.folds;
        let mut prepared = Prepared::new(&commit, &known, &self.limits, folds, self.unknown)
            .map_err(|error| damaged(error.to_string()))?;
        for table in &mut prepared.tables {
            insert(self.tables, table, txn, &commit, None);
        }
        (self.last, self.commits) = (txn, self.commits + 1);
        self.bytes += item.payload.len() as u64;
        self.unchecked_bytes += item.payload.len();
        self.report_progress();
        self.flush_if_due()
    }

    fn report_progress(&mut self) {
        let now = self.tables.world.clock.elapsed();
        if now.saturating_sub(self.reported_at) >= PROGRESS_INTERVAL {
            self.reported_at = now;
            let megabytes = self.bytes >> 20;
            tracing::info!(commits = self.commits, megabytes, "replaying the log");
        }
    }

    /// Flushes during the replay, so that a long log needs no more memory than
    /// normal operation.
    fn flush_if_due(&mut self) -> Result<()> {
        if self.unchecked_bytes < self.tables.resources.budget.limit() / CHECKS_PER_BUDGET {
            return Ok(());
        }
        self.unchecked_bytes = 0;
        let log = ReplayLog { tables: self.tables, last: self.last };
        // The replayed log is already on disk: flushing does not shorten it, so its
        // length does not make a flush due.
        let free = |_: &FlushTarget| Readiness::Free;
        while let Some((target, _)) = flush::due(self.tables, &|_| 0, &free, false) {
            self.sync_log()?;
            if !flush::flush(self.tables, &target, &log)? {
                break;
            }
        }
        Ok(())
    }

    /// Makes the log durable before the first fragment written from it;
    /// otherwise a crash could keep the fragment and lose earlier commits.
    fn sync_log(&mut self) -> Result<()> {
        let segments = std::mem::take(&mut self.unsynced);
        if segments.is_empty() {
            return Ok(());
        }
        log::make_durable(&*self.tables.world.files, self.log_dir, &segments)
    }
}

/// Commits that were accepted once are accepted again, whatever the limits are now.
pub fn no_limits() -> Limits {
    Limits {
        row_bytes_max: usize::MAX - 1,
        qualifier_bytes_max: usize::MAX,
        value_bytes_max: usize::MAX,
        commit_bytes_max: usize::MAX,
    }
}

/// Chooses the tablets to which a commit belongs.
pub type ChooseTablet<'c> = &'c dyn Fn(&Tablet) -> bool;

/// Inserts a logged commit into memory, without what is already in fragments, and without
/// what does not belong to the tablets that `choose` accepts, if it is given.
pub fn insert(
    tables: &Tables,
    prepared: &mut PreparedTable<'_>,
    txn: Txn,
    commit: &Commit,
    choose: Option<ChooseTablet<'_>>,
) {
    let table: Arc<Table> = prepared.table.clone();
    let version = table.version();
    let some_flushed = choose.is_some() || version.tablets.summary().flushed >= txn;
    for (group, memory) in version.memory.iter().enumerate() {
        if memory.flushed >= txn {
            continue;
        }
        let is_missing = |tablet: &Tablet| {
            tablet.chains[group].flushed < txn && choose.is_none_or(|choose| choose(tablet))
        };
        if some_flushed {
            prepared.retain_rows(group, |row| is_missing(version.tablets.of(row)));
        }
        memory.active_since.get_or_init(|| tables.world.clock.elapsed());
        for range in prepared.ranges_of(group) {
            if !some_flushed {
                memory.active.insert_range_tombstone(range, txn);
                continue;
            }
            for rows in missing_rows(&version.tablets, range, is_missing) {
                memory.active.insert_range_tombstone(&rows, txn);
            }
        }
        prepared.insert(group, txn, commit, &memory.active);
    }
}

/// Returns the parts of a range in tablets that lack the commit, as few as possible.
fn missing_rows(
    tablets: &TabletMap,
    range: &RowRange,
    is_missing: impl Fn(&Tablet) -> bool,
) -> Vec<RowRange> {
    let mut parts: Vec<RowRange> = Vec::new();
    for tablet in tablets.overlapping(range).filter(|tablet| is_missing(tablet)) {
        let rows = tablet.rows.intersection(range);
        match parts.last_mut().filter(|last| last.end.as_ref() == Some(&rows.start)) {
            Some(last) => last.end = rows.end,
            None => parts.push(rows),
        }
    }
    parts
}

/// During replay, the whole log is durable once it is synced, and none of it
/// is released.
pub struct ReplayLog<'a> {
    pub tables: &'a Tables,
    pub last: Txn,
}

impl FlushLog for ReplayLog<'_> {
    fn seal(&self, table: &Table, group: usize) {
        table.seal(group, &self.tables.resources.budget);
    }

    fn wait_durable(&self, _txn: Txn) -> Result<()> {
        Ok(())
    }

    fn durable(&self) -> Txn {
        self.last
    }

    fn head_without(&self, _flushed: &[Arc<MemoryFragment>]) -> Option<u64> {
        None
    }

    fn release_below(&self, _segment: u64) -> Result<()> {
        Ok(())
    }
}
