//! A tablet as the config describes it: its id, rows, and a chain of references
//! per group.

use std::fmt;

use super::{Reference, encoding};
use crate::cell::row_map::{RowMap, RowMapValue};
use crate::cell::rows::RowRange;
use crate::error::{Error, Result};
use crate::txn::Txn;

/// The id of a tablet: the incarnation that created it and a number. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TabletId {
    pub incarnation: u32,
    pub number: u32,
}

impl fmt::Display for TabletId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.incarnation, self.number)
    }
}

/// A range of rows with a chain of files per group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TabletConfig {
    pub id: TabletId,
    /// Increases with each change of the rows, and whenever the tablet is loaded.
    pub load: u64,
    /// Increases with each change of the tablet.
    pub rev: u64,
    /// Whether rows can be read and written. What is not loaded has everything in
    /// files.
    pub loaded: bool,
    pub rows: RowRange,
    /// One chain per group of the schema.
    pub chains: Vec<ChainConfig>,
}

impl TabletConfig {
    /// Returns a tablet without files.
    pub fn new(id: TabletId, rows: RowRange, groups: usize) -> TabletConfig {
        let chains = vec![ChainConfig::default(); groups];
        TabletConfig { id, load: 1, rev: 1, loaded: true, rows, chains }
    }

    /// Encodes the tablet, to be stored elsewhere than in a manifest.
    pub fn encode(&self) -> Vec<u8> {
        encoding::encode_tablet(self)
    }

    /// Decodes the output of `encode`.
    pub fn decode(bytes: &[u8]) -> Result<TabletConfig> {
        encoding::decode_tablet(bytes).map_err(|what| Error::InvalidPackedFormat { at: 0, what })
    }

    /// Returns every reference in the tablet's chains.
    pub fn files(&self) -> impl Iterator<Item = &Reference> {
        self.chains.iter().flat_map(|chain| &chain.files)
    }

    /// Whether every chain is sound for the tablet's rows.
    pub(super) fn is_valid(&self) -> bool {
        self.chains.iter().all(|chain| chain.is_valid(&self.rows))
    }
}

/// The tablets of a table, in row order, without gaps.
pub type TabletConfigs = RowMap<TabletConfig>;

impl RowMapValue for TabletConfig {
    type Summary = ();

    fn rows(&self) -> &RowRange {
        &self.rows
    }

    fn summary(&self) {}

    fn combine(_: (), _: ()) {}
}

/// The files of one tablet and group.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ChainConfig {
    /// Commits up to this txn are in the files; replay skips them.
    pub flushed: Txn,
    /// Ordered by run, oldest first; within a run in row order.
    pub files: Vec<Reference>,
}

impl ChainConfig {
    /// Returns the runs: groups of files without common rows.
    pub fn runs(&self) -> impl Iterator<Item = &[Reference]> {
        self.files.chunk_by(|_, next| next.joins)
    }

    /// Whether each reference has rows in the tablet and valid families, and each run
    /// is in row order and has no row in two references.
    pub(super) fn is_valid(&self, tablet: &RowRange) -> bool {
        let rows: Vec<RowRange> = self.files.iter().map(|file| file.live_rows(tablet)).collect();
        let ascends = |(at, pair): (usize, &[RowRange])| {
            !self.files[at + 1].joins
                || pair[0].end.as_ref().is_some_and(|end| *end <= pair[1].start)
        };
        self.files.iter().all(Reference::has_valid_families)
            && rows.iter().all(|rows| !rows.is_empty())
            && rows.windows(2).enumerate().all(ascends)
    }
}
