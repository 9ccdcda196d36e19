//! Reads the latest state of one row for a conditional write. A small row is read
//! in one step; a larger one in batches, between which other tasks run and the
//! call can be cancelled. What is kept of a row is charged to the memory for
//! responses, unless it is small.

use std::time::Instant;

use stele_engine::{BatchLimits, CellView, Flow, RowRange, ScanSpec, Txn};
use stele_grpc::offload::in_place_if_large;
use stele_tables::Local;

use super::Data;
use super::chunks::MESSAGE_BYTES;
use super::pace::{Pace, RowClock};
use super::response_memory::ResponseMemory;
use crate::error::Result;

/// The bytes of a row that may be kept without being charged: little more than
/// the rest of a call takes.
const KEPT_BYTES_FREE: usize = 16 << 10;

/// Receives the cells of a row.
pub trait RowSink {
    fn cell(&mut self, cell: &CellView<'_>) -> Flow;

    /// Returns the bytes to charge for what the sink keeps of the row.
    fn kept_bytes(&self) -> usize;

    /// Returns the maximum number of bytes to charge for one more value of this
    /// length.
    fn value_cost(&self, value_bytes: usize) -> usize {
        value_bytes
    }

    /// Discards the received cells: the row is read again from its start.
    fn restart(&mut self);
}

impl Data {
    /// Passes the selected cells of a row to `sink` until it stops the read.
    /// Returns the txn at which they were read. The memory is charged with what
    /// the sink keeps, plus `base_bytes`.
    pub(super) async fn read_latest(
        &self,
        local: Local<'_>,
        row: &[u8],
        spec: &ScanSpec,
        mut pace: Pace,
        (memory, base_bytes): (&mut ResponseMemory, usize),
        sink: &mut (impl RowSink + Send),
    ) -> Result<Txn> {
        local.loaded(row).await?;
        let tenure = self.tables.tenure();
        let (mut clock, mut large) = (RowClock::default(), false);
        let read = local.try_read_row(row, spec, Pace::ROW_WORK_MAX, |cell| {
            let bytes = sink.kept_bytes() + sink.value_cost(cell.value.len());
            large = bytes > MESSAGE_BYTES
                || clock.is_late()
                || bytes > KEPT_BYTES_FREE && !memory.try_reserve(base_bytes + bytes);
            if large { Flow::Stop } else { sink.cell(cell) }
        });
        if let Some(txn) = tenure.open(read)?
            && !large
        {
            return Ok(txn);
        }
        sink.restart();
        let rows = vec![RowRange::row(row)];
        let mut scan = tenure.open(local.scan(ScanSpec { rows, ..spec.clone() }))?;
        let mut value_bytes = MESSAGE_BYTES;
        let mut oldest = Txn::MAX;
        loop {
            let bytes = sink.kept_bytes() + sink.value_cost(value_bytes);
            memory.wait_for(base_bytes + bytes).await?;
            let limits = BatchLimits {
                bytes: MESSAGE_BYTES,
                work: pace.work(),
                value_bytes,
                ..BatchLimits::default()
            };
            let begun = Instant::now();
            let read = || scan.next_batch(limits, &mut |cell: &CellView<'_>| sink.cell(cell));
            let end = tenure.open(in_place_if_large(value_bytes, read))?;
            pace.note(begun.elapsed());
            memory.set(base_bytes + sink.kept_bytes());
            oldest = oldest.min(end.txn);
            if end.done {
                return Ok(oldest);
            }
            value_bytes = end.long_value.unwrap_or(MESSAGE_BYTES);
            match end.missed {
                true => scan.fetched().await?,
                false => tokio::task::yield_now().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::time::Duration;

    use stele_engine::CommitBuilder;
    use stele_grpc::memory::{CallMemory, CallPools, MemoryPool};

    use super::*;
    use crate::data::simulated::{TABLE, data};
    use crate::proto::v2;
    use crate::proto::v2::read_modify_write_rule::Rule;
    use crate::table::Table;

    /// Writes cells of one column, and optionally deletes them.
    fn write(data: &Data, table: &Table, cells: &[Vec<u8>], deleted: bool) {
        let mut commit = CommitBuilder::new();
        commit.table(table.id).row(b"row");
        for (at, value) in cells.iter().enumerate() {
            commit.set(b"f", b"q", at as i64 * 1000, value);
        }
        let (local, tenure) = (data.tables.local(table.id, b"row"), data.tables.tenure());
        tenure.open(local.apply_blocking(&commit.finish())).unwrap();
        if deleted {
            let mut commit = CommitBuilder::new();
            commit.table(table.id).row(b"row").delete_column(b"f", b"q");
            tenure.open(local.apply_blocking(&commit.finish())).unwrap();
        }
    }

    /// Runs a call whose memory is counted. Also returns the pool.
    async fn counted<F: Future>(call: F) -> (F::Output, Arc<MemoryPool>) {
        let pools = CallPools::new(1 << 20, 2 << 20, Duration::from_secs(600));
        let pools: &'static CallPools = Box::leak(Box::new(pools));
        let mut memory = CallMemory::new(pools);
        let mut call = pin!(call);
        let poll = |cx: &mut std::task::Context<'_>| memory.within(|| call.as_mut().poll(cx));
        (std::future::poll_fn(poll).await, pools.buffered_responses().clone())
    }

    /// Keeps all values, and checks that they are charged.
    #[derive(Default)]
    struct Keeps {
        values: Vec<usize>,
        uncharged: usize,
    }

    impl RowSink for Keeps {
        fn cell(&mut self, cell: &CellView<'_>) -> Flow {
            self.values.push(cell.value.len());
            let charged = CallMemory::current().responses().used() as usize;
            self.uncharged = self.uncharged.max(self.kept_bytes().saturating_sub(charged));
            Flow::Continue
        }

        fn kept_bytes(&self) -> usize {
            self.values.iter().sum()
        }

        fn restart(&mut self) {
            self.values.clear();
        }
    }

    async fn read(data: &Data, table: &Table, sink: &mut Keeps) {
        let mut memory = ResponseMemory::of_call();
        let (spec, memory) = (ScanSpec::default(), (&mut memory, 0));
        let local = data.tables.local(table.id, b"row");
        data.read_latest(local, b"row", &spec, Pace::fast(), memory, sink).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_kept_of_a_row_is_charged_before_it_is_kept() {
        let (data, table) = data();
        let cells = |bytes: usize, count: usize| vec![vec![b'v'; bytes]; count];
        for cells in [cells(100, 3), cells(1 << 10, 100), cells(1 << 20, 5), cells(3 << 20, 1)] {
            write(&data, &table, &cells, false);
        }
        let mut sink = Keeps::default();
        let ((), pool) = counted(read(&data, &table, &mut sink)).await;
        assert_eq!(sink.values.len(), 100, "later cells replaced earlier ones");
        assert!(sink.uncharged <= KEPT_BYTES_FREE, "{} bytes", sink.uncharged);
        assert_eq!(pool.used(), 0);
    }

    #[tokio::test]
    async fn other_tasks_have_their_turn_while_deleted_cells_are_passed() {
        let (data, table) = data();
        write(&data, &table, &vec![b"v".to_vec(); 3 * Pace::WORK_MAX], true);
        let other = tokio::spawn(async {});
        let mut sink = Keeps::default();
        read(&data, &table, &mut sink).await;
        assert!(sink.values.is_empty());
        assert!(other.is_finished(), "the read yields");
    }

    #[tokio::test]
    async fn the_values_of_a_read_modify_write_are_charged_until_they_are_sent() {
        let (data, table) = data();
        write(&data, &table, &[vec![b'v'; 300 << 10]], false);
        let rule = v2::ReadModifyWriteRule {
            family_name: "f".into(),
            column_qualifier: "q".into(),
            rule: Some(Rule::AppendValue("more".into())),
        };
        let request = v2::ReadModifyWriteRowRequest {
            table_name: TABLE.into(),
            row_key: "row".into(),
            rules: vec![rule],
            ..Default::default()
        };
        let (modified, pool) = counted(data.read_modify_write(request)).await;
        let (row, memory) = modified.unwrap();
        let value = &row.families[0].columns[0].cells[0].value;
        assert_eq!(value.len(), (300 << 10) + 4);
        assert!(pool.used() >= 600 << 10, "{} bytes", pool.used());
        drop(memory);
        assert_eq!(pool.used(), 0);
    }
}
