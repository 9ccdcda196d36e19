//! A tablet: a range of rows and, for each group, the chain of disk fragments
//! that hold them.

use std::sync::Arc;

use super::link::Link;
use super::run::Run;
use crate::cell::row_map::{RowMap, RowMapValue};
use crate::cell::rows::RowRange;
use crate::config::{Reference, TabletConfig, TabletId};
use crate::error::Result;
use crate::txn::Txn;

/// A range of rows. Immutable: a change creates a new one.
#[derive(Clone)]
pub struct Tablet {
    pub id: TabletId,
    /// Increases with each change of the rows.
    pub load: u64,
    pub rows: RowRange,
    /// Nothing that was read before this txn is known to be unchanged.
    pub loaded_at: Txn,
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
        Ok(Tablet { id, load, rows: config.rows.clone(), loaded_at, chains })
    }

    pub fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.chains.iter().flat_map(Chain::links)
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
    /// Returns the tablet in a map; `None` if its rows have changed.
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
}

impl RowMapValue for Tablet {
    type Summary = ChainSummary;

    fn rows(&self) -> &RowRange {
        &self.rows
    }

    fn summary(&self) -> ChainSummary {
        ChainSummary {
            longest: self.chains.iter().map(|chain| chain.runs.len()).max().unwrap_or(0),
            unfinished: self.links().any(|link| link.file.unit != 0),
            flushed: self.chains.iter().map(|chain| chain.flushed).max().unwrap_or(Txn::ZERO),
        }
    }

    fn combine(a: ChainSummary, b: ChainSummary) -> ChainSummary {
        ChainSummary {
            longest: a.longest.max(b.longest),
            unfinished: a.unfinished || b.unfinished,
            flushed: a.flushed.max(b.flushed),
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
    pub fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.runs.iter().flat_map(Run::links)
    }
}
