//! Names over gRPC: authentication by token, kinds of errors, and a client that follows
//! names from server to server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stele_mounttable::access::{ADMIN, Permissions, READ};
use stele_mounttable::client::{Credentials, Namespace, Options as ClientOptions, Publisher};
use stele_mounttable::identity::Tokens;
use stele_mounttable::node::Flags;
use stele_mounttable::proto::watch_reply::Reply;
use stele_mounttable::{Error, Found, Mount, Options, Server};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::transport::server::TcpIncoming;

use crate::world::{Grace, Rows, World};

/// Reached only when something hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// A naming server on a port. Stops with the runtime.
struct Served {
    address: SocketAddr,
    rows: Rows,
}

impl Served {
    async fn new() -> Served {
        Served::with_tokens("").await
    }

    async fn with_tokens(tokens: &str) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Served::on(listener, tokens).await
    }

    async fn on(listener: TcpListener, tokens: &str) -> Served {
        let rows = Rows::new().await;
        let table = rows.server(Options::default());
        let address = listener.local_addr().unwrap();
        let service = Server::new(table, Tokens::parse(tokens).unwrap()).service();
        let serving = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpIncoming::from(listener));
        tokio::spawn(serving);
        Served { address, rows }
    }

    fn namespace(&self) -> Arc<Namespace> {
        self.namespace_of(None)
    }

    fn namespace_of(&self, token: Option<&str>) -> Arc<Namespace> {
        let credentials = Credentials { token: token.map(Into::into), ..Credentials::default() };
        let options = ClientOptions { credentials, ..ClientOptions::default() };
        Arc::new(Namespace::new([format!("/{}", self.address)], options).unwrap())
    }

    /// Mounts this server on a name of another.
    async fn mount_on(&self, other: &Namespace, name: &str) {
        let flags = Flags { mt: true, leaf: false };
        let mount = Mount { flags, ..Mount::new(format!("/{}", self.address), 0) };
        other.mount(name, &mount).await.unwrap();
    }
}

async fn found(names: &Arc<Namespace>, pattern: &str) -> Vec<String> {
    let (out, mut answers) = mpsc::channel(4);
    let (names, pattern) = (names.clone(), pattern.to_string());
    let searching = tokio::spawn(async move { names.glob(&pattern, &out).await });
    let mut found = Vec::new();
    while let Some(answer) = answers.recv().await {
        match answer {
            Found::Entry(entry) => found.push(entry.name),
            Found::Error { name, error } => panic!("{name}: {error}"),
        }
    }
    searching.await.unwrap().unwrap();
    found.sort();
    found
}

#[tokio::test]
async fn operations_and_their_errors_go_over_the_wire() {
    let served = Served::new().await;
    let names = served.namespace();
    let deadline = names.mount("a/b", &Mount::new("h:1", 60)).await.unwrap();
    let entry = names.resolve("a/b/c").await.unwrap();
    assert_eq!((entry.names(), &entry.name[..]), (vec!["/h:1/c".to_string()], "c"));
    assert_eq!(entry.servers[0].deadline_micros, deadline);
    let kind = |result: Result<(), Error>| result.unwrap_err().kind().to_string();
    assert_eq!(kind(names.resolve("a/x").await.map(drop)), "NoSuchName");
    assert_eq!(kind(names.mount("x", &Mount::new("h", 0)).await.map(drop)), "MalformedAddress");
    assert_eq!(kind(names.delete("a", false).await), "NotEmpty");
    assert_eq!(kind(names.delete("", true).await), "NoAccess");
    let (permissions, version) = names.permissions("a").await.unwrap();
    assert_eq!(permissions, Permissions::open());
    names.set_permissions("a", &permissions, &version).await.unwrap();
    assert_eq!(
        kind(names.set_permissions("a", &permissions, &version).await.map(drop)),
        "BadVersion"
    );
    assert_eq!(found(&names, "***").await, ["", "a", "a/b"]);
    names.unmount("a/b", "h:1").await.unwrap();
    names.delete("a", true).await.unwrap();
    assert_eq!(found(&names, "...").await, [""]);
}

#[tokio::test]
async fn a_token_says_who_calls() {
    let served = Served::with_tokens("t1 alice\nt2 bob,dev:u:bob").await;
    let (alice, bob) = (served.namespace_of(Some("t1")), served.namespace_of(Some("t2")));
    let own = Permissions::default().with(ADMIN, ["alice"]).with(READ, ["dev:u"]);
    alice.set_permissions("alices", &own, "").await.unwrap();
    let kind = |result: Result<(), Error>| result.unwrap_err().kind().to_string();
    assert_eq!(kind(bob.mount("alices", &Mount::new("h:1", 0)).await.map(drop)), "NoPermissions");
    alice.mount("alices", &Mount::new("h:1", 0)).await.unwrap();
    bob.resolve("alices").await.unwrap();
    let nobody = served.namespace();
    assert_eq!(kind(nobody.resolve("alices").await.map(drop)), "NoPermissions");
    let stranger = served.namespace_of(Some("t3"));
    assert_eq!(kind(stranger.resolve("alices").await.map(drop)), "Unauthenticated");
}

