//! Administration: tables can be created, viewed, changed and dropped; instances
//! are implied by the names of tables and are read-only.
//!
//! The path of a call: `tables` serves it; `create`, `modify` or `update` turns
//! the request into a definition; the registry (`crate::table`) makes it durable
//! on a thread that may block; and `view` renders the table. `list` pages through
//! tables, `token` seals consistency tokens. `instances` answers the first calls
//! of clients, with the one cluster of `cluster`; `operations` serves
//! long-running operations, all of which are done when they are returned. Methods
//! that are not declared in `build.rs` return UNIMPLEMENTED.

mod cluster;
mod create;
mod instances;
mod list;
mod modify;
mod operations;
mod tables;
mod token;
mod update;
mod view;

use std::sync::Arc;

use stele_engine::world::Clock;
use stele_grpc::Services;
use stele_grpc::offload::offload;
use tonic::Status;

use crate::error::Result;
use crate::proto::admin::bigtable_instance_admin_server::BigtableInstanceAdminServer;
use crate::proto::admin::bigtable_table_admin_server::BigtableTableAdminServer;
use crate::proto::longrunning::operations_server::OperationsServer;
use crate::table::Tables;

pub use cluster::cluster_id;
pub use create::COMPRESSION_HEADER;
pub use instances::InstanceAdmin;
pub use operations::TableOperations;
pub use tables::TableAdmin;

/// Adds the admin services to `services`.
pub fn add_services(services: Services, tables: &Arc<Tables>, clock: &Arc<dyn Clock>) -> Services {
    services
        .with(BigtableTableAdminServer::new(TableAdmin::new(tables.clone(), clock.clone())))
        .with(BigtableInstanceAdminServer::new(InstanceAdmin::new(tables.clone())))
        .with(OperationsServer::new(TableOperations::new(tables.clone())))
}

/// Runs blocking work on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T, Status> {
    Ok(offload(work).await??)
}
