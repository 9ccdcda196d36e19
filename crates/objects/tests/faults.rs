//! What goes wrong between the server and its store.

mod support;

use std::io::ErrorKind;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use stele_engine::world::FragmentStore;
use stele_objects::counters::{Outcome, Request};
use support::{Fixture, MIB, contents, delete, list, name, read, write};

#[test]
fn errors_of_the_store_are_retried() {
    let fixture = Fixture::start();
    let store = fixture.open();
    let faults = &fixture.server.faults;
    for (number, size) in [(1, 1000), (2, 20 * MIB)] {
        faults.errors.store(2, SeqCst);
        write(&store, name(number), &contents(number, size)).unwrap();
    }
    let fresh = fixture.open_uncached();
    for (number, size) in [(1, 1000), (2, 20 * MIB)] {
        faults.errors.store(2, SeqCst);
        let found = read(&fresh, name(number), size, 0..size).unwrap();
        assert!(found == contents(number, size));
    }
    assert!(fresh.counters().requests(Request::Get, Outcome::Retry) >= 4);
    faults.errors.store(2, SeqCst);
    assert_eq!(list(&fresh).unwrap().len(), 2);
    faults.errors.store(2, SeqCst);
    delete(&fresh, name(1)).unwrap();
    assert_eq!(list(&fresh).unwrap().len(), 1);
}

#[test]
fn writes_in_doubt_are_resolved() {
    let fixture = Fixture::start();
    let store = fixture.open();
    // The response of every request of an upload is lost once, whatever it is.
    for (number, size) in [(1, 1000), (2, 17 * MIB)] {
        for resets in [1, 2, 4] {
            fixture.server.faults.resets.store(resets, SeqCst);
            let name = name(number * 10 + resets);
            let bytes = contents(number, size);
            write(&store, name, &bytes).unwrap();
            fixture.server.faults.resets.store(0, SeqCst);
            let found = read(&fixture.open_uncached(), name, size, 0..size).unwrap();
            assert!(found == bytes, "{size} bytes, {resets} lost responses");
        }
    }
}

#[test]
fn a_completion_in_doubt_is_resolved() {
    let fixture = Fixture::start();
    let store = fixture.open();
    let bytes = contents(1, 20 * MIB);
    let mut sink = store.create(name(1));
    sink.append(&bytes).unwrap();
    // All parts but the last are acknowledged; then the last one and the completion are lost.
    support::eventually("the parts", || store.counters().requests(Request::Part, Outcome::Ok) == 2);
    fixture.server.faults.resets.store(3, SeqCst);
    support::outcome(|done| sink.finish(done)).unwrap();
    assert_eq!(fixture.server.faults.completed_uploads.load(SeqCst), 1);
    let found = read(&fixture.open_uncached(), name(1), bytes.len(), 0..bytes.len()).unwrap();
    assert!(found == bytes);
}

#[test]
fn a_name_is_never_written_twice() {
    let fixture = Fixture::start();
    let store = fixture.open();
    for (number, size) in [(1, 1000), (2, 20 * MIB)] {
        let bytes = contents(number, size);
        write(&store, name(number), &bytes).unwrap();
        let other = contents(number + 10, size);
        let error = write(&store, name(number), &other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        // What the failed write left in the cache is dropped.
        assert!(read(&store, name(number), size, 0..size).unwrap() == bytes);
        assert!(read(&fixture.open_uncached(), name(number), size, 0..size).unwrap() == bytes);
    }
}

#[test]
fn lost_responses_of_reads_are_retried() {
    let fixture = Fixture::start();
    write(&fixture.open(), name(1), &contents(1, MIB)).unwrap();
    let store = fixture.open_uncached();
    fixture.server.faults.lost_reads.store(2, SeqCst);
    assert!(read(&store, name(1), MIB, 0..MIB).unwrap() == contents(1, MIB));
}

#[test]
fn a_store_that_is_down_fails_writes_and_serves_cached_reads() {
    let fixture = Fixture::start();
    let mut settings = fixture.settings();
    settings.retry_for = Duration::from_millis(300);
    let store = stele_objects::open(support::URL, settings).unwrap();
    write(&store, name(1), &contents(1, MIB)).unwrap();
    fixture.server.faults.down.store(true, SeqCst);
    for size in [1000, 20 * MIB] {
        let error = write(&store, name(2), &contents(2, size)).unwrap_err().to_string();
        assert!(error.contains("s3://bucket/some/prefix"), "{error}");
        assert!(!error.contains(support::s3d::SECRET_KEY), "{error}");
        assert!(!error.contains(support::s3d::ACCESS_KEY), "{error}");
    }
    assert!(list(&store).is_err(), "a listing that is not complete is an error");
    assert!(delete(&store, name(1)).is_err());
    fixture.server.faults.down.store(false, SeqCst);
    write(&store, name(1), &contents(1, MIB)).unwrap();
    fixture.server.faults.down.store(true, SeqCst);
    assert!(read(&store, name(1), MIB, 0..MIB).unwrap() == contents(1, MIB));
    assert!(read(&store, name(2), 1000, 0..1000).is_err(), "a failed write is not cached");
    fixture.server.faults.down.store(false, SeqCst);
    write(&store, name(3), &contents(3, 20 * MIB)).unwrap();
    assert_eq!(list(&store).unwrap().len(), 2);
}

#[test]
fn a_full_store_refuses_writes_until_there_is_space() {
    let fixture = Fixture::start();
    let mut settings = fixture.settings();
    settings.retry_for = Duration::from_millis(200);
    let store = stele_objects::open(support::URL, settings).unwrap();
    write(&store, name(1), &contents(1, MIB)).unwrap();
    fixture.server.faults.capacity_bytes.store(2 * MIB as u64, SeqCst);
    for size in [3 * MIB, 20 * MIB] {
        let error = write(&store, name(2), &contents(2, size)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    }
    fixture.server.faults.capacity_bytes.store(0, SeqCst);
    write(&store, name(2), &contents(2, 3 * MIB)).unwrap();
    assert_eq!(list(&store).unwrap().len(), 2);
}

#[test]
fn wrong_credentials_are_refused_at_once_and_not_shown() {
    let fixture = Fixture::start();
    let mut settings = fixture.settings();
    for (name, value) in &mut settings.environment.0 {
        if name == "AWS_SECRET_ACCESS_KEY" {
            *value = "not-the-key".into();
        }
    }
    let error = stele_objects::open(support::URL, settings).err().unwrap().to_string();
    assert!(error.contains("s3://bucket/some/prefix"), "{error}");
    assert!(!error.contains("not-the-key"), "{error}");
}

#[test]
fn a_missing_bucket_is_refused() {
    let fixture = Fixture::start();
    let mut settings = fixture.settings();
    settings.retry_open_for = Duration::from_millis(200);
    let error = stele_objects::open("s3://nothing/here", settings).err().unwrap().to_string();
    assert!(error.contains("s3://nothing/here"), "{error}");
}
