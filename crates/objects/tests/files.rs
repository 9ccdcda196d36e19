//! Files come back as they were written, from the cache and from the store.

mod support;

use std::fs;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use stele_engine::world::{FragmentStore, Part, StoredFile};
use stele_objects::counters::{Outcome, Request};
use stele_objects::{Environment, Objects, Settings};
use support::{Fixture, MIB, contents, delete, eventually, list, name, read, settings, write};

const SIZES: [usize; 8] = [0, 1, 5000, MIB - 1, MIB, MIB + 1, 16 * MIB - 1, 17 * MIB + 5];

fn check(store: &Objects, number: u64, size: usize) {
    let expected = contents(number, size);
    let mut random = fastrand::Rng::with_seed(number);
    let ranges = (0..10).map(|_| {
        let start = random.usize(0..=size);
        start..random.usize(start..=size.min(start + 3 * MIB))
    });
    for range in ranges.chain([0..size.min(100), size.saturating_sub(100)..size]) {
        let found = read(store, name(number), size, range.clone()).unwrap();
        assert!(found == expected[range.clone()], "file of {size} bytes, {range:?}");
    }
}

#[test]
fn files_come_back_as_they_were_written() {
    let fixture = Fixture::start();
    let store = fixture.open();
    for (number, size) in (0..).zip(SIZES) {
        write(&store, name(number), &contents(number, size)).unwrap();
        check(&store, number, size);
    }
    assert_eq!(fixture.server.faults.completed_uploads.load(SeqCst), 1, "one file is large");
    assert!(fixture.server.folder("bucket").join("some/prefix/frag/05/3-5").exists());
    drop(store);
    let store = fixture.open_uncached();
    for (number, size) in (0..).zip(SIZES) {
        check(&store, number, size);
    }
    let mut files = list(&store).unwrap();
    files.sort_by_key(|file| file.name);
    let expected = (0..)
        .zip(SIZES)
        .map(|(number, size)| StoredFile { name: name(number), bytes: size as u64 });
    assert_eq!(files, expected.collect::<Vec<_>>());
}

#[test]
fn a_directory_keeps_files_too() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}", dir.path().join("store").display());
    let open = |cache: &str| {
        let mut settings = settings(dir.path());
        settings.cache_dir = dir.path().join(cache);
        stele_objects::open(&url, settings).unwrap()
    };
    let store = open("cache");
    for (number, size) in (0..).zip(SIZES) {
        write(&store, name(number), &contents(number, size)).unwrap();
    }
    drop(store);
    let store = open("another");
    for (number, size) in (0..).zip(SIZES) {
        check(&store, number, size);
    }
    assert_eq!(list(&store).unwrap().len(), SIZES.len());
    delete(&store, name(3)).unwrap();
    delete(&store, name(3)).unwrap();
    assert_eq!(list(&store).unwrap().len(), SIZES.len() - 1);
    let other = contents(99, 10);
    let error = write(&store, name(4), &other).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{error}");
    assert_eq!(store.address(), url);
}

#[test]
fn written_files_are_read_without_a_request() {
    let fixture = Fixture::start();
    let store = fixture.open();
    let bytes = contents(1, 20 * MIB);
    write(&store, name(1), &bytes).unwrap();
    let before = fixture.server.faults.requests.load(SeqCst);
    assert!(read(&store, name(1), bytes.len(), 0..bytes.len()).unwrap() == bytes);
    assert_eq!(fixture.server.faults.requests.load(SeqCst), before);
    // Also after a restart.
    drop(store);
    let store = fixture.open();
    let before = fixture.server.faults.requests.load(SeqCst);
    assert!(read(&store, name(1), bytes.len(), 5..MIB * 3).unwrap() == bytes[5..MIB * 3]);
    assert_eq!(fixture.server.faults.requests.load(SeqCst), before);
}

