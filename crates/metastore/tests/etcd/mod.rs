//! The etcd API over the wire: compared with a real etcd, and tested for
//! guarantees that a comparison does not show.

pub mod auth;
mod contract;
mod differential;
mod gateway;
mod metrics;
mod odd_requests;
mod peer;
mod ranges;
mod recipes;
pub mod server;
mod space;
mod watching;
