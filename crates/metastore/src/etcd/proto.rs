//! The messages of etcd's API, from our own `.proto` files.

/// Key-value pairs and events.
#[allow(missing_docs)]
pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}

/// Requests and responses.
#[allow(clippy::large_enum_variant, missing_docs)]
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}

pub use etcdserverpb::*;
pub use mvccpb::{Event, KeyValue};

/// The descriptors of all messages and services, for reflection and JSON.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/etcd.descriptors"));
