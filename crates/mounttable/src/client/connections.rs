//! Connections to naming servers, and calls on them. Names lead to servers that anybody
//! may have mounted, so a client sends its token only to servers that it was configured
//! with.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
pub use stele_bigtable_client::Tls;
use stele_grpc::{Secret, chain, keeps_secrets};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Endpoint as Uri;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::address::Endpoint;
use crate::error::{Error, KIND_HEADER, Result};
use crate::proto;
use crate::proto::mounttable_client::MounttableClient;

/// The maximum number of open connections; when there are more, all are closed and
/// reopened on demand.
const KEPT_MAX: usize = 256;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const MESSAGE_BYTES_MAX: usize = 16 << 20;

pub type Channel = MounttableClient<tonic::transport::Channel>;
pub type Answer<R> = std::result::Result<Response<R>, Status>;

/// How a client authenticates, and which servers it trusts.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Sent to the roots, and to servers in `trusted_servers`.
    pub token: Option<Secret>,
    /// Connections are in plain text if `None`.
    pub tls: Option<Tls>,
    /// Whether to send the token in plain text to hosts other than loopback.
    pub insecure_token: bool,
    /// Servers that names may lead to and that receive the token if they have a valid
    /// certificate: host names, or `*.` and a domain.
    pub trusted_servers: Vec<String>,
}

impl Credentials {
    /// Returns whether one of the patterns matches the host and TLS will verify it.
    fn trust(&self, host: &str) -> bool {
        let matches = |pattern: &String| match pattern.strip_prefix("*.") {
            Some(domain) => host.split_once('.').is_some_and(|(first, rest)| {
                !first.is_empty() && rest.eq_ignore_ascii_case(domain)
            }),
            None => pattern.eq_ignore_ascii_case(host),
        };
        self.tls.is_some() && self.trusted_servers.iter().any(matches)
    }
}

pub struct Connections {
    credentials: Credentials,
    /// Hosts and ports that the client was configured with.
    roots: Vec<(String, u16)>,
    timeout: Duration,
    open: Mutex<HashMap<String, tonic::transport::Channel>>,
}

impl Connections {
    /// Creates the connections of a client with these roots, which are rooted names.
    /// Fails if a token would be sent over a network in plain text.
    pub fn new(
        roots: &[String],
        credentials: Credentials,
        timeout: Duration,
    ) -> Result<Connections> {
        let roots: Vec<_> = roots.iter().filter_map(|root| host_port(root)).collect();
        if credentials.token.is_some() && credentials.tls.is_none() && !credentials.insecure_token {
            let is_open = |(host, _): &&(String, u16)| !keeps_secrets(&bracketed(host));
            if let Some((host, port)) = roots.iter().find(is_open) {
                return Err(Error::TokenInPlainText { server: format!("{host}:{port}") });
            }
        }
        Ok(Connections { credentials, roots, timeout, open: Mutex::default() })
    }

    /// Makes one call to a server.
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
        let mut request = self.request(server, message)?;
        request.set_timeout(self.timeout);
        match tokio::time::timeout(self.timeout, call(channel, request)).await {
            Ok(answer) => {
                answer.map(Response::into_inner).map_err(|status| error_of(server, &status))
            }
            Err(_) => Err(Error::Unreachable { server: server.into(), why: "timed out".into() }),
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

    /// Starts a watch, which has no end and thus only the server's deadline.
    pub async fn watch(
        &self,
        server: &str,
        message: proto::WatchRequest,
    ) -> Result<Streaming<proto::WatchReply>> {
        let request = self.request(server, message)?;
        let answer = self.channel(server)?.watch(request).await;
        answer.map(Response::into_inner).map_err(|status| error_of(server, &status))
    }

    /// Starts a check, which reads all rows before it responds and thus has only the
    /// server's deadline.
    pub async fn fsck(
        &self,
        server: &str,
        message: proto::FsckRequest,
    ) -> Result<Streaming<proto::FsckReply>> {
        let request = self.request(server, message)?;
        let answer = self.channel(server)?.fsck(request).await;
        answer.map(Response::into_inner).map_err(|status| error_of(server, &status))
    }

    /// Returns a request to a server, with the token if the server may receive it.
    fn request<M>(&self, server: &str, message: M) -> Result<Request<M>> {
        let mut request = Request::new(message);
        if let Some(token) = &self.credentials.token
            && self.may_see_token(server)
        {
            let mut header: MetadataValue<Ascii> =
                format!("Bearer {}", token.expose()).parse().map_err(|_| {
                    Error::Unauthenticated("the token contains invalid characters".into())
                })?;
            // Omitted from debug output, and not indexed by the transport.
            header.set_sensitive(true);
            request.metadata_mut().insert("authorization", header);
        }
        Ok(request)
    }

    fn may_see_token(&self, server: &str) -> bool {
        let Some(at) = host_port(server) else { return false };
        self.roots.contains(&at) || self.credentials.trust(&at.0)
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
        let endpoint = Endpoint::of_server(server).ok_or_else(|| bad("invalid address".into()))?;
        let (host, port) =
            endpoint.host_port().ok_or_else(|| bad("the address has no host and port".into()))?;
        let host = bracketed(host);
        let scheme = if self.credentials.tls.is_some() { "https" } else { "http" };
        let uri = Uri::from_shared(format!("{scheme}://{host}:{port}"))
            .map_err(|error| bad(chain(&error)))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true);
        let Some(tls) = &self.credentials.tls else { return Ok(uri) };
        uri.tls_config(tls.config()).map_err(|error| bad(chain(&error)))
    }
}

