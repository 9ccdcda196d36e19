use std::collections::HashMap;
use std::os::unix::fs::FileExt;

use proptest::prelude::*;

use super::*;

const CLUSTER: &str = "0123456789abcdef";

fn key(number: u64, part: u32) -> PartKey {
    PartKey { name: FileName { incarnation: 1, number }, part }
}

fn open(dir: &Path, slots: u64) -> Cache {
    open_of(dir, slots, CLUSTER).unwrap()
}

fn open_of(dir: &Path, slots: u64, cluster: &str) -> Result<Cache> {
    Cache::open(dir, slots * format::SLOT_BYTES, cluster, Arc::default())
}

fn contents(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}

fn read(cache: &Cache, key: PartKey, length: usize) -> Option<Vec<u8>> {
    cache.read(key, 0..length).map(|bytes| bytes.to_vec())
}

#[test]
fn parts_are_found_after_a_close_and_after_a_crash() {
    for close in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let cache = open(dir.path(), 8);
        for number in 0..5 {
            cache.insert(key(number, 7), &contents(number, 1000 + number as usize));
        }
        if close {
            cache.save().unwrap();
        }
        assert_eq!(dir.path().join("index").exists(), close);
        drop(cache);
        let cache = open(dir.path(), 8);
        assert!(!dir.path().join("index").exists(), "an index is used once");
        for number in 0..5 {
            let length = 1000 + number as usize;
            assert_eq!(read(&cache, key(number, 7), length), Some(contents(number, length)));
            assert_eq!(
                cache.read(key(number, 7), 10..20).unwrap(),
                contents(number, length)[10..20]
            );
        }
        assert_eq!(cache.counters.cache_used_bytes.load(Relaxed), 5010);
    }
}

#[test]
fn damaged_parts_are_dropped() {
    for close in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let cache = open(dir.path(), 8);
        for number in 0..3 {
            cache.insert(key(number, 0), &contents(number, 5000));
        }
        if close {
            cache.save().unwrap();
        }
        drop(cache);
        let file = fs::OpenOptions::new().write(true).open(dir.path().join("slab")).unwrap();
        // The data of the first slot, and the header of the second.
        file.write_all_at(b"damage", 2 * format::BLOCK_BYTES + 4000).unwrap();
        file.write_all_at(b"damage", format::BLOCK_BYTES + format::SLOT_BYTES).unwrap();
        let cache = open(dir.path(), 8);
        // Also a read of bytes that are intact: the part is checked whole.
        assert_eq!(cache.read(key(0, 0), 0..10), None);
        assert!(!cache.contains(key(0, 0)));
        assert_eq!(cache.counters.cache_damaged.load(Relaxed), 1);
        // A saved index does not need the header.
        assert_eq!(read(&cache, key(1, 0), 5000), close.then(|| contents(1, 5000)));
        assert_eq!(read(&cache, key(2, 0), 5000), Some(contents(2, 5000)));
        cache.insert(key(0, 0), &contents(0, 5000));
        assert_eq!(read(&cache, key(0, 0), 5000), Some(contents(0, 5000)));
    }
}

#[test]
fn damaged_files_of_the_cache_are_replaced() {
    for name in ["slab", "index"] {
        for bytes in [&b""[..], b"x", &[0xff; 10_000]] {
            let dir = tempfile::tempdir().unwrap();
            let cache = open(dir.path(), 8);
            cache.insert(key(1, 0), &contents(1, 5000));
            cache.save().unwrap();
            drop(cache);
            fs::write(dir.path().join(name), bytes).unwrap();
            let cache = open(dir.path(), 8);
            let found = read(&cache, key(1, 0), 5000);
            assert_eq!(found, (name == "index").then(|| contents(1, 5000)));
            cache.insert(key(2, 0), &contents(2, 5000));
            assert_eq!(read(&cache, key(2, 0), 5000), Some(contents(2, 5000)));
        }
    }
}

#[test]
fn contents_of_another_cluster_are_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), 8);
    cache.insert(key(1, 0), &contents(1, 100));
    cache.save().unwrap();
    drop(cache);
    let cache = open_of(dir.path(), 8, "another").unwrap();
    assert_eq!(read(&cache, key(1, 0), 100), None);
}

#[test]
fn a_cache_belongs_to_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let _cache = open(dir.path(), 8);
    let error = open_of(dir.path(), 8, CLUSTER).err().unwrap().to_string();
    assert!(error.contains("another process"), "{error}");
}

