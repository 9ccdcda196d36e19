//! The deathrow: deleted catalogues whose records are being removed, piece by
//! piece, in the background and across restarts.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use stele_engine::{BatchLimits, CellView, CommitBuilder, RowRange, ScanSpec, Store, TableId};
use stele_engine::{Txn, View, Wait};
use tokio::sync::watch;

use super::Catalogues;
use crate::error::Result;
use crate::layout::{self, Condemned, Object, Space};

/// Records that one commit removes.
const STEP_RECORDS: usize = 1 << 16;

/// After an error, such as a full disk.
const RETRY_AFTER: Duration = Duration::from_secs(10);

pub struct Deathrow {
    /// Catalogues that still have records. Below zero for a moment when the
    /// collector is done with one before its deletion is told of here.
    waiting: watch::Sender<isize>,
    /// Wakes the collector, if one runs.
    wake: Mutex<Option<SyncSender<()>>>,
}

impl Deathrow {
    /// The deathrow as it was left.
    pub fn open(store: &Store, meta: TableId) -> Result<Deathrow> {
        let mut waiting = 0;
        let rows = RowRange::prefix(layout::DEATHROW);
        let spec = ScanSpec { view: View::Latest, ..ScanSpec::range(rows) };
        store.read(meta, spec, |_| waiting += 1)?;
        Ok(Deathrow { waiting: watch::Sender::new(waiting), wake: Mutex::new(None) })
    }

    /// Catalogues have been deleted.
    pub fn arrived(&self, catalogues: usize) {
        self.waiting.send_modify(|waiting| *waiting += catalogues as isize);
        if let Some(wake) = &*self.wake.lock() {
            match wake.try_send(()) {
                // Full: it is told already.
                Ok(()) | Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
            }
        }
    }

    /// A catalogue has no records any more.
    fn left(&self) {
        self.waiting.send_modify(|waiting| *waiting -= 1);
    }

    fn len(&self) -> usize {
        usize::try_from(*self.waiting.borrow()).unwrap_or(0)
    }
}

impl Catalogues {
    /// How many deleted catalogues still have records.
    pub fn deathrow_len(&self) -> usize {
        self.deathrow.len()
    }

    /// Waits until no deleted catalogue has records any more.
    pub async fn await_deathrow(&self) {
        let mut waiting = self.deathrow.waiting.subscribe();
        // The sender lives as long as this does.
        let _ = waiting.wait_for(|waiting| *waiting <= 0).await;
    }

    /// Removes some records of the first catalogue on the deathrow. Tells
    /// whether there was one.
    pub fn collect_step(&self) -> Result<bool> {
        let mut first: Option<(Object, Condemned)> = None;
        let rows = RowRange::prefix(layout::DEATHROW);
        let spec = ScanSpec { view: View::Latest, rows_max: Some(1), ..ScanSpec::range(rows) };
        self.store.read(self.tables.meta, spec, |cell| {
            let object = cell.row[layout::DEATHROW.len()..].try_into().map(u64::from_be_bytes);
            first = object.ok().zip(Condemned::decode(cell.value));
        })?;
        let Some((object, condemned)) = first else { return Ok(false) };
        self.remove_some(object, condemned)?;
        Ok(true)
    }

    fn remove_some(&self, object: Object, mut condemned: Condemned) -> Result<()> {
        let table = self.tables.records_of(condemned.fid);
        let space = Space::of_object(table, object);
        let (removed, last) = self.next_rows(&space)?;
        let rest = removed < STEP_RECORDS as u64;
        let mut commit = CommitBuilder::new();
        commit.table(self.tables.meta);
        commit.row(&layout::meta_row(layout::DEATHROW, &object.to_be_bytes()));
        if rest {
            commit.delete_row();
        } else {
            condemned.removed += removed;
            commit.set(layout::FAMILY, b"", 0, &condemned.encode());
        }
        let mut rows = space.rows();
        if let Some(last) = last.filter(|_| !rest) {
            // Up to and with the last row that was seen.
            rows.end = Some([last.as_slice(), &[0]].concat());
        }
        commit.table(table).delete_range(&rows);
        if rest {
            commit.row(&layout::totals_row(object)).delete_row();
        }
        self.store.apply(&commit.finish(), Txn::MAX, Wait::Durable)?;
        if rest {
            self.deathrow.left();
        }
        Ok(())
    }

    /// How many records the next step removes, and the row of the last.
    fn next_rows(&self, space: &Space) -> Result<(u64, Option<Vec<u8>>)> {
        let spec = ScanSpec {
            view: View::Latest,
            rows_max: Some(STEP_RECORDS),
            ..ScanSpec::range(space.rows())
        };
        let mut scan = self.store.scan(space.table, spec)?;
        let (mut records, mut last) = (0, Vec::new());
        let mut sink = |cell: &CellView<'_>| {
            records += 1;
            last.clear();
            last.extend_from_slice(cell.row);
        };
        while !scan.next_batch(BatchLimits::default(), &mut sink)?.done {}
        Ok((records, (records > 0).then_some(last)))
    }
}

/// The thread that empties the deathrow. It keeps nothing alive: when the
/// service goes it ends, after the step at hand.
pub struct Collector {
    thread: JoinHandle<()>,
}

impl Collector {
    pub fn start(service: &Arc<Catalogues>) -> std::io::Result<Collector> {
        let (wake, woken) = sync_channel(1);
        *service.deathrow.wake.lock() = Some(wake);
        let weak = Arc::downgrade(service);
        let thread = std::thread::Builder::new()
            .name("stele-deathrow".into())
            .spawn(move || collect(&weak, &woken))?;
        Ok(Collector { thread })
    }

    /// Waits until the thread has ended, which it does once the service is
    /// gone. Nobody has to.
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("the thread of the deathrow has panicked");
        }
    }
}

fn collect(service: &Weak<Catalogues>, woken: &Receiver<()>) {
    loop {
        let Some(alive) = service.upgrade() else { return };
        let step = alive.collect_step();
        // While this waits, the service can go.
        drop(alive);
        // The service holds the other end: without it there is nobody to wait
        // for.
        let gone = match step {
            Ok(true) => false,
            Ok(false) => woken.recv().is_err(),
            Err(error) => {
                tracing::warn!(%error, "the deathrow waits and tries again");
                woken.recv_timeout(RETRY_AFTER) == Err(RecvTimeoutError::Disconnected)
            }
        };
        if gone {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_catalogue_that_is_emptied_before_its_deletion_is_told_of_is_not_waited_for() {
        let deathrow = Deathrow { waiting: watch::Sender::new(0), wake: Mutex::new(None) };
        deathrow.left();
        assert_eq!(deathrow.len(), 0);
        deathrow.arrived(2);
        assert_eq!(deathrow.len(), 1);
        deathrow.left();
        assert_eq!(deathrow.len(), 0);
    }
}
