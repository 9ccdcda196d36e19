//! One scanner: its position, the block that is being read, and the last block, which is
//! repeated if its answer was lost.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use stele_engine::{BatchEnd, BatchLimits, CellView, Snapshot, TableId, Txn};
use stele_tables::{Answer, Scan};

use crate::error::{Error, Result};
use crate::proto::{ScanReply, ScannedCell};

/// A last block of more bytes is not kept: a client that lost it scans again.
const KEPT_BYTES_MAX: usize = 2 << 20;
/// The size of a scanner without its last block, and of a cell without its bytes.
const SCANNER_BYTES: usize = 1 << 10;
const CELL_BYTES: usize = 160;
/// A snapshot must not keep superseded cells alive for longer.
const SNAPSHOT_AGE_MAX: Duration = Duration::from_secs(300);

pub struct Scanner {
    table: TableId,
    scan: Scan,
    /// Held by a scan that reads all rows at one txn.
    snapshot: Option<(Arc<Snapshot>, Instant)>,
    block: Block,
    /// The number of the next block.
    next: u64,
    /// The block before.
    last: Option<ScanReply>,
    last_bytes: usize,
    done: bool,
}

/// A block that is being read. It survives a call that is cancelled, so that no cell is
/// lost.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    cells: Vec<BlockCell>,
    /// The names of the last cell.
    row: Range<usize>,
    family: Range<usize>,
    qualifier: Range<usize>,
    /// The oldest txn at which a row was read.
    txn: Option<Txn>,
}

/// A cell, whose bytes are in the block. Fields are `None` if they repeat those of the
/// previous cell.
struct BlockCell {
    row: Option<Range<usize>>,
    family: Option<Range<usize>>,
    qualifier: Option<Range<usize>>,
    timestamp: i64,
    value: Range<usize>,
}

/// How a request for a block continues.
pub enum Requested {
    /// The block was returned before.
    Again(ScanReply),
    /// It has to be read.
    Next,
}

impl Scanner {
    pub fn new(table: TableId, scan: Scan, snapshot: Option<Arc<Snapshot>>) -> Scanner {
        Scanner {
            table,
            scan,
            snapshot: snapshot.map(|snapshot| (snapshot, Instant::now())),
            block: Block::default(),
            next: 1,
            last: None,
            last_bytes: 0,
            done: false,
        }
    }

    pub fn table(&self) -> TableId {
        self.table
    }

    /// Returns the memory that the scanner takes while it is idle.
    pub fn bytes(&self) -> usize {
        SCANNER_BYTES + self.last_bytes + self.block.size()
    }

    /// Finds the block of a number.
    pub fn request(&self, id: u64, requested: u64) -> Result<Requested> {
        match &self.last {
            Some(last) if last.sequence == requested => return Ok(Requested::Again(last.clone())),
            None if requested.checked_add(1) == Some(self.next) => {
                return Err(Error::ScannerExpired(id));
            }
            _ if self.next == requested && !self.done => return Ok(Requested::Next),
            _ => {}
        }
        Err(Error::ScannerSequence { scanner: id, next: self.next, requested })
    }

    /// Extends the snapshot of the scan, if it has one.
    pub fn renew(&self, id: u64) -> Result<()> {
        let Some((snapshot, begun)) = &self.snapshot else { return Ok(()) };
        if begun.elapsed() > SNAPSHOT_AGE_MAX {
            return Err(Error::ScannerExpired(id));
        }
        snapshot.renew().map_err(|_| Error::ScannerExpired(id))
    }

    /// Returns the number of cells and the size of the block that is being read.
    pub fn read_so_far(&self) -> (usize, usize) {
        (self.block.cells.len(), self.block.bytes.len())
    }

    /// Adds a batch to the block. The caller opens the answer before the block is used.
    pub fn read(&mut self, limits: BatchLimits) -> Answer<BatchEnd> {
        let block = &mut self.block;
        self.scan.next_batch(limits, &mut |cell: &CellView<'_>| block.push(cell))
    }

    /// Notes the end of a batch.
    pub fn note(&mut self, end: &BatchEnd) {
        self.done = end.done;
        let txn = self.block.txn.map_or(end.txn, |txn| txn.min(end.txn));
        self.block.txn = Some(txn);
    }

    /// Completes the block, and keeps it until the next one is requested.
    pub fn finish(&mut self, id: u64) -> ScanReply {
        let block = std::mem::take(&mut self.block);
        let size = block.size();
        let reply = ScanReply {
            scanner: id,
            sequence: self.next,
            txn: block.txn.unwrap_or(Txn::ZERO).raw(),
            cells: block.into_cells(),
            row_open: self.scan.mid_row(),
            done: self.done,
        };
        self.next += 1;
        let kept = size <= KEPT_BYTES_MAX;
        (self.last, self.last_bytes) = if kept { (Some(reply.clone()), size) } else { (None, 0) };
        if self.done {
            self.snapshot = None;
        }
        reply
    }

    pub fn is_done(&self) -> bool {
        self.done
    }
}

impl Block {
    fn size(&self) -> usize {
        self.bytes.len() + self.cells.len() * CELL_BYTES
    }

    fn push(&mut self, cell: &CellView<'_>) {
        let repeats = |held: &Range<usize>, bytes: &[u8]| {
            !self.cells.is_empty() && self.bytes[held.clone()] == *bytes
        };
        let same_row = repeats(&self.row, cell.row);
        let same_family = repeats(&self.family, cell.family);
        let same_qualifier = repeats(&self.qualifier, cell.qualifier);
        if !same_row {
            self.row = self.copy(cell.row);
        }
        if !same_family {
            self.family = self.copy(cell.family);
        }
        if !same_qualifier {
            self.qualifier = self.copy(cell.qualifier);
        }
        let value = self.copy(cell.value);
        self.cells.push(BlockCell {
            row: (!same_row).then(|| self.row.clone()),
            family: (!same_family).then(|| self.family.clone()),
            qualifier: (!same_qualifier).then(|| self.qualifier.clone()),
            timestamp: cell.timestamp,
            value,
        });
    }

    fn copy(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn into_cells(self) -> Vec<ScannedCell> {
        let bytes = Bytes::from(self.bytes);
        let field = |at: Option<Range<usize>>| at.map(|at| bytes.slice(at));
        let cells = self.cells.into_iter().map(|cell| ScannedCell {
            row: field(cell.row),
            family: field(cell.family),
            qualifier: field(cell.qualifier),
            timestamp: cell.timestamp,
            value: bytes.slice(cell.value),
        });
        cells.collect()
    }
}
