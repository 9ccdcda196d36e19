//! What a read may see and how much it may do, and how its caller takes the
//! cells.

use std::cell::Cell;
use std::ops::ControlFlow;

use super::columns::Columns;
use crate::cell::commit::TimeRange;
use crate::cell::fold::Folds;
use crate::fragment::EntryPlace;
use crate::schema::Schema;
use crate::txn::Txn;

/// A cell as a reader sees it. Borrowed: the sink copies what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellView<'a> {
    pub row: &'a [u8],
    pub family: &'a [u8],
    pub qualifier: &'a [u8],
    pub timestamp: i64,
    /// The commit that wrote it, or zero once that makes no difference.
    pub txn: Txn,
    /// An erasure kept as history; shown only to readers that ask for it.
    pub marker: bool,
    pub value: &'a [u8],
}

/// What a read may see. Fixed for as long as a row is being read.
#[derive(Clone, Copy, Debug)]
pub struct ReadRules<'a> {
    pub snapshot: Txn,
    /// The purge clock, fixed when the scan is opened.
    pub now_micros: i64,
    pub schema: &'a Schema,
    pub folds: &'a Folds,
    pub columns: &'a Columns,
    pub times: TimeRange,
    /// Newest versions of each column to return, after all else.
    pub versions: Option<u32>,
    /// Whether to show markers. They count as versions either way.
    pub markers: bool,
}

/// How much one call may do. A call stops at the first limit it reaches.
#[derive(Clone, Copy, Debug)]
pub struct ReadBudget {
    pub rows: usize,
    pub cells: usize,
    pub bytes: usize,
    /// Entries to examine, whether returned or not; a long value counts as
    /// several.
    pub work: usize,
    /// The sink wants nothing more.
    pub stopped: bool,
    /// The call ends before a cell whose value is longer.
    pub value_bytes: usize,
    /// The length of such a value.
    pub long_value: Option<usize>,
}

/// So many bytes of a value cost as much work as an entry.
const BYTES_PER_WORK: usize = 4 << 10;

impl ReadBudget {
    pub const UNLIMITED: ReadBudget = ReadBudget {
        rows: usize::MAX,
        cells: usize::MAX,
        bytes: usize::MAX,
        work: usize::MAX,
        stopped: false,
        value_bytes: usize::MAX,
        long_value: None,
    };

    /// A cell has been returned.
    pub fn pay_cell(&mut self, cell: &CellView<'_>) {
        let names = cell.row.len() + cell.family.len() + cell.qualifier.len();
        self.cells -= 1;
        self.bytes = self.bytes.saturating_sub(names + cell.value.len() + 16);
    }

    /// An entry has been examined.
    pub(super) fn pay_entry(&mut self, value: &[u8]) {
        self.work = self.work.saturating_sub(1 + value.len() / BYTES_PER_WORK);
    }

    /// Ends the call before the next entry.
    pub fn stop(&mut self) {
        self.work = 0;
        self.stopped = true;
    }

    pub fn spent(&self) -> bool {
        self.cells == 0 || self.bytes == 0 || self.work == 0
    }
}

/// Why a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// Everything before the bound has been read.
    Bound,
    /// A limit of the budget was reached; there may be more.
    Budget,
}

/// Tells the sink where a cell is.
pub type PlaceNote = Cell<Option<EntryPlace>>;

/// Takes the cells as they are found, and decides how the read goes on.
pub type Sink<'s> = dyn FnMut(&CellView<'_>) -> Flow + 's;

/// How a read goes on behind a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flow {
    /// With the next cell.
    Continue,
    /// With the next column: older versions of this one are skipped.
    NextColumn,
    /// With the next row.
    NextRow,
    /// Not at all: nothing more is wanted, and a scan is done.
    Stop,
}

/// A sink without a verdict takes all cells.
impl From<()> for Flow {
    fn from(_: ()) -> Flow {
        Flow::Continue
    }
}

impl From<ControlFlow<()>> for Flow {
    fn from(flow: ControlFlow<()>) -> Flow {
        if flow.is_break() { Flow::Stop } else { Flow::Continue }
    }
}
