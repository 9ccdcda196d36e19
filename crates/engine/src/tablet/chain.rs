//! A tablet: a range of rows and, for each group, the chain of disk fragments
//! that hold them.

use std::sync::Arc;
use std::time::Duration;

use super::link::Link;
use super::run::Run;
use super::state::TabletState;
use crate::cell::commit::TableId;
use crate::cell::row_map::{RowMap, RowMapValue};
use crate::cell::rows::RowRange;
use crate::config::{ChainConfig, Reference, RowKey, TabletConfig, TabletId};
use crate::error::Result;
use crate::txn::Txn;

/// A range of rows. Immutable: a change creates a new one.
#[derive(Clone)]
pub struct Tablet {
    pub id: TabletId,
    /// Increases with each change of the rows or groups, and with each load.
    pub load: u64,
    pub rows: RowRange,
    pub state: TabletState,
    /// When it got its rows, or was loaded, by the clock of the world.
    pub since: Duration,
    /// Nothing that was read before this txn is known to be unchanged.
    pub loaded_at: Txn,
    /// Reads at older txns would miss what another server wrote.
    pub readable_from: Txn,
    /// One per group of the schema.
    pub chains: Vec<Chain>,
}

/// The tablets of a table, in row order, without gaps.
pub type TabletMap = RowMap<Tablet>;

impl Tablet {
    /// Creates the tablet that a config describes. `link` opens a reference for
    /// the given rows.
    pub fn new(
        config: &TabletConfig,
        loaded_at: Txn,
        since: Duration,
        mut link: impl FnMut(&Reference, RowRange) -> Result<Arc<Link>>,
    ) -> Result<Tablet> {
        let mut chains = Vec::with_capacity(config.chains.len());
        for chain in &config.chains {
            let mut runs = Vec::new();
            for files in chain.runs() {
                let links = files.iter().map(|file| link(file, file.live_rows(&config.rows)));
                runs.extend(Run::new(links.collect::<Result<_>>()?));
            }
            chains.push(Chain { flushed: chain.flushed, runs });
        }
        let TabletConfig { id, load, .. } = *config;
        let loaded = config.loaded;
        let state = if loaded { TabletState::Active } else { TabletState::Unloaded };
        let rows = config.rows.clone();
        let readable_from = Txn::ZERO;
        Ok(Tablet { id, load, rows, state, since, loaded_at, readable_from, chains })
    }

    pub fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.chains.iter().flat_map(Chain::links)
    }

    /// Returns the key of the tablet's row in the config.
    pub fn row_key(&self, table: TableId) -> RowKey {
        RowKey { table, end: self.rows.end.clone() }
    }

    /// Returns the tablet as the config describes it.
    pub fn config(&self) -> TabletConfig {
        let references = |run: &Run| {
            let links = run.links().iter().enumerate();
            let named = links.map(|(at, link)| Reference { joins: at > 0, ..link.file.clone() });
            named.collect::<Vec<_>>()
        };
        let chain = |chain: &Chain| ChainConfig {
            flushed: chain.flushed,
            files: chain.runs.iter().flat_map(references).collect(),
        };
        // The number of changes is in the config only.
        let rev = 1;
        let chains = self.chains.iter().map(chain).collect();
        let loaded = !matches!(self.state, TabletState::Unloaded);
        let rows = self.rows.clone();
        TabletConfig { id: self.id, load: self.load, rev, loaded, rows, chains }
    }

    /// Returns the approximate size on disk.
    pub fn disk_bytes(&self) -> u64 {
        self.links().map(|link| link.share()).sum()
    }

    /// Returns the number of runs in the longest chain. The chains of a tablet that is not
    /// loaded are not compacted, and nobody waits for that: they count as empty.
    pub fn chain_longest(&self) -> usize {
        let lengths = self.chains.iter().map(|chain| chain.runs.len());
        lengths.max().filter(|_| self.state.can_read()).unwrap_or(0)
    }

    /// Returns what identifies the tablet until its rows change.
    pub fn key(&self) -> TabletKey {
        TabletKey { id: self.id, load: self.load, start: self.rows.start.clone() }
    }
}

/// Identifies a tablet until its rows change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TabletKey {
    pub id: TabletId,
    pub load: u64,
    pub start: Vec<u8>,
}

impl TabletKey {
    /// Returns the tablet in a map, loaded or not; `None` if its rows have changed or it
    /// was loaded again.
    pub fn find<'m>(&self, tablets: &'m TabletMap) -> Option<&'m Arc<Tablet>> {
        let found = tablets.of(&self.start);
        (found.id == self.id && found.load == self.load).then_some(found)
    }
}

/// What is known of the chains of some tablets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainSummary {
    /// Number of runs in the longest chain.
    pub longest: usize,
    /// Whether any was left by an unfinished compaction.
    pub unfinished: bool,
    /// The newest txn up to which any is flushed.
    pub flushed: Txn,
    /// Whether all take reads and writes.
    pub active: bool,
    /// The approximate size of the largest tablet.
    pub bytes: u64,
}

impl RowMapValue for Tablet {
    type Summary = ChainSummary;

    fn rows(&self) -> &RowRange {
        &self.rows
    }

    fn summary(&self) -> ChainSummary {
        let unfinished = || self.links().any(|link| link.file.unit != 0);
        ChainSummary {
            longest: self.chain_longest(),
            unfinished: self.state.can_read() && unfinished(),
            flushed: self.chains.iter().map(|chain| chain.flushed).max().unwrap_or(Txn::ZERO),
            active: self.state == TabletState::Active,
            bytes: self.disk_bytes(),
        }
    }

    fn combine(a: ChainSummary, b: ChainSummary) -> ChainSummary {
        ChainSummary {
            longest: a.longest.max(b.longest),
            unfinished: a.unfinished || b.unfinished,
            flushed: a.flushed.max(b.flushed),
            active: a.active && b.active,
            bytes: a.bytes.max(b.bytes),
        }
    }
}

/// The disk fragments of one group. For any row, cells in a later run are newer
/// than those in an earlier one.
#[derive(Clone, Default)]
pub struct Chain {
    /// Commits up to this txn are in files. The table may know of later ones.
    pub flushed: Txn,
    /// Oldest first.
    pub runs: Vec<Run>,
}

impl Chain {
    /// Whether some file has families that belong to other chains.
    pub fn is_restricted(&self) -> bool {
        self.links().any(|link| link.families().is_some())
    }

    pub fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.runs.iter().flat_map(Run::links)
    }
}
