//! The deathrow: deleted catalogues whose records are still to be removed, in
//! the background and across restarts. The records of a catalogue are one range
//! of rows, so a single range delete removes them, however many they are.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use stele_engine::{Commit, CommitBuilder, RowRange, ScanSpec, Store, TableId, Txn, View, Wait};
use tokio::sync::watch;

use super::Catalogues;
use crate::error::Result;
use crate::fid::Fid;
use crate::layout::{self, Condemned, Object, Space, Tables};

/// Catalogues whose records one commit removes.
const STEP_CATALOGUES: usize = 256;

/// After an error, such as a full disk.
const RETRY_AFTER: Duration = Duration::from_secs(10);

pub struct Deathrow {
    /// Catalogues that still have records.
    waiting: watch::Sender<isize>,
    /// What the rows of the deathrow hold, in the order of arrival. Kept here
    /// because a scan would pass the rows that were deleted before.
    queue: Mutex<VecDeque<(Object, Fid)>>,
    /// Wakes the collector, if one runs.
    wake: Mutex<Option<SyncSender<()>>>,
}

impl Deathrow {
    /// The deathrow as it was left.
    pub fn open(store: &Store, meta: TableId) -> Result<Deathrow> {
        let mut queue = VecDeque::new();
        let rows = RowRange::prefix(layout::DEATHROW);
        let spec = ScanSpec { view: View::Latest, ..ScanSpec::range(rows) };
        store.read(meta, spec, |cell| {
            let object = cell.row[layout::DEATHROW.len()..].try_into().map(u64::from_be_bytes);
            let condemned = object.ok().zip(Condemned::decode(cell.value));
            queue.extend(condemned.map(|(object, condemned)| (object, condemned.fid)));
        })?;
        Ok(Deathrow::with(queue))
    }

    fn with(queue: VecDeque<(Object, Fid)>) -> Deathrow {
        let waiting = watch::Sender::new(queue.len() as isize);
        Deathrow { waiting, queue: Mutex::new(queue), wake: Mutex::new(None) }
    }

    /// Catalogues have been deleted.
    pub fn arrived(&self, catalogues: impl ExactSizeIterator<Item = (Object, Fid)>) {
        self.waiting.send_modify(|waiting| *waiting += catalogues.len() as isize);
        self.queue.lock().extend(catalogues);
        if let Some(wake) = &*self.wake.lock() {
            match wake.try_send(()) {
                // Full: it is told already.
                Ok(()) | Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
            }
        }
    }

    /// Takes the catalogues that the next step removes.
    fn take(&self) -> Vec<(Object, Fid)> {
        let mut queue = self.queue.lock();
        let count = queue.len().min(STEP_CATALOGUES);
        queue.drain(..count).collect()
    }

    /// Puts back what a failed step has taken.
    fn put_back(&self, catalogues: Vec<(Object, Fid)>) {
        let mut queue = self.queue.lock();
        catalogues.into_iter().rev().for_each(|catalogue| queue.push_front(catalogue));
    }

    /// Catalogues have no records any more.
    fn left(&self, catalogues: usize) {
        self.waiting.send_modify(|waiting| *waiting -= catalogues as isize);
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

    /// Removes the records of the first catalogues on the deathrow by one
    /// commit. Returns whether there were any.
    pub fn collect_step(&self) -> Result<bool> {
        let mut doomed = self.deathrow.take();
        // Rows of a commit ascend.
        doomed.sort_unstable_by_key(|(object, _)| *object);
        if doomed.is_empty() {
            return Ok(false);
        }
        let commit = removal(&self.tables, &doomed);
        if let Err(error) = self.store.apply(&commit, Txn::MAX, Wait::Durable) {
            self.deathrow.put_back(doomed);
            return Err(error.into());
        }
        self.deathrow.left(doomed.len());
        Ok(true)
    }
}

/// The commit that removes the records and totals of catalogues, and their rows
/// of the deathrow.
fn removal(tables: &Tables, doomed: &[(Object, Fid)]) -> Commit {
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
