//! A server process, and clients of its catalogues.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;
use stele_catalogue::Fid;
use stele_catalogue::client::Client;
use tonic::transport::{Channel, Endpoint};

/// A ready server. Killed when dropped.
pub struct Server {
    child: Child,
    ready: Value,
    _out: BufReader<ChildStdout>,
}

impl Server {
    pub fn start(args: &[&str]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_stele"))
            .args(["serve", "--grpc-port", "0", "--http-port", "off", "--log", "warn"])
            .args(["--metastore-port", "off", "--dns-port", "off"])
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

    /// Starts a server on the data in `dir`, with little memory, so that much of it is
    /// being flushed when the server is killed.
    pub fn of(dir: &Path) -> Server {
        Server::start(&["--data", dir.to_str().unwrap(), "--memory", "64MiB"])
    }

    pub fn address(&self) -> &str {
        self.ready["grpc"].as_str().unwrap()
    }

    pub async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address())).unwrap();
        endpoint.connect().await.unwrap()
    }

    pub async fn client(&self) -> Client {
        Client::connect(self.address(), &Default::default()).await.unwrap()
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

pub fn fid(id: u128) -> Fid {
    Fid::of_id(1000 + id).unwrap()
}
