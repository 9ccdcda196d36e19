//! A server whose files of tables are in an object store: what survives, what is refused,
//! and what happens while the store is down.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::SeqCst;

use serde_json::Value;
use tempfile::TempDir;

use super::s3d::S3d;
use crate::support::{Commands, Server, command, make_table, refused, rows, until, write};

const BUCKET: &str = "stele";

/// A server with an object store, and the environment of both.
struct Stored {
    server: Server,
    variables: Vec<(String, String)>,
}

impl Stored {
    fn start(dir: &Path, store: &str, variables: &[(String, String)]) -> Stored {
        let mut start = serve(dir, store);
        start.envs(variables.iter().cloned());
        Stored { server: Server::spawn(start), variables: variables.to_vec() }
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["--json"]].concat())).unwrap()
    }

    async fn write(&self, names: std::ops::Range<usize>) {
        let mut client = self.server.client().await;
        for row in names {
            client.mutate_row(write(&format!("row{row:04}"), vec![b'v'; 500])).await.unwrap();
        }
    }

    async fn check(&self, count: usize) {
        let expected: Vec<_> = (0..count).map(|row| format!("row{row:04}")).collect();
        assert_eq!(rows(&self.server).await, expected);
    }
}

impl Commands for Stored {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("STELE_ENDPOINT", self.server.address("grpc"));
        command.env("STELE_PROJECT", "p").env("STELE_INSTANCE", "i");
        command.envs(self.variables.iter().cloned());
        command
    }
}

fn serve(dir: &Path, store: &str) -> Command {
    let data = dir.join("data");
    let mut start = command(&["serve", "--grpc-port", "0", "--http-port", "0"]);
    start.args(["--data", data.to_str().unwrap(), "--store", store, "--cache-size", "64MiB"]);
    start
}

/// Returns a directory with a table in `data`.
fn prepared() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    make_table(&dir.path().join("data"));
    dir
}

/// Writes, is killed, and comes back with and without the cache; then collects.
async fn survives(dir: &Path, store: &str, variables: &[(String, String)]) {
    let stored = Stored::start(dir, store, variables);
    assert_eq!(stored.server.ready["store"], store);
    stored.write(0..100).await;
    stored.ok(&["table", "compact", "t"]);
    stored.write(100..150).await;
    stored.check(150).await;
    stored.server.kill();
    let stored = Stored::start(dir, store, variables);
    stored.check(150).await;
    stored.ok(&["table", "compact", "t"]);
    stored.server.kill();
    std::fs::remove_dir_all(dir.join("data/cache")).unwrap();
    let stored = Stored::start(dir, store, variables);
    stored.check(150).await;
    assert!(stored.server.metric("stele_objects_cache_misses_total").unwrap() > 0.0);
    let local = std::fs::read_dir(dir.join("data/fragments")).unwrap().count();
    assert_eq!(local, 0, "no file of a table is in the data directory");
    let dry = stored.json(&["table", "gc", "--dry-run"]);
    assert!(dry["unused"].as_u64().unwrap() > 0 && dry["deleted"] == 0, "{dry}");
    assert_eq!(stored.json(&["table", "gc"])["deleted"], 0, "files are marked first");
    let shown = stored.ok(&["table", "gc"]);
    let deleted = format!("deleted {} file", dry["unused"]);
    assert!(shown.contains(&deleted), "{shown} without {deleted:?}");
    let after = stored.json(&["table", "gc", "--dry-run"]);
    assert_eq!((&after["unused"], &after["used"]), (&0.into(), &dry["used"]));
    stored.check(150).await;
    assert!(stored.server.terminate().status.success());
    verify(dir, variables);
}

/// Verifies the store while no server runs, in the object store itself.
fn verify(dir: &Path, variables: &[(String, String)]) {
    let mut verify = command(&["engine", "verify", "--json"]);
    let output = verify.arg(dir.join("data")).envs(variables.iter().cloned()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["fragments"].as_array().is_some_and(|all| !all.is_empty()), "{report}");
    let foreign = |file: &serde_json::Value| file["why"] == "not part of a store";
    assert!(!report["garbage"].as_array().unwrap().iter().any(foreign), "{report}");
}

#[tokio::test]
async fn tables_in_an_s3_bucket_survive_kills_with_and_without_the_cache() {
    let dir = prepared();
    let s3d = S3d::start(&dir.path().join("s3"), BUCKET);
    survives(dir.path(), "s3://stele/some/prefix", &s3d.variables()).await;
}

