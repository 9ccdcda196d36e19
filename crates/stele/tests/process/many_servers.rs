//! Three servers that share their tables: each answers every call, tablets move by command,
//! and those of a killed server are recovered with all that was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use stele_bigtable::proto::admin::bigtable_table_admin_client::BigtableTableAdminClient;
use stele_bigtable::proto::admin::create_table_request::Split;
use stele_bigtable::proto::admin::{ColumnFamily, CreateTableRequest, Table};
use stele_bigtable::proto::v2;
use stele_bigtable::proto::v2::mutate_rows_request::Entry;
use tempfile::TempDir;
use tonic::Code;

use crate::support::{Commands, INSTANCE, Server, TABLE, TIMEOUT, command, refused, rows, write};

/// Where the table is split.
const SPLITS: [&str; 5] = ["c", "f", "k", "p", "t"];
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";

struct Cluster {
    dir: TempDir,
    coordinator: Server,
    servers: Vec<Server>,
}

impl Commands for Cluster {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("STELE_CLUSTER", "c").env("STELE_COORDINATOR", self.coordinator());
        command
    }
}

impl Cluster {
    fn start(servers: usize) -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let coordinator = Server::start(&["--ephemeral", "--metastore-port", "0"]);
        let mut cluster = Cluster { dir, coordinator, servers: Vec::new() };
        let created = cluster.ok(&["cluster", "init", "--store", &cluster.store()]);
        assert!(created.contains("cluster c created"), "{created}");
        cluster.servers = (0..servers).map(|number| cluster.server(number)).collect();
        cluster
    }

    fn coordinator(&self) -> String {
        format!("etcd://{}", self.coordinator.address("metastore"))
    }

    fn store(&self) -> String {
        let dir = self.dir.path().join("store");
        std::fs::create_dir_all(&dir).unwrap();
        format!("file://{}", dir.display())
    }

    fn server(&self, number: usize) -> Server {
        let data = self.dir.path().join(format!("server-{number}"));
        let (coordinator, store) = (self.coordinator(), self.store());
        let args = [
            "--cluster",
            "c",
            "--coordinator",
            &coordinator,
            "--store",
            &store,
            "--cluster-lease",
            "3s",
        ];
        Server::with_data(Path::new(&data), &args)
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["--json"]].concat())).unwrap()
    }

    /// Returns the ids of the servers by their addresses.
    fn ids(&self) -> BTreeMap<String, String> {
        let listed = self.ok(&["cluster", "servers", "--json"]);
        let parsed = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let text = |value: &Value| value.as_str().unwrap().to_string();
        parsed.map(|server| (text(&server["address"]), text(&server["id"]))).collect()
    }

    /// Waits until live servers have all tablets.
    async fn until_sound(&self) {
        let begun = Instant::now();
        loop {
            let output = self.run(&["cluster", "verify"]);
            if output.status.code() == Some(0) {
                return;
            }
            let found = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                begun.elapsed() < TIMEOUT,
                "{found}{}",
                String::from_utf8_lossy(&output.stderr)
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn create_table(&self) {
        let mut admin = BigtableTableAdminClient::new(self.servers[0].channel().await);
        let table = Table {
            column_families: [("f".to_string(), ColumnFamily::default())].into(),
            ..Default::default()
        };
        let request = CreateTableRequest {
            parent: INSTANCE.into(),
            table_id: "t".into(),
            table: Some(table),
            initial_splits: SPLITS.map(|key| Split { key: key.into() }).to_vec(),
        };
        admin.create_table(request).await.unwrap();
    }
}

/// Writes a row until that succeeds, as clients do.
async fn write_until_done(servers: &[&Server], row: &str) {
    let begun = Instant::now();
    for number in 0.. {
        let server = servers[number % servers.len()];
        match server.client().await.mutate_row(write(row, row.as_bytes().to_vec())).await {
            Ok(_) => return,
            Err(status) => {
                assert!(begun.elapsed() < TIMEOUT, "{row}: {status}");
                assert_eq!(status.code(), Code::Unavailable, "{row}: {status}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_of_a_cluster_answers_every_call_and_tablets_move_and_are_recovered() {
    let mut cluster = Cluster::start(3);
    cluster.create_table().await;
    let mut expected = BTreeSet::new();

    // Each server writes rows of all tablets, one by one and in bulk.
    for (number, server) in cluster.servers.iter().enumerate() {
        for letter in LETTERS.chars() {
            let row = format!("{letter}{number}");
            write_until_done(&[server], &row).await;
            expected.insert(row);
        }
        let entries = LETTERS.chars().map(|letter| {
            let row = format!("{letter}-bulk-{number}");
            expected.insert(row.clone());
            let v2::MutateRowRequest { row_key, mutations, .. } = write(&row, b"v".to_vec());
            Entry { row_key, mutations, ..Default::default() }
        });
        let request = v2::MutateRowsRequest {
            table_name: TABLE.into(),
            entries: entries.collect(),
            ..Default::default()
        };
        let mut outcomes = server.client().await.mutate_rows(request).await.unwrap().into_inner();
        let mut answered = BTreeSet::new();
        while let Some(message) = outcomes.message().await.unwrap() {
            for entry in message.entries {
                assert_eq!(entry.status.unwrap().code, 0);
                assert!(answered.insert(entry.index), "each entry is answered once");
            }
        }
        assert_eq!(answered.len(), LETTERS.len());
    }
    cluster.until_sound().await;
    let status = cluster.json(&["cluster", "status"]);
    assert_eq!(status["servers"].as_array().unwrap().len(), 3, "{status}");
    assert_eq!(
        (&status["tables"][0]["tablets"], &status["tables"][0]["unserved"]),
        (&6.into(), &0.into())
    );

    // Each reads all of it, in order; limits count over tablets.
    let sorted: Vec<String> = expected.iter().cloned().collect();
    for server in &cluster.servers {
        assert_eq!(rows(server).await, sorted);
        assert_eq!(read(server, 20, false).await, sorted[..20]);
        let reversed: Vec<String> = sorted.iter().rev().take(70).cloned().collect();
        assert_eq!(read(server, 70, true).await, reversed);
        assert_eq!(sample(server).await, ["c", "f", "k", "p", "t", ""]);
    }

    // Conditions and increments go to the owner, too.
    for (number, server) in cluster.servers.iter().enumerate() {
        assert_eq!(append(server, "m0", "x").await, format!("m0{}", "x".repeat(number + 1)));
        let missing =
            v2::MutateRowRequest { table_name: format!("{TABLE}-none"), ..write("a", vec![]) };
        let refused = server.client().await.mutate_row(missing).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound);
    }

    // A tablet moves to each server in turn, while it is written.
    let ids = cluster.ids();
    let is_done = Arc::new(AtomicBool::new(false));
    let (flag, address) = (is_done.clone(), cluster.servers[0].address("grpc"));
    let writer = tokio::spawn(async move {
        let mut client = connect(&address).await;
        let mut written = Vec::new();
        while !flag.load(Ordering::SeqCst) {
            let row = format!("d-move-{:05}", written.len());
            client.mutate_row(write(&row, b"v".to_vec())).await.unwrap();
            written.push(row);
        }
        written
    });
    for id in ids.values() {
        let moved = cluster.ok(&["cluster", "move", TABLE, "--row", "d", "--to", &id[..6]]);
        assert!(moved.contains(id) && moved.contains("[c, f)"), "{moved}");
    }
    is_done.store(true, Ordering::SeqCst);
    expected.extend(writer.await.unwrap());

    // An owner is killed while all tablets are written through the others.
    let victim = cluster.servers.remove(2);
    let is_killed = Arc::new(AtomicBool::new(false));
    let flag = is_killed.clone();
    let addresses: Vec<String> = cluster.servers.iter().map(|it| it.address("grpc")).collect();
    let writer = tokio::spawn(async move {
        let mut written = Vec::new();
        let mut clients = Vec::new();
        for address in &addresses {
            clients.push(connect(address).await);
        }
        let begun = Instant::now();
        let mut after = 0;
        // Until each tablet was written after the kill.
        for number in 0.. {
            let letter = LETTERS.as_bytes()[number % LETTERS.len()] as char;
            let row = format!("{letter}-kill-{number:05}");
            let client = &mut clients[number % 2];
            loop {
                match client.mutate_row(write(&row, b"v".to_vec())).await {
                    Ok(_) => break,
                    Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
                }
                assert!(begun.elapsed() < TIMEOUT, "{row} was never written");
            }
            written.push(row);
            after += usize::from(flag.load(Ordering::SeqCst));
            if after > 2 * LETTERS.len() {
                break;
            }
        }
        written
    });
    victim.kill();
    is_killed.store(true, Ordering::SeqCst);
    expected.extend(writer.await.unwrap());
    cluster.until_sound().await;
    let sorted: Vec<String> = expected.iter().cloned().collect();
    for server in &cluster.servers {
        assert_eq!(rows(server).await, sorted);
    }

    // A server that is stopped gives its tablets up; one that starts again finds them.
    let exit = cluster.servers.remove(1).terminate();
    assert!(exit.status.success(), "{exit:?}");
    cluster.until_sound().await;
    cluster.servers.push(cluster.server(2));
    assert_eq!(rows(&cluster.servers[1]).await, sorted);
}

#[tokio::test]
async fn only_servers_of_the_cluster_may_relay_and_a_cluster_must_exist() {
    let cluster = Cluster::start(1);
    cluster.create_table().await;
    let again = cluster.ok(&["cluster", "init", "--store", &cluster.store()]);
    assert!(again.contains("cluster c exists already"), "{again}");
    let (coordinator, store) = (cluster.coordinator(), cluster.store());
    let data = cluster.dir.path().join("other");
    let unknown = refused(&mut command(&[
        "serve",
        "--data",
        data.to_str().unwrap(),
        "--grpc-port",
        "0",
        "--http-port",
        "off",
        "--cluster",
        "none",
        "--coordinator",
        &coordinator,
        "--store",
        &store,
    ]));
    assert!(unknown.contains("stele cluster init"), "{unknown}");
    let taken = refused(&mut command(&[
        "cluster",
        "init",
        "--cluster",
        "d",
        "--coordinator",
        &coordinator,
        "--store",
        &store,
    ]));
    assert!(taken.contains("--store"), "{taken}");

    let channel = cluster.servers[0].channel().await;
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let mut request = tonic::Request::new(write("a", b"v".to_vec()));
    request
        .metadata_mut()
        .insert("stele-cluster-secret", "guessed-guessed-guessed".parse().unwrap());
    let path = "/stele.tables.v1.Tablets/MutateRow".parse().unwrap();
    let codec = tonic_prost::ProstCodec::<_, v2::MutateRowResponse>::default();
    let refused = grpc.unary(request, path, codec).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

async fn connect(address: &str) -> v2::bigtable_client::BigtableClient<tonic::transport::Channel> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    v2::bigtable_client::BigtableClient::new(endpoint.connect().await.unwrap())
}

/// Returns the keys of some rows.
async fn read(server: &Server, limit: i64, reversed: bool) -> Vec<String> {
    let request = v2::ReadRowsRequest {
        table_name: TABLE.into(),
        rows_limit: limit,
        reversed,
        ..Default::default()
    };
    let mut stream = server.client().await.read_rows(request).await.unwrap().into_inner();
    let mut rows = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        for chunk in message.chunks.into_iter().filter(|chunk| !chunk.row_key.is_empty()) {
            rows.push(String::from_utf8(chunk.row_key.to_vec()).unwrap());
        }
    }
    rows
}

async fn sample(server: &Server) -> Vec<String> {
    let request = v2::SampleRowKeysRequest { table_name: TABLE.into(), ..Default::default() };
    let mut stream = server.client().await.sample_row_keys(request).await.unwrap().into_inner();
    let mut keys = Vec::new();
    while let Some(sample) = stream.message().await.unwrap() {
        keys.push(String::from_utf8(sample.row_key.to_vec()).unwrap());
    }
    keys
}

/// Appends to the value of a row. Returns the value.
async fn append(server: &Server, row: &str, text: &str) -> String {
    use v2::read_modify_write_rule::Rule;
    let rule = v2::ReadModifyWriteRule {
        family_name: "f".into(),
        column_qualifier: "q".into(),
        rule: Some(Rule::AppendValue(text.as_bytes().to_vec().into())),
    };
    let request = v2::ReadModifyWriteRowRequest {
        table_name: TABLE.into(),
        row_key: row.as_bytes().to_vec().into(),
        rules: vec![rule],
        ..Default::default()
    };
    let changed = server.client().await.read_modify_write_row(request).await.unwrap();
    let row = changed.into_inner().row.unwrap();
    String::from_utf8(row.families[0].columns[0].cells[0].value.to_vec()).unwrap()
}
