//! Every coordinator keeps the same contract: the simulated one, Stele's metastore within
//! the process and over the network, and etcd.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use stele_cluster::Etcd;
use stele_engine::world::sim::{Agenda, SimProcess};
use stele_grpc::Tls;
use stele_tables::coordinate::{
    Changed, Compare, Coordinator, LeaseId, Op, SimEtcd, Transacted, Transaction, Unreachable, ask,
};

use super::servers::{Metastore, RealEtcd};

/// A lease that etcd grants with the election timeout of these tests.
const TTL: Duration = Duration::from_secs(2);

type Pause<'a> = &'a dyn Fn() -> Pin<Box<dyn Future<Output = ()>>>;

/// What every coordinator does. `pause` waits a moment between two samples.
async fn contract(etcd: Arc<dyn Coordinator>, pause: Pause<'_>) {
    transactions(&*etcd).await;
    ranges(&*etcd).await;
    watches(&*etcd, pause).await;
    leases(&*etcd, pause).await;
}

async fn transact(
    etcd: &dyn Coordinator,
    when: Vec<Compare>,
    then: Vec<Op>,
) -> Result<Transacted, Unreachable> {
    etcd.run(Transaction { when, then, otherwise: vec![Op::Get(b"k".to_vec())] }).await
}

fn put(value: &'static str) -> Vec<Op> {
    vec![Op::put(b"k".to_vec(), value)]
}

async fn transactions(etcd: &dyn Coordinator) {
    let key = b"k".to_vec();
    let first = transact(etcd, vec![Compare::Absent(key.clone())], put("1")).await.unwrap();
    assert!(first.applied && first.found.is_empty());
    let again = transact(etcd, vec![Compare::Absent(key.clone())], put("2")).await.unwrap();
    assert!(!again.applied && again.found[0].value == "1");
    assert_eq!((again.found[0].created, again.found[0].modified), (first.revision, first.revision));
    let modified = vec![Compare::Modified(key.clone(), first.revision)];
    let second = transact(etcd, modified.clone(), put("2")).await.unwrap();
    assert!(second.applied && second.revision > first.revision);
    assert!(!transact(etcd, modified, put("3")).await.unwrap().applied);
    let found = etcd.get(key.clone()).await.unwrap().unwrap();
    assert_eq!((&found.value[..], found.lease), (&b"2"[..], None));
    assert_eq!((found.created, found.modified), (first.revision, second.revision));
    let created = vec![Compare::Created(key.clone(), first.revision)];
    let deleted = transact(etcd, created, vec![Op::Delete(key.clone())]).await.unwrap();
    assert!(deleted.applied && etcd.get(key).await.unwrap().is_none());
}

async fn ranges(etcd: &dyn Coordinator) {
    let key = |name: &str| format!("r/{name}").into_bytes();
    let names = ["", "a", "b\u{0}", "\u{7f}"];
    let then = names.iter().map(|name| Op::put(key(name), name.to_string())).collect();
    let others = vec![Op::put(b"r".to_vec(), ""), Op::put(b"r0".to_vec(), "")];
    assert!(etcd.run(Transaction { then, ..Transaction::default() }).await.unwrap().applied);
    etcd.run(Transaction { then: others, ..Transaction::default() }).await.unwrap();
    let found = etcd.get_all(b"r/".to_vec()).await.unwrap();
    let found: Vec<_> = found.into_iter().map(|it| (it.key, it.value)).collect();
    assert_eq!(found, names.map(|name| (key(name), name.to_string().into())));
    // Several reads of one transaction are at one moment, in the order of the steps.
    let then = vec![Op::Get(b"r0".to_vec()), Op::GetAll(b"r/".to_vec()), Op::Get(b"none".to_vec())];
    let both = etcd.run(Transaction { then, ..Transaction::default() }).await.unwrap();
    assert_eq!((both.found.len(), &both.found[0].key[..]), (5, &b"r0"[..]));
}

async fn watches(etcd: &dyn Coordinator, pause: Pause<'_>) {
    let put = |value: &'static str| Transaction {
        then: vec![Op::put(b"w".to_vec(), value), Op::put(b"w2".to_vec(), "other")],
        ..Transaction::default()
    };
    let first = etcd.run(put("1")).await.unwrap();
    let second = etcd.run(put("2")).await.unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let each = move |changed: Changed| {
        assert_eq!(changed.key, b"w");
        noted.lock().push(changed.value.map(|value| (value.value, value.modified)));
    };
    let watch = etcd.watch(b"w".to_vec(), first.revision, Box::new(each));
    let last = || seen.lock().last().cloned();
    while last() != Some(Some(("2".into(), second.revision))) {
        pause().await;
    }
    let third = etcd.run(put("3")).await.unwrap();
    let then = vec![Op::Delete(b"w".to_vec())];
    etcd.run(Transaction { then, ..Transaction::default() }).await.unwrap();
    while last() != Some(None) {
        pause().await;
    }
    let expected = [Some(("2".into(), second.revision)), Some(("3".into(), third.revision)), None];
    assert_eq!(*seen.lock(), expected);
    drop(watch);
    etcd.run(put("4")).await.unwrap();
    for _ in 0..3 {
        pause().await;
    }
    assert_eq!(seen.lock().len(), 3, "a watch ends when it is dropped");
}

