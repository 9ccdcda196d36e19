//! An open catalogue: the location of its records, locks on its keys, and its numbers
//! of records and bytes.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use stele_engine::Txn;
use stele_grpc::offload::in_place;
use xxhash_rust::xxh3::xxh3_64;

use crate::fid::Fid;
use crate::layout::{Object, Space};

/// Number of locks. Keys share them; writers of different keys rarely collide.
const STRIPES: usize = 64;

pub struct Catalogue {
    pub fid: Fid,
    pub object: Object,
    pub space: Space,
    pub created_micros: i64,
    /// The commit that created it; zero if it existed before it was opened.
    born: Txn,
    /// Its index among the open catalogues.
    pub slot: u32,
    stripes: [Mutex<()>; STRIPES],
    records: AtomicI64,
    bytes: AtomicI64,
    dropped: AtomicBool,
}

/// The contents of a catalogue, or the changes of a commit.
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

/// Locks on keys; released when dropped.
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

    /// Locks these keys for writing. Locks are always taken in the same order, which
    /// prevents deadlocks.
    pub fn lock_keys<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Locked<'_> {
        let stripe = |key: &[u8]| 1u64 << (xxh3_64(key) % STRIPES as u64);
        let wanted = keys.fold(0, |wanted, key| wanted | stripe(key));
        let wanted = (0..STRIPES).filter(|at| wanted & 1 << at != 0);
        wanted.map(|at| lock(&self.stripes[at])).collect()
    }

    /// Locks all keys.
    pub fn lock_all(&self) -> Locked<'_> {
        self.stripes.iter().map(lock).collect()
    }

    pub fn totals(&self) -> Totals {
        Totals {
            records: self.records.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Adds the changes of a commit to the totals.
    pub fn count(&self, change: Totals) {
        self.records.fetch_add(change.records, Ordering::Relaxed);
        self.bytes.fetch_add(change.bytes, Ordering::Relaxed);
    }

    /// Marks the catalogue as deleted. The caller must hold the locks of all keys.
    pub fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Returns whether readers, which see commits up to `durable`, may see the
    /// catalogue.
    pub fn is_readable(&self, durable: Txn) -> bool {
        !self.is_dropped() && self.born <= durable
    }
}

/// Takes a lock. Most locks are free; others may be held during a disk write.
fn lock(stripe: &Mutex<()>) -> MutexGuard<'_, ()> {
    stripe.try_lock().unwrap_or_else(|| in_place(|| stripe.lock()))
}
