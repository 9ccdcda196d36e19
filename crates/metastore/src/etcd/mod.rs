//! The etcd v3 API of a [`Node`](crate::Node): serves etcd's clients on port
//! 2379, over gRPC and as JSON.
//!
//! [`Service`] dispatches a call. For gRPC, `rpc` extracts the messages from
//! their frames, `methods` maps the path to a method, and [`Etcd`] (`api`)
//! executes it: `request` converts the message to a command or query, which
//! `kv`, `range`, `lease`, `auth`, `maintenance`, `members`, `snapshot`, `recipes` or `watch`
//! runs on the node, for the caller that `callers` identifies.
//! The response is written directly from the stored bytes (`header`, `response`,
//! `range`, and `crate::wire`); `generate` turns a loop into a streamed response,
//! and `results` reserves memory for large ones. Any other call is a page for
//! people and probes (`pages`, `metrics`) or JSON (`gateway`), which is
//! converted to wire format and handled like gRPC.

mod api;
mod auth;
mod callers;
mod gateway;
mod generate;
mod header;
mod kv;
mod leader;
mod lease;
mod maintenance;
mod members;
mod methods;
mod metrics;
mod pages;
mod range;
mod recipes;
mod request;
mod response;
mod results;
mod rpc;
mod service;
mod snapshot;
mod watch;

pub use self::api::{Etcd, Options};
pub use self::callers::CertificateName;
pub use self::service::{PageBody, Service, is_endless, is_gateway, json_method};
pub use crate::proto::etcd as proto;

/// The version of etcd whose API this is, which clients compare.
pub const VERSION: &str = "3.6.5";
/// The version that members of one cluster agree on.
pub const CLUSTER_VERSION: &str = "3.6.0";
