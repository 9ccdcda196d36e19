//! Messages and services of the API: the data API from this crate's `.proto`
//! files, admin and operations from published message types.

/// The data API: rows, filters, mutations.
#[allow(clippy::doc_markdown, clippy::large_enum_variant, missing_docs)]
pub mod v2 {
    tonic::include_proto!("google.bigtable.v2");
}

/// Calendar dates in typed values.
pub mod date {
    /// A calendar date; a zero field is unspecified.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
    pub struct Date {
        #[prost(int32, tag = "1")]
        pub year: i32,
        #[prost(int32, tag = "2")]
        pub month: i32,
        #[prost(int32, tag = "3")]
        pub day: i32,
    }
}

/// Table and instance administration.
pub mod admin {
    pub use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2::*;

    include!(concat!(env!("OUT_DIR"), "/google.bigtable.admin.v2.BigtableTableAdmin.rs"));
    include!(concat!(env!("OUT_DIR"), "/clients/google.bigtable.admin.v2.BigtableTableAdmin.rs"));
    include!(concat!(env!("OUT_DIR"), "/google.bigtable.admin.v2.BigtableInstanceAdmin.rs"));
}

/// An empty response.
pub type Empty = ();

/// Long-running operations.
pub mod longrunning {
    pub use googleapis_tonic_google_longrunning::google::longrunning::*;

    include!(concat!(env!("OUT_DIR"), "/google.longrunning.Operations.rs"));
}

/// The methods of the admin services as `service/method`, one per line: these
/// services have no descriptors.
pub const ADMIN_METHODS: &str = include_str!(concat!(env!("OUT_DIR"), "/admin.methods"));

/// The descriptors of the data API, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bigtable.descriptors"));
