//! Measures the service over gRPC on the same machine, against a server that streams
//! the same bytes from memory.

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
use crate::meter::{print_rate, print_ratio, rate_async};

async fn serve(routes: Routes) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = tonic::transport::Server::builder().add_routes(routes);
    tokio::spawn(server.serve_with_incoming(incoming));
    Ok(address)
}

/// Responds to every call with the same frames.
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
    let mut records = handle.next(walk).await.expect("the server responds");
    let mut count = 0;
    while records.next().await.expect("the server responds").is_some() {
        count += 1;
    }
    count
}

/// Serves the catalogue on a local port and returns a client's handle to it.
pub async fn serve_local(local: &Local) -> Result<Handle> {
    let address = serve(Server::new(local.service.clone()).routes()).await?;
    let client = Client::connect(&address, &Default::default()).await?;
    Ok(client.catalogue(local.fid))
}

pub async fn measure(local: &Local, seconds: f64) -> Result<()> {
    local.compact()?;
    let handle = serve_local(local).await?;
    let pick = |turn: u64| mix(turn) % local.records;
    let wire = |number: u64| Bytes::copy_from_slice(&key(number));
    let none = Flag::NoCookies as u32;

    let numbers: Vec<u64> = (0..20_000).map(pick).collect();
    let cookies = numbers.iter().map(|number| local.cookie_of(*number));
    let cookies: Vec<Bytes> = cookies.collect::<Result<_>>()?;
    let single = print_rate(
        "GET, one key",
        rate_async(seconds, async |turn| {
            let keys = vec![wire(numbers[turn as usize % numbers.len()]).into()];
            handle.get(keys, none, 0).await.expect("the server responds").len() as u64
        })
        .await,
    );
    print_rate(
        "GET, one key, by cookie",
        rate_async(seconds, async |turn| {
            let at = turn as usize % numbers.len();
            let key = RecordKey { cookie: cookies[at].clone(), ..wire(numbers[at]).into() };
            handle.get(vec![key], none, 0).await.expect("the server responds").len() as u64
        })
        .await,
    );
    let many = print_rate(
        "GET, 100 keys",
        rate_async(seconds, async |turn| {
            let key = |n| wire(pick(turn * 100 + n)).into();
            let keys = (0..100).map(key).collect();
            handle.get(keys, none, 0).await.expect("the server responds").len() as u64
        })
        .await,
    );
    print_ratio("  GET of 100 over single GET", many / single);
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
    print_rate("NEXT, 1000 records", ours);
    print_rate("null stream of the same bytes", floor);
    print_ratio("  NEXT over null stream (median of 3)", ratios[1]);

    let put = async |first: u64, count: u64| {
        let record = |n| NewRecord::new(wire(pick(first + n)), value(first + n));
        let records = (0..count).map(record).collect();
        handle.put(records, none).await.expect("the server responds").count
    };
    let single = print_rate(
        "PUT, one record, durable",
        rate_async(seconds, async |turn| put(turn, 1).await).await,
    );
    let many = print_rate(
        "PUT, 100 records, durable",
        rate_async(seconds, async |turn| put(turn * 100, 100).await).await,
    );
    print_ratio("  PUT of 100 over single PUT", many / single);
    local.compact()
}

/// Returns the frames of the server's response to a NEXT of 1000 records.
fn frame_of(local: &Local) -> Result<Vec<Bytes>> {
    use stele_catalogue::service::{Direction, Walk};
    let start = Start { count: COUNT, ..Default::default() };
    let (catalogue, flags) = (local.target(Bytes::new()), FLAGS);
    let request = NextRequest { catalogue, starts: vec![start], flags, ..Default::default() };
    let mut walk = Walk::new(local.service.clone(), request, Direction::Forward)?;
    let mut reply = Collected::default();
    while walk.step(&mut reply, usize::MAX)? {}
    let message = tonic_message(reply);
    let mut frame = vec![0];
    frame.extend_from_slice(&(message.len() as u32).to_be_bytes());
    frame.extend_from_slice(&message);
    Ok(vec![frame.into()])
}

#[derive(Default)]
struct Collected(Vec<Item>);

impl stele_catalogue::service::WalkSink for Collected {
    fn record(&mut self, _: u32, key: &[u8], value: &[u8], _: &[u8]) {
        let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        self.0.push(Item { key, value, cookie: Bytes::new() });
    }

    fn end(&mut self, _: u32, _: Code, _: u64) {}

    fn bytes(&self) -> usize {
        0
    }
}

fn tonic_message(collected: Collected) -> Vec<u8> {
    use prost::Message;
    let count = collected.0.len() as u64;
    let group = Group { records: collected.0, last: true, count, ..Default::default() };
    NextReply { groups: vec![group], ..Default::default() }.encode_to_vec()
}
