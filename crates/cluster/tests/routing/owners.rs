//! Calls reach the owners of their rows, also when owners are lost or rows move. Two
//! servers with scripted data services: `a` is this process, `b` is reached over the network.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use prost::Message;
use stele_bigtable_proto::v2;
use stele_bigtable_proto::v2::bigtable_client::BigtableClient;
use stele_bigtable_proto::v2::read_rows_response::CellChunk;
use stele_bigtable_proto::v2::read_rows_response::cell_chunk::RowStatus;
use stele_cluster::{
    ClusterSecret, Directory, Etcd, Front, FrontParts, Peers, Relay, Router, Routes, TabletOperator,
};
use stele_engine::config::TabletConfig;
use stele_engine::schema::{Family, Schema};
use stele_engine::world::BootClock;
use stele_engine::{RowRange, Rules, TableId, TabletId};
use stele_grpc::{
    Handler, MessageBody, MethodPath, Pending, ResponseFuture, Services, Tls, Transport, body,
    frame, respond, unary,
};
use stele_tables::coordinate::{Coordinator, Keys, Op, Transaction};
use stele_tables::rows::{Holder, OwnedRow, Owner};
use stele_tables::{ClusterWorld, Incarnation, LeaseTimes};
use tokio::sync::Notify;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::servers::Metastore;

const TABLE: &str = "projects/p/instances/i/tables/t";

/// One response of a scripted service.
enum Step {
    Messages(Vec<Bytes>),
    /// Some messages, and when the test says so, the connection breaks: messages that have
    /// not been sent by then would be lost.
    Broken(Vec<Bytes>),
    Status(Status),
}

#[derive(Clone, Default)]
struct Scripted {
    steps: Arc<Mutex<VecDeque<Step>>>,
    seen: Arc<Mutex<Vec<(String, Bytes)>>>,
    breaks: Arc<Notify>,
}

impl Scripted {
    fn then(&self, step: Step) {
        self.steps.lock().push_back(step);
    }

    /// Returns the requests so far.
    fn take_seen<M: Message + Default>(&self) -> Vec<M> {
        let seen = std::mem::take(&mut *self.seen.lock());
        seen.into_iter().map(|(_, frame)| M::decode(&frame[5..]).unwrap()).collect()
    }
}

impl Handler for Scripted {
    const NAME: &'static str = "google.bigtable.v2.Bigtable";

    fn handle(&self, request: http::Request<Body>) -> ResponseFuture {
        let scripted = self.clone();
        respond(async move {
            let (head, body) = request.into_parts();
            assert!(!head.headers.contains_key("stele-cluster-secret"));
            let frame = unary::read_frame(&head.headers, body, 1 << 20).await?;
            let method = MethodPath::of(&head.uri).unwrap().method.to_string();
            scripted.seen.lock().push((method, frame));
            let step = scripted.steps.lock().pop_front().expect("nobody expects this call");
            match step {
                Step::Messages(messages) => Ok(MessageBody::of(messages)),
                Step::Status(status) => Err(status),
                Step::Broken(messages) => {
                    let frames = messages.into_iter().map(|it| Ok(Frame::data(it)));
                    let end = async move {
                        scripted.breaks.notified().await;
                        Err(Status::internal("broken"))
                    };
                    let frames = stream::iter(frames).chain(stream::once(end));
                    Ok(body::response(StreamBody::new(Box::pin(frames))))
                }
            }
        })
    }
}

struct NoOperator;

impl TabletOperator for NoOperator {
    fn load(&self, _: TableId, _: Option<Vec<u8>>) -> Pending<'_, Result<bool, Status>> {
        Box::pin(async { Ok(false) })
    }

    fn unload(&self, _: TableId, _: Option<Vec<u8>>) -> Pending<'_, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }
}