#[test]
fn a_lost_or_damaged_cache_loses_nothing() {
    let fixture = Fixture::start();
    let bytes = contents(1, 5 * MIB + 17);
    let store = fixture.open();
    write(&store, name(1), &bytes).unwrap();
    drop(store);
    let slab = fixture.dir.path().join("cache/slab");
    let index = fixture.dir.path().join("cache/index");
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..6 {
        match round {
            0 => fs::remove_dir_all(fixture.dir.path().join("cache")).unwrap(),
            1 => fs::remove_file(&index).unwrap(),
            2 => fs::write(&slab, b"").unwrap(),
            _ => {
                let mut damaged = fs::read(&slab).unwrap();
                for _ in 0..8 {
                    let at = random.usize(4096..damaged.len());
                    damaged[at] ^= 0x55;
                }
                fs::write(&slab, damaged).unwrap();
                if round == 5 {
                    fs::remove_file(&index).unwrap();
                }
            }
        }
        let store = fixture.open();
        let found = read(&store, name(1), bytes.len(), 0..bytes.len()).unwrap();
        assert!(found == bytes, "round {round}");
    }
}

#[test]
fn forgotten_bytes_are_fetched_again() {
    let fixture = Fixture::start();
    let store = fixture.open();
    let bytes = contents(1, 3 * MIB);
    write(&store, name(1), &bytes).unwrap();
    store.forget(name(1), MIB as u64..MIB as u64 + 1);
    let before = fixture.server.faults.ranged_reads.load(SeqCst);
    assert!(read(&store, name(1), bytes.len(), 0..bytes.len()).unwrap() == bytes);
    assert_eq!(fixture.server.faults.ranged_reads.load(SeqCst), before + 1);
}

#[test]
fn many_readers_share_one_fetch() {
    let fixture = Fixture::start();
    let bytes = contents(1, 3 * MIB);
    write(&fixture.open(), name(1), &bytes).unwrap();
    let store = fixture.open_uncached();
    let before = fixture.server.faults.ranged_reads.load(SeqCst);
    fixture.server.faults.latency_ms.store(20, SeqCst);
    std::thread::scope(|scope| {
        for reader in 0..16 {
            let (store, bytes) = (&store, &bytes);
            scope.spawn(move || {
                let range = reader..2 * MIB + reader + 1;
                assert!(read(store, name(1), bytes.len(), range.clone()).unwrap() == bytes[range]);
            });
        }
    });
    assert_eq!(fixture.server.faults.ranged_reads.load(SeqCst) - before, 3, "one per part");
}

#[test]
fn a_read_larger_than_the_cache_makes_progress() {
    let fixture = Fixture::start();
    let bytes = contents(1, 12 * MIB);
    write(&fixture.open(), name(1), &bytes).unwrap();
    let mut settings = fixture.settings();
    settings.cache_dir = fixture.dir.path().join("small");
    settings.cache_bytes = 5 << 20;
    let store = stele_objects::open(support::URL, settings).unwrap();
    let Part::Fetch(fetch) =
        store.read(name(1), bytes.len() as u64, 0..bytes.len() as u64).unwrap()
    else {
        panic!("nothing was cached");
    };
    assert!(fetch.wait().unwrap() == bytes, "a fetch has the bytes of its read");
    assert!(matches!(
        store.read(name(1), bytes.len() as u64, 0..bytes.len() as u64),
        Ok(Part::Ready(_))
    ));
    assert!(store.counters().cache_used_bytes.load(Relaxed) <= 5 << 20);
}

#[test]
fn prefetched_bytes_are_fetched_once_and_within_the_budget() {
    let fixture = Fixture::start();
    let bytes = contents(1, 8 * MIB);
    write(&fixture.open(), name(1), &bytes).unwrap();
    let mut settings = fixture.settings();
    settings.cache_dir = fixture.dir.path().join("second");
    settings.prefetch_bytes_max = 3 << 20;
    let store = stele_objects::open(support::URL, settings).unwrap();
    let before = fixture.server.faults.ranged_reads.load(SeqCst);
    fixture.server.faults.latency_ms.store(20, SeqCst);
    store.prefetch(name(1), bytes.len() as u64, 0..1 << 40);
    assert_eq!(store.counters().prefetches.load(Relaxed), 3);
    assert_eq!(store.counters().prefetches_skipped.load(Relaxed), 1);
    assert!(read(&store, name(1), bytes.len(), 0..3 * MIB).unwrap() == bytes[..3 * MIB]);
    assert_eq!(fixture.server.faults.ranged_reads.load(SeqCst) - before, 3);
    // When they have ended, more are allowed.
    eventually("a prefetch", || {
        store.prefetch(name(1), bytes.len() as u64, 3 << 20..4 << 20);
        store.counters().prefetches.load(Relaxed) == 4
    });
}

