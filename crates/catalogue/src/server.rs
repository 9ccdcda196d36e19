//! The service over gRPC. Get, Next and Prev have their own encoding, so that values
//! are copied only once, from the engine to the wire; the other calls use the generated
//! service.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use stele_grpc::{Answering, MessageBody, Messages, Next, unary};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::{Response, Status};
use tower_service::Service;

use crate::calls::Calls;
use crate::codec::ShortVectors;
use crate::error::{Error, Result};
use crate::limits::{MESSAGE_BYTES_MAX, REPLY_BYTES};
use crate::proto::catalogues_server::CataloguesServer;
use crate::proto::{GetRequest, NextRequest};
use crate::reply::{GetFrame, NextFrame};
use crate::service::{Catalogues, Direction, Get, Walk};

const NAME: &str = "stele.catalogue.v1.Catalogues";
const GET: &str = "/stele.catalogue.v1.Catalogues/Get";
const NEXT: &str = "/stele.catalogue.v1.Catalogues/Next";
const PREV: &str = "/stele.catalogue.v1.Catalogues/Prev";

/// Serves [`Catalogues`] over gRPC.
#[derive(Clone)]
pub struct Server {
    service: Arc<Catalogues>,
    generated: CataloguesServer<Calls>,
}

impl Server {
    pub fn new(service: Arc<Catalogues>) -> Server {
        let generated = CataloguesServer::new(Calls::new(service.clone()))
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Server { service, generated }
    }

    /// Returns the service alone, for calls within the process.
    pub fn routes(self) -> Routes {
        Routes::new(self)
    }
}

impl NamedService for Server {
    const NAME: &'static str = NAME;
}

impl Service<http::Request<Body>> for Server {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answering {
        let service = self.service.clone();
        let direction = match request.uri().path() {
            GET => {
                return answer(request, move |request: GetRequest| {
                    Ok(Answers(Some(Get::new(service, request)?)))
                });
            }
            NEXT => Direction::Forward,
            PREV => Direction::Backward,
            _ => return self.generated.call(request),
        };
        answer(request, move |request: NextRequest| {
            let walk = Walk::new(service, request, direction)?;
            let pinned = walk.pinned()?.map(|txn| txn.raw());
            Ok(Records { walk: Some(walk), pinned })
        })
    }
}

/// Reads the single message of a request, and responds with a stream.
fn answer<R, M: Messages>(
    request: http::Request<Body>,
    begin: impl FnOnce(R) -> Result<M> + Send + 'static,
) -> Answering
where
    R: prost::Message + Default,
{
    Box::pin(async move {
        let answered = async {
            let (parts, body) = request.into_parts();
            let read =
                unary::read_checked::<R, ShortVectors>(&parts.headers, body, MESSAGE_BYTES_MAX);
            let request = read.await?;
            Ok(MessageBody::response(begin(request)?))
        };
        Ok(answered.await.unwrap_or_else(Status::into_http))
    })
}

/// The messages of a Get.
struct Answers(Option<Get>);

impl Messages for Answers {
    type Error = Error;

    fn next(&mut self) -> Result<Next> {
        let Some(get) = &mut self.0 else { return Ok(Next::End) };
        let mut frame = GetFrame::default();
        if get.step(&mut frame, REPLY_BYTES)? {
            return Ok(Next::Message(frame.finish()));
        }
        let cookie = get.catalogue_cookie();
        let message = frame.finish_last(get.found, &cookie);
        self.0 = None;
        Ok(Next::Message(message))
    }
}

/// The messages of a Next or Prev.
struct Records {
    walk: Option<Walk>,
    pinned: Option<u64>,
}

impl Messages for Records {
    type Error = Error;

    fn next(&mut self) -> Result<Next> {
        let Some(walk) = &mut self.walk else { return Ok(Next::End) };
        let mut frame = NextFrame::default();
        if walk.step(&mut frame, REPLY_BYTES)? {
            return Ok(Next::Message(frame.finish()));
        }
        let cookie = walk.catalogue_cookie();
        let message = frame.finish_last(self.pinned, &cookie);
        self.walk = None;
        Ok(Next::Message(message))
    }
}

/// Fails calls of the generated service that are handled elsewhere.
pub(crate) fn routed<T>() -> Result<Response<T>, Status> {
    Err(Status::internal("this call is handled by the Server"))
}
