//! Catalogues: ordered key-value indices with vectored, atomic operations.
//!
//! The write path: a vector of records arrives (`server`), its catalogue is found by
//! cookie or fid (`registry`), its keys are locked (`catalogue`), and `service::change`
//! determines the outcome of each record in the order of the vector. The result is one
//! commit of the engine, laid out by `layout`; the reply is sent when the commit is
//! durable. The read path: keys or starts are read from one snapshot (`pins`), each at
//! the location in its `cookie` or by the ordinary lookup, directly into the bytes of
//! the reply (`reply`). docs/catalogue.md describes the promises and the bytes on disk.
//!
//! | module | what it does |
//! |---|---|
//! | [`fid`], `flags`, [`limits`] | the ids of catalogues, the flags of requests, their limits |
//! | `layout` | tables, rows and bytes on disk |
//! | `registry`, `catalogue` | open catalogues; key locks and totals |
//! | [`service`] | the operations: change, get, walk, range, manage, deathrow |
//! | `cookie`, `pins` | sealed positions of records; snapshots pinned across requests |
//! | `calls`, `stream`, `server`, `codec`, `reply`, [`proto`] | the gRPC server |
//! | [`client`] | over the network or within the process |
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use stele_catalogue::client::{Client, NewRecord};
//! use stele_catalogue::{Catalogues, Fid, Server};
//! use stele_engine::Options;
//! use stele_engine::world::World;
//! use stele_tables::Tables;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let tables = Tables::open(dir.path(), Options::default(), World::real())?;
//! let service = Arc::new(Catalogues::open(tables)?);
//! let client = Client::in_process(Server::new(service).routes());
//!
//! let fid: Fid = "i|1:1".parse()?;
//! client.create(&[fid], 0).await?;
//! let people = client.catalogue(fid);
//! people.put(vec![NewRecord::new("ada", "1815"), NewRecord::new("alan", "1912")], 0).await?;
//! let born = people.get_one("ada").await?.expect("the record was stored");
//! assert_eq!(born.joined(), "1815");
//! # Ok(())
//! # }
//! ```
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
mod stream;

pub use error::{Error, Result};
pub use fid::Fid;
pub use flags::{Flag, Flags};
pub use layout::{Condemned, Entry};
pub use server::Server;
pub use service::{Catalogues, Collector, Written};
