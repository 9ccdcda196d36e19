//! The service over gRPC on this machine, beside a server that streams the
//! same bytes from memory.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use anyhow::Result;
use bytes::Bytes;
use stele_catalogue::Server;
use stele_catalogue::client::{self, Client, Handle, NewRecord, RecordKey, WalkStart};
use stele_catalogue::proto::*;
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tower_service::Service;

use crate::data::{key, mix, value};
use crate::local::Local;
use crate::meter::{rate_async, say, say_ratio};

async fn serve(routes: Routes) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = tonic::transport::Server::builder().add_routes(routes);
    tokio::spawn(server.serve_with_incoming(incoming));
    Ok(address)
}

/// Answers every call with the same frames.
#[derive(Clone)]
struct Null(Vec<Bytes>);

impl tonic::server::NamedService for Null {
    const NAME: &'static str = "stele.catalogue.v1.Catalogues";
}

impl Service<http::Request<Body>> for Null {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        use http_body::Frame;
        use http_body_util::StreamBody;
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
        let frames = self.0.clone().into_iter().map(Frame::data);
        let frames = frames.chain([Frame::trailers(trailers)]).map(Ok::<_, tonic::Status>);
        let mut response =
            http::Response::new(Body::new(StreamBody::new(tokio_stream::iter(frames))));
        let grpc = http::HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(http::header::CONTENT_TYPE, grpc);
        ready(Ok(response))
    }
}

const FLAGS: u32 = Flag::Slant as u32 | Flag::NoCookies as u32;
const COUNT: u32 = 1000;

async fn walk(handle: &Handle, start: Bytes) -> u64 {
    let starts = vec![WalkStart::at(start, COUNT)];
    let walk = client::Walk { starts, flags: FLAGS, ..Default::default() };
    let mut records = handle.next(walk).await.expect("the server answers");
    let mut count = 0;
    while records.next().await.expect("the server answers").is_some() {
        count += 1;
    }
    count
}

/// The catalogue as a client of this machine sees it.
pub async fn serve_local(local: &Local) -> Result<Handle> {
    let address = serve(Server::new(local.service.clone()).routes()).await?;
    let client = Client::connect(&address, &Default::default()).await?;
    Ok(client.catalogue(local.fid))
}

pub async fn measure(local: &Local, seconds: f64) -> Result<()> {
    local.settle()?;
    let handle = serve_local(local).await?;
    let pick = |turn: u64| mix(turn) % local.records;
    let wire = |number: u64| Bytes::copy_from_slice(&key(number));
    let none = Flag::NoCookies as u32;

    let asked: Vec<u64> = (0..20_000).map(pick).collect();
    let cookies = asked.iter().map(|number| local.cookie_of(*number));
    let cookies: Vec<Bytes> = cookies.collect::<Result<_>>()?;
    let single = say(
        "GET, one key",
        rate_async(seconds, async |turn| {
            let keys = vec![wire(asked[turn as usize % asked.len()]).into()];
            handle.get(keys, none, 0).await.expect("the server answers").len() as u64
        })
        .await,
    );
    say(
        "GET, one key, by cookie",
        rate_async(seconds, async |turn| {
            let at = turn as usize % asked.len();
            let key = RecordKey { cookie: cookies[at].clone(), ..wire(asked[at]).into() };
            handle.get(vec![key], none, 0).await.expect("the server answers").len() as u64
        })
        .await,
    );
    let many = say(
        "GET, 100 keys",
        rate_async(seconds, async |turn| {
            let key = |n| wire(pick(turn * 100 + n)).into();
            let keys = (0..100).map(key).collect();
            handle.get(keys, none, 0).await.expect("the server answers").len() as u64
        })
        .await,
    );
    say_ratio("  GET of 100 over single GET", many / single);
    let frame = frame_of(local)?;
    let null = serve(Routes::new(Null(frame))).await?;
    let null = Client::connect(&null, &Default::default()).await?.catalogue(local.fid);
    let mut ratios = Vec::new();
    let (mut ours, mut floor) = (0.0f64, 0.0f64);
    for _ in 0..3 {
        let next =
            rate_async(seconds / 3.0, async |turn| walk(&handle, wire(pick(turn))).await).await;
        let bound =
            rate_async(seconds / 3.0, async |turn| walk(&null, wire(pick(turn))).await).await;
        (ours, floor) = (ours.max(next), floor.max(bound));
        ratios.push(next / bound);
    }
    ratios.sort_by(f64::total_cmp);
    say("NEXT, 1000 records", ours);
    say("null stream of the same bytes", floor);
    say_ratio("  NEXT over null stream (median of 3)", ratios[1]);

    let put = async |first: u64, count: u64| {
        let record = |n| NewRecord::new(wire(pick(first + n)), value(first + n));
        let records = (0..count).map(record).collect();
        handle.put(records, none).await.expect("the server answers").count
    };
    let single =
        say("PUT, one record, durable", rate_async(seconds, async |turn| put(turn, 1).await).await);
    let many = say(
        "PUT, 100 records, durable",
        rate_async(seconds, async |turn| put(turn * 100, 100).await).await,
    );
    say_ratio("  PUT of 100 over single PUT", many / single);
    local.settle()
}

/// The frames of one answer to a NEXT of 1000 records, as the server sends
/// them.
fn frame_of(local: &Local) -> Result<Vec<Bytes>> {
    use stele_catalogue::service::{Direction, Walk};
    let start = Start { count: COUNT, ..Default::default() };
    let (catalogue, flags) = (local.target(Bytes::new()), FLAGS);
    let request = NextRequest { catalogue, starts: vec![start], flags, ..Default::default() };
    let mut walk = Walk::new(local.service.clone(), request, Direction::Forward)?;
    let mut reply = Gathered::default();
    while walk.step(&mut reply, usize::MAX)? {}
    let message = tonic_message(reply);
    let mut frame = vec![0];
    frame.extend_from_slice(&(message.len() as u32).to_be_bytes());
    frame.extend_from_slice(&message);
    Ok(vec![frame.into()])
}

#[derive(Default)]
struct Gathered(Vec<Item>);

impl stele_catalogue::service::WalkSink for Gathered {
    fn record(&mut self, _: u32, key: &[u8], value: &[u8], _: &[u8]) {
        let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        self.0.push(Item { key, value, cookie: Bytes::new() });
    }

    fn end(&mut self, _: u32, _: Code, _: u64) {}

    fn bytes(&self) -> usize {
        0
    }
}

fn tonic_message(gathered: Gathered) -> Vec<u8> {
    use prost::Message;
    let count = gathered.0.len() as u64;
    let group = Group { records: gathered.0, last: true, count, ..Default::default() };
    NextReply { groups: vec![group], ..Default::default() }.encode_to_vec()
}
