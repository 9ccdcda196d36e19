//! The messages of both APIs, which build.rs generates from our own `.proto`
//! files.

/// etcd's API.
pub mod etcd {
    /// Key-value pairs and events.
    #[allow(missing_docs)]
    pub mod mvccpb {
        tonic::include_proto!("mvccpb");
    }

    /// Users, roles and permissions.
    #[allow(missing_docs)]
    pub mod authpb {
        tonic::include_proto!("authpb");
    }

    /// Requests and responses of the lock service.
    #[allow(missing_docs)]
    pub mod v3lockpb {
        tonic::include_proto!("v3lockpb");
    }

    /// Requests and responses of the election service.
    #[allow(missing_docs)]
    pub mod v3electionpb {
        tonic::include_proto!("v3electionpb");
    }

    /// Requests and responses.
    #[allow(clippy::large_enum_variant, missing_docs)]
    pub mod etcdserverpb {
        tonic::include_proto!("etcdserverpb");
    }

    pub use authpb::{Permission, Role, User, UserAddOptions, permission};
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
