//! The metastore's own API (`proto/metastore.proto`) in front of a [`Node`]:
//! what etcd's cannot say. Served beside it on the same port.
//!
//! Reads and writes are in `service`, reads and watches that go on for long in
//! `streams`, sessions and locks in `locks`; `convert` turns messages into
//! commands and back.

mod convert;
mod locks;
mod service;
mod streams;

use std::sync::Arc;

use crate::Node;

/// Messages and services, from our own `.proto` file.
#[allow(missing_docs)]
pub mod proto {
    tonic::include_proto!("stele.metastore.v1");
}

/// The descriptors of all messages and services.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/metastore.descriptors"));

/// What the paths of all calls begin with.
pub const PATH: &str = "/stele.metastore.v1.Metastore/";

/// The largest message that a client may send: the largest transaction, and
/// what wraps it.
const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// The API of one node.
#[derive(Clone)]
pub struct Native {
    node: Arc<Node>,
}

/// Answers gRPC calls.
pub type Service = proto::metastore_server::MetastoreServer<Native>;

impl Native {
    pub fn new(node: Arc<Node>) -> Native {
        Native { node }
    }

    pub fn service(self) -> Service {
        Service::new(self).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }
}

/// Whether the calls of this path end only when somebody ends them.
pub fn is_endless(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|method| matches!(method, "Watch" | "Acquire"))
}
