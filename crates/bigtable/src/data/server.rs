//! The data service over gRPC: a call's path selects the method, its
//! message becomes a request, and the result is framed. There is no intermediate
//! representation, so cells are copied once, from the engine to the wire.

use std::sync::Arc;

use prost::Message;
use stele_grpc::{
    AnyMessage, Handler, MessageBody, MethodPath, Precheck, ResponseFuture, frame, respond, unary,
};
use tonic::Status;
use tonic::body::Body;

use super::read::{self, RowMessages};
use super::read_plan::ReadPlan;
use super::response_memory::ResponseMemory;
use super::{Data, features, outcomes, request, request_filter};
use crate::api::MESSAGE_BYTES_MAX;
use crate::name::InstanceName;
use crate::precheck;
use crate::proto::v2;
use crate::reserved::{self, Named};

/// Serves [`Data`] over gRPC.
#[derive(Clone)]
pub struct DataServer(Arc<Data>);

impl DataServer {
    pub fn new(data: Arc<Data>) -> DataServer {
        DataServer(data)
    }
}

impl Handler for DataServer {
    const NAME: &'static str = "google.bigtable.v2.Bigtable";

    fn handle(&self, request: http::Request<Body>) -> ResponseFuture {
        let data = self.0.clone();
        respond(async move { answer(&data, request).await })
    }
}

async fn answer(data: &Data, request: http::Request<Body>) -> Result<http::Response<Body>, Status> {
    let (http::request::Parts { uri, headers, extensions, .. }, body) = request.into_parts();
    let method = MethodPath::of(&uri).map_or("", |path| path.method);
    match method {
        "ReadRows" => {
            let request =
                read::<request::ReadRows, precheck::ReadRows>(&extensions, &headers, body).await?;
            let mut memory = ResponseMemory::of_call();
            let filter = request_filter::compile(request.filter.as_ref(), &mut memory).await;
            let plan = ReadPlan::new(&data.tables, &request, filter, &features::flags(&headers))?;
            let (tables, deadline) = (&data.tables, read::deadline(&headers));
            let messages = RowMessages::begin(plan, tables, &data.random, deadline, memory)?;
            Ok(MessageBody::response(messages))
        }
        "MutateRow" => {
            data.mutate(read::<_, precheck::MutateRow>(&extensions, &headers, body).await?).await?;
            Ok(one(&v2::MutateRowResponse {}))
        }
        "MutateRows" => {
            let request = read::<_, precheck::MutateRows>(&extensions, &headers, body).await?;
            let outcomes = data.mutate_all(request).await?;
            Ok(MessageBody::of(outcomes::messages(outcomes)))
        }
        "CheckAndMutateRow" => {
            let request =
                read::<_, precheck::CheckAndMutateRow>(&extensions, &headers, body).await?;
            let predicate_matched = data.check_and_mutate(request).await?;
            Ok(one(&v2::CheckAndMutateRowResponse { predicate_matched }))
        }
        "ReadModifyWriteRow" => {
            let request =
                read::<_, precheck::ReadModifyWriteRow>(&extensions, &headers, body).await?;
            // The memory stays charged until the response is a frame, which the
            // server charges.
            let (row, _memory) = data.read_modify_write(request).await?;
            Ok(one(&v2::ReadModifyWriteRowResponse { row: Some(row) }))
        }
        "SampleRowKeys" => {
            let request = read::<_, precheck::SampleRowKeys>(&extensions, &headers, body).await?;
            Ok(MessageBody::of(data.sample(&request).await?.map(|sample| frame::encode(&sample))))
        }
        "PingAndWarm" => {
            let request =
                read::<v2::PingAndWarmRequest, AnyMessage>(&extensions, &headers, body).await?;
            InstanceName::parse(&request.name)?;
            Ok(one(&v2::PingAndWarmResponse {}))
        }
        other => Err(Status::unimplemented(format!("{other} is not supported"))),
    }
}

/// Reads the message of a call and rejects resources that its caller may not
/// access.
async fn read<M: Message + Named + Default, P: Precheck>(
    extensions: &http::Extensions,
    headers: &http::HeaderMap,
    body: Body,
) -> Result<M, Status> {
    let message = unary::read_checked::<M, P>(headers, body, MESSAGE_BYTES_MAX).await?;
    reserved::check_request(extensions, &message)?;
    Ok(message)
}

fn one(message: &impl Message) -> http::Response<Body> {
    MessageBody::of([frame::encode(message)])
}
