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

pub async fn start(dir: &Path, options: Options, quota_bytes: i64) -> SocketAddr {
    let mut settings = node::Settings::new(dir.to_path_buf(), World::real());
    settings.quota_bytes = quota_bytes;
    let node = Arc::new(Node::open(settings).await.unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = Etcd::new(node, options).service();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                let connection = TokioIo::new(connection);
                let _ =
                    Builder::new(TokioExecutor::new()).serve_connection(connection, service).await;
            });
        }
    });
    address
}