#[tokio::test]
async fn a_name_leads_from_server_to_server() {
    let (top, middle, low) = (Served::new().await, Served::new().await, Served::new().await);
    let names = top.namespace();
    middle.mount_on(&names, "mt1").await;
    low.mount_on(&names, "mt1//deep/mt2/").await;
    names.mount("mt1/deep/mt2/end", &Mount::new("/h:1/x", 0)).await.unwrap();
    // Each server was mounted at the responsible mounttable.
    assert_eq!(low.namespace().resolve("end").await.unwrap().names(), ["/h:1/x"]);
    assert_eq!(names.resolve("mt1/deep/mt2/end/rest").await.unwrap().names(), ["/h:1/x/rest"]);
    let rooted = format!("/{}/deep/mt2/end", middle.address);
    assert_eq!(names.resolve(&rooted).await.unwrap().names(), ["/h:1/x"]);
    let at = |served: &Served, name: &str| (served.address.to_string(), name.to_string());
    let responsible = async |name: &str| {
        let locations = names.resolve_to_mounttable(name).await.unwrap();
        (locations[0].server.clone(), locations[0].name.clone())
    };
    assert_eq!(responsible("mt1/deep/mt2/end").await, at(&low, "end"));
    assert_eq!(responsible("mt1/new/name").await, at(&middle, "new/name"));
    assert_eq!(responsible("nothing").await, at(&top, "nothing"));
    // A name that ends at a mounttable resolves to that mounttable.
    assert_eq!(names.resolve("mt1").await.unwrap().names(), [format!("/{}", middle.address)]);
    assert_eq!(
        found(&names, "***").await,
        ["", "mt1", "mt1/deep", "mt1/deep/mt2", "mt1/deep/mt2/end"]
    );
    assert_eq!(found(&names, "mt1/*/mt2/e*").await, ["mt1/deep/mt2/end"]);
    let prefix = format!("/{}", middle.address);
    let pattern = format!("{prefix}/deep/*");
    assert_eq!(found(&names, &pattern).await, [format!("{prefix}/deep/mt2")]);
    assert_eq!(served_nodes(&low).await, 2);
    names.delete("mt1/deep/mt2/end", false).await.unwrap();
    assert_eq!(names.resolve("mt1/deep/mt2/end").await.unwrap_err().kind(), "NoSuchName");
}

async fn served_nodes(served: &Served) -> u64 {
    let table = served.rows.server(Options::default());
    stele_mounttable::fsck::check(table.rows()).await.unwrap().nodes
}

#[tokio::test]
async fn a_loop_of_servers_is_detected() {
    let served = Served::new().await;
    let names = served.namespace();
    let flags = Flags { mt: true, leaf: false };
    let itself = Mount { flags, ..Mount::new(format!("/{}/loop", served.address), 0) };
    names.mount("loop", &itself).await.unwrap();
    let resolved = names.resolve("loop/x").await;
    assert!(matches!(resolved, Err(Error::TooDeep { .. })), "{resolved:?}");
    // A search visits the loop once.
    assert_eq!(found(&names, "...").await, ["", "loop"]);
}

#[tokio::test]
async fn a_search_asks_other_servers_only_when_it_must() {
    let served = Served::new().await;
    let names = served.namespace();
    // Nothing listens there, so that a call fails.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    names.mount("end", &Mount::new(closed.to_string(), 0)).await.unwrap();
    let leaf = Flags { mt: false, leaf: true };
    let mount = Mount { flags: leaf, ..Mount::new(closed.to_string(), 0) };
    names.mount("leaf", &mount).await.unwrap();
    assert_eq!(names.resolve("leaf").await.unwrap().flags, leaf);
    for pattern in ["*", "***", "e*/***", "leaf/..."] {
        let expected: Vec<_> = ["", "end", "leaf"]
            .into_iter()
            .filter(|name| match pattern {
                "*" => !name.is_empty(),
                "***" => true,
                "e*/***" => *name == "end",
                _ => *name == "leaf",
            })
            .collect();
        assert_eq!(found(&names, pattern).await, expected, "{pattern}");
    }
    let (out, mut answers) = mpsc::channel(16);
    names.glob("...", &out).await.unwrap();
    drop(out);
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    while let Some(answer) = answers.recv().await {
        match answer {
            Found::Entry(entry) => entries.push((entry.name, entry.flags.leaf)),
            Found::Error { name, error } => errors.push((name, error)),
        }
    }
    entries.sort();
    assert_eq!(entries, [("".into(), false), ("end".into(), false), ("leaf".into(), true)]);
    let [(name, Error::Unreachable { .. })] = &errors[..] else { panic!("{errors:?}") };
    assert_eq!(name, "end");
}

