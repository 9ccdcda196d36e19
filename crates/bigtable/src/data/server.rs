//! The data service over gRPC: a call's path selects the method, its
//! message becomes a request, and the result is framed. There is no intermediate
//! representation, so cells are copied once, from the engine to the wire.

use std::sync::Arc;

use prost::Message;
use stele_grpc::{
    AnyMessage, Handler, MessageBody, MethodPath, Precheck, ResponseFuture, frame, respond,
    respond_now, unary,
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

    /// Each method has a future of its own size: a read does not pay for what a
    /// conditional write keeps.
    fn handle(&self, request: http::Request<Body>) -> ResponseFuture {
        let data = self.0.clone();
        let (http::request::Parts { uri, headers, extensions, .. }, body) = request.into_parts();
        let call = Call { headers, extensions, body };
        match MethodPath::of(&uri).map_or("", |path| path.method) {
            "ReadRows" => respond(read_rows(data, call)),
            "MutateRow" => respond(mutate_row(data, call)),
            "MutateRows" => respond(mutate_rows(data, call)),
            "CheckAndMutateRow" => respond(check_and_mutate_row(data, call)),
            "ReadModifyWriteRow" => respond(read_modify_write_row(data, call)),
            "SampleRowKeys" => respond(sample_row_keys(data, call)),
            "PingAndWarm" => respond(ping_and_warm(data, call)),
            "GetClientConfiguration" => respond(get_client_configuration(data, call)),
            other => {
                respond_now(Status::unimplemented(format!("{other} is not supported")).into_http())
            }
        }
    }
}

/// A call whose message has not been read yet.
struct Call {
    headers: http::HeaderMap,
    extensions: http::Extensions,
    body: Body,
}

type Response = Result<http::Response<Body>, Status>;

async fn read_rows(data: Arc<Data>, mut call: Call) -> Response {
    let request = call.read::<request::ReadRows, precheck::ReadRows>(&data).await?;
    let mut memory = ResponseMemory::of_call();
    let filter = request_filter::compile(request.filter.as_ref(), &mut memory).await;
    let plan = ReadPlan::new(&data.tables, &request, filter, &features::flags(&call.headers))?;
    let (tables, deadline) = (&data.tables, read::deadline(&call.headers));
    let messages = RowMessages::begin(plan, tables, &data.random, deadline, memory)?;
    Ok(MessageBody::response(messages))
}

async fn mutate_row(data: Arc<Data>, mut call: Call) -> Response {
    data.mutate(call.read::<_, precheck::MutateRow>(&data).await?).await?;
    Ok(one(&v2::MutateRowResponse {}))
}

async fn mutate_rows(data: Arc<Data>, mut call: Call) -> Response {
    let outcomes = data.mutate_all(call.read::<_, precheck::MutateRows>(&data).await?).await?;
    Ok(MessageBody::of(outcomes::messages(outcomes)))
}

async fn check_and_mutate_row(data: Arc<Data>, mut call: Call) -> Response {
    let request = call.read::<_, precheck::CheckAndMutateRow>(&data).await?;
    let predicate_matched = data.check_and_mutate(request).await?;
    Ok(one(&v2::CheckAndMutateRowResponse { predicate_matched }))
}

async fn read_modify_write_row(data: Arc<Data>, mut call: Call) -> Response {
    let request = call.read::<_, precheck::ReadModifyWriteRow>(&data).await?;
    // The memory stays charged until the response is a frame, which the server charges.
    let (row, _memory) = data.read_modify_write(request).await?;
    Ok(one(&v2::ReadModifyWriteRowResponse { row: Some(row) }))
}

async fn sample_row_keys(data: Arc<Data>, mut call: Call) -> Response {
    let request = call.read::<_, precheck::SampleRowKeys>(&data).await?;
    Ok(MessageBody::of(data.sample(&request).await?.map(|sample| frame::encode(&sample))))
}

async fn ping_and_warm(data: Arc<Data>, mut call: Call) -> Response {
    let request = call.read::<v2::PingAndWarmRequest, AnyMessage>(&data).await?;
    InstanceName::parse(&request.name)?;
    Ok(one(&v2::PingAndWarmResponse {}))
}

/// Declines sessions for good: clients use the calls above.
async fn get_client_configuration(data: Arc<Data>, mut call: Call) -> Response {
    let request = call.read::<v2::GetClientConfigurationRequest, AnyMessage>(&data).await?;
    InstanceName::parse(&request.instance_name)?;
    let sessions = v2::SessionClientConfiguration { session_load: 0.0 };
    Ok(one(&v2::ClientConfiguration {
        session_configuration: Some(sessions),
        polling: Some(v2::client_configuration::Polling::StopPolling(true)),
    }))
}

impl Call {
    /// Reads the message and rejects resources that the caller may not access.
    async fn read<M: Message + Named + Default, P: Precheck>(
        &mut self,
        data: &Data,
    ) -> Result<M, Status> {
        let body = std::mem::take(&mut self.body);
        let message = unary::read_checked::<M, P>(&self.headers, body, MESSAGE_BYTES_MAX).await?;
        reserved::check_request(&self.extensions, &message)?;
        for resource in message.resources().into_iter().filter(|name| !name.is_empty()) {
            data.tables.instances().check_request(resource, message.app_profile(), M::ACCESS)?;
        }
        Ok(message)
    }
}

fn one(message: &impl Message) -> http::Response<Body> {
    MessageBody::of([frame::encode(message)])
}
