//! The bytes of one simulated file: the durable ones, the changes since, and what a
//! crash leaves of them.

use crate::world::random::Random;

/// The unit that a disk writes atomically.
const SECTOR_BYTES: usize = 512;

/// A change that is not durable yet.
#[derive(Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes } => write_at(content, *offset, bytes),
            Change::SetLen(len) => content.resize(*len, 0),
        }
    }
}

#[derive(Clone, Default)]
pub struct Content {
    /// What reads see.
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// In the order in which they were made.
    unsynced: Vec<Change>,
}

impl Content {
    pub fn seen(&self) -> &[u8] {
        &self.seen
    }

    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.change(Change::Write { offset, bytes: bytes.to_vec() });
    }

    pub fn set_len(&mut self, len: usize) {
        self.change(Change::SetLen(len));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.seen);
        self.unsynced.push(change);
    }

    pub fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Makes the bytes of a range durable, and no others. With a pending change of the
    /// length everything becomes durable, as its order matters.
    pub fn sync_range(&mut self, offset: usize, len: usize) {
        if self.unsynced.iter().any(|change| matches!(change, Change::SetLen(_))) {
            return self.sync();
        }
        let range = offset.min(self.seen.len())..(offset + len).min(self.seen.len());
        write_at(&mut self.durable, range.start, &self.seen[range.clone()]);
        for change in std::mem::take(&mut self.unsynced) {
            let Change::Write { offset, bytes } = change else { continue };
            let before = range.start.saturating_sub(offset).min(bytes.len());
            let after = range.end.saturating_sub(offset).min(bytes.len());
            let mut keep = |offset: usize, bytes: &[u8]| {
                if !bytes.is_empty() {
                    self.unsynced.push(Change::Write { offset, bytes: bytes.to_vec() });
                }
            };
            keep(offset, &bytes[..before]);
            keep(offset + after, &bytes[after..]);
        }
    }

    /// Simulates a failed sync: the kernel discards some of the dirty pages, though
    /// reads still see them. No later sync writes them.
    pub fn fail_sync(&mut self, random: &dyn Random) {
        self.unsynced.retain(|_| random.next_u64().is_multiple_of(2));
    }

    /// Damages the stored bytes. Bytes that are not durable yet are damaged in place,
    /// and are lost or kept like any other write.
    pub fn flip_bit(&mut self, bit: usize) {
        let (at, mask) = (bit / 8, 1 << (bit % 8));
        let damaged = self.seen[at] ^ mask;
        self.damage(Change::Write { offset: at, bytes: vec![damaged] });
    }

    pub fn truncate(&mut self, len: usize) {
        self.damage(Change::SetLen(len));
    }

    fn damage(&mut self, change: Change) {
        let durable = self.unsynced.is_empty();
        self.change(change);
        if durable {
            self.sync();
        }
    }

    /// Returns what is left after a power failure: of each unsynced change all,
    /// nothing, or one side of a sector boundary, independently of the others.
    pub fn after_crash(mut self, random: &dyn Random) -> Content {
        for change in std::mem::take(&mut self.unsynced) {
            if let Some(survivor) = survivor_of(change, random) {
                survivor.apply(&mut self.durable);
            }
        }
        self.seen = self.durable.clone();
        self
    }
}

fn survivor_of(change: Change, random: &dyn Random) -> Option<Change> {
    match random.next_u64() % 3 {
        0 => Some(change),
        1 => None,
        _ => Some(torn(change, random)),
    }
}

fn torn(change: Change, random: &dyn Random) -> Change {
    let Change::Write { offset, mut bytes } = change else { return change };
    let first = (offset + 1).next_multiple_of(SECTOR_BYTES);
    let boundaries = (first..offset + bytes.len()).step_by(SECTOR_BYTES).count();
    if boundaries == 0 {
        return Change::Write { offset, bytes };
    }
    let boundary = first + random.next_u64() as usize % boundaries * SECTOR_BYTES;
    let tail = bytes.split_off(boundary - offset);
    if random.next_u64().is_multiple_of(2) {
        Change::Write { offset, bytes }
    } else {
        Change::Write { offset: boundary, bytes: tail }
    }
}