#[tokio::test]
async fn servers_without_names_end_the_resolution() {
    let served = Served::new().await;
    let names = served.namespace();
    // A gRPC server without names, mounted as a mounttable.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let api = World::in_process(Grace::None).await.rows.api.unwrap();
    let serving = tonic::transport::Server::builder()
        .add_routes(api.routes())
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(serving);
    let flags = Flags { mt: true, leaf: false };
    let mount = Mount { flags, ..Mount::new(address.to_string(), 0) };
    names.mount("tables", &mount).await.unwrap();
    let entry = names.resolve("tables/t").await.unwrap();
    assert_eq!(entry.names(), [format!("/{address}/t")]);
    assert_eq!(found(&names, "tables/...").await, ["tables"]);
}

#[tokio::test]
async fn roots_are_rooted_and_the_first_reachable_one_is_used() {
    let refused = Namespace::new(["h:1"], ClientOptions::default());
    assert!(matches!(refused, Err(Error::NotRooted(_))));
    let served = Served::new().await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let roots = [format!("/{closed}"), format!("/{}", served.address)];
    let names = Arc::new(Namespace::new(roots, ClientOptions::default()).unwrap());
    names.mount("a", &Mount::new("h:1", 0)).await.unwrap();
    assert_eq!(names.resolve("a").await.unwrap().names(), ["/h:1"]);
    let alone = Namespace::new([format!("/{closed}")], ClientOptions::default()).unwrap();
    let unreachable = alone.resolve("a").await;
    assert!(matches!(unreachable, Err(Error::Unreachable { .. })), "{unreachable:?}");
    let message = unreachable.unwrap_err().to_string();
    assert_eq!(message.matches("tcp connect error").count(), 1, "{message}");
    let nowhere = Namespace::new([] as [String; 0], ClientOptions::default()).unwrap();
    assert!(matches!(nowhere.resolve("a").await, Err(Error::NotRooted(_))));
}

#[tokio::test]
async fn a_publisher_retries_long_before_its_period_and_mounts_for_three() {
    // The server is not there yet.
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let names = Namespace::new([format!("/{address}")], ClientOptions::default()).unwrap();
    let names = Arc::new(names);
    let hour = Duration::from_secs(3600);
    let publisher = Publisher::new(names.clone(), hour);
    publisher.add_name("pub/a");
    publisher.add_server("h:1", Flags::default());
    let mut statuses = publisher.statuses();
    let pair = ("pub/a".to_string(), "h:1".to_string());
    let failed = statuses.wait_for(|all| all.get(&pair).is_some_and(|it| it.last_error.is_some()));
    tokio::time::timeout(LIMIT, failed).await.unwrap().unwrap();
    let _served = Served::on(TcpListener::bind(address).await.unwrap(), "").await;
    let mounted = statuses.wait_for(|all| all[&pair].mounted);
    tokio::time::timeout(LIMIT, mounted).await.expect("it is retried soon").unwrap();
    let server = &names.resolve("pub/a").await.unwrap().servers[0];
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
    let left_hours = (server.deadline_micros - now) as f64 / hour.as_micros() as f64;
    assert!((2.5..=3.01).contains(&left_hours), "{left_hours}");
    drop(publisher);
}

#[tokio::test]
async fn a_publisher_mounts_immediately_and_unmounts_at_its_end() {
    let served = Served::new().await;
    let names = served.namespace();
    let publisher = Publisher::new(names.clone(), Duration::from_secs(3600));
    publisher.add_name("pub/a");
    publisher.add_server("h:1", Flags::default());
    publisher.add_name("__bad");
    publisher.add_server("h:2", Flags { mt: false, leaf: true });
    publisher.remove_server("h:1");
    let statuses = publisher.stop().await;
    // The status of a failed mount contains the error.
    assert!(statuses.values().any(|status| status.last_error.is_some()), "{statuses:?}");
    assert!(statuses.keys().all(|(name, _)| name == "__bad"), "{statuses:?}");
    assert_eq!(names.resolve("pub/a").await.unwrap_err().kind(), "NoSuchName");

    let publisher = Publisher::new(names.clone(), Duration::from_secs(3600));
    let mut watch = names.watch("pub", vec![]).await.unwrap();
    publisher.add_name("pub/b");
    publisher.add_server("h:3", Flags::default());
    let mounted = loop {
        let reply = watch.message().await.unwrap().unwrap().reply;
        if let Some(Reply::Change(change)) = reply {
            let entry = change.entry.unwrap_or_default();
            if let Some(server) = entry.servers.first() {
                break (entry.name.clone(), server.server.clone());
            }
        }
    };
    assert_eq!(mounted, ("pub/b".to_string(), "h:3".to_string()));
    assert!(publisher.stop().await.is_empty());
    assert_eq!(names.resolve("pub/b").await.unwrap_err().kind(), "NoSuchName");
}
