//! Names over DNS, queried with hand-made datagrams, and with `dig` if it is installed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use stele_mounttable::dns::{Sockets, Zone};
use stele_mounttable::{Mounttable, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::world::{Grace, World, root};

const A: u16 = 1;
const NS: u16 = 2;
const SOA: u16 = 6;
const HINFO: u16 = 13;
const TXT: u16 = 16;
const AAAA: u16 = 28;
const SRV: u16 = 33;
const ANY: u16 = 255;

const NO_ERROR: u8 = 0;
const NX_DOMAIN: u8 = 3;
const REFUSED: u8 = 5;

async fn serve(table: &Arc<Mounttable>) -> SocketAddr {
    let sockets = Sockets::take("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = sockets.address().unwrap();
    let zone = Zone::new("stele").unwrap();
    tokio::spawn(sockets.serve(table.clone(), zone, std::future::pending()));
    address
}

/// Returns a query as bytes.
fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1]);
    bytes
}

#[derive(Debug)]
struct Record {
    kind: u16,
    ttl: u32,
    data: Vec<u8>,
}

#[derive(Debug)]
struct Answer {
    code: u8,
    authoritative: bool,
    answers: Vec<Record>,
    authority: Vec<Record>,
    additional: Vec<Record>,
}

/// Parses a response; names in records are skipped.
fn parse(bytes: &[u8]) -> Answer {
    let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    assert_eq!(number(0), 0x1234);
    let mut at = 12;
    let skip_name = |mut at: usize| loop {
        match bytes[at] {
            0 => return at + 1,
            pointer if pointer >= 0xc0 => return at + 2,
            length => at += 1 + usize::from(length),
        }
    };
    for _ in 0..number(4) {
        at = skip_name(at) + 4;
    }
    let mut section = |count: u16| -> Vec<Record> {
        let mut records = Vec::new();
        for _ in 0..count {
            at = skip_name(at);
            let length = usize::from(number(at + 8));
            let ttl = u32::from(number(at + 4)) << 16 | u32::from(number(at + 6));
            let data = bytes[at + 10..at + 10 + length].to_vec();
            records.push(Record { kind: number(at), ttl, data });
            at += 10 + length;
        }
        records
    };
    Answer {
        code: bytes[3] & 15,
        authoritative: bytes[2] & 4 != 0,
        answers: section(number(6)),
        authority: section(number(8)),
        additional: section(number(10)),
    }
}

async fn ask(server: SocketAddr, name: &str, kind: u16) -> Answer {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(&question(name, kind), server).await.unwrap();
    let mut bytes = [0; 4096];
    let received = tokio::time::timeout(Duration::from_secs(60), socket.recv(&mut bytes));
    let length = received.await.expect("a response").unwrap();
    parse(&bytes[..length])
}

async fn ask_over_tcp(server: SocketAddr, name: &str, kind: u16) -> Answer {
    let mut stream = TcpStream::connect(server).await.unwrap();
    let question = question(name, kind);
    stream.write_all(&(question.len() as u16).to_be_bytes()).await.unwrap();
    stream.write_all(&question).await.unwrap();
    let length = stream.read_u16().await.unwrap();
    let mut bytes = vec![0; usize::from(length)];
    stream.read_exact(&mut bytes).await.unwrap();
    parse(&bytes)
}

async fn world() -> World {
    let nodes = r#"{
        "": {"Admin": {"In": ["root"]}, "Read": {"In": ["..."]}},
        "closed": {"Admin": {"In": ["root"]}}
    }"#;
    let world = World::guarded(Grace::Minute, nodes).await;
    world.mount(&root(), "services/web", "127.0.0.1:8080", 300).await.unwrap();
    world.mount(&root(), "services/web", "/[2001:db8::7]:9090", 600).await.unwrap();
    world.mount(&root(), "services/web", "web.example.com:80", 0).await.unwrap();
    world.mount(&root(), "closed/secret", "127.0.0.1:1", 0).await.unwrap();
    world
}

#[tokio::test]
async fn live_mounts_are_returned_with_their_remaining_ttl() {
    let world = world().await;
    let server = serve(&world.table).await;
    let a = ask(server, "web.services.stele", A).await;
    assert_eq!((a.code, a.authoritative, a.answers.len()), (NO_ERROR, true, 1), "{a:?}");
    assert_eq!((a.answers[0].ttl, &a.answers[0].data[..]), (300, &[127, 0, 0, 1][..]));
    let aaaa = ask(server, "WEB.Services.STELE", AAAA).await;
    assert_eq!(aaaa.answers[0].data[..4], [0x20, 0x01, 0x0d, 0xb8]);
    let srv = ask(server, "_http._tcp.web.services.stele", SRV).await;
    let mut ports: Vec<_> =
        srv.answers.iter().map(|srv| u16::from_be_bytes([srv.data[4], srv.data[5]])).collect();
    ports.sort();
    assert_eq!((ports, srv.additional.len()), (vec![80, 8080, 9090], 2));
    let txt = ask(server, "web.services.stele", TXT).await;
    let text: Vec<_> =
        txt.answers.iter().map(|txt| String::from_utf8_lossy(&txt.data[1..])).collect();
    assert!(text.contains(&"server=127.0.0.1:8080".into()), "{text:?}");
    // The targets of SRV records can be resolved too.
    let host = ask(server, "7f000001.addr.stele", A).await;
    assert_eq!(host.answers[0].data, [127, 0, 0, 1]);
    // The TTL decreases with time, and then the records disappear.
    world.clock.advance(Duration::from_secs(100));
    assert_eq!(ask(server, "web.services.stele", A).await.answers[0].ttl, 200);
    world.clock.advance(Duration::from_secs(201));
    let gone = ask(server, "web.services.stele", A).await;
    assert_eq!((gone.code, gone.answers.len()), (NO_ERROR, 0));
}

