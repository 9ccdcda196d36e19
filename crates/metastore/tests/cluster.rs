//! Three members over TCP on this machine: in one process, and in processes that
//! are killed under load. A child runs this same test, selected by an
//! environment variable.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use stele_engine::world::World;
use stele_metastore::command::{Command, KeyRange, Put, RangeQuery};
use stele_metastore::consensus::{
    self, Lane, MemberRecord, PeerSettings, Published, Transport, Unreached,
};
use stele_metastore::node::{ClusterSettings, NodeSettings};
use stele_metastore::peer::{PeerTransport, PeerUrl, Roster};
use stele_metastore::{Error, Floor, Node};
use tokio::net::TcpListener;

pub const NAMES: [&str; 3] = ["a", "b", "c"];
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the members of a new cluster, on free ports.
pub async fn members() -> String {
    let mut listeners = Vec::new();
    for name in NAMES {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listeners.push((name, listener));
    }
    let member = |(name, listener): &(&str, TcpListener)| {
        format!("{name}=http://{}", listener.local_addr().unwrap())
    };
    listeners.iter().map(member).collect::<Vec<_>>().join(",")
}

async fn transport(roster: &Roster) -> PeerTransport {
    let address = (roster.url().host.as_str(), roster.url().port);
    // The port may still belong to the process that was killed.
    let mut listener = TcpListener::bind(address).await;
    while listener.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        listener = TcpListener::bind(address).await;
    }
    let (cluster, own) = (roster.cluster_id(), roster.member_id());
    let transport = PeerTransport::new(cluster, own, listener.unwrap(), None);
    let member = |(id, _, url): (u64, &str, &PeerUrl)| consensus::Member {
        id,
        record: MemberRecord::at(url.to_string()),
        learner: false,
    };
    transport.set_members(&roster.members().map(member).collect::<Vec<_>>());
    transport
}

async fn open(home: &Path, name: &str, members: &str) -> Node {
    open_with(home, name, members, |_| {}).await
}

/// Opens a member with settings that `change` has changed.
pub async fn open_with(
    home: &Path,
    name: &str,
    members: &str,
    change: impl Fn(&mut NodeSettings),
) -> Node {
    open_tuned(home, name, members, |_| {}, change).await
}

/// Like `open_with`, with settings of the network that `tune` has changed.
pub async fn open_tuned(
    home: &Path,
    name: &str,
    members: &str,
    tune: impl FnOnce(&mut PeerSettings),
    change: impl Fn(&mut NodeSettings),
) -> Node {
    let roster = Roster::parse(name, members).unwrap();
    let addresses = roster.members().map(|(id, _, url)| (id, url.to_string())).collect();
    let mut peers = PeerSettings::new(addresses, Arc::new(transport(&roster).await));
    peers.published = Some(published(name));
    tune(&mut peers);
    let mut settings = NodeSettings::new(home.join(name), World::real());
    settings.machine.engine.memory.cache_bytes = 1 << 20;
    // Makes flushes frequent, so that kills hit them too.
    settings.machine.engine.flush.fragment_bytes = 64 << 10;
    settings.cluster_id = Some(roster.cluster_id());
    settings.member_id = Some(roster.member_id());
    settings.cluster = Some(ClusterSettings::new(peers));
    change(&mut settings);
    Node::open(settings).await.unwrap()
}

pub fn published(name: &str) -> Published {
    Published { name: name.into(), client_urls: vec![format!("http://clients/{name}")] }
}

pub async fn open_all(home: &Path, members: &str) -> Vec<Node> {
    let mut nodes = Vec::new();
    for name in NAMES {
        nodes.push(open(home, name, members).await);
    }
    nodes
}

