//! Which part is in which slot, and which slot is evicted next.

use std::collections::BTreeMap;

use stele_engine::config::FileName;

use super::PartKey;
use super::format::Header;

/// All slots of a cache. Nothing here does I/O.
pub struct Slots {
    slots: Vec<Slot>,
    slots_max: usize,
    index: BTreeMap<PartKey, u32>,
    free: Vec<u32>,
    hand: usize,
    bytes: u64,
}

#[derive(Default)]
struct Slot {
    /// Absent if the slot is free, being filled, or was dropped while pinned.
    header: Option<Header>,
    pins: u32,
    /// Used since the hand passed.
    referenced: bool,
    /// The data has been checked or written since the cache was opened.
    verified: bool,
}

/// A slot that cannot be evicted.
pub struct Pinned {
    pub slot: u32,
    pub header: Header,
    pub verified: bool,
}

/// A slot that is being filled.
pub struct Claim {
    pub slot: u32,
    /// Another part was evicted for it.
    pub evicted: bool,
}

/// What a read found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Use {
    Intact,
    Damaged,
}

impl Slots {
    pub fn new(slots_max: usize, found: Vec<(u32, Header)>) -> Slots {
        let count = found.iter().map(|(slot, _)| *slot as usize + 1).max().unwrap_or(0);
        let mut slots: Vec<Slot> = Vec::new();
        slots.resize_with(count.min(slots_max), Slot::default);
        let mut index = BTreeMap::new();
        let mut bytes = 0;
        for (at, header) in found {
            let Some(slot) = slots.get_mut(at as usize) else { continue };
            if slot.header.is_none() && !index.contains_key(&header.key) {
                index.insert(header.key, at);
                bytes += u64::from(header.length);
                slot.header = Some(header);
            }
        }
        let is_free = |at: &u32| slots[*at as usize].header.is_none();
        let free = (0..slots.len() as u32).filter(is_free).collect();
        Slots { slots, slots_max, index, free, hand: 0, bytes }
    }

    /// Returns the bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn contains(&self, key: PartKey) -> bool {
        self.index.contains_key(&key)
    }

    pub fn headers(&self) -> Vec<(u32, Header)> {
        let header = |at: &u32| self.slots[*at as usize].header.map(|header| (*at, header));
        self.index.values().filter_map(header).collect()
    }

    pub fn pin(&mut self, key: PartKey) -> Option<Pinned> {
        let at = *self.index.get(&key)?;
        let slot = &mut self.slots[at as usize];
        let header = slot.header.expect("a slot in the index has a header");
        slot.pins += 1;
        slot.referenced = true;
        Some(Pinned { slot: at, header, verified: slot.verified })
    }

    pub fn unpin(&mut self, pinned: Pinned, found: Use) {
        let slot = &mut self.slots[pinned.slot as usize];
        slot.pins -= 1;
        if slot.header == Some(pinned.header) {
            match found {
                Use::Intact => slot.verified = true,
                Use::Damaged => return self.forget(pinned.header.key),
            }
        }
        self.free_if_unused(pinned.slot);
    }

    /// Takes a slot for a part. `None` if the part has one, or all are in use.
    pub fn claim(&mut self, key: PartKey) -> Option<Claim> {
        if self.contains(key) {
            return None;
        }
        let (slot, evicted) = match self.free.pop() {
            Some(slot) => (slot, false),
            None if self.slots.len() < self.slots_max => {
                self.slots.push(Slot::default());
                (self.slots.len() as u32 - 1, false)
            }
            None => (self.evict()?, true),
        };
        self.slots[slot as usize].pins = 1;
        Some(Claim { slot, evicted })
    }

    /// Publishes a slot that has been written.
    pub fn fill(&mut self, claim: Claim, header: Header) {
        if self.contains(header.key) {
            return self.give_back(claim);
        }
        self.index.insert(header.key, claim.slot);
        self.bytes += u64::from(header.length);
        // A part counts as used only once it is read: one scan does not evict what is read often.
        self.slots[claim.slot as usize] =
            Slot { header: Some(header), pins: 0, referenced: false, verified: true };
    }

    /// Returns a slot that was not filled.
    pub fn give_back(&mut self, claim: Claim) {
        self.slots[claim.slot as usize] = Slot::default();
        self.free.push(claim.slot);
    }

    pub fn forget(&mut self, key: PartKey) {
        let Some(at) = self.index.remove(&key) else { return };
        self.clear(at);
        self.free_if_unused(at);
    }

    pub fn forget_file(&mut self, name: FileName) {
        let all = PartKey { name, part: 0 }..=PartKey { name, part: u32::MAX };
        let keys: Vec<PartKey> = self.index.range(all).map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.forget(key));
    }

    /// Moves the hand to a slot that was not used since it passed. Two rounds suffice
    /// unless all slots are pinned.
    fn evict(&mut self) -> Option<u32> {
        for _ in 0..2 * self.slots.len() {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[at];
            let (0, Some(header)) = (slot.pins, slot.header) else { continue };
            if std::mem::take(&mut slot.referenced) {
                continue;
            }
            self.index.remove(&header.key);
            self.clear(at as u32);
            return Some(at as u32);
        }
        None
    }

    fn clear(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        if let Some(header) = slot.header.take() {
            self.bytes -= u64::from(header.length);
        }
        (slot.referenced, slot.verified) = (false, false);
    }

    fn free_if_unused(&mut self, at: u32) {
        let slot = &self.slots[at as usize];
        if slot.pins == 0 && slot.header.is_none() {
            self.free.push(at);
        }
    }
}
