//! The messages of both APIs, which build.rs generates from our own `.proto`
//! files.

/// etcd's API.
pub mod etcd {
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
}

/// The metastore's own API.
#[allow(missing_docs)]
pub mod native {
    tonic::include_proto!("stele.metastore.v1");

    /// The descriptors of all messages and services.
    pub const DESCRIPTORS: &[u8] =
        include_bytes!(concat!(env!("OUT_DIR"), "/metastore.descriptors"));
}
