//! The token that calls carry.

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// A channel whose calls carry a token.
pub type TokenChannel = InterceptedService<Channel, Token>;

/// The token that calls carry, if any.
#[derive(Clone, Debug, Default)]
pub struct Token(Option<MetadataValue<Ascii>>);

impl Token {
    /// A token that cannot be sent is left out; the server then asks for one.
    pub fn new(token: &str) -> Token {
        Token(token.parse().ok())
    }
}

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("token", token.clone());
        }
        Ok(request)
    }
}
