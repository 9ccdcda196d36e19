//! The data service as a tower service: a call's path tells the method, its
//! message becomes a request, and what the method gives is framed. Nothing
//! stands between, so cells are copied once, from the engine to the wire.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use prost::Message;
use stele_grpc::{Answering, MessageBody, unary};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use super::read::{self, Plan};
use super::{Data, features, request};
use crate::api::MESSAGE_BYTES_MAX;
use crate::name::InstanceName;
use crate::proto::v2;

/// Serves [`Data`] over gRPC.
#[derive(Clone)]
pub struct DataServer(Arc<Data>);

impl DataServer {
    pub fn new(data: Arc<Data>) -> DataServer {
        DataServer(data)
    }
}

impl NamedService for DataServer {
    const NAME: &'static str = "google.bigtable.v2.Bigtable";
}

impl Service<http::Request<Body>> for DataServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answering {
        let data = self.0.clone();
        Box::pin(async move { Ok(answer(&data, request).await.unwrap_or_else(Status::into_http)) })
    }
}

async fn answer(data: &Data, request: http::Request<Body>) -> Result<http::Response<Body>, Status> {
    let (http::request::Parts { uri, headers, .. }, body) = request.into_parts();
    let method = uri.path().rsplit_once('/').map_or("", |(_, method)| method);
    match method {
        "ReadRows" => {
            let request: request::ReadRows = read(&headers, body).await?;
            let plan = Plan::new(&data.tables, &request, &features::of(&headers))?;
            let deadline = read::deadline(&headers);
            Ok(MessageBody::response(plan.read(data.tables.store(), &data.random, deadline)?))
        }
        "MutateRow" => {
            data.mutate(read(&headers, body).await?).await?;
            Ok(one(&v2::MutateRowResponse {}))
        }
        "MutateRows" => {
            let outcomes = data.mutate_all(read(&headers, body).await?).await?;
            Ok(one(&entries(outcomes)))
        }
        "CheckAndMutateRow" => {
            let predicate_matched = data.check_and_mutate(read(&headers, body).await?).await?;
            Ok(one(&v2::CheckAndMutateRowResponse { predicate_matched }))
        }
        "ReadModifyWriteRow" => {
            let row = data.modify(read(&headers, body).await?).await?;
            Ok(one(&v2::ReadModifyWriteRowResponse { row: Some(row) }))
        }
        "SampleRowKeys" => {
            let samples = data.sample(&read(&headers, body).await?)?;
            let framed: Vec<_> = samples.iter().map(unary::framed).collect();
            Ok(MessageBody::of(framed))
        }
        "PingAndWarm" => {
            let request: v2::PingAndWarmRequest = read(&headers, body).await?;
            InstanceName::parse(&request.name)?;
            Ok(one(&v2::PingAndWarmResponse {}))
        }
        other => Err(Status::unimplemented(format!("{other} is not supported"))),
    }
}

async fn read<M: Message + Default>(headers: &http::HeaderMap, body: Body) -> Result<M, Status> {
    unary::read(headers, body, MESSAGE_BYTES_MAX).await
}

fn one(message: &impl Message) -> http::Response<Body> {
    MessageBody::of([unary::framed(message)])
}

/// What became of each entry of MutateRows.
fn entries(outcomes: Vec<crate::Result<()>>) -> v2::MutateRowsResponse {
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
    v2::MutateRowsResponse { entries: entries.collect(), rate_limit_info: None }
}