#[test]
fn a_dropped_file_does_not_appear() {
    let fixture = Fixture::start();
    let store = fixture.open();
    let mut small = store.create(name(1));
    small.append(&contents(1, 1000)).unwrap();
    drop(small);
    let mut large = store.create(name(2));
    for chunk in contents(2, 30 * MIB).chunks(MIB) {
        large.append(chunk).unwrap();
    }
    drop(large);
    eventually("the abort", || store.counters().requests(Request::Abort, Outcome::Ok) == 1);
    assert_eq!(list(&store).unwrap(), []);
    let left = fs::read_dir(fixture.dir.path().join("s3")).unwrap();
    let parts =
        left.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("part"));
    assert_eq!(parts.count(), 0, "the parts are gone");
    assert_eq!(store.counters().cache_used_bytes.load(Relaxed), 0);
}

#[test]
fn foreign_objects_are_not_listed() {
    let fixture = Fixture::start();
    let store = fixture.open();
    write(&store, name(1), b"x").unwrap();
    let folder = fixture.server.folder("bucket").join("some/prefix/frag/01");
    fs::write(folder.join("3-1.copy"), b"x").unwrap();
    fs::write(folder.join("notes"), b"x").unwrap();
    assert_eq!(list(&store).unwrap(), [StoredFile { name: name(1), bytes: 1 }]);
    delete(&store, name(1)).unwrap();
    delete(&store, name(1)).unwrap();
    assert_eq!(list(&store).unwrap(), []);
}

#[test]
fn invalid_reads_are_refused() {
    let fixture = Fixture::start();
    let store = fixture.open();
    write(&store, name(1), b"0123456789").unwrap();
    for (size, range) in [(10, 5..11), (10, 11..12), (u64::MAX, 0..1)] {
        assert!(store.read(name(1), size, range.clone()).is_err(), "{range:?} of {size}");
    }
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = 7..3;
    assert!(store.read(name(1), 10, reversed).is_err());
    let missing = read(&store, name(2), 10, 0..10).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound, "{missing}");
}

#[test]
fn a_store_can_be_opened_and_dropped_within_a_runtime() {
    let fixture = Fixture::start();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = fixture.open();
        write(&store, name(1), b"x").unwrap();
        drop(store);
    });
}

#[test]
fn a_closed_store_ends_its_fetches() {
    let fixture = Fixture::start();
    write(&fixture.open(), name(1), &contents(1, MIB)).unwrap();
    let store = fixture.open_uncached();
    fixture.server.faults.latency_ms.store(600_000, SeqCst);
    let Part::Fetch(fetch) = store.read(name(1), MIB as u64, 0..10).unwrap() else { panic!() };
    drop(store);
    assert!(fetch.wait().is_err());
}

#[test]
fn a_writer_does_not_wait_for_a_closed_store() {
    let fixture = Fixture::start();
    let store = fixture.open();
    fixture.server.faults.latency_ms.store(600_000, SeqCst);
    let before = fixture.server.faults.requests.load(SeqCst);
    let mut sink = store.create(name(1));
    let writer = std::thread::spawn(move || {
        let chunk = contents(1, MIB);
        while sink.append(&chunk).is_ok() {}
        support::outcome(|done| sink.finish(done))
    });
    // The upload has begun, and the writer will have to wait for its parts.
    eventually("the upload", || fixture.server.faults.requests.load(SeqCst) > before);
    drop(store);
    assert!(writer.join().unwrap().is_err());
}

#[test]
fn a_cache_must_have_a_sensible_size() {
    let fixture = Fixture::start();
    let mut settings = fixture.settings();
    settings.cache_bytes = 1000;
    let error = stele_objects::open(support::URL, settings).err().unwrap().to_string();
    assert!(error.contains("at least"), "{error}");
}

#[test]
fn plain_http_needs_consent() {
    let fixture = Fixture::start();
    let mut settings: Settings = fixture.settings();
    let mut variables = fixture.server.variables();
    variables.retain(|(name, _)| name != "AWS_ALLOW_HTTP");
    settings.environment = Environment(variables);
    let error = stele_objects::open(support::URL, settings).err().unwrap().to_string();
    assert!(error.contains("AWS_ALLOW_HTTP"), "{error}");
}
