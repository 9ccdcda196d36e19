//! Every server answers every call: it finds the owners of the rows that a call names and
//! passes the call on, to the services of this process or to another server. Requests and
//! responses are passed on as they are; what is read of them is read from their wire form.
//!
//! - `wire`: the fields of a message that is not decoded
//! - `call`: a call that is passed on
//! - `front`: places rows, and sends calls to their owners
//! - `reply`: what comes back
//! - `patience`: how long a call waits for an owner
//! - `single`: calls about one row
//! - `read`: ReadRows over several owners; `row_ranges` are the rows that it has not read,
//!   `row_tracker` follows what the client has
//! - `bulk`: MutateRows in parts, one for each owner
//! - `sample`: SampleRowKeys from the routes
//!
//! A call is sent again only if it was surely not applied: the owner does not have the row,
//! or could not be reached. An answer that is lost is the client's to judge.

mod bulk;
mod call;
mod front;
mod patience;
mod read;
mod reply;
mod row_ranges;
mod row_tracker;
mod sample;
mod single;
mod wire;

use std::sync::Arc;

use stele_bigtable_proto::MESSAGE_BYTES_MAX;
use stele_grpc::{Handler, MethodPath, ResponseFuture, respond, unary};
use tonic::body::Body;

pub(crate) use call::DATA_SERVICE;
pub use front::{Access, Front, FrontParts};
pub use reply::only_message;

use call::Call;

/// The data API of the whole cluster.
#[derive(Clone)]
pub struct Router(Arc<Front>);

impl Router {
    pub fn new(front: Arc<Front>) -> Router {
        Router(front)
    }
}

impl Handler for Router {
    const NAME: &'static str = call::DATA_SERVICE;

    fn handle(&self, request: http::Request<Body>) -> ResponseFuture {
        let front = self.0.clone();
        respond(async move {
            let (head, body) = request.into_parts();
            let frame = unary::read_frame(&head.headers, body, MESSAGE_BYTES_MAX).await?;
            let method = MethodPath::of(&head.uri).map_or("", |path| path.method).to_string();
            let call = Call::new(method, head.headers, head.extensions);
            match &*call.method {
                "MutateRow" | "CheckAndMutateRow" | "ReadModifyWriteRow" => {
                    single::answer(&front, call, frame).await
                }
                "ReadRows" => read::answer(front, call, frame).await,
                "MutateRows" => bulk::answer(front, call, frame).await,
                "SampleRowKeys" => sample::answer(&front, call, frame).await,
                _ => Ok(front.here(&call, frame).await),
            }
        })
    }
}