#[test]
fn the_cache_stays_within_its_size() {
    let dir = tempfile::tempdir().unwrap();
    assert!(open_of(dir.path(), 3, CLUSTER).is_err());
    let cache = open(dir.path(), 4);
    let part = contents(1, PART_BYTES as usize);
    for number in 0..20 {
        cache.insert(key(number, 0), &part);
        // Read often, so it stays.
        assert!(cache.read(key(0, 0), 0..1).is_some(), "{number}");
    }
    assert_eq!(cache.counters.cache_evictions.load(Relaxed), 16);
    let length = fs::metadata(dir.path().join("slab")).unwrap().len();
    assert!(length <= format::BLOCK_BYTES + 4 * format::SLOT_BYTES);
    drop(cache);
    let cache = open(dir.path(), 5);
    drop(cache);
    let cache = open(dir.path(), 4);
    assert!(cache.slots.lock().headers().len() <= 4);
}

#[test]
fn pinned_slots_are_not_evicted() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), 4);
    for number in 0..4 {
        cache.insert(key(number, 0), &contents(number, 10));
    }
    let pins: Vec<_> =
        (0..4).map(|number| cache.slots.lock().pin(key(number, 0)).unwrap()).collect();
    cache.insert(key(9, 0), &contents(9, 10));
    assert!(!cache.contains(key(9, 0)));
    // A slot that is dropped while it is pinned is not reused before it is unpinned.
    cache.forget(key(2, 0));
    cache.insert(key(9, 0), &contents(9, 10));
    assert!(!cache.contains(key(9, 0)));
    pins.into_iter().for_each(|pinned| cache.slots.lock().unpin(pinned, Use::Intact));
    cache.insert(key(9, 0), &contents(9, 10));
    assert!(cache.contains(key(9, 0)) && cache.contains(key(0, 0)));
}

#[test]
fn concurrent_readers_and_writers_see_whole_parts() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), 4);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let cache = &cache;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                for _ in 0..400 {
                    let number = random.u64(..12);
                    match random.u8(..4) {
                        0 => cache.insert(key(number, 0), &contents(number, 9000)),
                        1 if random.u8(..8) == 0 => cache.forget_file(key(number, 0).name),
                        _ => {
                            if let Some(found) = read(cache, key(number, 0), 9000) {
                                assert!(found == contents(number, 9000));
                            }
                        }
                    }
                }
            });
        }
    });
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u32, usize),
    Read(u64, u32),
    Forget(u64, u32),
    ForgetFile(u64),
    Reopen(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let (number, part) = (0..6u64, 0..3u32);
    prop_oneof![
        4 => (number.clone(), part.clone(), 0..3000usize).prop_map(|(n, p, l)| Step::Insert(n, p, l)),
        4 => (number.clone(), part.clone()).prop_map(|(n, p)| Step::Read(n, p)),
        1 => (number.clone(), part).prop_map(|(n, p)| Step::Forget(n, p)),
        1 => number.prop_map(Step::ForgetFile),
        1 => any::<bool>().prop_map(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A cached part is the one that was inserted last. After a crash a forgotten part may
    /// return, as its file had contents that never change.
    #[test]
    fn a_cache_never_returns_other_bytes(steps in prop::collection::vec(step(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let mut cache = Some(open(dir.path(), 5));
        let mut inserted: HashMap<PartKey, usize> = HashMap::new();
        for step in steps {
            let open_cache = cache.as_ref().unwrap();
            match step {
                Step::Insert(number, part, length) => {
                    // The contents of a part never change, so neither does its length.
                    let length = *inserted.entry(key(number, part)).or_insert(length);
                    open_cache.insert(key(number, part), &contents(number * 10 + u64::from(part), length));
                    prop_assert!(open_cache.contains(key(number, part)));
                }
                Step::Read(number, part) => {
                    let length = inserted.get(&key(number, part)).copied().unwrap_or(1);
                    if let Some(found) = read(open_cache, key(number, part), length) {
                        prop_assert_eq!(found, contents(number * 10 + u64::from(part), length));
                    }
                }
                Step::Forget(number, part) => {
                    open_cache.forget(key(number, part));
                    prop_assert!(!open_cache.contains(key(number, part)));
                }
                Step::ForgetFile(number) => {
                    open_cache.forget_file(key(number, 0).name);
                    prop_assert!((0..3).all(|part| !open_cache.contains(key(number, part))));
                }
                Step::Reopen(close) => {
                    if close {
                        open_cache.save().unwrap();
                    }
                    drop(cache.take());
                    cache = Some(open(dir.path(), 5));
                }
            }
            let slots = cache.as_ref().unwrap().slots.lock();
            prop_assert!(slots.headers().len() <= 5);
            prop_assert_eq!(slots.bytes(), slots.headers().iter().map(|(_, h)| u64::from(h.length)).sum::<u64>());
        }
    }
}
