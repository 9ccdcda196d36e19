//! The metastore's own API (`proto/metastore.proto`) of a [`Node`], for what
//! etcd's API cannot express. Served beside it on the same port.
//!
//! `service` has reads and writes, `streams` long reads and watches, and
//! `locks` sessions and locks; `convert` converts messages to commands and
//! back.

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

/// The prefix of the paths of all calls.
pub const PATH: &str = "/stele.metastore.v1.Metastore/";

/// The maximum size of a client's message: the largest transaction and its
/// overhead.
const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// The API of one node.
#[derive(Clone)]
pub struct Native {
    node: Arc<Node>,
}

/// The gRPC service.
pub type Service = proto::metastore_server::MetastoreServer<Native>;

impl Native {
    pub fn new(node: Arc<Node>) -> Native {
        Native { node }
    }

    pub fn service(self) -> Service {
        Service::new(self).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }
}

/// Returns whether calls of this path run until they are cancelled.
pub fn is_endless(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|method| matches!(method, "Watch" | "Acquire"))
}