/// Returns the host, in lower case, and the port of a server.
fn host_port(server: &str) -> Option<(String, u16)> {
    let endpoint = Endpoint::of_server(server)?;
    let (host, port) = endpoint.host_port()?;
    Some((host.to_ascii_lowercase(), port))
}

/// Formats a host for a URI.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_string() }
}

/// Converts a status to an error: the server is unreachable, or it rejected the call.
pub fn error_of(server: &str, status: &Status) -> Error {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(tls: bool, trusted: &[&str]) -> Connections {
        let credentials = Credentials {
            token: Some("secret".into()),
            tls: tls.then(Tls::default),
            insecure_token: true,
            trusted_servers: trusted.iter().map(|one| one.to_string()).collect(),
        };
        let roots = ["/Root.example.com:1".to_string(), "/[::1]:2/below".to_string()];
        Connections::new(&roots, credentials, Duration::from_secs(1)).unwrap()
    }

    fn shows_token(connections: &Connections, server: &str) -> bool {
        let request = connections.request(server, ()).unwrap();
        request.metadata().contains_key("authorization")
    }

    #[test]
    fn a_token_is_sent_only_to_the_roots() {
        let plain = connections(false, &["other.example.com", "*.example.com"]);
        for root in ["root.example.com:1", "ROOT.example.com:1", "/root.example.com:1/a", "[::1]:2"]
        {
            assert!(shows_token(&plain, root), "{root}");
        }
        for other in
            ["root.example.com:2", "evil:1", "other.example.com:1", "[::1]:1", "", "@6@@@@"]
        {
            assert!(!shows_token(&plain, other), "{other}");
        }
    }

    #[test]
    fn a_token_is_not_in_debug_output() {
        let connections = connections(true, &[]);
        let request = connections.request("root.example.com:1", ()).unwrap();
        let sent = request.metadata().get("authorization").unwrap();
        assert_eq!(sent, "Bearer secret");
        let text = format!("{:?} {request:?}", connections.credentials);
        assert!(!text.contains("Bearer") && !text.contains("\"secret"), "{text}");
    }

    #[test]
    fn trusted_servers_need_a_valid_certificate() {
        let secure = connections(true, &["other.net", "*.example.com"]);
        for trusted in ["other.net:7", "a.example.com:1", "A.Example.com:1"] {
            assert!(shows_token(&secure, trusted), "{trusted}");
        }
        for other in [
            "example.com:1",
            "a.b.example.com:1",
            ".example.com:1",
            "evil-example.com:1",
            "x.other.net:1",
        ] {
            assert!(!shows_token(&secure, other), "{other}");
        }
    }

    #[test]
    fn a_token_is_not_sent_over_a_network_in_plain_text() {
        let new = |root: &str, insecure_token| {
            let credentials =
                Credentials { token: Some("t".into()), insecure_token, ..Credentials::default() };
            Connections::new(&[root.to_string()], credentials, Duration::ZERO).map(drop)
        };
        assert_eq!(new("/127.0.0.1:1", false), Ok(()));
        assert_eq!(new("/[::1]:1", false), Ok(()));
        assert_eq!(new("/h:1", true), Ok(()));
        let refused = new("/h:1", false).unwrap_err();
        assert!(refused.to_string().contains("--insecure-token"), "{refused}");
    }
}
