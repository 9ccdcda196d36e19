//! The service over gRPC. Get, Next and Prev have their own encoding, so that values
//! are copied only once, from the engine to the wire; the other calls use the generated
//! service.

use std::sync::Arc;

use stele_engine::world::Miss;
use stele_grpc::{
    Handler, MessageBody, Messages, MethodPath, Next, ResponseFuture, Services, respond, unary,
};
use tonic::body::Body;
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
use crate::service::{Answer, Catalogues, Direction, Get, Walk, WalkSink};

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
        Services::default().with_handler(self).into_routes()
    }
}

impl Handler for Server {
    const NAME: &'static str = "stele.catalogue.v1.Catalogues";

    fn handle(&self, request: http::Request<Body>) -> ResponseFuture {
        let service = self.service.clone();
        let direction = match MethodPath::of(request.uri()).map_or("", |path| path.method) {
            "Get" => return respond(get(service, request)),
            "Next" => Direction::Forward,
            "Prev" => Direction::Backward,
            _ => return self.generated.clone().call(request),
        };
        respond(walk(service, request, direction))
    }
}

async fn get(
    service: Arc<Catalogues>,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, Status> {
    let request: GetRequest = read(request).await?;
    service.target_loaded(request.catalogue.as_ref()).await?;
    let get = Some(Get::new(service, request)?);
    Ok(MessageBody::response(Answers { get, frame: None, missed: Missed::default() }))
}

async fn walk(
    service: Arc<Catalogues>,
    request: http::Request<Body>,
    direction: Direction,
) -> Result<http::Response<Body>, Status> {
    let request: NextRequest = read(request).await?;
    service.target_loaded(request.catalogue.as_ref()).await?;
    let walk = Walk::new(service, request, direction)?;
    let pinned = walk.pinned()?.map(|txn| txn.raw());
    Ok(MessageBody::response(Records {
        walk: Some(walk),
        pinned,
        frame: None,
        missed: Missed::default(),
    }))
}

/// Reads the single message of a request.
async fn read<R: prost::Message + Default>(request: http::Request<Body>) -> Result<R, Status> {
    let (parts, body) = request.into_parts();
    unary::read_checked::<R, ShortVectors>(&parts.headers, body, MESSAGE_BYTES_MAX).await
}

/// What a step has made of the message at hand.
enum ReplyStep<F> {
    Incomplete,
    Full(F),
    /// There are no more messages.
    Last(F),
}

/// Fills the message at hand with `read`, which returns whether there is more to read,
/// and the size of the message.
fn step_reply<F: Default>(
    at_hand: &mut Option<F>,
    read: impl FnOnce(&mut F) -> Result<(bool, usize)>,
) -> Result<ReplyStep<F>> {
    let (more, bytes) = read(at_hand.get_or_insert_default())?;
    if more && bytes < REPLY_BYTES {
        return Ok(ReplyStep::Incomplete);
    }
    let frame = at_hand.take().unwrap_or_default();
    Ok(if more { ReplyStep::Full(frame) } else { ReplyStep::Last(frame) })
}

/// What the steps of a stream have missed since the last one that succeeded.
#[derive(Default)]
struct Missed(Vec<Miss>);

impl Missed {
    /// Waits for the bytes that a step missed; fails if it failed for another reason.
    fn wait(&mut self, error: Error) -> Result<Next> {
        let Error::Engine(stele_engine::Error::NotLocal(miss)) = error else { return Err(error) };
        self.0.push(miss.clone());
        Ok(Next::Wait(Box::pin(async move {
            miss.fetched().await.map_err(|error| Status::from(Error::Engine(error)))
        })))
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// The messages of a Get.
struct Answers {
    get: Option<Get>,
    /// The message at hand, which may take several steps.
    frame: Option<GetFrame>,
    missed: Missed,
}

impl Messages for Answers {
    type Error = Error;

    fn next(&mut self) -> Result<Next> {
        let Some(get) = &mut self.get else { return Ok(Next::End) };
        let read = |frame: &mut GetFrame| Ok((get.step(frame, REPLY_BYTES)?, frame.bytes()));
        let step = match step_reply(&mut self.frame, read) {
            Err(error) => return self.missed.wait(error),
            Ok(step) => step,
        };
        self.missed.clear();
        let message = match step {
            ReplyStep::Incomplete => return Ok(Next::Yield),
            ReplyStep::Full(frame) => return Ok(Next::Message(frame.finish())),
            ReplyStep::Last(frame) => frame.finish_last(get.found, &get.catalogue_cookie()),
        };
        self.get = None;
        Ok(Next::Message(message))
    }
}

/// The messages of a Next or Prev.
struct Records {
    walk: Option<Walk>,
    pinned: Option<u64>,
    /// The message at hand, which may take several steps.
    frame: Option<NextFrame>,
    missed: Missed,
}

impl Messages for Records {
    type Error = Error;

    fn next(&mut self) -> Result<Next> {
        let Some(walk) = &mut self.walk else { return Ok(Next::End) };
        let read = |frame: &mut NextFrame| Ok((walk.step(frame, REPLY_BYTES)?, frame.bytes()));
        let step = match step_reply(&mut self.frame, read) {
            Err(error) => return self.missed.wait(error),
            Ok(step) => step,
        };
        self.missed.clear();
        let message = match step {
            ReplyStep::Incomplete => return Ok(Next::Yield),
            ReplyStep::Full(frame) => return Ok(Next::Message(frame.finish())),
            ReplyStep::Last(frame) => frame.finish_last(self.pinned, &walk.catalogue_cookie()),
        };
        self.walk = None;
        Ok(Next::Message(message))
    }
}

/// Fails calls of the generated service that are handled elsewhere.
pub(crate) fn routed<T>() -> Result<Response<T>, Status> {
    Err(Status::internal("this call is handled by the Server"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use stele_engine::Options;
    use stele_engine::world::World;
    use stele_tables::Tables;

    use super::*;
    use crate::fid::Fid;
    use crate::flags::Flag;
    use crate::proto::{DelRequest, Key, PutRequest, Record, Start, Target};

    fn service(dir: &std::path::Path) -> Arc<Catalogues> {
        let mut options = Options::default();
        options.log.sync = false;
        let tables = Tables::open(dir, options, World::real()).unwrap();
        Arc::new(Catalogues::open(tables).unwrap())
    }

    fn target() -> Option<Target> {
        let fid = Bytes::copy_from_slice(Fid::of_id(1000).unwrap().bytes());
        Some(Target { fid, ..Default::default() })
    }

    fn keys(count: u32) -> impl Iterator<Item = Bytes> {
        (0..count).map(|number| Bytes::copy_from_slice(&number.to_be_bytes()))
    }

    fn key(key: Bytes) -> Key {
        Key { key, ..Default::default() }
    }

    /// Puts a record, and `deleted` more that are deleted again.
    fn fill(service: &Catalogues, deleted: u32) {
        let flags = Flag::CreateCatalogue as u32 | Flag::NoCookies as u32;
        let last = Bytes::copy_from_slice(&[0xFF; 4]);
        let records = keys(deleted).chain([last]).map(|key| Record { key, ..Default::default() });
        let request = PutRequest { catalogue: target(), records: records.collect(), flags };
        service.wait_until_durable(service.put(&request).unwrap()).unwrap();
        if deleted > 0 {
            let keys = keys(deleted).map(key).collect();
            let request = DelRequest { catalogue: target(), keys, flags: 0 };
            service.wait_until_durable(service.del(&request).unwrap()).unwrap();
        }
    }

    /// How often the messages yield, and how many there are.
    fn run(mut messages: impl Messages<Error = Error>) -> (usize, usize) {
        let (mut yields, mut sent) = (0, 0);
        loop {
            match messages.next().unwrap() {
                Next::Yield => yields += 1,
                Next::Message(_) => sent += 1,
                Next::Wait(_) => panic!("there is nothing to wait for"),
                Next::End => return (yields, sent),
            }
        }
    }

    #[test]
    fn a_get_of_many_absent_keys_yields_between_them() {
        let dir = tempfile::tempdir().unwrap();
        let service = service(dir.path());
        fill(&service, 0);
        let keys = keys(5_000).map(key).collect();
        let request = GetRequest { catalogue: target(), keys, ..Default::default() };
        let get = Some(Get::new(service, request).unwrap());
        let (yields, sent) = run(Answers { get, frame: None, missed: Missed::default() });
        assert!(yields >= 9, "{yields} yields");
        assert_eq!(sent, 1, "all answers fit into one message");
    }

    /// Returns the number of messages of a stream whose waits have ended, and how often it
    /// waited.
    fn run_with_misses(mut messages: impl Messages<Error = Error>) -> (usize, usize) {
        let (mut sent, mut waits) = (0, 0);
        loop {
            match messages.next().unwrap() {
                Next::Message(_) => sent += 1,
                Next::Wait(_) => waits += 1,
                Next::Yield => {}
                Next::End => return (sent, waits),
            }
        }
    }

    #[tokio::test]
    async fn scale_4_3_records_are_read_and_written_although_every_read_of_a_file_misses() {
        use crate::proto::catalogues_server::Catalogues as _;
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.objects.store = Some(Arc::new(stele_engine::world::sim::SimObjects::new(1)));
        options.memory.cache_bytes = 0;
        let tables = Tables::open(dir.path(), options, World::real()).unwrap();
        let service = Arc::new(Catalogues::open(tables.clone()).unwrap());
        fill(&service, 50);
        tables.all().iter().for_each(|(table, _)| tables.flush(*table).unwrap());
        let last = Bytes::copy_from_slice(&[0xFF; 4]);
        let keys = vec![key(last.clone())];
        let request = GetRequest { catalogue: target(), keys, ..Default::default() };
        let get = Some(Get::new(service.clone(), request).unwrap());
        let (sent, waits) =
            run_with_misses(Answers { get, frame: None, missed: Missed::default() });
        assert!(sent == 1 && waits > 0, "{sent} messages, {waits} waits");
        for direction in [Direction::Forward, Direction::Backward] {
            let starts = vec![Start { edge: true, count: 9, ..Default::default() }];
            let request = NextRequest { catalogue: target(), starts, ..Default::default() };
            let walk = Some(Walk::new(service.clone(), request, direction).unwrap());
            let missed = Missed::default();
            let (sent, waits) =
                run_with_misses(Records { walk, pinned: None, frame: None, missed });
            assert!(sent == 1 && waits > 0, "{direction:?}: {sent} messages, {waits} waits");
        }
        // The record exists, so that creating it again is refused.
        let flags = Flag::InsertOnly as u32;
        let records = vec![Record { key: last, ..Default::default() }];
        let put = PutRequest { catalogue: target(), records, flags };
        let calls = Calls::new(service);
        let reply = calls.put(tonic::Request::new(put)).await.unwrap().into_inner();
        assert_eq!(reply.count, 0, "{reply:?}");
    }

    #[test]
    fn a_walk_over_many_deleted_records_yields_between_them() {
        let dir = tempfile::tempdir().unwrap();
        let service = service(dir.path());
        fill(&service, 99_000);
        for direction in [Direction::Forward, Direction::Backward] {
            let starts = vec![Start { edge: true, count: 9, ..Default::default() }];
            let request = NextRequest { catalogue: target(), starts, ..Default::default() };
            let walk = Some(Walk::new(service.clone(), request, direction).unwrap());
            let (yields, sent) =
                run(Records { walk, pinned: None, frame: None, missed: Missed::default() });
            assert!(yields >= 3, "{direction:?}: {yields} yields");
            assert_eq!(sent, 1, "{direction:?}");
        }
    }
}
