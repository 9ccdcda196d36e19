//! The schema of a table: locality groups, their families, and the purge policy of
//! each. `text` is the form in which people write and read it. Independent of files.

mod compression;
mod definition;
mod purge;
mod purge_text;
mod text;
mod text_scanner;

pub use compression::Compression;
pub(crate) use definition::check_family_name;
pub use definition::{FAMILY_BYTES_MAX, Family, FamilyRef, Group, Schema};
pub use purge::{PURGE_DEPTH_MAX, Purge, Ranks, Version};
pub use text_scanner::TextError;
