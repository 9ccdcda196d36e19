//! What a read may see, how much work it may do, and how its caller receives the cells.

use std::cell::Cell;
use std::ops::ControlFlow;

use super::columns::Columns;
use super::cursor::EntryPlace;
use crate::cell::commit::TimeRange;
use crate::cell::fold::Folds;
use crate::schema::Schema;
use crate::txn::Txn;
use crate::world::Miss;

/// A cell as a reader sees it. Borrowed: the sink copies what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellView<'a> {
    pub row: &'a [u8],
    pub family: &'a [u8],
    pub qualifier: &'a [u8],
    pub timestamp: i64,
    /// The txn of the commit that wrote it, or zero once it no longer matters.
    pub txn: Txn,
    /// An erasure kept as history; returned only to readers that request markers.
    pub marker: bool,
    pub value: &'a [u8],
}

/// What a read may see. Constant while a row is being read.
#[derive(Clone, Copy, Debug)]
pub struct ReadRules<'a> {
    pub snapshot: Txn,
    /// The purge clock, fixed when the scan is opened.
    pub now_micros: i64,
    pub schema: &'a Schema,
    pub folds: &'a Folds,
    pub columns: &'a Columns,
    pub times: TimeRange,
    /// The number of newest versions of each column to return, applied last.
    pub versions: Option<u32>,
    /// Whether to return markers. They count as versions either way.
    pub markers: bool,
}

/// Limits on the work of one call, which stops at the first one reached.
#[derive(Clone, Debug)]
pub struct ReadBudget {
    pub rows: usize,
    pub cells: usize,
    pub bytes: usize,
    /// Entries to examine, whether returned or not; a long value counts as several.
    pub work: usize,
    /// The sink ended the read.
    pub stopped: bool,
    /// The call ends before a cell whose value is longer than this.
    pub value_bytes: usize,
    /// The length of that value.
    pub long_value: Option<usize>,
    /// Set if the call ended before bytes that are not on this machine.
    pub miss: Option<Miss>,
}

/// This many bytes of a value count as one entry of work.
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
        miss: None,
    };

    /// Charges a returned cell.
    pub fn pay_cell(&mut self, cell: &CellView<'_>) {
        let names = cell.row.len() + cell.family.len() + cell.qualifier.len();
        self.cells -= 1;
        self.bytes = self.bytes.saturating_sub(names + cell.value.len() + 16);
    }

    /// Charges an examined entry.
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

/// Receives the place of a cell for the sink.
pub type PlaceNote = Cell<Option<EntryPlace>>;

/// Receives the cells as they are found and decides how the read continues.
pub type Sink<'s> = dyn FnMut(&CellView<'_>) -> Flow + 's;

/// How a read continues after a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flow {
    /// With the next cell.
    Continue,
    /// With the next column: older versions of this one are skipped.
    NextColumn,
    /// With the next row.
    NextRow,
    /// Ends the read; a scan is done.
    Stop,
}

/// A sink that returns nothing receives all cells.
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
