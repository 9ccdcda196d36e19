//! The data service as a tower service. ReadRows goes its own way, so that
//! its cells are copied once, from the engine to the wire, and
//! CheckAndMutateRow so that its filter is seen in bytes; the other calls take
//! the generated one.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use stele_grpc::{MessageBody, MessageCodec};
use tonic::body::Body;
use tonic::codec::{Codec, Streaming};
use tonic::metadata::MetadataValue;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tower_service::Service;

use super::read::{self, Plan};
use super::{Data, features, request};
use crate::api::MESSAGE_BYTES_MAX;
use crate::proto::v2;
use crate::proto::v2::bigtable_server::BigtableServer;

const READ_ROWS: &str = "/google.bigtable.v2.Bigtable/ReadRows";
const CHECK_AND_MUTATE_ROW: &str = "/google.bigtable.v2.Bigtable/CheckAndMutateRow";

/// Serves [`Data`] over gRPC.
#[derive(Clone)]
pub struct DataServer {
    data: Arc<Data>,
    generated: BigtableServer<Data>,
}

impl DataServer {
    pub fn new(data: Arc<Data>) -> DataServer {
        let generated = BigtableServer::from_arc(data.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        DataServer { data, generated }
    }
}

impl NamedService for DataServer {
    const NAME: &'static str = "google.bigtable.v2.Bigtable";
}

type Responding = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl Service<http::Request<Body>> for DataServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Responding;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Responding {
        let data = self.data.clone();
        match request.uri().path() {
            READ_ROWS => Box::pin(async move {
                Ok(read_rows(&data, request).await.unwrap_or_else(Status::into_http))
            }),
            CHECK_AND_MUTATE_ROW => Box::pin(async move {
                let codec = MessageCodec::<v2::CheckAndMutateRowResponse, _>::default();
                let mut grpc =
                    Grpc::new(codec).apply_max_message_size_config(Some(MESSAGE_BYTES_MAX), None);
                Ok(grpc.unary(CheckAndMutate(data), request).await)
            }),
            _ => self.generated.call(request),
        }
    }
}

/// CheckAndMutateRow with its predicate in bytes.
struct CheckAndMutate(Arc<Data>);

impl UnaryService<request::CheckAndMutateRow> for CheckAndMutate {
    type Response = v2::CheckAndMutateRowResponse;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Self::Response>, Status>> + Send>>;

    fn call(&mut self, request: Request<request::CheckAndMutateRow>) -> Self::Future {
        let data = self.0.clone();
        Box::pin(async move {
            let predicate_matched = data.check_and_mutate(request.into_inner()).await?;
            Ok(Response::new(v2::CheckAndMutateRowResponse { predicate_matched }))
        })
    }
}

async fn read_rows(
    data: &Data,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, Status> {
    let (parts, body) = request.into_parts();
    check_encoding(&parts.headers)?;
    let decoder = MessageCodec::<v2::ReadRowsResponse, request::ReadRows>::default().decoder();
    let mut incoming = Streaming::new_request(decoder, body, None, Some(MESSAGE_BYTES_MAX));
    let Some(request) = incoming.message().await? else {
        return Err(Status::invalid_argument("The request has no message"));
    };
    let plan = Plan::new(&data.tables, &request, &features::of(&parts.headers))?;
    let messages = plan.read(data.tables.store(), &data.random, read::deadline(&parts.headers))?;
    Ok(MessageBody::response(messages))
}

/// Refuses compressed requests as the generated methods do.
fn check_encoding(headers: &http::HeaderMap) -> Result<(), Status> {
    match headers.get("grpc-encoding") {
        None => Ok(()),
        Some(encoding) if encoding == "identity" => Ok(()),
        Some(encoding) => {
            let what = format!("Requests compressed with {encoding:?} are not supported");
            let mut status = Status::unimplemented(what);
            let accepted = MetadataValue::from_static("identity");
            status.metadata_mut().insert("grpc-accept-encoding", accepted);
            Err(status)
        }
    }
}
