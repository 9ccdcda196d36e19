//! Coordinators for tests: Stele's metastore in this process, and a real etcd.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use stele_engine::world::World;
use stele_grpc::{Services, Transport};
use stele_metastore::etcd::{Etcd, Options};
use stele_metastore::{Node, node};
use tempfile::TempDir;
use tokio::task::{JoinHandle, JoinSet};

/// A metastore of one member.
pub struct Metastore {
    service: stele_metastore::etcd::Service,
    _dir: TempDir,
}

impl Metastore {
    pub async fn start() -> Metastore {
        let dir = tempfile::tempdir().unwrap();
        let settings = node::NodeSettings::new(dir.path().to_path_buf(), World::real());
        let node = Arc::new(Node::open(settings).await.unwrap());
        Metastore { service: Etcd::new(node, Options::default()).service(), _dir: dir }
    }

    /// Returns the way to it within the process.
    pub fn transport(&self) -> Transport {
        Transport::InProcess(Services::default().with_fallback(self.service.clone()))
    }

    /// Serves it on a port until the task is aborted.
    pub async fn serve(&self) -> (SocketAddr, JoinHandle<()>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = self.service.clone();
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                let service = TowerToHyperService::new(service.clone());
                connections.spawn(async move {
                    let builder = Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(connection), service).await;
                });
            }
        });
        (address, serving)
    }
}

/// An etcd in a process of its own.
pub struct RealEtcd {
    child: Child,
    pub address: String,
    _dir: TempDir,
}

impl RealEtcd {
    /// Starts the etcd that `STELE_ETCD` names, or the one on the path.
    pub fn start() -> Option<RealEtcd> {
        let binary = binary()?;
        let dir = tempfile::tempdir().unwrap();
        let (client, peer) = (free_address(), free_address());
        let url = |address: &str| format!("http://{address}");
        let child = Command::new(binary)
            .arg("--data-dir")
            .arg(dir.path())
            .args(["--log-level", "error", "--logger", "zap"])
            .args(["--heartbeat-interval", "100", "--election-timeout", "1000"])
            .args(["--listen-client-urls", &url(&client), "--advertise-client-urls", &url(&client)])
            .args(["--listen-peer-urls", &url(&peer), "--initial-advertise-peer-urls", &url(&peer)])
            .args(["--initial-cluster", &format!("default={}", url(&peer))])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(RealEtcd { child, address: client, _dir: dir })
    }
}

impl Drop for RealEtcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn binary() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("STELE_ETCD") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir: PathBuf| dir.join("etcd"))
        .find(|file: &PathBuf| Path::is_file(file))
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}
