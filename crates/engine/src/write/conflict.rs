//! Tracks how recently rows were written, in bounded memory.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::cell::commit::TableId;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::txn::Txn;

/// The highest txn recorded per slot. Rows share slots, so a row may appear
/// newer than it is, which costs a retry, but never older.
pub struct ConflictMemory {
    slots: Box<[AtomicU64]>,
}

/// A row's hash in the conflict memory.
#[derive(Clone, Copy, Debug)]
pub struct RowSlot(u64);

impl RowSlot {
    pub fn of(table: TableId, row: &[u8]) -> RowSlot {
        RowSlot(xxh3_64_with_seed(row, u64::from(table.0)))
    }
}

impl ConflictMemory {
    /// Starts with every row at `floor`: anything read before it conflicts.
    pub fn new(slots: usize, floor: Txn) -> ConflictMemory {
        let slots = slots.next_power_of_two();
        ConflictMemory { slots: (0..slots).map(|_| AtomicU64::new(floor.raw())).collect() }
    }

    /// Returns a txn at or above that of the row's last commit.
    pub fn newest(&self, row: RowSlot) -> Txn {
        let raw = self.slot(row).load(Ordering::Acquire);
        Txn::from_raw(raw).expect("only txns are stored")
    }

    /// Records that the row was written at `txn`. Called in txn order.
    pub fn record(&self, row: RowSlot, txn: Txn) {
        self.slot(row).store(txn.raw(), Ordering::Release);
    }

    fn slot(&self, row: RowSlot) -> &AtomicU64 {
        &self.slots[row.0 as usize & (self.slots.len() - 1)]
    }
}