#[tokio::test]
async fn tables_in_a_file_store_survive_kills_with_and_without_the_cache() {
    let dir = prepared();
    let store = dir.path().join("objects");
    std::fs::create_dir(&store).unwrap();
    survives(dir.path(), &format!("file://{}", store.display()), &[]).await;
}

#[tokio::test]
async fn while_the_object_store_is_down_cached_reads_and_writes_go_on() {
    let dir = prepared();
    let s3d = S3d::start(&dir.path().join("s3"), BUCKET);
    let stored = Stored::start(dir.path(), "s3://stele/p", &s3d.variables());
    stored.write(0..50).await;
    stored.ok(&["table", "compact", "t"]);
    s3d.faults.down.store(true, SeqCst);
    stored.write(50..100).await;
    stored.check(100).await;
    s3d.faults.down.store(false, SeqCst);
    stored.ok(&["table", "compact", "t"]);
    stored.check(100).await;
    let page = stored.server.get("/console/v1/overview").1;
    assert!(page.contains("s3://stele/p"), "{page}");
}

#[tokio::test]
async fn unused_files_are_deleted_periodically() {
    let dir = prepared();
    let store = dir.path().join("objects");
    std::fs::create_dir(&store).unwrap();
    let mut start = serve(dir.path(), &format!("file://{}", store.display()));
    start.args(["--store-gc", "20ms"]);
    let stored = Stored { server: Server::spawn(start), variables: Vec::new() };
    stored.write(0..10).await;
    stored.ok(&["table", "compact", "t"]);
    stored.write(10..20).await;
    stored.ok(&["table", "compact", "t"]);
    let deleted = || stored.server.metric("stele_objects_collected_files_total").unwrap() >= 1.0;
    until("a collection", deleted).await;
    stored.check(20).await;
}

#[tokio::test]
async fn a_wrong_object_store_is_refused() {
    let dir = prepared();
    let s3d = S3d::start(&dir.path().join("s3"), BUCKET);
    let variables = s3d.variables();
    let refuses =
        |dir: &Path, store: &str| refused(serve(dir, store).envs(variables.iter().cloned()));
    let error = refuses(dir.path(), "s3://nowhere/p");
    assert!(error.contains("s3://nowhere/p"), "{error}");
    let error = refuses(dir.path(), "ftp://stele");
    assert!(error.contains("ftp://stele"), "{error}");
    let stored = Stored::start(dir.path(), "s3://stele/p", &variables);
    stored.write(0..3).await;
    stored.ok(&["table", "compact", "t"]);
    assert!(stored.server.terminate().status.success());
    // Without the store, and with that of others.
    let data = dir.path().join("data");
    let mut verify = command(&["engine", "verify", "--store", "s3://nowhere/p"]);
    let error = refused(verify.arg(&data).envs(variables.iter().cloned()));
    assert!(error.contains("object store s3://nowhere/p"), "{error}");
    let without = ["serve", "--grpc-port", "0", "--http-port", "0", "--data"];
    let error = refused(command(&without).arg(&data));
    assert!(error.contains("start with --store s3://stele/p"), "{error}");
    let other = prepared();
    let error = refuses(other.path(), "s3://stele/p");
    assert!(error.contains("belongs to cluster"), "{error}");
    // The refused store was never in use.
    Server::with_data(&other.path().join("data"), &[]).assert_healthy().await;
    Stored::start(dir.path(), "s3://stele/p", &variables).check(3).await;
}

#[tokio::test]
async fn a_directory_with_files_of_tables_is_refused_with_a_store_and_gc_without_one() {
    let dir = prepared();
    let data = dir.path().join("data");
    let stored = Stored { server: Server::with_data(&data, &[]), variables: Vec::new() };
    stored.write(0..3).await;
    stored.ok(&["table", "compact", "t"]);
    let error = stored.fails(2, &["table", "gc"]);
    assert!(error.contains("no object store"), "{error}");
    assert!(stored.server.terminate().status.success());
    let store = dir.path().join("objects");
    std::fs::create_dir(&store).unwrap();
    let error = refused(&mut serve(dir.path(), &format!("file://{}", store.display())));
    assert!(error.contains("start without --store"), "{error}");
    let stored = Stored { server: Server::with_data(&data, &[]), variables: Vec::new() };
    stored.check(3).await;
}
