//! Connections to servers of names, and one call on one of them.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
pub use stele_bigtable::client::Tls;
use stele_grpc::chain;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Endpoint as Uri;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::address::Endpoint;
use crate::error::{Error, KIND_HEADER, Result};
use crate::proto;
use crate::proto::mounttable_client::MounttableClient;

/// Connections that are kept; when there are more, all are made anew.
const KEPT_MAX: usize = 256;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const MESSAGE_BYTES_MAX: usize = 16 << 20;

pub type Channel = MounttableClient<tonic::transport::Channel>;
pub type Answer<R> = std::result::Result<Response<R>, Status>;

/// How a client is known, and whom it trusts.
#[derive(Clone, Default)]
pub struct Credentials {
    /// Sent with every call.
    pub token: Option<String>,
    /// Plain text without.
    pub tls: Option<Tls>,
}

impl std::fmt::Debug for Credentials {
    /// Neither tokens nor keys are shown.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Credentials")
            .field("token", &self.token.is_some())
            .field("tls", &self.tls.is_some())
            .finish()
    }
}

pub struct Connections {
    credentials: Credentials,
    timeout: Duration,
    open: Mutex<HashMap<String, tonic::transport::Channel>>,
}

impl Connections {
    pub fn new(credentials: Credentials, timeout: Duration) -> Connections {
        Connections { credentials, timeout, open: Mutex::default() }
    }

    /// Makes one call at a server.
    pub async fn call<M, R, F>(
        &self,
        server: &str,
        message: M,
        call: impl FnOnce(Channel, Request<M>) -> F,
    ) -> Result<R>
    where
        F: Future<Output = Answer<R>>,
    {
        let channel = self.channel(server)?;
        let mut request = self.request(message)?;
        request.set_timeout(self.timeout);
        match tokio::time::timeout(self.timeout, call(channel, request)).await {
            Ok(answer) => answer.map(Response::into_inner).map_err(|status| told(server, &status)),
            Err(_) => {
                Err(Error::Unreachable { server: server.into(), why: "no answer in time".into() })
            }
        }
    }

    pub async fn glob(
        &self,
        server: &str,
        message: proto::GlobRequest,
    ) -> Result<Streaming<proto::GlobReply>> {
        let call = |mut client: Channel, request| async move { client.glob(request).await };
        self.call(server, message, call).await
    }

    /// A watch has no end, so it has no deadline but the server's.
    pub async fn watch(
        &self,
        server: &str,
        message: proto::WatchRequest,
    ) -> Result<Streaming<proto::WatchReply>> {
        let request = self.request(message)?;
        let answer = self.channel(server)?.watch(request).await;
        answer.map(Response::into_inner).map_err(|status| told(server, &status))
    }

    fn request<M>(&self, message: M) -> Result<Request<M>> {
        let mut request = Request::new(message);
        if let Some(token) = &self.credentials.token {
            let header: MetadataValue<Ascii> = format!("Bearer {token}")
                .parse()
                .map_err(|_| Error::Unauthenticated("the token cannot be sent".into()))?;
            request.metadata_mut().insert("authorization", header);
        }
        Ok(request)
    }

    fn channel(&self, server: &str) -> Result<Channel> {
        let mut open = self.open.lock();
        let channel = match open.get(server) {
            Some(channel) => channel.clone(),
            None => {
                if open.len() >= KEPT_MAX {
                    open.clear();
                }
                let channel = self.uri(server)?.connect_lazy();
                open.insert(server.into(), channel.clone());
                channel
            }
        };
        Ok(MounttableClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX))
    }

    fn uri(&self, server: &str) -> Result<Uri> {
        let bad = |why: String| Error::Unreachable { server: server.into(), why };
        let endpoint = Endpoint::of_server(server).ok_or_else(|| bad("it is no address".into()))?;
        let (host, port) = endpoint
            .host_port()
            .ok_or_else(|| bad("it has no host and port that can be reached".into()))?;
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_string() };
        let scheme = if self.credentials.tls.is_some() { "https" } else { "http" };
        let uri = Uri::from_shared(format!("{scheme}://{host}:{port}"))
            .map_err(|error| bad(chain(&error)))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true);
        let Some(tls) = &self.credentials.tls else { return Ok(uri) };
        uri.tls_config(tls.config()).map_err(|error| bad(chain(&error)))
    }
}

/// What a status says: that nobody was there, or what the server refused.
pub fn told(server: &str, status: &Status) -> Error {
    use std::error::Error as _;
    let server = server.to_string();
    if let Some(source) = status.source() {
        return Error::Unreachable { server, why: chain(source) };
    }
    let kind = status.metadata().get(KIND_HEADER).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().to_string();
    if status.code() == Code::Unavailable && kind.is_empty() {
        return Error::Unreachable { server, why: status.message().into() };
    }
    Error::Refused { server, code: status.code(), kind, message: status.message().into() }
}
