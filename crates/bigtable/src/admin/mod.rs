//! Administration: tables can be created, viewed, changed and dropped; instances
//! are implied by the names of tables and are read-only.
//!
//! The path of a call: `tables` serves it; `create`, `modify` or `update` turns
//! the request into a definition; the registry (`crate::table`) makes it durable
//! on a thread that may block (`services`); and `view` renders the table. `list`
//! pages through tables, `consistency_token` seals tokens of the store's progress.
//! `instances` answers the first calls of clients; `operations` serves
//! long-running operations, all of which are done when they are returned. Methods
//! that are not declared in `build.rs` return UNIMPLEMENTED.

mod consistency_token;
mod create;
mod instances;
mod list;
mod modify;
mod operations;
mod services;
mod tables;
mod update;
mod view;

pub use create::COMPRESSION_HEADER;
pub use instances::{InstanceAdmin, cluster_id};
pub use operations::TableOperations;
pub use services::add_services;
pub use tables::TableAdmin;
