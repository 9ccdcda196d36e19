//! Our API on a port of this process.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use stele_engine::world::World;
use stele_metastore::etcd::{Etcd, Options};
use stele_metastore::{Node, node};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

pub async fn start(dir: &Path, options: Options, quota_bytes: i64) -> SocketAddr {
    let mut settings = node::NodeSettings::new(dir.to_path_buf(), World::real());
    settings.quota_bytes = quota_bytes;
    let node = Arc::new(Node::open(settings).await.unwrap());
    serve(node, options).await.0
}

/// Serves a node until the task is aborted.
pub async fn serve(node: Arc<Node>, options: Options) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = Etcd::new(node, options).service();
    let serving = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((connection, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            connections.spawn(async move {
                let connection = TokioIo::new(connection);
                let _ =
                    Builder::new(TokioExecutor::new()).serve_connection(connection, service).await;
            });
        }
    });
    (address, serving)
}