struct Bench {
    client: BigtableClient<Transport>,
    a: Scripted,
    b: Scripted,
    coordinator: Arc<dyn Coordinator>,
    keys: Keys,
    table: TableId,
    holders: [Holder; 2],
    b_address: SocketAddr,
    _metastore: Metastore,
}

impl Bench {
    /// Starts two servers: rows before "m" are those of `a`, the others those of `b`.
    async fn start() -> Bench {
        let metastore = Metastore::start().await;
        let coordinator: Arc<dyn Coordinator> = Arc::new(Etcd::over(metastore.transport(), ""));
        let keys = Keys::of("c");
        let secret = ClusterSecret::parse("0123456789abcdef").unwrap();
        let (a, b) = (Scripted::default(), Scripted::default());
        let local = Services::default().with_handler(a.clone());
        let relayed = Services::default().with_handler(b.clone());
        let relay = Relay::new(relayed, secret.clone(), Arc::new(NoOperator));
        let b_address = serve(Services::default().with_handler(relay)).await;
        let world = ClusterWorld {
            clock: Arc::new(BootClock),
            sleep: Arc::new(|time| Box::pin(tokio::time::sleep(time))),
            coordinator: coordinator.clone(),
            absent_for: Duration::ZERO,
            keys: keys.clone(),
            rules: Rules::CORRECTED,
        };
        let times = LeaseTimes { ttl: Duration::from_secs(300), ..LeaseTimes::default() };
        let mut holders = Vec::new();
        for (id, address) in [("a", "nowhere:1".to_string()), ("b", b_address.to_string())] {
            let begun = Incarnation::begin(world.clone(), id, &address, times).await;
            holders.push(Holder { id: id.into(), epoch: begun.epoch });
        }
        let holders: [Holder; 2] = holders.try_into().unwrap();
        let directory = Arc::new(Directory::new(coordinator.clone(), keys.clone()));
        let schema = Schema::with_families([Family::new("f")]).unwrap();
        // The servers are only registered: they do not say themselves what they have seen.
        let seen = |id| Op::put(keys.key(&format!("tables/seen/{id}")), i64::MAX.to_string());
        let seen = Transaction { then: vec![seen("a"), seen("b")], ..Transaction::default() };
        coordinator.run(seen).await.unwrap();
        let new_rows = |id: TableId| Ok(rows(&keys, id, &holders));
        let table = directory.create(TABLE, &schema, new_rows).await.unwrap();
        let front = Front::new(FrontParts {
            local,
            me: holders[0].clone(),
            directory,
            routes: Routes::new(coordinator.clone(), keys.clone()),
            peers: Peers::new(Tls::default()),
            secret,
            access: |_, _| Ok(()),
        });
        let services = Services::default().with_handler(Router::new(Arc::new(front)));
        let client = BigtableClient::new(Transport::InProcess(services));
        Bench { client, a, b, coordinator, keys, table, holders, b_address, _metastore: metastore }
    }

    /// Moves the rows from "m" on to `a`.
    async fn move_to_a(&self) {
        let holders = [self.holders[0].clone(), self.holders[0].clone()];
        let puts = rows(&self.keys, self.table, &holders);
        let then = puts.into_iter().map(|(key, value)| Op::put(key, value)).collect();
        self.coordinator.run(Transaction { then, ..Transaction::default() }).await.unwrap();
    }

    /// Reads all rows. Breaks the answer of `b` after a part of a row has arrived.
    async fn read(&mut self) -> Result<Vec<CellChunk>, Status> {
        let request = v2::ReadRowsRequest { table_name: TABLE.into(), ..Default::default() };
        let mut stream = self.client.read_rows(request).await?.into_inner();
        let mut chunks: Vec<CellChunk> = Vec::new();
        while let Some(message) = stream.message().await? {
            chunks.extend(message.chunks);
            if chunks.last().is_some_and(|last| last.row_status.is_none()) {
                self.b.breaks.notify_one();
            }
        }
        Ok(chunks)
    }
}

