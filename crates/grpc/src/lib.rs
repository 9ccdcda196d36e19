//! Infrastructure shared by gRPC services and their clients.
//!
//! Server side:
//!
//! - `services`: the services of a port
//! - `unary`: calls with a single request message
//! - `body`: streamed responses whose messages are already encoded
//! - `codec`: rejects undecodable messages as the sender's mistake
//! - `engine_code`: the gRPC code of each engine error
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
#![forbid(unsafe_code)]

mod body;
mod codec;
mod endpoint;
mod engine_code;
pub mod memory;
pub mod offload;
pub mod percent;
mod secret;
mod services;
mod tls;
mod transport;
pub mod unary;

pub use body::{MessageBody, Messages, Next, Wait};
pub use codec::{Any, CheckedCodec, CheckedDecoder, MessageCodec, Precheck};
pub use endpoint::{chain, endpoint, keeps_secrets};
pub use engine_code::engine_code;
pub use secret::Secret;
pub use services::{
    Answering, Dispatch, Intercept, MethodPath, Services, is_grpc, unsupported_media_type,
};
pub use tls::Tls;
pub use transport::{InProcess, Transport};
