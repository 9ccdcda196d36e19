//! Names whose rows cannot be written, because the disk is full or the server of the rows
//! rejects writes, can still be read.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use serde_json::Value;
use stele_bigtable_client::{Client, GcRule, Mutation, NewTable, Options, Retry};
use tonic::Code;

use crate::support::{Server, TIMEOUT, command};

/// The size of the file system, small enough to fill up before memory is flushed.
const DISK_MIB: usize = 24;

fn name(server: &Server, args: &[&str]) -> Output {
    let mut all = command(&["name"]);
    all.args(args).env("STELE_NAMES", server.address("grpc")).output().unwrap()
}

fn done(output: &Output) -> String {
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the servers of a name, or `None` if it does not resolve. Panics on any other
/// result.
fn resolved(server: &Server, mounted: &str) -> Option<Vec<String>> {
    let output = name(server, &["resolve", mounted, "--json"]);
    if output.status.code() == Some(1) {
        return None;
    }
    let entry: Value = serde_json::from_str(done(&output).lines().next().unwrap()).unwrap();
    Some(serde_json::from_value(entry["names"].clone()).unwrap())
}

/// Mounts servers of which some expire, lets `refuse` make writes impossible, and reads
/// the names until the expired servers are gone from every response.
async fn check_names(names: Server, why: &str, refuse: impl AsyncFnOnce(&Server)) {
    for (mounted, server) in [("svc/q", "10.0.0.1:80"), ("svc/kept", "10.0.0.3:80")] {
        done(&name(&names, &["mount", mounted, server]));
    }
    for mounted in ["svc/q", "gone"] {
        done(&name(&names, &["mount", mounted, "10.0.0.2:80", "--ttl", "1s"]));
    }
    refuse(&names).await;
    let assert_refused = || {
        let refused = name(&names, &["mount", "svc/new", "10.0.0.4:80"]);
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && message.contains(why), "{message}");
    };
    assert_refused();
    let begun = Instant::now();
    while resolved(&names, "svc/q").unwrap() != ["/10.0.0.1:80"] {
        assert!(begun.elapsed() < TIMEOUT, "the mount never expires");
    }
    while resolved(&names, "gone").is_some() {
        assert!(begun.elapsed() < TIMEOUT, "the mount never expires");
    }
    assert_eq!(resolved(&names, "svc/kept").unwrap(), ["/10.0.0.3:80"]);
    assert_eq!(resolved(&names, "svc/q").unwrap(), ["/10.0.0.1:80"]);
    assert_refused();
    let message = names.terminate().stderr;
    assert!(
        message.contains("cannot remove expired servers"),
        "nothing was to be removed: {message}"
    );
}

/// Returns a command that starts a server with its own small file system at `dir`, which
/// disappears with the server; an error if mounting is not permitted here.
fn on_small_disk(dir: &Path) -> Result<Command, String> {
    let mut message = String::new();
    for flags in ["-m", "-rm"] {
        let mount = "mount -t tmpfs -o size=$1m tmpfs \"$0\" && shift && exec \"$@\"";
        let enter = |args: &[&str]| {
            let mut enter = Command::new("unshare");
            enter.args([flags, "sh", "-c", mount]).arg(dir).arg(DISK_MIB.to_string()).args(args);
            enter
        };
        let stele = env!("CARGO_BIN_EXE_stele");
        match enter(&["true"]).output() {
            Ok(tried) if tried.status.success() => {
                let data = dir.to_str().unwrap();
                let args = [stele, "serve", "--grpc-port", "0", "--http-port", "0", "--data", data];
                let mut server = enter(&args);
                server.env_remove("RUST_LOG");
                server.env("STELE_METASTORE_PORT", "off").env("STELE_DNS_PORT", "off");
                return Ok(server);
            }
            Ok(tried) => message = String::from_utf8_lossy(&tried.stderr).trim().to_string(),
            Err(error) => message = error.to_string(),
        }
    }
    Err(message)
}

/// Writes to a table until there is no space for even one byte.
async fn fill(server: &Server) {
    let mut options = Options::new(server.address("grpc"), "p", "i");
    options.retry = Retry { attempts_max: 1, ..options.retry };
    let client = Client::connect(options).await.unwrap();
    client.create_table(NewTable::new("t").family("f", GcRule::Never)).await.unwrap();
    let table = client.table("t").unwrap();
    let mut row = 0;
    for bytes in [1 << 20, 1 << 16, 1 << 12, 1] {
        let refused = loop {
            row += 1;
            let set = Mutation::set_at("f", "q", 1000, vec![7; bytes]);
            if let Err(refused) = table.mutate_row(format!("r{row}"), [set]).await {
                break refused;
            }
            assert!(row < 100_000, "the disk is never full");
        };
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    }
}

/// Checks names whose rows are on another server that is made to reject writes.
async fn check_with_injected_faults() {
    let rows = Server::start(&["--ephemeral", "--inject", ""]);
    let place = rows.address("grpc");
    let names = Server::spawn(command(&[
        "name",
        "serve",
        "--bigtable",
        &place,
        "--project",
        "p",
        "--instance",
        "i",
        "--listen",
        "127.0.0.1:0",
    ]));
    let refuse = async |_: &Server| {
        let writes = ["MutateRow", "MutateRows", "CheckAndMutateRow", "ReadModifyWriteRow"];
        let rules = writes.map(|method| format!("{method}:resource-exhausted=100%"));
        let mut set = command(&["inject", "set"]);
        done(&set.args(rules).env("STELE_HTTP", rows.address("http")).output().unwrap());
    };
    check_names(names, "injected fault", refuse).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_read_while_the_disk_is_full() {
    let dir = tempfile::tempdir().unwrap();
    match on_small_disk(dir.path()) {
        Ok(server) => check_names(Server::spawn(server), "disk is full", fill).await,
        Err(why) => {
            println!("no file system can be mounted here ({why}): faults are injected instead");
            check_with_injected_faults().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_read_while_the_server_of_their_rows_refuses_writes() {
    check_with_injected_faults().await;
}
