//! Three members as processes of `stele metastore serve`.

use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use stele_metastore::client::{Client, StatusResponse};
use stele_metastore::peer::Roster;
use stele_metastore::proto::etcd::{HashKvRequest, HashKvResponse};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tonic::transport::Endpoint;

use super::network::Network;
use crate::support::{Server, TIMEOUT, command};

pub const NAMES: [&str; 3] = ["a", "b", "c"];

/// A cluster on this machine.
pub struct Members {
    pub dir: TempDir,
    pub network: Network,
    /// As `--initial-cluster` has them.
    members: String,
    peer_ports: [u16; 3],
    pub client_ports: [u16; 3],
    running: [Option<Server>; 3],
}

/// Returns a port that is free now, and that no outgoing connection gets while its
/// member is restarted: it is below the range of those.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let process = (std::process::id() % 300) as u16 * 40;
        let port = 20_000 + (process + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Waits until a condition holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < TIMEOUT, "{what} never came true");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Members {
    /// Starts three members that reach each other through proxies.
    pub async fn start() -> Members {
        let network = Network::new();
        let (peer_ports, client_ports) =
            ([(); 3].map(|()| free_port()), [(); 3].map(|()| free_port()));
        let mut members = Vec::new();
        for (name, port) in NAMES.into_iter().zip(peer_ports) {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            members.push(format!("{name}=http://{}", listener.local_addr().unwrap()));
            network.serve(listener, port);
        }
        let mut cluster = Members {
            dir: tempfile::tempdir().unwrap(),
            network,
            members: members.join(","),
            peer_ports,
            client_ports,
            running: [None, None, None],
        };
        let commands = [0, 1, 2].map(|member| cluster.command(member));
        cluster.running = spawn_all(commands).map(Some);
        cluster
    }

    fn command(&self, member: usize) -> Command {
        let name = NAMES[member];
        let mut start = command(&["metastore", "serve", "--name", name]);
        start
            .arg("--data-dir")
            .arg(self.dir.path().join(name))
            .args(["--initial-cluster", &self.members])
            .args(["--listen-peer-urls", &format!("http://127.0.0.1:{}", self.peer_ports[member])])
            .args([
                "--listen-client-urls",
                &format!("http://127.0.0.1:{}", self.client_ports[member]),
            ])
            .env("STELE_TEST_FULL_DISK", self.full_disk_file(member));
        start
    }

    /// Returns the command that starts a member which has been added to the cluster.
    pub fn command_to_join(&self, name: &str, peer_port: u16, client_port: u16) -> Command {
        let members = format!("{},{name}=http://127.0.0.1:{peer_port}", self.members);
        let mut start = command(&["metastore", "serve", "--name", name]);
        start
            .arg("--data-dir")
            .arg(self.dir.path().join(name))
            .args(["--initial-cluster", &members, "--initial-cluster-state", "existing"])
            .args(["--listen-client-urls", &format!("http://127.0.0.1:{client_port}")]);
        start
    }

    fn full_disk_file(&self, member: usize) -> std::path::PathBuf {
        self.dir.path().join(format!("{}-is-full", NAMES[member]))
    }

    /// Makes all writes of a member to its disk fail, or succeed again.
    pub fn set_disk_full(&self, member: usize, full: bool) {
        let file = self.full_disk_file(member);
        if full { std::fs::write(file, "").unwrap() } else { std::fs::remove_file(file).unwrap() }
    }

    pub fn restart(&mut self, member: usize) {
        assert!(self.running[member].is_none());
        self.running[member] = Some(Server::spawn(self.command(member)));
    }

    /// Starts a member that listens for the others on another port, without a proxy.
    pub fn restart_at(&mut self, member: usize, peer_port: u16) {
        self.peer_ports[member] = peer_port;
        self.restart(member);
    }

    /// Kills a member with kill -9.
    pub fn kill(&mut self, member: usize) {
        self.running[member].take().expect("the member runs").kill();
    }

    /// Ends a member cleanly.
    pub fn terminate(&mut self, member: usize) {
        let exit = self.running[member].take().expect("the member runs").terminate();
        assert!(exit.status.success(), "{exit:?}");
    }

    pub fn signal(&self, member: usize, signal: Signal) {
        self.running[member].as_ref().expect("the member runs").signal(signal);
    }

    /// Returns the id of a member.
    pub fn id(&self, member: usize) -> u64 {
        Roster::parse(NAMES[member], &self.members).unwrap().member_id()
    }

    /// Returns a client that connects again whenever it has to.
    pub fn client(&self, member: usize) -> Client {
        connect(&format!("http://127.0.0.1:{}", self.client_ports[member]))
    }

    async fn status(&self, member: usize) -> Option<StatusResponse> {
        self.running[member].as_ref()?;
        let client = self.client(member);
        let status = tokio::time::timeout(Duration::from_secs(1), client.status());
        status.await.ok()?.ok()
    }

    /// Waits until a member other than `not` leads by its own account.
    pub async fn leader_but(&self, not: Option<usize>) -> usize {
        let mut leader = None;
        until("there is a leader", async || {
            for member in (0..NAMES.len()).filter(|member| Some(*member) != not) {
                let status = self.status(member).await;
                if status.is_some_and(|status| status.leader_id == status.member_id) {
                    leader = Some(member);
                }
            }
            leader.is_some()
        })
        .await;
        leader.unwrap()
    }

    pub async fn leader(&self) -> usize {
        self.leader_but(None).await
    }

    /// Waits until a member has applied what another has now.
    pub async fn catch_up(&self, member: usize, other: usize) {
        let target = self.client(other).status().await.unwrap().applied_index;
        until("the member catches up", async || {
            self.status(member).await.is_some_and(|status| status.applied_index >= target)
        })
        .await;
    }

    /// Checks that all members have the same keys at the same revision.
    pub async fn assert_equal(&self) {
        let leader = self.leader().await;
        let revision = self.client(leader).status().await.unwrap().revision;
        let mut hashes = Vec::new();
        for member in 0..NAMES.len() {
            self.catch_up(member, leader).await;
            let request = HashKvRequest { revision };
            let path = "/etcdserverpb.Maintenance/HashKV";
            let hash: HashKvResponse = self.client(member).call_etcd(path, request).await.unwrap();
            hashes.push(hash.hash);
        }
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    }
}

/// Returns a client that connects when it is used.
pub fn connect(address: &str) -> Client {
    let endpoint = Endpoint::from_shared(address.to_string()).unwrap();
    Client::new(endpoint.connect_timeout(Duration::from_secs(1)).connect_lazy())
}

/// Starts members at the same time: a new one is ready when there is a leader.
pub fn spawn_all<const N: usize>(commands: [Command; N]) -> [Server; N] {
    let started = commands.map(|command| std::thread::spawn(|| Server::spawn(command)));
    started.map(|member| member.join().unwrap())
}
