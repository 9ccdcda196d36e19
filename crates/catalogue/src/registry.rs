//! The open catalogues, found by fid or by slot. At most one is open for each object,
//! because its locks and totals must be unique.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use xxhash_rust::xxh3::xxh3_64;

use crate::catalogue::Catalogue;
use crate::cookie::CatalogueCookie;
use crate::error::Result;
use crate::fid::Fid;

const SHARDS: usize = 16;
/// The number of open catalogues of a shard beyond which idle ones are closed.
const SHARD_OPEN_MAX: usize = 4096;

#[derive(Default)]
pub struct Registry {
    shards: [RwLock<HashMap<Fid, Arc<Catalogue>>>; SHARDS],
    slots: RwLock<Slots>,
}

/// Catalogues by slot. A slot is reused when its catalogue is closed; the object
/// distinguishes them.
#[derive(Default)]
struct Slots {
    catalogues: Vec<Weak<Catalogue>>,
    free: Vec<u32>,
}

impl Registry {
    fn shard(&self, fid: Fid) -> &RwLock<HashMap<Fid, Arc<Catalogue>>> {
        &self.shards[(xxh3_64(fid.bytes()) >> 32) as usize % SHARDS]
    }

    pub fn get(&self, fid: Fid) -> Option<Arc<Catalogue>> {
        self.shard(fid).read().get(&fid).cloned()
    }

    /// Returns the catalogue of a cookie, if it is still open.
    pub fn at(&self, fid: Fid, cookie: CatalogueCookie) -> Option<Arc<Catalogue>> {
        let catalogue = self.slots.read().catalogues.get(cookie.slot as usize)?.upgrade()?;
        (catalogue.object == cookie.object && catalogue.fid == fid).then_some(catalogue)
    }

    /// Returns the catalogue, opened by `load` if necessary. No other thread opens it
    /// at the same time.
    pub fn get_or_open(
        &self,
        fid: Fid,
        load: impl FnOnce(u32) -> Result<Option<Catalogue>>,
    ) -> Result<Option<Arc<Catalogue>>> {
        let mut shard = self.shard(fid).write();
        if let Some(open) = shard.get(&fid) {
            return Ok(Some(open.clone()));
        }
        let slot = self.take_slot();
        let loaded = load(slot);
        let Ok(Some(catalogue)) = loaded else {
            self.slots.write().free.push(slot);
            return loaded.map(|_| None);
        };
        let catalogue = Arc::new(catalogue);
        self.slots.write().catalogues[slot as usize] = Arc::downgrade(&catalogue);
        if shard.len() >= SHARD_OPEN_MAX {
            self.close_idle(&mut shard);
        }
        shard.insert(fid, catalogue.clone());
        Ok(Some(catalogue))
    }

    /// Removes a deleted catalogue.
    pub fn remove(&self, fid: Fid) {
        if let Some(removed) = self.shard(fid).write().remove(&fid) {
            self.slots.write().free.push(removed.slot);
        }
    }

    fn take_slot(&self) -> u32 {
        let mut slots = self.slots.write();
        if let Some(slot) = slots.free.pop() {
            return slot;
        }
        slots.catalogues.push(Weak::new());
        u32::try_from(slots.catalogues.len() - 1).expect("the number of open catalogues is limited")
    }

    /// Closes catalogues that only the shard refers to, while the shard is locked: a
    /// lookup by slot either holds a reference already or finds nothing.
    fn close_idle(&self, shard: &mut HashMap<Fid, Arc<Catalogue>>) {
        let mut slots = self.slots.write();
        shard.retain(|_, catalogue| {
            let used = Arc::strong_count(catalogue) > 1;
            if !used {
                slots.free.push(catalogue.slot);
            }
            used
        });
    }
}
