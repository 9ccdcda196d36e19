//! What gRPC services and their clients share: the services of a port
//! (`services`), calls that ask with one message (`unary`), streamed responses
//! whose messages are in wire form already (`body`), messages that are their
//! sender's mistake when they cannot be read (`codec`), what the engine's
//! errors are called (`engine_code`); and the way to a server: where it is
//! (`endpoint`), whom to trust (`tls`), over a connection or within the process
//! (`transport`).
#![forbid(unsafe_code)]

mod body;
mod codec;
mod endpoint;
mod engine_code;
mod services;
mod tls;
mod transport;
pub mod unary;

pub use body::{MessageBody, Messages};
pub use codec::{Any, CheckedCodec, CheckedDecoder, MessageCodec, Precheck};
pub use endpoint::{chain, endpoint};
pub use engine_code::engine_code;
pub use services::{Answering, Services};
pub use tls::Tls;
pub use transport::Transport;