async fn leases(etcd: &dyn Coordinator, pause: Pause<'_>) {
    let lease = ask(|done| etcd.grant(TTL, done)).await.unwrap();
    let op = |lease| Op::Put { key: b"l".to_vec(), value: "v".into(), lease: Some(lease) };
    let leased = |lease| Transaction {
        then: vec![op(lease)],
        otherwise: vec![Op::Get(b"l".to_vec())],
        ..Transaction::default()
    };
    assert!(etcd.run(leased(lease)).await.unwrap().applied);
    assert_eq!(etcd.get(b"l".to_vec()).await.unwrap().unwrap().lease, Some(lease));
    assert!(ask(|done| etcd.keep_alive(lease, done)).await.unwrap());
    while etcd.get(b"l".to_vec()).await.unwrap().is_some() {
        pause().await;
    }
    assert!(!ask(|done| etcd.keep_alive(lease, done)).await.unwrap());
    let late = etcd.run(leased(lease)).await.unwrap();
    assert!(!late.applied, "a lease that has lapsed protects nothing");
    let unknown = etcd.run(leased(LeaseId(12345))).await.unwrap();
    assert!(!unknown.applied && unknown.found.is_empty());
    let lease = ask(|done| etcd.grant(TTL, done)).await.unwrap();
    assert!(etcd.run(leased(lease)).await.unwrap().applied);
    ask(|done| etcd.revoke(lease, done)).await.unwrap();
    assert!(etcd.get(b"l".to_vec()).await.unwrap().is_none());
    ask(|done| etcd.revoke(lease, done)).await.unwrap();
}

fn pause() -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(tokio::time::sleep(Duration::from_millis(20)))
}

#[test]
fn the_simulated_coordinator_keeps_the_contract() {
    let agenda = Agenda::new(1);
    let etcd = SimEtcd::new(&agenda);
    let process = SimProcess::start(&agenda);
    let sleeper = process.clone();
    let pause = move || -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(sleeper.sleep(Duration::from_millis(100)))
    };
    let mut running = pin!(contract(etcd.connect(&process), &pause));
    let mut context = Context::from_waker(Waker::noop());
    while running.as_mut().poll(&mut context).is_pending() {
        assert!(agenda.run_next(), "somebody waits for nothing");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metastore_of_this_process_keeps_the_contract() {
    let metastore = Metastore::start().await;
    contract(Arc::new(Etcd::over(metastore.transport(), "/in/process")), &pause).await;
    contract(Arc::new(Etcd::over(metastore.transport(), "")), &pause).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_metastore_on_the_network_keeps_the_contract_although_the_first_server_is_dead() {
    let metastore = Metastore::start().await;
    let (address, _serving) = metastore.serve().await;
    // Nothing listens there.
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let addresses = [dead.to_string(), address.to_string()];
    let etcd = Etcd::connect(&addresses, "/p", &Tls::default()).unwrap();
    assert!(etcd_is_reached(&etcd).await);
    contract(Arc::new(etcd), &pause).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_etcd_keeps_the_contract() {
    let Some(server) = RealEtcd::start() else {
        eprintln!("skipped: there is no etcd (put one on the path, or name it in STELE_ETCD)");
        return;
    };
    let etcd = Etcd::connect(std::slice::from_ref(&server.address), "/p", &Tls::default()).unwrap();
    while !etcd_is_reached(&etcd).await {
        pause().await;
    }
    contract(Arc::new(etcd), &pause).await;
}

async fn etcd_is_reached(etcd: &dyn Coordinator) -> bool {
    etcd.get(b"any".to_vec()).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_without_an_answer_is_unknown_and_is_not_sent_again() {
    let metastore = Metastore::start().await;
    let (address, serving) = metastore.serve().await;
    let etcd = Etcd::connect(&[address.to_string()], "", &Tls::default()).unwrap();
    assert!(transact(&etcd, vec![], put("1")).await.unwrap().applied);
    serving.abort();
    let _ = serving.await;
    let lost = transact(&etcd, vec![], put("2")).await;
    assert!(lost.is_err(), "{lost:?}");
    let other: Arc<dyn Coordinator> = Arc::new(Etcd::over(metastore.transport(), ""));
    let found = other.get(b"k".to_vec()).await.unwrap().unwrap();
    assert_eq!(found.value, "1", "nobody sent it to another server");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_continues_at_another_server_and_misses_nothing() {
    let metastore = Metastore::start().await;
    let ((first, serving), (second, _also)) = (metastore.serve().await, metastore.serve().await);
    let etcd =
        Etcd::connect(&[first.to_string(), second.to_string()], "", &Tls::default()).unwrap();
    let other: Arc<dyn Coordinator> = Arc::new(Etcd::over(metastore.transport(), ""));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let each = move |changed: Changed| noted.lock().push(changed.value.unwrap().value);
    let started = transact(&*other, vec![], put("0")).await.unwrap().revision;
    let _watch = etcd.watch(b"k".to_vec(), started, Box::new(each));
    transact(&*other, vec![], put("1")).await.unwrap();
    while seen.lock().is_empty() {
        pause().await;
    }
    serving.abort();
    let _ = serving.await;
    transact(&*other, vec![], put("2")).await.unwrap();
    transact(&*other, vec![], put("3")).await.unwrap();
    while seen.lock().len() < 3 {
        pause().await;
    }
    assert_eq!(*seen.lock(), ["1", "2", "3"]);
}
