//! Which stores are accepted.

mod support;

use std::collections::HashSet;
use std::fs;
use std::sync::atomic::Ordering::SeqCst;

use stele_objects::{Error, new_cluster};
use support::{Fixture, URL, settings};

#[test]
fn a_fit_store_passes_the_probe_and_keeps_nothing_of_it() {
    let fixture = Fixture::start();
    let store = fixture.open();
    assert_eq!(store.cluster(), "one");
    let prefix = fixture.server.folder("bucket").join("some/prefix");
    let left: Vec<_> = walk(&prefix);
    assert_eq!(left, ["cluster.json"]);
}

fn walk(dir: &std::path::Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => files.push(entry.file_name().to_string_lossy().into_owned()),
            }
        }
    }
    files
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let fixture = Fixture::start();
    fixture.server.faults.unconditional.store(true, SeqCst);
    let error = stele_objects::open(URL, fixture.settings()).err().unwrap();
    assert!(matches!(error, Error::Unfit { .. }), "{error}");
    assert!(error.to_string().contains("a second time"), "{error}");
}

/// Each probe has three races; a store that is not atomic may win some of them.
#[test]
fn a_store_whose_creates_are_not_atomic_is_refused() {
    let fixture = Fixture::start();
    fixture.server.faults.racy.store(true, SeqCst);
    let refused = (0..20)
        .any(|_| matches!(stele_objects::open(URL, fixture.settings()), Err(Error::Unfit { .. })));
    assert!(refused);
}

#[test]
fn the_prefix_of_another_cluster_is_refused() {
    let fixture = Fixture::start();
    drop(fixture.open());
    drop(fixture.open());
    let mut settings = fixture.settings();
    settings.cluster = Some("two".into());
    let error = stele_objects::open(URL, settings.clone()).err().unwrap();
    assert!(matches!(error, Error::OtherCluster { .. }), "{error}");
    assert!(error.to_string().contains("cluster one"), "{error}");
    // A data directory that is new has no claim to files that exist.
    settings.cluster = None;
    assert!(matches!(stele_objects::open(URL, settings.clone()), Err(Error::OtherCluster { .. })));
    settings.cluster = Some("two".into());
    let store = stele_objects::open("s3://bucket/another", settings).unwrap();
    assert_eq!(store.cluster(), "two");
}

#[test]
fn one_of_many_that_want_a_new_prefix_gets_it() {
    let fixture = Fixture::start();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let open = |number: usize| {
            let mut settings = fixture.settings();
            settings.cluster = None;
            settings.probe = false;
            settings.cache_dir = fixture.dir.path().join(format!("cache-{number}"));
            scope.spawn(move || stele_objects::open(URL, settings))
        };
        let threads: Vec<_> = (0..8).map(open).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
}

#[test]
fn a_damaged_identity_is_refused() {
    let fixture = Fixture::start();
    drop(fixture.open());
    let file = fixture.server.folder("bucket").join("some/prefix/cluster.json");
    for text in ["", "{}", "not json", r#"{"version":2,"cluster":"one"}"#] {
        fs::write(&file, text).unwrap();
        let error = stele_objects::open(URL, fixture.settings()).err().unwrap();
        assert!(matches!(error, Error::Identity { .. }), "{text:?}: {error}");
    }
}

#[test]
fn a_store_that_is_opened_to_be_read_is_not_written() {
    let fixture = Fixture::start();
    let mut settings = fixture.settings();
    settings.read_only = true;
    let error = stele_objects::open(URL, settings.clone()).err().unwrap();
    assert!(matches!(error, Error::Identity { .. }), "{error}");
    let bucket = fixture.server.folder("bucket");
    assert_eq!(walk(&bucket), Vec::<String>::new());
    drop(fixture.open());
    let store = stele_objects::open(URL, settings.clone()).unwrap();
    assert_eq!(store.cluster(), "one");
    drop(store);
    settings.cluster = Some("two".into());
    assert!(matches!(stele_objects::open(URL, settings), Err(Error::OtherCluster { .. })));
}

#[test]
fn ids_of_clusters_differ() {
    let ids: HashSet<String> = (0..100).map(|_| new_cluster().unwrap()).collect();
    assert_eq!(ids.len(), 100);
    assert!(ids.iter().all(|id| id.len() == 32));
}

#[test]
fn a_directory_passes_the_probe() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}/a/b", dir.path().display());
    let store = stele_objects::open(&url, settings(dir.path())).unwrap();
    assert_eq!(walk(&dir.path().join("a/b")), ["cluster.json"]);
    drop(store);
    let mut other = settings(dir.path());
    other.cluster = Some("two".into());
    assert!(matches!(stele_objects::open(&url, other), Err(Error::OtherCluster { .. })));
}
