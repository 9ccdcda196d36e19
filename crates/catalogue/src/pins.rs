//! Txns that readers hold, so that several requests see the same moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use stele_engine::{Snapshot, Store, Txn, View};

use crate::error::{Error, Result};
use crate::limits::PINS_MAX;

#[derive(Default)]
pub struct Pins {
    held: Mutex<BTreeMap<Txn, Arc<Snapshot>>>,
}

impl Pins {
    /// Holds what a snapshot holds, until it is too old or let go.
    pub fn hold(&self, snapshot: Arc<Snapshot>) -> Result<Txn> {
        let mut held = self.held.lock();
        if held.len() >= PINS_MAX {
            held.retain(|_, snapshot| snapshot.check().is_ok());
        }
        if held.len() >= PINS_MAX {
            let what = format!("{PINS_MAX} txns are held already: unpin some, or wait");
            return Err(Error::Exhausted(what));
        }
        let txn = snapshot.txn();
        // The younger of two at the same txn lasts longer.
        held.insert(txn, snapshot);
        Ok(txn)
    }

    /// Tells whether it was held.
    pub fn release(&self, txn: Txn) -> bool {
        self.held.lock().remove(&txn).is_some()
    }

    /// What a request reads: the txn that it names, or what is durable now.
    pub fn snapshot(&self, store: &Store, at: u64) -> Result<Arc<Snapshot>> {
        if at == 0 {
            return Ok(store.snapshot());
        }
        let txn = Txn::from_raw(at).ok_or_else(|| Error::invalid(format!("no txn is {at}")))?;
        let snapshot = self.held.lock().get(&txn).cloned().ok_or(Error::Unpinned(txn))?;
        if snapshot.check().is_err() {
            self.release(txn);
            return Err(Error::Unpinned(txn));
        }
        Ok(snapshot)
    }

    /// The same as a view; for one key the moment need not be held.
    pub fn view(&self, store: &Store, at: u64, keys: usize) -> Result<View> {
        if at == 0 && keys <= 1 {
            return Ok(View::Durable);
        }
        Ok(View::At(self.snapshot(store, at)?))
    }
}
