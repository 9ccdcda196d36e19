//! Administration of tables, backups, authorized views and instances.
//!
//! The path of a call: `tables` or `instances` serves it; `create`, `modify` or `update`
//! turns a request for a table into a definition, the registry (`crate::table`) makes it
//! durable on a thread that may block (`services`), and `view` renders the table.
//! `backups`, `authorized_views` and `instances` change records (`crate::records`).
//! `list` and `paging` return lists in pages, `consistency_token` seals tokens of the
//! store's progress. `operations` records long-running operations, all of which are done
//! when they are returned. Methods that the `.proto` files do not declare return
//! UNIMPLEMENTED (`unsupported`).

mod authorized_views;
mod backups;
mod consistency_token;
mod create;
mod instances;
mod list;
mod modify;
mod operations;
mod paging;
mod services;
mod tables;
mod unsupported;
mod update;
mod view;

pub use create::COMPRESSION_HEADER;
pub use instances::InstanceAdmin;
pub use operations::OperationsAdmin;
pub use services::add_services;
pub use tables::TableAdmin;
