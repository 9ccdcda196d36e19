//! Messages of the API with the stubs of the services that this crate serves.

pub use stele_bigtable_proto::{ADMIN_DESCRIPTORS, DESCRIPTORS, OPERATIONS_DESCRIPTORS, v2};

/// Administration of tables and instances.
pub mod admin {
    pub use stele_bigtable_proto::admin::*;

    include!(concat!(env!("OUT_DIR"), "/google.bigtable.admin.v2.BigtableTableAdmin.rs"));
    include!(concat!(env!("OUT_DIR"), "/google.bigtable.admin.v2.BigtableInstanceAdmin.rs"));
}

/// Long-running operations.
pub mod longrunning {
    pub use stele_bigtable_proto::longrunning::*;

    include!(concat!(env!("OUT_DIR"), "/google.longrunning.Operations.rs"));
}

/// An empty response.
pub type Empty = ();

/// The methods of the admin services as `service/method`, one per line.
pub const ADMIN_METHODS: &str = include_str!(concat!(env!("OUT_DIR"), "/admin.methods"));
