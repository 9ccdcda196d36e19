//! The contract for changing the rows of tablets, wherever they are stored.
//!
//! A row is the durable config of one tablet. It is changed by conditional mutations:
//! each names what it expects of the row and has an id, which the row keeps. So a
//! mutation that arrives twice is applied once, and its sender can find out whether it
//! was applied by reading the row. The [`Settler`](super::Settler) does that for all
//! implementations.

use std::sync::Arc;

use super::{ConfigEdit, Join, Splice, Split, TabletConfig, TabletId};
use crate::cell::commit::TableId;
use crate::error::Error;
use crate::txn::Txn;

/// Stores the rows of tablets. Calls return at once or when the answer is known; `done`
/// is called exactly once, on any thread. The caller holds no lock that others need.
pub trait TabletRows: Send + Sync {
    /// Applies each mutation whose expectations hold. Those of one submission are
    /// independent: some may be applied and others not.
    fn submit(&self, submission: Submission, done: Done<Answer>);

    /// Reads rows, in their durable state. An implementation that cannot read waits
    /// before it answers `Unknown`, because the caller asks again at once.
    fn read(&self, keys: Vec<RowKey>, done: Done<Vec<Found>>);
}

/// Receives an answer.
pub type Done<T> = Box<dyn FnOnce(T) + Send>;

/// Identifies the row of a tablet by the end of its rows, which the upper tablet of a
/// split or a join keeps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey {
    pub table: TableId,
    pub end: Option<Vec<u8>>,
}

/// The id of a mutation: the incarnation that sent it and a number. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpId {
    pub incarnation: u64,
    pub number: u64,
}

/// What a mutation expects of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub id: TabletId,
    pub load: u64,
    pub rev: u64,
}

/// A conditional change of a row. It increases the row's `rev` and sets its `op`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    pub key: RowKey,
    pub expected: Expected,
    /// The row before it, which a join removes.
    pub lower: Option<(RowKey, Expected)>,
    /// Applied in order, all or none.
    pub edits: Vec<RowEdit>,
    pub op: OpId,
}

/// A change of a row's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowEdit {
    Splice(Splice),
    Split(Split),
    Join(Join),
    /// Loads or unloads the tablet.
    SetLoaded {
        table: TableId,
        tablet: TabletId,
        start: Vec<u8>,
        loaded: bool,
        /// Everything up to this txn is in files. Where the table has that, too, a row need
        /// not.
        flushed: Option<Txn>,
    },
}

impl From<RowEdit> for ConfigEdit {
    fn from(edit: RowEdit) -> ConfigEdit {
        match edit {
            RowEdit::Splice(splice) => ConfigEdit::Splice(splice),
            RowEdit::Split(split) => ConfigEdit::Split(split),
            RowEdit::Join(join) => ConfigEdit::Join(join),
            RowEdit::SetLoaded { table, tablet, start, loaded, flushed: _ } => {
                ConfigEdit::SetLoaded { table, tablets: vec![(tablet, start)], loaded }
            }
        }
    }
}

/// Mutations of distinct rows, and what follows from them.
#[derive(Clone, Debug, Default)]
pub struct Submission {
    pub mutations: Vec<Mutation>,
    pub riders: Vec<Rider>,
}

/// Edits of the store's own config that hold once some mutations are applied. An
/// implementation that stores both in one place writes them together; others leave
/// riders to the caller.
#[derive(Clone, Debug)]
pub struct Rider {
    /// Positions in the submission.
    pub mutations: Vec<usize>,
    pub edits: Vec<ConfigEdit>,
}

/// What became of a submission.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// One per mutation.
    pub outcomes: Vec<Outcome>,
    /// For each rider, whether it is known to be written.
    pub riders: Vec<bool>,
}

/// What became of a mutation.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Durable.
    Applied,
    /// Without effect, because this row was found.
    Refused(Option<TabletRow>),
    /// Applied, refused, or about to be either.
    Unknown,
    /// Without effect, now and later, and not because of the row.
    Failed(Error),
}

/// A row as it was read.
#[derive(Clone, Debug)]
pub enum Found {
    Row(TabletRow),
    Missing,
    /// The row could not be read now.
    Unknown,
}

/// A row and the id of its last mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TabletRow {
    pub config: Arc<TabletConfig>,
    /// `None` if it is not known to this incarnation.
    pub op: Option<OpId>,
}

impl TabletRow {
    /// Returns what a mutation of the row has to expect.
    pub fn expected(&self) -> Expected {
        let TabletConfig { id, load, rev, .. } = *self.config;
        Expected { id, load, rev }
    }
}
