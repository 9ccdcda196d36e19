//! Catalogues: ordered key-value indices with vectored, atomic operations.
//!
//! The write path: a vector of records arrives (`server`), its catalogue is found by
//! cookie or fid (`registry`), its keys are locked (`catalogue`), and `service::change`
//! determines the outcome of each record in the order of the vector. The result is one
//! commit of the engine, laid out by `layout`; the reply is sent when the commit is
//! durable. The read path: keys or starts are read from one snapshot (`pins`), each at
//! the location in its `cookie` or by the ordinary lookup, directly into the bytes of
//! the reply (`reply`). Deleted catalogues go to the deathrow (`service::deathrow`).
#![forbid(unsafe_code)]

mod calls;
mod catalogue;
pub mod client;
mod codec;
mod cookie;
mod error;
pub mod fid;
mod flags;
mod layout;
pub mod limits;
mod pins;
pub mod proto;
mod registry;
mod reply;
mod server;
pub mod service;

pub use error::{Error, Result};
pub use fid::Fid;
pub use flags::{Flag, Flags};
pub use layout::{Condemned, Entry};
pub use server::Server;
pub use service::{Catalogues, Collector, Written};
