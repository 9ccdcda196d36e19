//! Loads and unloads single tablets, for `stele cluster move`.

use stele_cluster::TabletOperator;
use stele_engine::TableId;
use stele_grpc::Pending;
use stele_tables::TabletServer;
use tonic::Status;

pub struct Operator(pub TabletServer);

impl TabletOperator for Operator {
    fn load(&self, table: TableId, end: Option<Vec<u8>>) -> Pending<'_, Result<bool, Status>> {
        Box::pin(async move {
            let loads = self.0.load(table, &[end]).await.map_err(unavailable)?;
            Ok(loads.loaded + loads.here > 0)
        })
    }

    fn unload(&self, table: TableId, end: Option<Vec<u8>>) -> Pending<'_, Result<(), Status>> {
        Box::pin(async move { self.0.unload(table, &[end]).await.map(drop).map_err(unavailable) })
    }
}

fn unavailable(error: stele_engine::Error) -> Status {
    Status::unavailable(error.to_string())
}