#[tokio::test]
async fn missing_and_private_nodes_do_not_exist() {
    let world = world().await;
    let server = serve(&world.table).await;
    for name in ["none.stele", "x.web.services.stele", "secret.closed.stele", "closed.stele"] {
        let answer = ask(server, name, A).await;
        assert_eq!((answer.code, answer.answers.len()), (NX_DOMAIN, 0), "{name}");
        assert_eq!(answer.authority[0].kind, SOA, "{name}");
    }
    // A node without servers has a name and no data.
    let empty = ask(server, "services.stele", A).await;
    assert_eq!((empty.code, empty.answers.len(), empty.authority[0].kind), (NO_ERROR, 0, SOA));
    assert_eq!(ask(server, "stele", SOA).await.answers[0].kind, SOA);
    let elsewhere = ask(server, "example.com", A).await;
    assert_eq!((elsewhere.code, elsewhere.authoritative), (REFUSED, false));
}

#[tokio::test]
async fn tcp_queries_are_answered_and_garbage_is_ignored() {
    let world = world().await;
    let server = serve(&world.table).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for garbage in [&b""[..], b"\0", &[0xff; 12], &[0xc0; 600]] {
        socket.send_to(garbage, server).await.unwrap();
    }
    assert_eq!(ask_over_tcp(server, "web.services.stele", A).await.answers.len(), 1);
}

#[tokio::test]
async fn a_forged_question_for_everything_gets_little() {
    let world = world().await;
    let server = serve(&world.table).await;
    for name in ["web.services.stele", "stele"] {
        let little = ask(server, name, ANY).await;
        let kinds: Vec<_> = little.answers.iter().map(|record| record.kind).collect();
        assert_eq!((kinds, little.additional.len()), (vec![HINFO], 0), "{name}");
        assert_eq!(&little.answers[0].data[..], b"\x07RFC8482\0");
    }
    assert_eq!(ask(server, "none.stele", ANY).await.code, NX_DOMAIN);
    // Over TCP nobody is answered who did not ask.
    let all = ask_over_tcp(server, "web.services.stele", ANY).await;
    let has = |kind| all.answers.iter().any(|record| record.kind == kind);
    assert!(has(A) && has(AAAA) && has(SRV) && has(TXT), "{all:?}");
}

#[tokio::test]
async fn the_server_of_the_zone_has_an_address() {
    let world = world().await;
    let server = serve(&world.table).await;
    let found = ask(server, "stele", NS).await;
    assert_eq!((found.code, found.answers.len(), found.answers[0].kind), (NO_ERROR, 1, NS));
    assert!(found.answers[0].data.starts_with(b"\x087f000001\x04addr"), "{found:?}");
    let [address] = &found.additional[..] else { panic!("{found:?}") };
    assert_eq!((address.kind, &address.data[..]), (A, &[127, 0, 0, 1][..]));
}

#[tokio::test]
async fn a_question_makes_no_tables() {
    let world = World::in_process(Grace::None).await;
    let options = Options { table: "unused".into(), ..Options::default() };
    let table = Mounttable::new(&world.rows.client, options).unwrap();
    let server = serve(&table).await;
    for name in ["web.services.stele", "x.stele"] {
        assert_eq!(ask(server, name, A).await.code, NX_DOMAIN);
    }
    assert_eq!(ask(server, "stele", SOA).await.answers[0].kind, SOA);
    let tables = world.rows.client.list_tables().await.unwrap();
    assert!(!tables.iter().any(|table| table.starts_with("unused")), "{tables:?}");
    // Those that are made later are found.
    table.ready().await.unwrap();
    assert_eq!(ask(server, "stele", A).await.code, NO_ERROR);
}

#[tokio::test]
async fn dig_finds_servers() {
    let installed = std::process::Command::new("dig").arg("-v").output().is_ok();
    if !installed {
        eprintln!("dig is not installed (Debian: dnsutils)");
        return;
    }
    let world = world().await;
    let server = serve(&world.table).await;
    let dig = tokio::task::spawn_blocking(move || {
        let port = server.port().to_string();
        let mut dig = std::process::Command::new("dig");
        dig.args(["@127.0.0.1", "-p", &port, "+short", "web.services.stele", "A"]);
        dig.output().unwrap()
    });
    let dug = dig.await.unwrap();
    assert_eq!(String::from_utf8_lossy(&dug.stdout).trim(), "127.0.0.1");
}