/// Returns the rows of two tablets that meet at "m".
fn rows(keys: &Keys, table: TableId, owners: &[Holder; 2]) -> Vec<(Vec<u8>, Bytes)> {
    let ranges = [RowRange::new("", "m"), RowRange::from("m")];
    let row = |(number, (rows, owner)): (usize, (RowRange, &Holder))| {
        let key = keys.tablet(table, rows.end.as_deref());
        let id = TabletId { incarnation: 1, number: number as u32 };
        let row = OwnedRow::new(TabletConfig::new(id, rows, 1));
        (key, OwnedRow { owner: Owner::Server(owner.clone()), ..row }.encode())
    };
    ranges.into_iter().zip(owners).enumerate().map(row).collect()
}

async fn serve(services: Services) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let service = TowerToHyperService::new(services.clone());
            tokio::spawn(async move {
                let builder = Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(connection), service).await;
            });
        }
    });
    address
}

fn not_loaded() -> Status {
    let details = ErrorDetails::with_error_info("TABLET_NOT_LOADED", "stele.tables", []);
    Status::with_error_details(Code::FailedPrecondition, "not here", details)
}

fn chunk(row: &'static str, status: Option<RowStatus>) -> CellChunk {
    CellChunk { row_key: row.into(), row_status: status, ..Default::default() }
}

fn whole(row: &'static str) -> CellChunk {
    chunk(row, Some(RowStatus::CommitRow(true)))
}

fn chunks(chunks: Vec<CellChunk>) -> Bytes {
    frame::encode(&v2::ReadRowsResponse { chunks, ..Default::default() })
}

fn mutate(row: &'static str) -> v2::MutateRowRequest {
    v2::MutateRowRequest { table_name: TABLE.into(), row_key: row.into(), ..Default::default() }
}

