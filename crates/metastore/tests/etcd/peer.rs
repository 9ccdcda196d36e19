//! Servers behind a gRPC channel: a real etcd in a process of its own, or ours
//! in this one.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use stele_metastore::etcd::Options;
use stele_metastore::etcd::proto::{RangeRequest, RangeResponse};
use tempfile::TempDir;
use tokio_stream::Stream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::etcd::server;

/// The timeout of every wait in these tests.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A server and a channel to it.
#[derive(Clone)]
pub struct Peer {
    pub name: &'static str,
    pub address: SocketAddr,
    channel: Channel,
    /// Carried by all calls, unless it is empty.
    token: String,
    _process: Option<Arc<Process>>,
    _dir: Option<Arc<TempDir>>,
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the etcd to compare with: the one that `STELE_ETCD` names, or the
/// one on the path.
pub fn etcd_binary() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("STELE_ETCD") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("etcd")).find(|file| file.is_file())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Peer {
    pub async fn etcd(binary: &PathBuf) -> Peer {
        let dir = tempfile::tempdir().unwrap();
        let (client, peer) = (free_port(), free_port());
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let child = Command::new(binary)
            .args(["--data-dir", dir.path().to_str().unwrap(), "--log-level", "error"])
            .args(["--logger", "zap", "--heartbeat-interval", "100", "--election-timeout", "1000"])
            .args(["--bcrypt-cost", "4"])
            .args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)])
            .args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)])
            .args(["--initial-cluster", &format!("default={}", url(peer))])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let channel = connect(&url(client)).await;
        let address = SocketAddr::from(([127, 0, 0, 1], client));
        Peer {
            name: "etcd",
            address,
            channel,
            token: String::new(),
            _process: Some(Arc::new(Process(child))),
            _dir: Some(Arc::new(dir)),
        }
    }

    pub async fn ours() -> Peer {
        Peer::with(Options::default()).await
    }

    /// Starts ours with these options.
    pub async fn with(options: Options) -> Peer {
        Peer::start(options, 0).await
    }

    /// Starts ours with a quota on keys and values.
    pub async fn of_quota(quota_bytes: i64) -> Peer {
        Peer::start(Options::default(), quota_bytes).await
    }

    async fn start(options: Options, quota_bytes: i64) -> Peer {
        let dir = tempfile::tempdir().unwrap();
        let address = server::start(dir.path(), options, quota_bytes).await;
        Peer { _dir: Some(Arc::new(dir)), ..Peer::at(address).await }
    }

    /// Starts ours in a directory.
    pub async fn on(dir: &Path, options: Options) -> Peer {
        Peer::at(server::start(dir, options, 0).await).await
    }

    async fn at(address: SocketAddr) -> Peer {
        let channel = connect(&format!("http://{address}")).await;
        Peer { name: "ours", address, channel, token: String::new(), _process: None, _dir: None }
    }

    /// Returns the same server for calls that carry a token.
    pub fn with_token(&self, token: &str) -> Peer {
        Peer { token: token.to_owned(), ..self.clone() }
    }

    pub fn token(&self) -> &str {
        &self.token
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if !self.token.is_empty() {
            request.metadata_mut().insert("token", self.token.parse().unwrap());
        }
        request
    }

    async fn ready(&self) -> Grpc<Channel> {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(64 << 20);
        grpc.ready().await.unwrap_or_else(|error| panic!("{} is gone: {error}", self.name));
        grpc
    }

    pub async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(path);
        let answering = async {
            self.ready().await.unary(self.request(request), path, ProstCodec::default()).await
        };
        let answer = tokio::time::timeout(TIMEOUT, answering).await;
        answer.unwrap_or_else(|_| panic!("{} does not answer", self.name)).map(|it| it.into_inner())
    }

    /// Calls a method that answers with a stream.
    pub async fn ask<Q, A>(&self, path: &'static str, request: Q) -> Result<Vec<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut answers = self.answers(path, request).await?;
        let mut all = Vec::new();
        while let Some(answer) = answers.message().await? {
            all.push(answer);
        }
        Ok(all)
    }

    /// Calls a method that answers with a stream, and returns the stream.
    pub async fn answers<Q, A>(
        &self,
        path: &'static str,
        request: Q,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(path);
        let mut grpc = self.ready().await;
        let answer = grpc.server_streaming(self.request(request), path, ProstCodec::default());
        Ok(answer.await?.into_inner())
    }

    pub async fn stream<Q, A>(
        &self,
        path: &'static str,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Streaming<A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(path);
        let request = self.request(requests);
        let answer = self.ready().await.streaming(request, path, ProstCodec::default()).await;
        answer.unwrap().into_inner()
    }
}

/// Connects as soon as the server listens.
async fn connect(url: &str) -> Channel {
    let endpoint = Endpoint::from_shared(url.to_owned()).unwrap();
    let connecting = async {
        loop {
            match endpoint.connect().await {
                Ok(channel) => return channel,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let channel = tokio::time::timeout(TIMEOUT, connecting).await.expect("it listens");
    // The first successful read shows that there is a leader.
    let mut grpc = Grpc::new(channel.clone());
    let leads = async {
        loop {
            grpc.ready().await.unwrap();
            let request = RangeRequest { key: "k".into(), ..Default::default() };
            let path = PathAndQuery::from_static("/etcdserverpb.KV/Range");
            let codec = ProstCodec::<_, RangeResponse>::default();
            if grpc.unary(Request::new(request), path, codec).await.is_ok() {
                break;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, leads).await.expect("it has a leader");
    channel
}
