//! The network between members: framed requests and responses over TCP, with
//! mutual TLS unless all members are on this machine.
//!
//! [`Roster`] names the members and derives the ids of the cluster and its
//! members. [`PeerTransport`] keeps one connection to each member for each lane
//! (`connection`) and accepts those of others (`server`); both sides check in a
//! `handshake` that they mean the same cluster and the right member. `frame`
//! delimits messages. A member that joins asks the others who it is (`joining`). `docs/metastore-cluster.md` specifies the bytes.

mod connection;
mod frame;
mod handshake;
mod joining;
mod roster;
mod server;
mod transport;

pub use joining::{ClusterView, discover};
pub use roster::{PeerUrl, Roster};
pub use transport::{PeerTls, PeerTransport};
