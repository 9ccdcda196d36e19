//! Instances, their clusters and app profiles.
//!
//! An instance that nobody created is implied by its name, unless the server is strict:
//! `implied` is what clients see of it. Created ones are records (`crate::records`).
//! [`Instances`] finds both. `fields` validates what a client declares, `update` applies
//! field masks. What clusters declare (nodes, zones, storage) is kept and returned, but
//! does not change how rows are served.

mod fields;
mod implied;
mod registry;
mod update;

pub use fields::{check_cluster, check_clusters, check_instance, check_profile};
pub use implied::{DEFAULT_APP_PROFILE, default_profile};
pub use registry::{Access, Instances, etag};
pub(crate) use registry::{deleted_name, with_etag};
pub use update::{mask_paths, updated_cluster, updated_instance, updated_profile};
