//! The tables that the API serves.
//!
//! A [`Definition`] is what a client declares: families ([`Family`], with a
//! garbage-collection rule from `gc` and a type from `value_type`), timestamp
//! granularity, splits (checked like every row key by `row_key`), locality groups
//! (`groups`) and protection. It is stored as the annotation of the engine's schema. The registry ([`Tables`])
//! keeps the definitions of a store's tables in memory, where every request looks
//! up its [`Table`], and makes changes durable. A table whose rows are written with
//! idempotency tokens also has the hidden family of `token_family`, of which clients
//! see nothing.

mod definition;
mod family;
mod gc;
mod groups;
mod registry;
mod row_key;
mod token_family;
mod value_type;

pub use definition::{Definition, Granularity};
pub use family::{FAMILY_NAME_MAX, Family, check_name as check_family_name};
pub use groups::FamilyGroup;
pub use registry::{Successor, Table, Tables};
pub use row_key::ROW_KEY_BYTES_MAX;
pub(crate) use row_key::{check_row_key, check_row_key_length};
pub(crate) use token_family::{RETENTION_MICROS, RETRY_MICROS_MAX, TOKEN_FAMILY};
