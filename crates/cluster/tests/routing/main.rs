//! Promises of the parts that servers of a cluster share.

mod coordinator;
mod owners;
mod servers;
