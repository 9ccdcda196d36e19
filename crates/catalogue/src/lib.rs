//! Catalogues: ordered key-value indices with vectored, atomic operations.
//!
//! Follow one write: a vector of records arrives (`server`), its catalogue is
//! found by cookie or fid (`registry`), its keys are locked (`catalogue`), and
//! `service::change` decides in the order of the vector what becomes of each
//! record. What is left is one commit of the engine, laid out by `layout`;
//! the reply is sent when that is durable. Follow one read: keys or starts are
//! read at one moment (`pins`), each at the place that its `cookie` tells or by
//! the ordinary way, straight into the bytes of the reply (`reply`). Deleted
//! catalogues go to the deathrow (`service::deathrow`).
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