/// Repeats a request while there is no leader. The request may be repeated.
pub async fn put(node: &Node, key: &str, value: &str) -> i64 {
    let put = async {
        loop {
            match node.propose(Command::Put(Put::new(key.to_string(), value.to_string()))).await {
                Ok(answer) => return answer.revision,
                Err(
                    Error::NoLeader
                    | Error::Timeout
                    | Error::LeaderChanged
                    | Error::LeaderFailed
                    | Error::ConnectionLost,
                ) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, put).await.expect("there is a leader")
}

/// Reads all keys with a prefix, linearizable.
pub async fn read(node: &Node, prefix: &str) -> BTreeMap<String, String> {
    let confirmed = async { while node.barrier().await.is_err() {} };
    tokio::time::timeout(PATIENCE, confirmed).await.expect("there is a leader");
    let mut found = BTreeMap::new();
    let query = RangeQuery::new(KeyRange::prefix(prefix.to_string()));
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    node.reader(Floor::Compacted)
        .range(&query, &mut |view| {
            found.insert(text(view.key), text(view.value()));
        })
        .unwrap();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_member_answers_any_request() {
    let (home, members) = (tempfile::tempdir().unwrap(), members().await);
    let nodes = open_all(home.path(), &members).await;
    for (name, node) in NAMES.iter().zip(&nodes) {
        put(node, &format!("k/{name}"), name).await;
        let grant = node.lease_grant(0, 60).await.unwrap();
        let stele_metastore::command::Reply::LeaseGrant { id, .. } = grant.reply else {
            panic!("{grant:?}")
        };
        assert_eq!(node.keep_alive(id).await.unwrap(), Some(60));
        assert_eq!(node.lease_status(id).await.unwrap().unwrap().granted_seconds, 60);
        assert_eq!(node.keep_alive(id + 1).await.unwrap(), None);
        // What one member answered, every other sees.
        for other in &nodes {
            assert_eq!(read(other, "k/").await.get(&format!("k/{name}")).unwrap(), name);
        }
    }
    let leaders: Vec<u64> = nodes.iter().map(|node| node.status().leader_id).collect();
    assert!(leaders[0] != 0 && leaders.iter().all(|leader| *leader == leaders[0]), "{leaders:?}");
    // The leader hands over when it closes, and the others go on.
    let (leaving, staying): (Vec<Node>, Vec<Node>) =
        nodes.into_iter().partition(|node| node.status().member_id == leaders[0]);
    for node in leaving {
        node.close().await.unwrap();
    }
    for node in &staying {
        put(node, "k/after", "handover").await;
        assert_eq!(read(node, "k/").await.len(), 4);
    }
    for node in staying {
        node.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_member_of_another_cluster_is_refused() {
    let (home, members) = (tempfile::tempdir().unwrap(), members().await);
    let _node = open(home.path(), "a", &members).await;
    let mine = Roster::parse("a", &members).unwrap();
    // The same address of "a", and another of "c".
    let other = members.rsplit_once(':').unwrap().0.to_string() + ":1";
    let other = Roster::parse("b", &other).unwrap();
    let stranger = transport(&other).await;
    let to = other.others().find(|(_, url)| *url == mine.url()).unwrap().0;
    let refused = stranger.call(to, Lane::Control, Bytes::from_static(b"x")).await;
    let Err(Unreached::NotSent(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("cluster ID mismatch"), "{why}");
    // The right cluster, and the wrong member.
    let peer = transport(&Roster::parse("c", &members).unwrap()).await;
    let unknown = peer.call(mine.member_id() + 1, Lane::Control, Bytes::new()).await;
    assert!(matches!(unknown, Err(Unreached::NotSent(_))), "{unknown:?}");
}

const CHILD: &str = "STELE_CLUSTER_CHILD";
const TEST: &str = "cluster::nothing_acknowledged_is_lost_when_members_are_killed";

/// A member in a process of its own, and the writes it has acknowledged.
struct Member {
    child: Child,
    acknowledged: Receiver<String>,
}

fn spawn(home: &Path, name: &str, members: &str) -> Member {
    let mut child = Process::new(std::env::current_exe().unwrap())
        .args([TEST, "--exact", "--nocapture"])
        .env(CHILD, format!("{name} {} {members}", home.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (sender, acknowledged) = channel();
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let Some(key) = line.strip_prefix("ack ") else { continue };
            if sender.send(key.to_string()).is_err() {
                return;
            }
        }
    });
    Member { child, acknowledged }
}

/// Waits for acknowledged writes of a member.
fn take(member: &Member, count: usize, all: &mut Vec<String>) {
    for _ in 0..count {
        all.push(member.acknowledged.recv_timeout(PATIENCE).expect("it writes"));
    }
}

/// Kills a member and adds what it had acknowledged.
fn kill(mut member: Member, all: &mut Vec<String>) {
    member.child.kill().unwrap();
    member.child.wait().unwrap();
    all.extend(member.acknowledged);
}

/// Writes keys of its own until it is killed, and prints those acknowledged.
async fn write_for_ever(task: &str) {
    let words: Vec<&str> = task.split(' ').collect();
    let [name, home, members] = words[..] else { panic!("{task}") };
    let node = Arc::new(open(Path::new(home), name, members).await);
    let mut writing = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let (node, run) = (node.clone(), format!("{name}{}-{writer}", std::process::id()));
        writing.spawn(async move {
            for number in 0.. {
                let key = format!("w/{run}/{number}");
                put(&node, &key, "x").await;
                // The end of the line tells that it is whole.
                println!("ack {key}.");
            }
        });
    }
    writing.join_all().await;
}

#[test]
fn nothing_acknowledged_is_lost_when_members_are_killed() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Ok(task) = std::env::var(CHILD) {
        return runtime.block_on(write_for_ever(&task));
    }
    let home = tempfile::tempdir().unwrap();
    let members = runtime.block_on(members());
    let start = |name: &'static str| (name, spawn(home.path(), name, &members));
    let mut running: BTreeMap<&str, Member> = NAMES.into_iter().map(start).collect();
    let mut all = Vec::new();
    for round in 0..6 {
        let name = NAMES[round % NAMES.len()];
        take(&running[name], 20 + 13 * round, &mut all);
        let killed = running.remove(name).expect("all members run");
        kill(killed, &mut all);
        // The others go on without it.
        running.values().for_each(|member| take(member, 10, &mut all));
        running.extend([start(name)]);
    }
    // All at once.
    std::mem::take(&mut running).into_values().for_each(|member| kill(member, &mut all));
    runtime.block_on(async {
        let nodes = open_all(home.path(), &members).await;
        let mut states = Vec::new();
        for node in &nodes {
            let found = read(node, "w/").await;
            for key in all.iter().filter_map(|key| key.strip_suffix('.')) {
                assert!(found.contains_key(key), "{key} was acknowledged");
            }
            states.push((node.revision(), node.hash_now().unwrap()));
        }
        assert!(states.windows(2).all(|pair| pair[0] == pair[1]), "{states:?}");
        assert!(all.len() > 300, "too few to prove anything: {}", all.len());
        for node in nodes {
            node.close().await.unwrap();
        }
    });
}
