//! The data service: reading and writing rows.

use std::pin::Pin;
use std::sync::Arc;

use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::name::InstanceName;
use crate::proto::v2;
use crate::proto::v2::bigtable_server::Bigtable;
use crate::table::Tables;

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Serves the rows of a store's tables.
pub struct Data {
    tables: Arc<Tables>,
}

impl Data {
    pub fn new(tables: Arc<Tables>) -> Data {
        Data { tables }
    }
}

#[tonic::async_trait]
impl Bigtable for Data {
    type ReadRowsStream = Streamed<v2::ReadRowsResponse>;
    type SampleRowKeysStream = Streamed<v2::SampleRowKeysResponse>;
    type MutateRowsStream = Streamed<v2::MutateRowsResponse>;

    async fn read_rows(
        &self,
        request: Request<v2::ReadRowsRequest>,
    ) -> Result<Response<Self::ReadRowsStream>, Status> {
        self.tables.get(&request.get_ref().table_name)?;
        Err(Status::unimplemented("ReadRows"))
    }

    async fn sample_row_keys(
        &self,
        _: Request<v2::SampleRowKeysRequest>,
    ) -> Result<Response<Self::SampleRowKeysStream>, Status> {
        Err(Status::unimplemented("SampleRowKeys"))
    }

    async fn mutate_row(
        &self,
        _: Request<v2::MutateRowRequest>,
    ) -> Result<Response<v2::MutateRowResponse>, Status> {
        Err(Status::unimplemented("MutateRow"))
    }

    async fn mutate_rows(
        &self,
        _: Request<v2::MutateRowsRequest>,
    ) -> Result<Response<Self::MutateRowsStream>, Status> {
        Err(Status::unimplemented("MutateRows"))
    }

    async fn check_and_mutate_row(
        &self,
        _: Request<v2::CheckAndMutateRowRequest>,
    ) -> Result<Response<v2::CheckAndMutateRowResponse>, Status> {
        Err(Status::unimplemented("CheckAndMutateRow"))
    }

    async fn ping_and_warm(
        &self,
        request: Request<v2::PingAndWarmRequest>,
    ) -> Result<Response<v2::PingAndWarmResponse>, Status> {
        InstanceName::parse(&request.get_ref().name)?;
        Ok(Response::new(v2::PingAndWarmResponse {}))
    }

    async fn read_modify_write_row(
        &self,
        _: Request<v2::ReadModifyWriteRowRequest>,
    ) -> Result<Response<v2::ReadModifyWriteRowResponse>, Status> {
        Err(Status::unimplemented("ReadModifyWriteRow"))
    }
}
