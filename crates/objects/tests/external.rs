//! The same promises on a store outside, for example moto or a real bucket:
//!
//! ```text
//! STELE_STORE=s3://bucket/prefix AWS_...=... cargo test -p stele-objects --test external -- --ignored
//! ```

mod support;

use stele_engine::world::{FragmentStore, StoredFile};
use stele_objects::{Error, new_cluster};
use support::{MIB, contents, delete, list, name, read, settings, write};

#[test]
#[ignore = "needs a store: see the head of this file"]
fn a_store_outside_keeps_the_promises() {
    let base = std::env::var("STELE_STORE").expect("STELE_STORE is the URL of a store");
    let cluster = new_cluster().unwrap();
    let url = format!("{}/{cluster}", base.trim_end_matches('/'));
    let dir = tempfile::tempdir().unwrap();
    let open = |cache: &str, cluster: &str| {
        let mut settings = settings(dir.path());
        settings.cache_dir = dir.path().join(cache);
        settings.cluster = Some(cluster.into());
        stele_objects::open(&url, settings)
    };
    let store = open("first", &cluster).unwrap();
    let sizes = [0, 1, MIB + 1, 17 * MIB + 5];
    for (number, size) in (0..).zip(sizes) {
        write(&store, name(number), &contents(number, size)).unwrap();
    }
    assert!(matches!(open("other", "other"), Err(Error::OtherCluster { .. })));
    drop(store);
    let store = open("second", &cluster).unwrap();
    for (number, size) in (0..).zip(sizes) {
        let found = read(&store, name(number), size, 0..size).unwrap();
        assert!(found == contents(number, size), "file of {size} bytes");
        let again = write(&store, name(number), &contents(99, size + 1)).unwrap_err();
        assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists, "{again}");
    }
    let mut files = list(&store).unwrap();
    files.sort_by_key(|file| file.name);
    let file = |(number, size)| StoredFile { name: name(number), bytes: size as u64 };
    assert_eq!(files, (0..).zip(sizes).map(file).collect::<Vec<_>>(), "{}", store.address());
    for (number, _) in (0..).zip(sizes) {
        delete(&store, name(number)).unwrap();
    }
    assert_eq!(list(&store).unwrap(), []);
}
