//! The schema of a table: locality groups, their families, and the purge policy of
//! each. Independent of files.

mod compression;
mod definition;
mod purge;

pub use compression::Compression;
pub(crate) use definition::check_family_name;
pub use definition::{FAMILY_BYTES_MAX, Family, FamilyRef, Group, Schema};
pub use purge::{PURGE_DEPTH_MAX, Purge, Ranks, Version};
