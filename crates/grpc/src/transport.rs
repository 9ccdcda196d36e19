//! The transport to a server: a network connection or a call within the process.
//! Both carry the same requests, so higher layers do not distinguish them.

use std::pin::Pin;
use std::task::{Context, Poll};

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::transport::Channel;
use tower_service::Service;

use crate::Services;
use crate::endpoint::endpoint;
use crate::error_chain::chain;
use crate::memory::CallMemory;
use crate::tls::Tls;

/// Marks a call made within the process, among the extensions of its request.
/// Only [`Transport::InProcess`] can create it, so no call from the network
/// carries it.
#[derive(Clone, Copy, Debug)]
pub struct InProcess(());

impl InProcess {
    /// Returns whether the request with these extensions was made within the process.
    pub fn is_set(extensions: &http::Extensions) -> bool {
        extensions.get::<InProcess>().is_some()
    }
}

/// The way to a server.
#[derive(Clone)]
pub enum Transport {
    Channel(Channel),
    InProcess(Services),
}

impl Transport {
    /// Connects to `host:port`, `http://host:port` or `https://host`. Fails with
    /// UNAVAILABLE if no server listens there.
    pub async fn connect(address: &str, tls: &Tls) -> Result<Transport, Status> {
        let endpoint = endpoint(address, tls).map_err(Status::invalid_argument)?;
        let channel = endpoint.connect().await.map_err(|error| {
            let why = std::error::Error::source(&error).map(chain).unwrap_or_default();
            Status::unavailable(format!("cannot reach {address}: {why}"))
        })?;
        Ok(Transport::Channel(channel))
    }
}

type ClientFuture = Pin<Box<dyn Future<Output = Result<http::Response<Body>, StdError>> + Send>>;

impl Service<http::Request<Body>> for Transport {
    type Response = http::Response<Body>;
    type Error = StdError;
    type Future = ClientFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        match self {
            Transport::Channel(channel) => channel.poll_ready(context).map_err(Into::into),
            Transport::InProcess(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, mut request: http::Request<Body>) -> ClientFuture {
        match self {
            Transport::Channel(channel) => {
                let responding = channel.call(request);
                Box::pin(async move { responding.await.map_err(Into::into) })
            }
            Transport::InProcess(services) => {
                request.extensions_mut().insert(InProcess(()));
                // Not charged to a network call, even if one makes this call.
                let responding = CallMemory::uncounted(services.call(request));
                Box::pin(async move { responding.await.map_err(|never| match never {}) })
            }
        }
    }
}
