//! Messages of the Bigtable API, shared by its client and its server.
//!
//! - [`v2`]: the data API (rows, filters, mutations), with stubs for both sides
//! - [`admin`]: administration of tables and instances, with client stubs
//! - [`longrunning`]: operations that outlive the request that started them
//!
//! All of it is generated from `proto/google` of the repository, which defines the parts of Google's
//! API that Stele serves. Fields that it does not define are ignored, as they are by any older server.
//!
//! ```
//! use prost::Message;
//! use stele_bigtable_proto::v2::{ReadRowsRequest, RowSet};
//!
//! let request = ReadRowsRequest {
//!     table_name: "projects/p/instances/i/tables/t".into(),
//!     rows: Some(RowSet { row_keys: vec!["key".into()], ..Default::default() }),
//!     rows_limit: 1,
//!     ..Default::default()
//! };
//! assert_eq!(ReadRowsRequest::decode(&request.encode_to_vec()[..]).unwrap(), request);
//! ```
#![forbid(unsafe_code)]

/// The data API: rows, filters, mutations.
#[allow(clippy::doc_markdown, clippy::large_enum_variant, missing_docs)]
pub mod v2 {
    include!(concat!(env!("OUT_DIR"), "/v2/google.bigtable.v2.rs"));
}

/// Administration of tables and instances.
#[allow(clippy::doc_markdown, clippy::large_enum_variant, missing_docs)]
pub mod admin {
    // Google defines the types of values once for each API, with equal fields.
    pub use crate::v2::{Type, r#type};

    include!(concat!(env!("OUT_DIR"), "/admin/google.bigtable.admin.v2.rs"));
}

/// Long-running operations.
#[allow(clippy::doc_markdown, clippy::large_enum_variant, missing_docs)]
pub mod longrunning {
    include!(concat!(env!("OUT_DIR"), "/longrunning/google.longrunning.rs"));
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

/// The descriptors of the data API, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/v2/descriptors"));

/// The descriptors of the admin API.
pub const ADMIN_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/admin/descriptors"));

/// The descriptors of long-running operations.
pub const OPERATIONS_DESCRIPTORS: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/longrunning/descriptors"));

/// The largest message a client may send, in bytes: large enough for two cells of 100 MiB.
pub const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// The request header that selects the compression of a new table's files. The API has no field for
/// it; other servers ignore the header.
pub const COMPRESSION_HEADER: &str = "stele-compression";
