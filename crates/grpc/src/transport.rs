//! The way to the server: a connection, or a call within the process. Both
//! carry the same requests, so nothing above knows which it is.

use std::pin::Pin;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::transport::Channel;
use tower_service::Service;

use crate::Services;
use crate::memory::CallMemory;

/// Marks a call that was made within the process, among the extensions of its
/// request. Only [`Transport::InProcess`] can create it, so no call from the network
/// carries it.
#[derive(Clone, Copy, Debug)]
pub struct InProcess(());

impl InProcess {
    /// Returns whether the request with these extensions was made within the process.
    pub fn is_set(extensions: &http::Extensions) -> bool {
        extensions.get::<InProcess>().is_some()
    }
}

#[derive(Clone)]
pub enum Transport {
    Channel(Channel),
    InProcess(Services),
}

type Responding = Pin<Box<dyn Future<Output = Result<http::Response<Body>, StdError>> + Send>>;

impl Service<http::Request<Body>> for Transport {
    type Response = http::Response<Body>;
    type Error = StdError;
    type Future = Responding;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        match self {
            Transport::Channel(channel) => channel.poll_ready(context).map_err(Into::into),
            Transport::InProcess(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Responding {
        match self {
            Transport::Channel(channel) => {
                let responding = channel.call(request);
                Box::pin(async move { responding.await.map_err(Into::into) })
            }
            Transport::InProcess(services) => {
                request.extensions_mut().insert(InProcess(()));
                // Not a call of the network, even if one of those makes it.
                let responding = CallMemory::uncounted(services.call(request));
                Box::pin(async move { responding.await.map_err(|never| match never {}) })
            }
        }
    }
}
