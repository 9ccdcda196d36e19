//! The admin services together, and the thread that they do blocking work on.

use std::sync::Arc;

use stele_engine::world::Clock;
use stele_grpc::Services;
use stele_grpc::offload::offload;
use tonic::Status;

use super::unsupported::Supported;
use super::{InstanceAdmin, OperationsAdmin, TableAdmin};
use crate::error::Result;
use crate::proto::admin::bigtable_instance_admin_server::BigtableInstanceAdminServer;
use crate::proto::admin::bigtable_table_admin_server::BigtableTableAdminServer;
use crate::proto::longrunning::operations_server::OperationsServer;
use crate::table::Tables;

/// Adds the admin services to `services`.
pub fn add_services(services: Services, tables: &Arc<Tables>, clock: &Arc<dyn Clock>) -> Services {
    let instances = InstanceAdmin::new(tables.clone(), clock.clone());
    services
        .with(Supported(BigtableTableAdminServer::new(TableAdmin::new(
            tables.clone(),
            clock.clone(),
        ))))
        .with(Supported(BigtableInstanceAdminServer::new(instances)))
        .with(Supported(OperationsServer::new(OperationsAdmin::new(tables.clone()))))
}

/// Runs blocking work on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T, Status> {
    Ok(offload(work).await??)
}
