//! Backups through the Bigtable API. A backup is one of the engine's, whose name there is
//! its resource name; those that were taken with Stele's own API have shorter names, and
//! belong to the first cluster of their table's instance.
//!
//! `changes` creates, copies, updates, deletes and restores; `list` finds them, with the
//! conditions of `filter` and the order of `order`.

mod changes;
mod filter;
mod list;
mod order;

pub use changes::{copy, create, delete, restore, update};
pub use list::{backups_in, find, page};
