//! Scans: opened with their first block, continued block by block. A block is read in
//! batches, between which other calls run.

use stele_engine::{BatchLimits, ScanSpec, View as EngineView};
use stele_grpc::memory::CallMemory;
use stele_grpc::offload::in_place;
use stele_tables::{Local, Placement};
use tonic::Status;

use super::predicate::scan_spec;
use super::rules::ServedTable;
use super::scanner::{Requested, Scanner};
use super::scanners::Lease;
use super::service::Native;
use crate::error::{Error, Result};
use crate::proto::{GetRequest, Isolation, ScanReply, ScanRequest, View};

/// The size of a block whose caller sets no limits, and the maximum.
const BLOCK_BYTES: usize = 256 << 10;
const BLOCK_BYTES_MAX: usize = 4 << 20;
const BLOCK_CELLS_MAX: usize = 50_000;
/// Batches of fewer bytes are read on the thread of the call.
const QUICK_BYTES_MAX: usize = 64 << 10;
/// The entries that a batch examines before other calls run.
const BATCH_WORK: usize = 1 << 14;
/// Memory for a longer value is reserved before it is read.
const LONG_VALUE_BYTES: usize = 1 << 20;

/// The limits of a block.
#[derive(Clone, Copy)]
pub struct BlockLimits {
    cells: usize,
    bytes: usize,
}

impl BlockLimits {
    fn new(cells: u64, bytes: u64) -> BlockLimits {
        let limit = |wanted: u64, default: usize, most: usize| match wanted {
            0 => default,
            wanted => usize::try_from(wanted).unwrap_or(most).min(most),
        };
        BlockLimits {
            cells: limit(cells, BLOCK_CELLS_MAX, BLOCK_CELLS_MAX),
            bytes: limit(bytes, BLOCK_BYTES, BLOCK_BYTES_MAX),
        }
    }
}

impl Native {
    pub(super) async fn open_scan(
        &self,
        table: ServedTable,
        request: ScanRequest,
        memory: &CallMemory,
    ) -> Result<ScanReply, Status> {
        let Placement::Here(local) = self.tables.place(table.id, b"");
        let limits = BlockLimits::new(request.max_cells, request.max_bytes);
        let (close, scanner) = (request.close, self.scanner(local, &table, request)?);
        let mut lease = self.scanners.open(scanner);
        match self.read_block(local, &mut lease, limits, memory).await {
            Err(error) => {
                lease.close();
                Err(error)
            }
            Ok(mut reply) => {
                // Nothing can be requested any more.
                if reply.done || close {
                    reply.scanner = 0;
                    lease.close();
                }
                Ok(reply)
            }
        }
    }

    /// Creates the scanner of a request.
    fn scanner(
        &self,
        local: Local<'_>,
        table: &ServedTable,
        request: ScanRequest,
    ) -> Result<Scanner> {
        let unknown = |what: &str| Error::InvalidScan(format!("unknown {what}"));
        let isolation = Isolation::try_from(request.isolation).map_err(|_| unknown("isolation"))?;
        let view = View::try_from(request.view).map_err(|_| unknown("view"))?;
        let predicate = request.predicate.unwrap_or_default();
        let spec = scan_spec(&request.table, &table.schema, predicate, isolation)?;
        let (view, snapshot) = match (isolation, view) {
            (Isolation::Snapshot, View::AllCommits) => {
                let what = "a snapshot has only durable commits: use another isolation or view";
                return Err(Error::InvalidScan(what.into()));
            }
            (Isolation::Snapshot, _) => {
                let snapshot = self.tables.tenure().open(local.snapshot())?;
                (EngineView::At(snapshot.clone()), Some(snapshot))
            }
            (_, View::AllCommits) => (EngineView::Latest, None),
            _ => (EngineView::Durable, None),
        };
        let scan = self.tables.tenure().open(local.scan(ScanSpec { view, ..spec }))?;
        Ok(Scanner::new(table.id, scan, snapshot))
    }

    pub(super) async fn next_block(
        &self,
        table: ServedTable,
        request: GetRequest,
        memory: &CallMemory,
    ) -> Result<ScanReply, Status> {
        let Placement::Here(local) = self.tables.place(table.id, b"");
        let mut lease = self.scanners.take(table.id, request.scanner)?;
        let limits = BlockLimits::new(request.max_cells, request.max_bytes);
        let read = match lease.request(lease.id(), request.sequence)? {
            Requested::Again(reply) => Ok(reply),
            Requested::Next => match lease.renew(lease.id()) {
                Ok(()) => self.read_block(local, &mut lease, limits, memory).await,
                Err(expired) => Err(expired.into()),
            },
        };
        if read.is_err() || request.close {
            lease.close();
        }
        read
    }

    /// Reads the next block of a scanner.
    async fn read_block(
        &self,
        local: Local<'_>,
        lease: &mut Lease<'_>,
        limits: BlockLimits,
        memory: &CallMemory,
    ) -> Result<ScanReply, Status> {
        let mut long_value = None;
        loop {
            let (cells, bytes) = lease.read_so_far();
            let full = cells >= limits.cells || bytes >= limits.bytes;
            if full && cells > 0 || lease.is_done() {
                break;
            }
            let batch = BatchLimits {
                cells: if long_value.is_some() { 1 } else { limits.cells - cells },
                bytes: limits.bytes.saturating_sub(bytes),
                work: BATCH_WORK,
                value_bytes: if long_value.is_some() { usize::MAX } else { LONG_VALUE_BYTES },
            };
            let mut read = || self.tables.tenure().open(lease.read(batch));
            let quick = batch.bytes <= QUICK_BYTES_MAX && long_value.is_none();
            match if quick { read() } else { in_place(read) } {
                Ok(end) => {
                    lease.note(&end);
                    long_value = match end.long_value {
                        // The value gets a block of its own.
                        Some(_) if lease.read_so_far().0 > 0 => break,
                        Some(length) => Some(memory.responses().take(length as u64).await?),
                        None => None,
                    };
                }
                Err(stele_engine::Error::TabletNotLoaded(tablet)) if tablet.state.is_loading() => {
                    local.loaded(&tablet.row.0).await.map_err(Error::from)?;
                }
                // The rows before are returned; the next block fails.
                Err(stele_engine::Error::TabletNotLoaded(_)) if cells > 0 => break,
                Err(stele_engine::Error::SnapshotExpired { .. }) => {
                    return Err(Error::ScannerExpired(lease.id()).into());
                }
                Err(error) => return Err(Error::from(error).into()),
            }
            tokio::task::yield_now().await;
        }
        let id = lease.id();
        Ok(lease.finish(id))
    }
}