fn done() -> Step {
    Step::Messages(vec![frame::encode(&v2::MutateRowResponse {})])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_loses_its_owner_within_a_row_resets_it_and_continues_after_the_last_one() {
    let mut bench = Bench::start().await;
    bench.a.then(Step::Messages(vec![chunks(vec![whole("a"), whole("c")])]));
    bench.b.then(Step::Broken(vec![chunks(vec![whole("m"), chunk("n", None)])]));
    bench.b.then(Step::Messages(vec![chunks(vec![whole("n"), whole("o")])]));
    let read = bench.read().await.unwrap();
    let reset = chunk("", Some(RowStatus::ResetRow(true)));
    let expected =
        [whole("a"), whole("c"), whole("m"), chunk("n", None), reset, whole("n"), whole("o")];
    assert_eq!(read, expected);
    let starts: Vec<v2::ReadRowsRequest> = bench.b.take_seen();
    use v2::row_range::StartKey::StartKeyClosed;
    let starts: Vec<_> = starts
        .into_iter()
        .map(|request| request.rows.unwrap().row_ranges[0].start_key.clone().unwrap())
        .collect();
    assert_eq!(starts, [StartKeyClosed("m".into()), StartKeyClosed("m\0".into())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outdated_route_is_corrected_and_the_call_is_made_once() {
    let mut bench = Bench::start().await;
    bench.b.then(done());
    bench.client.mutate_row(mutate("x")).await.unwrap();
    bench.move_to_a().await;
    bench.b.then(Step::Status(not_loaded()));
    bench.a.then(done());
    bench.client.mutate_row(mutate("y")).await.unwrap();
    let rows = |scripted: &Scripted| -> Vec<Bytes> {
        let seen: Vec<v2::MutateRowRequest> = scripted.take_seen();
        seen.into_iter().map(|request| request.row_key).collect()
    };
    assert_eq!((rows(&bench.b), rows(&bench.a)), (vec!["x".into(), "y".into()], vec!["y".into()]));
    // Reads, too.
    bench.a.then(Step::Messages(vec![chunks(vec![whole("a"), whole("z")])]));
    assert_eq!(bench.read().await.unwrap(), [whole("a"), whole("z")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_answer_is_lost_is_not_sent_again() {
    let mut bench = Bench::start().await;
    bench.b.then(Step::Broken(vec![]));
    bench.b.breaks.notify_one();
    let lost = bench.client.mutate_row(mutate("x")).await.unwrap_err();
    assert_eq!(lost.code(), Code::Unavailable);
    assert!(lost.message().contains("may have been applied"), "{lost}");
    assert_eq!(bench.b.take_seen::<v2::MutateRowRequest>().len(), 1);
    // Errors of the owner arrive as they are.
    bench.b.then(Step::Status(Status::not_found("no such family")));
    let refused = bench.client.mutate_row(mutate("x")).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::NotFound, "no such family"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_entries_of_a_bulk_write_go_to_their_owners_and_each_is_answered_once() {
    let mut bench = Bench::start().await;
    let entry = |row: &'static str| v2::mutate_rows_request::Entry {
        row_key: row.into(),
        ..Default::default()
    };
    let outcomes = |statuses: Vec<(i64, Option<Status>)>| {
        let entries = statuses.into_iter().map(|(index, status)| {
            let status = status.map_or_else(Default::default, |status| {
                let details = tonic_types::Status::decode(status.details()).unwrap().details;
                let code = status.code() as i32;
                tonic_types::Status { code, message: status.message().into(), details }
            });
            v2::mutate_rows_response::Entry { index, status: Some(status) }
        });
        let entries = entries.collect();
        frame::encode(&v2::MutateRowsResponse { entries, ..Default::default() })
    };
    bench.a.then(Step::Messages(vec![outcomes(vec![(0, None), (1, None)])]));
    bench.b.then(Step::Messages(vec![outcomes(vec![(0, None), (1, Some(not_loaded()))])]));
    bench.b.then(Step::Messages(vec![outcomes(vec![(0, None)])]));
    let request = v2::MutateRowsRequest {
        table_name: TABLE.into(),
        entries: ["x", "a", "y", "b"].map(entry).to_vec(),
        ..Default::default()
    };
    let mut stream = bench.client.mutate_rows(request).await.unwrap().into_inner();
    let mut answered = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        for entry in message.entries {
            assert_eq!(entry.status.unwrap().code, 0);
            answered.push(entry.index);
        }
    }
    answered.sort_unstable();
    assert_eq!(answered, [0, 1, 2, 3]);
    let rows = |scripted: &Scripted| -> Vec<Vec<Bytes>> {
        let seen: Vec<v2::MutateRowsRequest> = scripted.take_seen();
        let keys = |request: v2::MutateRowsRequest| {
            request.entries.into_iter().map(|entry| entry.row_key).collect()
        };
        seen.into_iter().map(keys).collect()
    };
    let row = |row: &'static str| Bytes::from(row);
    assert_eq!(rows(&bench.a), [[row("a"), row("b")]]);
    assert_eq!(rows(&bench.b), [vec![row("x"), row("y")], vec![row("y")]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_callers_with_the_secret_are_relayed() {
    let bench = Bench::start().await;
    let transport = Transport::connect(&bench.b_address.to_string(), &Tls::default()).await;
    let mut grpc = tonic::client::Grpc::new(transport.unwrap());
    for secret in ["", "0123456789abcdee"] {
        grpc.ready().await.unwrap();
        let mut request = tonic::Request::new(mutate("x"));
        request.metadata_mut().insert("stele-cluster-secret", secret.parse().unwrap());
        let path = "/stele.tables.v1.Tablets/MutateRow".parse().unwrap();
        let codec = tonic_prost::ProstCodec::<_, v2::MutateRowResponse>::default();
        let refused = grpc.unary(request, path, codec).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
    assert!(bench.b.take_seen::<v2::MutateRowRequest>().is_empty());
}
