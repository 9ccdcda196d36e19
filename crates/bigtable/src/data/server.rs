//! The data service as a tower service. ReadRows goes its own way, so that
//! its cells are copied once, from the engine to the wire; the other calls
//! take the generated one.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::Status;
use tonic::body::Body;
use tonic::codec::{Codec, Streaming};
use tonic::server::NamedService;
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::body::MessageBody;
use super::read::{self, Plan};
use super::{Data, features};
use crate::api::MESSAGE_BYTES_MAX;
use crate::proto::v2;
use crate::proto::v2::bigtable_server::BigtableServer;

const READ_ROWS: &str = "/google.bigtable.v2.Bigtable/ReadRows";

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
        if request.uri().path() == READ_ROWS {
            let data = self.data.clone();
            return Box::pin(async move {
                Ok(read_rows(&data, request).await.unwrap_or_else(Status::into_http))
            });
        }
        self.generated.call(request)
    }
}

async fn read_rows(
    data: &Data,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, Status> {
    let (parts, body) = request.into_parts();
    let decoder = ProstCodec::<v2::ReadRowsResponse, v2::ReadRowsRequest>::default().decoder();
    let mut incoming = Streaming::new_request(decoder, body, None, Some(MESSAGE_BYTES_MAX));
    let Some(request) = incoming.message().await? else {
        return Err(Status::invalid_argument("The request has no message"));
    };
    let plan = Plan::new(&data.tables, &request, &features::of(&parts.headers))?;
    let messages = plan.read(data.tables.store(), read::deadline(&parts.headers))?;
    Ok(MessageBody::response(messages))
}
