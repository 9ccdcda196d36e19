//! `stele.tables.v1.Tablets`: the rows that this server owns, for the other servers of the
//! cluster, and the administration of its tablets. Its methods are those of the Bigtable
//! data API with the same messages, so that a front passes them on without decoding them.
//!
//! A caller must show the secret of the cluster. A call that arrives here is answered here
//! or not at all: it is never passed on again.

use std::sync::Arc;

use http::Uri;
use prost::Message;
use stele_engine::TableId;
use stele_grpc::{
    Handler, MessageBody, MethodPath, Pending, ResponseFuture, Services, Transport, frame, respond,
    respond_now, unary,
};
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use crate::router::DATA_SERVICE;
use crate::secret::{ClusterSecret, SECRET_HEADER};

/// The full name of the service.
pub const SERVICE: &str = "stele.tables.v1.Tablets";
/// Marks calls that services of the front itself make: they may access the reserved
/// project.
pub(crate) const IN_PROCESS_HEADER: &str = "stele-in-process";

/// The methods that clients call through a front.
const DATA_METHODS: [&str; 6] = [
    "ReadRows",
    "MutateRow",
    "MutateRows",
    "CheckAndMutateRow",
    "ReadModifyWriteRow",
    "SampleRowKeys",
];
const OPERATION_BYTES_MAX: usize = 64 << 10;

/// Loads and unloads tablets of this server.
pub trait TabletOperator: Send + Sync {
    /// Loads a tablet that nobody owns. Returns whether this server has it then.
    fn load(&self, table: TableId, end: Option<Vec<u8>>) -> Pending<'_, Result<bool, Status>>;

    /// Unloads a tablet, if it is loaded here.
    fn unload(&self, table: TableId, end: Option<Vec<u8>>) -> Pending<'_, Result<(), Status>>;
}

/// A tablet, named by its end.
#[derive(Clone, PartialEq, Message)]
pub struct TabletRequest {
    #[prost(uint32, tag = "1")]
    pub table_id: u32,
    /// The first row after the tablet. Absent: the last tablet of the table.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub end: Option<Vec<u8>>,
}

/// The reply to Load and Unload.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct TabletReply {
    /// Whether the tablet is loaded here now.
    #[prost(bool, tag = "1")]
    pub loaded: bool,
}

/// Serves the rows of this server to the others.
pub struct Relay {
    local: Services,
    secret: ClusterSecret,
    operator: Arc<dyn TabletOperator>,
}

impl Relay {
    /// `local` are the data services of this process.
    pub fn new(local: Services, secret: ClusterSecret, operator: Arc<dyn TabletOperator>) -> Relay {
        Relay { local, secret, operator }
    }

    /// Lets the services of this process answer.
    fn data(&self, method: &str, mut request: http::Request<Body>) -> ResponseFuture {
        let path = format!("/{DATA_SERVICE}/{method}");
        *request.uri_mut() = Uri::try_from(path).expect("the name of a method is a path");
        let headers = request.headers_mut();
        headers.remove(SECRET_HEADER);
        if headers.remove(IN_PROCESS_HEADER).is_none() {
            return self.local.call(request);
        }
        let answered = Transport::InProcess(self.local.clone()).call(request);
        respond(async move { answered.await.map_err(|error| Status::internal(error.to_string())) })
    }

    fn operate(&self, loads: bool, request: http::Request<Body>) -> ResponseFuture {
        let operator = self.operator.clone();
        respond(async move {
            let (head, body) = request.into_parts();
            let request: TabletRequest =
                unary::read(&head.headers, body, OPERATION_BYTES_MAX).await?;
            let table = TableId(request.table_id);
            let loaded = match loads {
                true => operator.load(table, request.end).await?,
                false => operator.unload(table, request.end).await.map(|()| false)?,
            };
            Ok(MessageBody::of([frame::encode(&TabletReply { loaded })]))
        })
    }
}

impl Handler for Relay {
    const NAME: &'static str = SERVICE;

    fn handle(&self, request: http::Request<Body>) -> ResponseFuture {
        if !self.secret.is_shown(request.headers()) {
            let refused = Status::permission_denied("only servers of the cluster may call this");
            return respond_now(refused.into_http());
        }
        let method = MethodPath::of(request.uri()).map_or("", |path| path.method).to_string();
        match &*method {
            "Load" => self.operate(true, request),
            "Unload" => self.operate(false, request),
            data if DATA_METHODS.contains(&data) => self.data(data, request),
            other => {
                respond_now(Status::unimplemented(format!("unknown method {other:?}")).into_http())
            }
        }
    }
}
