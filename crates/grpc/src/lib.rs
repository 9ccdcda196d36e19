//! What gRPC services and their clients share: the services of a port
//! (`services`), calls that ask with one message (`unary`), streamed responses
//! whose messages are in wire form already (`body`), messages that are their
//! sender's mistake when they cannot be read (`codec`), what the engine's
//! errors are called (`engine_code`), the memory that calls may use (`memory`)
//! and the threads (`offload`); and the way to a server: where it is
//! (`endpoint`), whom to trust (`tls`), what is never shown (`secret`), over a
//! connection or within the process (`transport`).
#![forbid(unsafe_code)]

mod body;
mod codec;
mod endpoint;
mod engine_code;
pub mod memory;
pub mod offload;
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
