//! What the servers of a cluster share over the network.
//!
//! [`Etcd`] is the coordinator: etcd, or Stele's metastore on other machines or in this
//! process.
#![forbid(unsafe_code)]

mod etcd;
mod proto;

pub use etcd::{CoordinatorAddress, Etcd, InvalidAddress};
