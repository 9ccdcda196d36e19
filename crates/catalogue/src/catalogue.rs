//! An open catalogue: where its records are, who writes which of its keys,
//! and how many records and bytes it holds.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use stele_engine::Txn;
use stele_grpc::offload::in_place;
use xxhash_rust::xxh3::xxh3_64;

use crate::fid::Fid;
use crate::layout::{Object, Space};

/// Keys share locks: writers of different keys seldom meet.
const STRIPES: usize = 64;

pub struct Catalogue {
    pub fid: Fid,
    pub object: Object,
    pub space: Space,
    pub created_micros: i64,
    /// The commit that made it; zero when that was long ago.
    born: Txn,
    /// Its place among the open catalogues.
    pub slot: u32,
    stripes: [Mutex<()>; STRIPES],
    records: AtomicI64,
    bytes: AtomicI64,
    dropped: AtomicBool,
}

/// What a catalogue holds, or what a commit adds to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub records: i64,
    /// Bytes of keys and values.
    pub bytes: i64,
}

impl Totals {
    pub fn add(&mut self, key: &[u8], value_bytes: usize) {
        self.records += 1;
        self.bytes += (key.len() + value_bytes) as i64;
    }

    pub fn remove(&mut self, key: &[u8], value_bytes: usize) {
        self.records -= 1;
        self.bytes -= (key.len() + value_bytes) as i64;
    }
}

/// Who holds these may write the keys; released when dropped.
pub type Locked<'c> = Vec<MutexGuard<'c, ()>>;

impl Catalogue {
    pub fn new(
        fid: Fid,
        object: Object,
        space: Space,
        created_micros: i64,
        born: Txn,
        totals: Totals,
        slot: u32,
    ) -> Catalogue {
        Catalogue {
            fid,
            object,
            space,
            created_micros,
            born,
            slot,
            stripes: [const { Mutex::new(()) }; STRIPES],
            records: AtomicI64::new(totals.records),
            bytes: AtomicI64::new(totals.bytes),
            dropped: AtomicBool::new(false),
        }
    }

    /// Keeps others from writing these keys. Locks are taken in one order, so
    /// nobody waits for ever.
    pub fn lock_keys<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Locked<'_> {
        let stripe = |key: &[u8]| 1u64 << (xxh3_64(key) % STRIPES as u64);
        let wanted = keys.fold(0, |wanted, key| wanted | stripe(key));
        let wanted = (0..STRIPES).filter(|at| wanted & 1 << at != 0);
        wanted.map(|at| lock(&self.stripes[at])).collect()
    }

    /// Keeps all others from writing.
    pub fn lock_all(&self) -> Locked<'_> {
        self.stripes.iter().map(lock).collect()
    }

    pub fn totals(&self) -> Totals {
        Totals {
            records: self.records.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// A commit has changed it.
    pub fn count(&self, change: Totals) {
        self.records.fetch_add(change.records, Ordering::Relaxed);
        self.bytes.fetch_add(change.bytes, Ordering::Relaxed);
    }

    /// It has been deleted for good. The caller keeps writers away.
    pub fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Whether readers, who see up to `durable`, may know of it.
    pub fn is_readable(&self, durable: Txn) -> bool {
        !self.is_dropped() && self.born <= durable
    }
}

/// Most locks are free; others may be held until the disk has answered.
fn lock(stripe: &Mutex<()>) -> MutexGuard<'_, ()> {
    stripe.try_lock().unwrap_or_else(|| in_place(|| stripe.lock()))
}
