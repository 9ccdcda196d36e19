//! A member on a simulated disk, behind a socket.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::world::sim::SimFiles;
use stele_engine::world::{SeededRandom, SystemClock, Threads, World};
use stele_metastore::client::{Client, Lock};
use stele_metastore::native::Native;
use stele_metastore::{Node, node};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

pub struct Member {
    sim: SimFiles,
    node: Option<Arc<Node>>,
    address: String,
    serving: JoinHandle<()>,
}

fn settings(sim: &SimFiles) -> node::NodeSettings {
    let world = World {
        clock: Arc::new(SystemClock::new()),
        files: Arc::new(sim.clone()),
        random: Arc::new(SeededRandom::new(3)),
        spawner: Some(Arc::new(Threads)),
    };
    node::NodeSettings::new(PathBuf::from("/metastore"), world)
}

impl Member {
    pub async fn start() -> Member {
        Member::start_with(|_| {}).await
    }

    pub async fn start_with(change: impl FnOnce(&mut node::NodeSettings)) -> Member {
        let sim = SimFiles::new(1);
        let mut settings = settings(&sim);
        change(&mut settings);
        let (node, address, serving) = serve(settings).await;
        Member { sim, node: Some(node), address, serving }
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.address).await.unwrap()
    }

    pub fn node(&self) -> &Arc<Node> {
        self.node.as_ref().unwrap()
    }

    /// Returns the bytes written to the log, and the number of its syncs.
    pub fn log_stats(&self) -> (u64, u64) {
        self.node.as_ref().unwrap().group().log_stats()
    }

    /// Simulates a power failure and a restart.
    pub async fn restart(&mut self) {
        self.serving.abort();
        self.node = None;
        self.sim = self.sim.crash();
        let (node, address, serving) = serve(settings(&self.sim)).await;
        (self.node, self.address, self.serving) = (Some(node), address, serving);
    }

    /// Waits until a lock satisfies a condition.
    pub async fn until(&self, wanted: impl Fn(&Lock) -> bool, key: &'static str) {
        let client = self.client().await;
        let reached = async {
            while !wanted(&client.lock(key).await.unwrap()) {
                tokio::task::yield_now().await;
            }
        };
        soon(reached).await;
    }
}

async fn serve(settings: node::NodeSettings) -> (Arc<Node>, String, JoinHandle<()>) {
    let node = Arc::new(Node::open(settings).await.unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let service = Native::new(node.clone()).service();
    let serving = tokio::spawn(async move {
        let incoming = TcpListenerStream::new(listener);
        let _ = Server::builder().add_service(service).serve_with_incoming(incoming).await;
    });
    (node, address, serving)
}

/// Waits with a timeout, so that a test fails instead of hanging.
pub async fn soon<T>(awaited: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), awaited)
        .await
        .expect("it happens within a minute")
}
