//! The deathrow: deleted catalogues whose records are still to be removed, in the
//! background and across restarts. The records of a catalogue are one range of rows, so
//! a single range tombstone removes any number of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use stele_engine::world::WaitScope;
use stele_engine::{
    BatchLimits, CellView, Commit, CommitBuilder, RowRange, ScanSpec, TableId, View,
};
use stele_tables::{Local, Tenure};
use tokio::sync::watch;

use super::Catalogues;
use crate::error::Result;
use crate::fid::Fid;
use crate::layout::{self, Condemned, Object, Space, TableIds};

/// The maximum number of catalogues per commit.
const STEP_CATALOGUES: usize = 256;

/// The delay after an error, such as a full disk.
const RETRY_AFTER: Duration = Duration::from_secs(10);

pub struct Deathrow {
    /// Number of catalogues that still have records.
    waiting: watch::Sender<isize>,
    /// The rows of the deathrow in the order of arrival. Cached, because a scan would
    /// have to skip the rows that were deleted before.
    queue: Mutex<VecDeque<(Object, Fid)>>,
    /// Wakes the collector, if it runs.
    wake: Mutex<Option<SyncSender<()>>>,
}

impl Deathrow {
    /// Reads the stored deathrow, which is part of the meta-catalogue.
    pub fn open(meta: Local<'_>, tenure: &Tenure) -> Result<Deathrow> {
        let mut queue = VecDeque::new();
        let rows = RowRange::prefix(layout::DEATHROW);
        let spec = ScanSpec { view: View::Latest, ..ScanSpec::range(rows) };
        let mut add = |cell: &CellView<'_>| {
            let object = cell.row[layout::DEATHROW.len()..].try_into().map(u64::from_be_bytes);
            let condemned = object.ok().zip(Condemned::decode(cell.value));
            queue.extend(condemned.map(|(object, condemned)| (object, condemned.fid)));
        };
        let mut scan = tenure.open(meta.scan(spec))?;
        while !tenure.open(scan.next_batch(BatchLimits::default(), &mut add))?.done {
            scan.wait_fetched()?;
        }
        Ok(Deathrow::with(queue))
    }

    fn with(queue: VecDeque<(Object, Fid)>) -> Deathrow {
        let waiting = watch::Sender::new(queue.len() as isize);
        Deathrow { waiting, queue: Mutex::new(queue), wake: Mutex::new(None) }
    }

    /// Adds deleted catalogues.
    pub fn arrived(&self, catalogues: impl ExactSizeIterator<Item = (Object, Fid)>) {
        self.waiting.send_modify(|waiting| *waiting += catalogues.len() as isize);
        self.queue.lock().extend(catalogues);
        if let Some(wake) = &*self.wake.lock() {
            match wake.try_send(()) {
                // If the channel is full, a wakeup is already pending.
                Ok(()) | Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
            }
        }
    }

    /// Returns the catalogues that the next step removes.
    fn take(&self) -> Vec<(Object, Fid)> {
        let mut queue = self.queue.lock();
        let count = queue.len().min(STEP_CATALOGUES);
        queue.drain(..count).collect()
    }

    /// Puts back the catalogues of a failed step.
    fn put_back(&self, catalogues: Vec<(Object, Fid)>) {
        let mut queue = self.queue.lock();
        catalogues.into_iter().rev().for_each(|catalogue| queue.push_front(catalogue));
    }

    /// Counts catalogues whose records have been removed.
    fn left(&self, catalogues: usize) {
        self.waiting.send_modify(|waiting| *waiting -= catalogues as isize);
    }

    fn len(&self) -> usize {
        usize::try_from(*self.waiting.borrow()).unwrap_or(0)
    }
}

impl Catalogues {
    /// Returns the number of deleted catalogues that still have records.
    pub fn deathrow_len(&self) -> usize {
        self.deathrow.len()
    }

    /// Waits until no deleted catalogue has records.
    pub async fn await_deathrow(&self) {
        let mut waiting = self.deathrow.waiting.subscribe();
        // The sender lives as long as this service.
        let _ = waiting.wait_for(|waiting| *waiting <= 0).await;
    }

    /// Removes the records of the first catalogues of the deathrow in one commit.
    /// Returns whether there were any.
    pub fn collect_step(&self) -> Result<bool> {
        let mut doomed = self.deathrow.take();
        // Rows of a commit must be in ascending order.
        doomed.sort_unstable_by_key(|(object, _)| *object);
        if doomed.is_empty() {
            return Ok(false);
        }
        let commit = removal(&self.ids, &doomed);
        if let Err(error) = self.tenure().open(self.meta().apply_blocking(&commit)) {
            self.deathrow.put_back(doomed);
            return Err(error.into());
        }
        self.deathrow.left(doomed.len());
        Ok(true)
    }
}

/// Returns the commit that removes the records and totals of catalogues, and their rows
/// of the deathrow.
fn removal(tables: &TableIds, doomed: &[(Object, Fid)]) -> Commit {
    let mut commit = CommitBuilder::new();
    commit.table(tables.meta);
    let mut records: BTreeMap<TableId, Vec<Object>> = BTreeMap::new();
    for &(object, fid) in doomed {
        commit.row(&layout::meta_row(layout::DEATHROW, &object.to_be_bytes())).delete_row();
        records.entry(tables.records_of(fid)).or_default().push(object);
    }
    for (table, objects) in records {
        commit.table(table);
        for &object in &objects {
            commit.delete_range(&Space::of_object(table, object).rows());
        }
        for &object in &objects {
            commit.row(&layout::totals_row(object)).delete_row();
        }
    }
    commit.finish()
}

/// The thread that empties the deathrow. It does not keep the service alive: when the
/// service is dropped, the thread ends after the current step.
pub struct Collector {
    thread: JoinHandle<()>,
}

impl Collector {
    pub fn start(service: &Arc<Catalogues>) -> std::io::Result<Collector> {
        let (wake, woken) = sync_channel(1);
        *service.deathrow.wake.lock() = Some(wake);
        let weak = Arc::downgrade(service);
        let thread =
            std::thread::Builder::new().name("stele-deathrow".into()).spawn(move || {
                let _wait = WaitScope::enter();
                collect(&weak, &woken);
            })?;
        Ok(Collector { thread })
    }

    /// Waits until the thread has ended, which it does after the service was dropped.
    /// Calling this is optional.
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("the deathrow thread panicked");
        }
    }
}

fn collect(service: &Weak<Catalogues>, woken: &Receiver<()>) {
    loop {
        let Some(alive) = service.upgrade() else { return };
        let step = alive.collect_step();
        // The service can be dropped while this waits.
        drop(alive);
        // The service holds the sender, so the channel closes when it is dropped.
        let gone = match step {
            Ok(true) => false,
            Ok(false) => woken.recv().is_err(),
            Err(error) => {
                tracing::warn!(%error, "cannot remove the records of deleted catalogues, will retry");
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
    fn catalogues_wait_until_a_step_has_removed_them() {
        let fid = Fid::of_id(7).unwrap();
        let deathrow = Deathrow::with(VecDeque::from([(1, fid)]));
        deathrow.arrived([(2, fid), (3, fid)].into_iter());
        let taken = deathrow.take();
        assert_eq!((taken.len(), deathrow.len()), (3, 3));
        deathrow.put_back(taken.clone());
        assert_eq!(deathrow.take(), taken);
        deathrow.left(taken.len());
        assert_eq!(deathrow.len(), 0);
        assert!(deathrow.take().is_empty());
    }
}
