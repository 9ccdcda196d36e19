//! The data service: reading and writing rows.

mod check;
mod chunks;
mod emit;
mod features;
mod modify;
mod mutation;
mod read;
mod request;
mod rows;
mod sample;
mod server;
mod stats;
mod target;
mod tokens;
mod write;

use std::pin::Pin;
use std::sync::Arc;

pub use server::DataServer;
use stele_engine::Txn;
use stele_engine::world::{Clock, Random};
use tokens::Tokens;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::error::{Error, Result};
use crate::name::InstanceName;
use crate::proto::v2;
use crate::proto::v2::bigtable_server::Bigtable;
use crate::table::Tables;

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Serves the rows of a store's tables.
pub struct Data {
    tables: Arc<Tables>,
    tokens: Tokens,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

/// How often a commit lets the other tasks go first at most.
const GATHER_TURNS: usize = 8;

impl Data {
    pub fn new(
        tables: Arc<Tables>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Data> {
        let tokens = Tokens::open(tables.store().clone())?;
        Ok(Data { tables, tokens, clock, random })
    }

    fn now_micros(&self) -> i64 {
        self.clock.now_micros()
    }

    /// Waits until everything up to `txn` is durable, which is the end of a
    /// small write.
    ///
    /// The other tasks go first, as long as they bring more commits: one sync
    /// then serves all. The first task to come back leads it, so that nothing
    /// has to be passed to another thread and back; those who find it under
    /// way are told of the next.
    async fn durable(&self, txn: Txn) -> Result<()> {
        let store = self.tables.store();
        let (mut durable, mut latest) = store.progress();
        for _ in 0..GATHER_TURNS {
            if durable >= txn {
                return Ok(());
            }
            tokio::task::yield_now().await;
            let before = latest;
            (durable, latest) = store.progress();
            if latest == before {
                break;
            }
        }
        match store.sync_if_free(txn) {
            Some(done) => done.map_err(Error::Engine),
            None => self.told_durable(txn).await,
        }
    }

    /// The same for a large write: the log's own thread writes and syncs it.
    async fn told_durable(&self, txn: Txn) -> Result<()> {
        let store = self.tables.store();
        let (told, durable) = tokio::sync::oneshot::channel();
        store.on_durable(txn, move |outcome| {
            // Whoever asked may have gone away.
            let _ = told.send(outcome);
        });
        let closed = |_| Err(stele_engine::Error::Closed);
        durable.await.unwrap_or_else(closed).map_err(Error::Engine)
    }
}

#[tonic::async_trait]
impl Bigtable for Data {
    type ReadRowsStream = Streamed<v2::ReadRowsResponse>;
    type SampleRowKeysStream = Streamed<v2::SampleRowKeysResponse>;
    type MutateRowsStream = Streamed<v2::MutateRowsResponse>;

    async fn read_rows(
        &self,
        _: Request<v2::ReadRowsRequest>,
    ) -> Result<Response<Self::ReadRowsStream>, Status> {
        Err(Status::internal("ReadRows is answered by the DataServer"))
    }

    async fn sample_row_keys(
        &self,
        request: Request<v2::SampleRowKeysRequest>,
    ) -> Result<Response<Self::SampleRowKeysStream>, Status> {
        let samples = self.sample(&request.into_inner())?;
        Ok(Response::new(Box::pin(tokio_stream::iter(samples.into_iter().map(Ok)))))
    }

    async fn mutate_row(
        &self,
        request: Request<v2::MutateRowRequest>,
    ) -> Result<Response<v2::MutateRowResponse>, Status> {
        self.mutate(request.into_inner()).await?;
        Ok(Response::new(v2::MutateRowResponse {}))
    }

    async fn mutate_rows(
        &self,
        request: Request<v2::MutateRowsRequest>,
    ) -> Result<Response<Self::MutateRowsStream>, Status> {
        let outcomes = self.mutate_all(request.into_inner()).await?;
        let entries = outcomes.into_iter().enumerate().map(|(index, outcome)| {
            let status = match outcome {
                Ok(()) => tonic_types::Status::default(),
                Err(error) => tonic_types::Status {
                    code: error.code() as i32,
                    message: error.to_string(),
                    details: Vec::new(),
                },
            };
            v2::mutate_rows_response::Entry { index: index as i64, status: Some(status) }
        });
        let response = v2::MutateRowsResponse { entries: entries.collect(), rate_limit_info: None };
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(response)))))
    }

    async fn check_and_mutate_row(
        &self,
        _: Request<v2::CheckAndMutateRowRequest>,
    ) -> Result<Response<v2::CheckAndMutateRowResponse>, Status> {
        Err(Status::internal("CheckAndMutateRow is answered by the DataServer"))
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
        request: Request<v2::ReadModifyWriteRowRequest>,
    ) -> Result<Response<v2::ReadModifyWriteRowResponse>, Status> {
        let row = self.modify(request.into_inner()).await?;
        Ok(Response::new(v2::ReadModifyWriteRowResponse { row: Some(row) }))
    }
}
