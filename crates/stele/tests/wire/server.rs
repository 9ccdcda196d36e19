//! A server process, and the clients that talk to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use stele_bigtable::proto::admin;
use stele_bigtable::proto::admin::bigtable_table_admin_client::BigtableTableAdminClient;
use stele_bigtable::proto::v2::bigtable_client::BigtableClient;
use tonic::transport::{Channel, Endpoint};

/// Longer than anything here takes; reached only when something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub const INSTANCE: &str = "projects/p/instances/i";
pub const TABLE: &str = "projects/p/instances/i/tables/t";

/// A ready server. Killed when dropped.
pub struct Server {
    child: Child,
    ready: Value,
    _out: BufReader<ChildStdout>,
}

impl Server {
    /// Starts a server with temporary data.
    pub fn ephemeral() -> Server {
        Server::start(&["--ephemeral"])
    }

    /// Starts a server on the data in `dir`, with little memory, so that much of it is
    /// being flushed when the server is killed.
    pub fn of(dir: &Path) -> Server {
        let dir = dir.to_str().expect("temporary directories have plain names");
        Server::start(&["--data", dir, "--memory", "32MiB"])
    }

    fn start(args: &[&str]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_stele"))
            .args(["serve", "--grpc-port", "0", "--http-port", "0", "--log", "warn"])
            .args(["--metastore-port", "off"])
            .args(args)
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        out.read_line(&mut first).unwrap();
        let ready = serde_json::from_str(&first).expect("the server says that it is ready");
        Server { child, ready, _out: out }
    }

    pub fn address(&self) -> &str {
        self.ready["grpc"].as_str().unwrap()
    }

    pub async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address())).unwrap();
        endpoint.connect().await.unwrap()
    }

    pub async fn client(&self) -> BigtableClient<Channel> {
        BigtableClient::new(self.channel().await).max_decoding_message_size(256 << 20)
    }

    /// Creates the table with the family `f`.
    pub async fn make_table(&self) {
        let column_families = [("f".to_string(), admin::ColumnFamily::default())].into();
        let table = admin::Table { column_families, ..Default::default() };
        let request = admin::CreateTableRequest {
            parent: INSTANCE.into(),
            table_id: "t".into(),
            table: Some(table),
            ..Default::default()
        };
        let mut tables = BigtableTableAdminClient::new(self.channel().await);
        tables.create_table(request).await.unwrap();
    }

    /// Returns the value of one sample of /metrics, named with its labels.
    pub fn metric(&self, sample: &str) -> Option<f64> {
        let mut stream = TcpStream::connect(self.ready["http"].as_str().unwrap()).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok())
    }

    /// Waits until no call is in progress.
    pub async fn until_idle(&self) {
        let begun = Instant::now();
        while self.metric("stele_grpc_requests_in_flight") != Some(0.0) {
            assert!(begun.elapsed() < PATIENCE, "a call is never ended");
            tokio::task::yield_now().await;
        }
    }

    /// Kills the process with kill -9 and waits until it is dead.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
