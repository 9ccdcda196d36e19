//! A server of a cluster (`stele serve --cluster`): it owns some tablets and answers every
//! call, passing those about other rows on.
//!
//! - `settings`: the flags; `identity`: the id that a server keeps
//! - `access`: the coordinator, and what it has of the cluster as a whole
//! - `member`: a server with its lease, its store and its services
//! - `shared`: the tables that all servers have
//! - `placement`: loads tablets that nobody serves, and recovers those of dead servers
//! - `operator`: loads and unloads tablets by command

mod access;
mod identity;
mod member;
mod operator;
mod placement;
mod settings;
mod shared;

pub use access::{Access, ClusterRecord};
pub use member::Member;
pub use settings::ClusterSettings;
