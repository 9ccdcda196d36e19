//! Administration: tables are made, shown, changed and dropped; instances are
//! implied by the names of tables and can only be looked at.
//!
//! Follow one call: `tables` serves it, `create` or `modify` turns the request
//! into a definition, the registry (`crate::table`) makes it durable on a
//! thread that may block, and `view` shows the table. `list` pages through
//! tables, `token` seals consistency tokens. `instances` answers the first
//! calls of clients, with the one cluster of `cluster`; `operations` knows no
//! operation, because no call here outlasts its request.
//! Methods that are not declared in `build.rs` answer UNIMPLEMENTED.

mod cluster;
mod create;
mod instances;
mod list;
mod modify;
mod operations;
mod tables;
mod token;
mod view;

use std::sync::Arc;

use stele_grpc::Services;
use tonic::Status;

use crate::error::Result;
use crate::proto::admin::bigtable_instance_admin_server::BigtableInstanceAdminServer;
use crate::proto::admin::bigtable_table_admin_server::BigtableTableAdminServer;
use crate::proto::longrunning::operations_server::OperationsServer;
use crate::table::Tables;

pub use cluster::cluster_id;
pub use create::COMPRESSION_HEADER;
pub use instances::InstanceAdmin;
pub use operations::NoOperations;
pub use tables::TableAdmin;

/// Adds the services of administration to others.
pub fn add_services(services: Services, tables: &Arc<Tables>) -> Services {
    services
        .with(BigtableTableAdminServer::new(TableAdmin::new(tables.clone())))
        .with(BigtableInstanceAdminServer::new(InstanceAdmin::new(tables.clone())))
        .with(OperationsServer::new(NoOperations))
}

/// Runs what waits for the disk on a thread that may wait.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(stopped) => match stopped.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Status::unavailable("the server is shutting down")),
        },
    }
}
