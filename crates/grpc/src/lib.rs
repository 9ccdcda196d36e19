//! What gRPC services and their clients share: streamed responses whose
//! messages are in wire form already (`body`), messages that are their sender's
//! mistake when they cannot be read (`codec`), and the way to a server, over a
//! connection or within the process (`transport`).
#![forbid(unsafe_code)]

mod body;
mod codec;
mod transport;

pub use body::{MessageBody, Messages};
pub use codec::{Any, CheckedCodec, CheckedDecoder, MessageCodec, Precheck};
pub use transport::Transport;