fn write_at(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::random::SeededRandom;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The possible contents of one sector after a crash, and whether a sync might fail
    /// to make the newest write to it durable.
    #[derive(Clone, Default)]
    struct Sector {
        possible: BTreeSet<u8>,
        newest: u8,
        in_doubt: bool,
    }

    proptest! {
        #[test]
        fn a_crash_leaves_in_each_sector_something_that_was_written_since_its_last_sync(
            steps in prop::collection::vec((0u8..10, 0usize..6, 1usize..4, any::<u8>()), 1..60),
            seed in any::<u64>(),
        ) {
            let random = SeededRandom::new(seed);
            let mut content = Content::default();
            content.write(0, &[0; 9 * SECTOR_BYTES]);
            content.sync();
            let blank = Sector { possible: [0].into(), ..Sector::default() };
            let mut model = vec![blank; 9];
            for (choice, at, count, byte) in steps {
                match choice {
                    0..6 => {
                        content.write(at * SECTOR_BYTES, &vec![byte; count * SECTOR_BYTES]);
                        for sector in &mut model[at..at + count] {
                            sector.possible.insert(byte);
                            (sector.newest, sector.in_doubt) = (byte, false);
                        }
                    }
                    6 => {
                        content.fail_sync(&random);
                        for sector in &mut model {
                            sector.in_doubt = sector.possible.len() > 1;
                        }
                    }
                    7 | 8 => {
                        content.sync();
                        for sector in model.iter_mut().filter(|sector| !sector.in_doubt) {
                            sector.possible = [sector.newest].into();
                        }
                    }
                    _ => {
                        content = content.after_crash(&random);
                        for (at, sector) in model.iter_mut().enumerate() {
                            let left = &content.seen()[at * SECTOR_BYTES..][..SECTOR_BYTES];
                            prop_assert!(left.iter().all(|byte| *byte == left[0]));
                            prop_assert!(sector.possible.contains(&left[0]));
                            sector.possible = [left[0]].into();
                            (sector.newest, sector.in_doubt) = (left[0], false);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn synced_bytes_survive_every_crash() {
        let mut content = Content::default();
        content.write(0, &[1; 2000]);
        content.sync();
        content.write(3000, &[2; 10]);
        content.set_len(100_000);
        for seed in 0..50 {
            let left = content.clone().after_crash(&SeededRandom::new(seed));
            assert_eq!(left.seen()[..2000], [1; 2000]);
        }
    }

    #[test]
    fn a_synced_range_survives_every_crash_and_what_is_around_it_need_not() {
        let mut content = Content::default();
        content.write(0, &[1; 4096]);
        content.write(1000, &[2; 600]);
        content.sync_range(1000, 600);
        let mut lost = [0; 2];
        for seed in 0..100 {
            let left = content.clone().after_crash(&SeededRandom::new(seed)).seen().to_vec();
            assert_eq!(left[1000..1600], [2; 600]);
            lost[0] += usize::from(left[0] == 0);
            lost[1] += usize::from(left.get(1600) != Some(&1));
        }
        assert!(lost.iter().all(|lost| (1..100).contains(lost)), "{lost:?}");
        assert_eq!(content.seen()[..1000], [1; 1000]);
    }

    #[test]
    fn unsynced_writes_are_kept_lost_or_torn_each_on_its_own() {
        let mut content = Content::default();
        content.write(0, &[9; 4096]);
        content.sync();
        content.write(100, &[1; 1000]);
        content.write(2048, &[2; 512]);
        let mut left = BTreeSet::new();
        for seed in 0..400 {
            let seen = content.clone().after_crash(&SeededRandom::new(seed)).seen().to_vec();
            let at = |from: usize, to: usize| {
                let same = seen[from..to].iter().all(|byte| *byte == seen[from]);
                assert!(same, "torn inside a sector");
                seen[from]
            };
            left.insert((at(100, 512), at(512, 1024), at(1024, 1100), at(2048, 2560)));
        }
        // Sectors of the first write survive as a head or a tail; the second write, of
        // one sector, independently of them.
        let first = [(1, 1, 1), (9, 9, 9), (1, 9, 9), (1, 1, 9), (9, 1, 1), (9, 9, 1)];
        let all: BTreeSet<_> =
            first.iter().flat_map(|&(a, b, c)| [(a, b, c, 2), (a, b, c, 9)]).collect();
        assert_eq!(left, all);
    }

    #[test]
    fn what_a_failed_sync_dropped_stays_visible_and_is_never_durable() {
        let mut lost = 0;
        for seed in 0..20 {
            let random = SeededRandom::new(seed);
            let mut content = Content::default();
            content.write(0, b"x");
            content.fail_sync(&random);
            content.sync();
            assert_eq!(content.seen(), b"x");
            let left = content.after_crash(&random);
            lost += usize::from(left.seen().is_empty());
        }
        assert!((1..20).contains(&lost), "{lost} of 20");
    }
}
