//! Infrastructure shared by gRPC services and their clients. It knows nothing of
//! storage, so a client that uses it does not link the engine.
//!
//! Server side:
//!
//! - `services`: the services of a port; dispatches a call by its `method_path`
//! - `handler`: services that are written by hand instead of generated
//! - `unary`: calls with a single request message
//! - `body`: responses whose messages are already encoded
//! - `frame`: the prefix of every message on the wire
//! - `timeout`: the client's timeout of a call
//! - `codec`: rejects undecodable messages as the sender's mistake
//! - `memory`: the memory that calls may use
//! - `offload`: the threads that blocking work runs on
//! - `percent`: strict percent-decoding
//!
//! Client side:
//!
//! - `endpoint`: the address of a server
//! - `tls`: trusted certificates and the client's identity
//! - `secret`: values that are never printed
//! - `transport`: a network connection or calls within the process
//! - `backoff`: delays before retries
//! - `pending`: calls whose type is erased
//! - `error_chain`: the text of an error with its causes
//!
//! A service that is written by hand, called within the process:
//!
//! ```
//! use http_body_util::{BodyExt, Full};
//! use stele_grpc::{Handler, MessageBody, ResponseFuture, Services, frame, respond, unary};
//! use tonic::body::Body;
//!
//! struct Greeter;
//!
//! impl Handler for Greeter {
//!     const NAME: &'static str = "example.Greeter";
//!
//!     fn handle(&self, request: http::Request<Body>) -> ResponseFuture {
//!         respond(async move {
//!             let (head, body) = request.into_parts();
//!             let name: String = unary::read(&head.headers, body, 1 << 10).await?;
//!             Ok(MessageBody::of([frame::encode(&format!("Hello, {name}"))]))
//!         })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let services = Services::default().with_handler(Greeter);
//! let message = Full::new(frame::encode(&"Ada".to_string()));
//! let request = http::Request::post("/example.Greeter/Greet")
//!     .header("content-type", "application/grpc")
//!     .body(Body::new(message))
//!     .unwrap();
//! let response = services.call(request).await.unwrap().into_body().collect().await.unwrap();
//! assert_eq!(response.trailers().unwrap()["grpc-status"], "0");
//! assert_eq!(response.to_bytes(), frame::encode(&"Hello, Ada".to_string()));
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod backoff;
pub mod body;
mod codec;
mod endpoint;
mod error_chain;
pub mod frame;
mod handler;
pub mod memory;
mod method_path;
pub mod offload;
mod pending;
pub mod percent;
mod secret;
mod services;
mod timeout;
mod tls;
mod transport;
pub mod unary;

pub use body::{MessageBody, Messages, Next, Wait};
pub use codec::{AnyMessage, CheckedCodec, CheckedDecoder, MessageCodec, Precheck};
pub use endpoint::{endpoint, keeps_secrets};
pub use error_chain::chain;
pub use handler::{Handler, ResponseFuture, respond, respond_now};
pub use method_path::MethodPath;
pub use pending::Pending;
pub use secret::Secret;
pub use services::{Dispatch, Intercept, Services, is_grpc, unsupported_media_type};
pub use timeout::timeout;
pub use tls::Tls;
pub use transport::{InProcess, Transport};
