//! Receives queries and sends responses over UDP and TCP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hickory_server::net::runtime::Time;
use hickory_server::net::xfer::Protocol;
use hickory_server::proto::op::{Edns, Metadata, OpCode, ResponseCode};
use hickory_server::proto::rr::{DNSClass, Record};
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;
use stele_grpc::Pending;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Semaphore;

use super::answer::{self, Answer, Any};
use super::zone::Zone;
use crate::tree::Mounttable;

/// A connection without queries is closed after this time.
const TCP_IDLE: Duration = Duration::from_secs(10);
/// The maximum number of responses of one connection that are queued.
const RESPONSES_AHEAD: usize = 32;
/// The maximum size of a datagram that is not fragmented.
const PAYLOAD_MAX: u16 = 1232;
/// The maximum number of queries that are answered concurrently; others fail with
/// SERVFAIL.
const ANSWERS_MAX: usize = 1024;

/// The bound sockets of a DNS server.
pub struct Sockets {
    udp: UdpSocket,
    tcp: TcpListener,
}

impl Sockets {
    /// Binds a port for UDP and TCP; port 0 means any port that is free for both.
    pub async fn take(address: SocketAddr) -> io::Result<Sockets> {
        let tcp = TcpListener::bind(address).await?;
        let udp = UdpSocket::bind(tcp.local_addr()?).await?;
        Ok(Sockets { udp, tcp })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    /// Serves requests until `stop` completes.
    pub async fn serve(self, table: Arc<Mounttable>, zone: Zone, stop: impl Future<Output = ()>) {
        let server = self.start(table, zone);
        stop.await;
        shut_down(server).await;
    }

    fn start(self, table: Arc<Mounttable>, zone: Zone) -> Server {
        let zone = match self.address() {
            Ok(address) => zone.listening_on(address.ip()),
            Err(_) => zone,
        };
        let answering = Semaphore::new(ANSWERS_MAX);
        let mut server = Server::new(Handler { table, zone, answering });
        server.register_socket(self.udp);
        server.register_listener(self.tcp, TCP_IDLE, RESPONSES_AHEAD);
        server
    }
}

/// Answers the requests that have arrived, and stops.
fn shut_down(mut server: Server) -> Pending<'static, ()> {
    Box::pin(async move {
        if let Err(error) = server.shutdown_gracefully().await {
            tracing::debug!(%error, "DNS server stopped");
        }
    })
}

type Server = hickory_server::Server<Handler>;

struct Handler {
    table: Arc<Mounttable>,
    zone: Zone,
    answering: Semaphore,
}

impl Handler {
    async fn answer(&self, request: &Request) -> Answer {
        // Datagrams may come faster than rows can be read.
        let Ok(_permit) = self.answering.try_acquire() else {
            return Answer::code(ResponseCode::ServFail);
        };
        if request.metadata.op_code != OpCode::Query {
            return Answer::code(ResponseCode::NotImp);
        }
        let [query] = request.queries.queries() else { return Answer::code(ResponseCode::FormErr) };
        if query.query_class() != DNSClass::IN {
            return Answer::code(ResponseCode::Refused);
        }
        let any = if request.protocol() == Protocol::Udp { Any::Minimal } else { Any::Full };
        let (name, kind) = (query.original().name(), query.query_type());
        answer::answer(&self.table, &self.zone, name, kind, any).await
    }
}

#[async_trait::async_trait]
impl RequestHandler for Handler {
    async fn handle_request<R: ResponseHandler, T: Time>(
        &self,
        request: &Request,
        mut out: R,
    ) -> ResponseInfo {
        let answer = self.answer(request).await;
        let mut metadata = Metadata::response_from_request(&request.metadata);
        metadata.authoritative = answer.is_ours;
        metadata.recursion_available = false;
        metadata.response_code = answer.code;
        let mut edns = Edns::new();
        let mut builder = MessageResponseBuilder::from_message_request(request);
        if let Some(requested) = &request.edns {
            edns.set_max_payload(requested.max_payload().clamp(512, PAYLOAD_MAX));
            builder.edns(&edns);
        }
        let none: [Record; 0] = [];
        let response =
            builder.build(metadata, &answer.records, &none, &answer.authority, &answer.additional);
        match out.send_response(response).await {
            Ok(info) => info,
            Err(error) => {
                tracing::debug!(%error, "cannot send DNS response");
                let counts = Default::default();
                hickory_server::proto::op::Header { metadata, counts }.into()
            }
        }
    }
}
