//! The server on the wire: frames that client libraries hide, and kill -9 under load,
//! after which the history of every row must be linearizable.

mod calls;
mod frames;
mod killed;
mod linear;
mod row;
mod server;
