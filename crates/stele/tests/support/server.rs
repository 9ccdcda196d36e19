//! A server process, and the clients that talk to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stele_bigtable::Api;
use stele_bigtable::proto::v2;
use stele_bigtable::proto::v2::bigtable_client::BigtableClient;
use stele_bigtable::proto::v2::mutation::{Mutation, SetCell};
use stele_bigtable::table::{Definition, Family, Granularity};
use stele_engine::Options;
use stele_engine::world::World;
use stele_tables::Tables;
use tonic::transport::{Channel, Endpoint};

use super::command::command;

/// Longer than any step of a test takes; reached only when something hangs.
pub const TIMEOUT: Duration = Duration::from_secs(60);

pub const INSTANCE: &str = "projects/p/instances/i";
pub const TABLE: &str = "projects/p/instances/i/tables/t";

/// A ready server. Killed when dropped.
pub struct Server {
    child: Child,
    pub ready: Value,
    /// Standard output after the readiness line, sent when it ends.
    stdout: Receiver<String>,
    /// All of standard error, sent when it ends.
    stderr: Receiver<String>,
}

impl Server {
    /// Starts a server on any free ports.
    pub fn start(args: &[&str]) -> Server {
        let mut all = vec!["serve", "--grpc-port", "0", "--http-port", "0"];
        all.extend(args);
        Server::spawn(command(&all))
    }

    /// Starts a server on the data in `dir`.
    pub fn with_data(dir: &Path, args: &[&str]) -> Server {
        let mut all = vec!["--data", dir.to_str().unwrap()];
        all.extend(args);
        Server::start(&all)
    }

    /// Starts a server with a command that prints a readiness line.
    pub fn spawn(command: Command) -> Server {
        let (child, first, stdout, stderr) = spawn(command);
        let ready = serde_json::from_str(&first)
            .unwrap_or_else(|_| panic!("not ready: {first}{}", stderr.recv().unwrap()));
        Server { child, ready, stdout, stderr }
    }

    pub fn address(&self, port: &str) -> String {
        self.ready[port].as_str().unwrap_or_else(|| panic!("{port} is off")).to_string()
    }

    pub fn data(&self) -> &str {
        self.ready["data"].as_str().unwrap()
    }

    pub async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address("grpc"))).unwrap();
        endpoint.connect().await.unwrap()
    }

    pub async fn client(&self) -> BigtableClient<Channel> {
        BigtableClient::new(self.channel().await).max_decoding_message_size(256 << 20)
    }

    /// Asserts that calls are answered.
    pub async fn assert_healthy(&self) {
        self.client().await.ping_and_warm(ping()).await.unwrap();
    }

    /// Returns the status line and the body of a page.
    pub fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address("http")).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_string(), body.to_string())
    }

    /// Returns the value of one sample of /metrics, named with its labels.
    pub fn metric(&self, sample: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics");
        text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok())
    }

    /// Returns the peak resident memory of the process, in bytes, without the pages of
    /// the program itself, which is five times as large in a debug build.
    pub fn peak_rss(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let bytes = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            value.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
        };
        bytes("VmHWM:").saturating_sub(bytes("RssFile:"))
    }

    /// Returns the CPU time that the process has used so far.
    pub fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 10)
    }

    /// Waits until the process is idle.
    pub async fn until_idle(&self) {
        let begun = Instant::now();
        let mut before = self.cpu_time();
        let mut idle = 0;
        while idle < 5 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let now = self.cpu_time();
            idle = if now == before { idle + 1 } else { 0 };
            before = now;
            assert!(begun.elapsed() < TIMEOUT, "the server is never idle");
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the process to exit.
    pub fn wait(mut self) -> Exit {
        let stderr = self.stderr.recv_timeout(TIMEOUT).expect("the server ends");
        let stdout = self.stdout.recv_timeout(TIMEOUT).expect("the server ends");
        Exit { status: self.child.wait().unwrap(), stdout, stderr }
    }

    pub fn terminate(self) -> Exit {
        self.signal(Signal::TERM);
        self.wait()
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

/// The exit status of a server and its output.
#[derive(Debug)]
pub struct Exit {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Starts a process and waits for its first line. Returns that line and the rest of the
/// two outputs.
pub fn spawn(mut command: Command) -> (Child, String, Receiver<String>, Receiver<String>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = read_all(child.stderr.take().unwrap());
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    (child, first, read_all(out), stderr)
}

/// Reads to the end in a separate thread, so that no pipe fills up.
fn read_all(mut from: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut all = Vec::new();
        let _ = from.read_to_end(&mut all);
        let _ = send.send(String::from_utf8_lossy(&all).into_owned());
    });
    receive
}

/// Waits until a condition holds, while other tasks continue.
pub async fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TIMEOUT, "{what} never came true");
        tokio::task::yield_now().await;
    }
}

/// Creates a store with a table that has the family `f`.
pub fn make_table(dir: &Path) {
    let tables = Tables::open(dir, Options::default(), World::real()).unwrap();
    let api = Api::new(tables).unwrap();
    let definition = Definition {
        families: [("f".to_string(), Family::default())].into(),
        granularity: Granularity::Millis,
        ..Definition::default()
    };
    api.tables().create(TABLE, definition).unwrap();
}

pub fn ping() -> v2::PingAndWarmRequest {
    v2::PingAndWarmRequest { name: INSTANCE.into(), ..Default::default() }
}

pub fn write(row: &str, value: Vec<u8>) -> v2::MutateRowRequest {
    let set = SetCell {
        family_name: "f".into(),
        column_qualifier: "q".into(),
        timestamp_micros: 1000,
        value: value.into(),
    };
    v2::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: row.as_bytes().to_vec().into(),
        mutations: vec![v2::Mutation {
            mutation: Some(Mutation::SetCell(set)),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// Returns the keys of all rows of the table.
pub async fn rows(server: &Server) -> Vec<String> {
    let request = v2::ReadRowsRequest { table_name: TABLE.into(), ..Default::default() };
    let mut stream = server.client().await.read_rows(request).await.unwrap().into_inner();
    let mut rows = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        for chunk in message.chunks.into_iter().filter(|chunk| !chunk.row_key.is_empty()) {
            rows.push(String::from_utf8(chunk.row_key.to_vec()).unwrap());
        }
    }
    rows
}
