//! Messages and clients that build.rs generates.

/// The parts of etcd's API that a coordinator needs.
#[allow(missing_docs, clippy::enum_variant_names, clippy::large_enum_variant, dead_code)]
pub(crate) mod etcd {
    pub(crate) mod mvccpb {
        tonic::include_proto!("mvccpb");
    }
    pub(crate) mod authpb {
        tonic::include_proto!("authpb");
    }
    pub(crate) mod etcdserverpb {
        tonic::include_proto!("etcdserverpb");
    }
    pub(crate) use etcdserverpb::*;
}
