//! The native API as its client sees it, over a socket.

mod member;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use member::{Member, soon};
use stele_engine::world::{Random, SeededRandom};
use stele_metastore::client::{At, Change, Error, Mode, Range, RetryOptions, Transaction};
use stele_metastore::native::Native;
use stele_metastore::native::proto::AcquireRequest;
use stele_metastore::native::proto::metastore_server::Metastore as _;
use stele_metastore::node::ExecuteLimits;

fn number(value: Option<Bytes>) -> u64 {
    value.map_or(0, |value| std::str::from_utf8(&value).unwrap().parse().unwrap())
}

async fn add_one(transaction: Transaction, key: &'static str) -> Result<u64, Error> {
    let next = number(transaction.get(key).await?) + 1;
    transaction.put(key, next.to_string());
    Ok(next)
}

#[tokio::test]
async fn what_is_put_is_got_and_what_is_deleted_is_gone() {
    let member = Member::start().await;
    let client = member.client().await;
    let revision = client.put("a/1", "one").await.unwrap();
    client.put("a/2", "two").await.unwrap();
    client.put("b", "three").await.unwrap();
    let kv = client.get("a/1", 0).await.unwrap().unwrap();
    assert_eq!((&kv.value[..], kv.mod_revision, kv.version), (&b"one"[..], revision, 1));
    let page = client.get_range(&Range::prefix("a/"), 0, 1).await.unwrap();
    assert_eq!((page.kvs.len(), page.more, page.count), (1, true, 2));
    assert_eq!(client.delete(&Range::between("a/2", "c")).await.unwrap(), 2);
    assert_eq!(client.get("b", 0).await.unwrap(), None);
    assert_eq!(client.get("b", revision + 2).await.unwrap().unwrap().value, "three");
    let refused = client.put("", "empty").await.unwrap_err();
    assert!(refused.to_string().contains("key is not provided"), "{refused}");
    let future = client.snapshot(At::Revision(1000)).await.unwrap_err();
    assert!(future.to_string().contains("future revision"), "{future}");
}

#[tokio::test]
async fn a_full_read_at_any_retained_revision_is_the_copy_that_was_recorded_then() {
    let member = Member::start().await;
    let client = member.client().await;
    let random = SeededRandom::new(5);
    let mut model: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    let mut recorded = Vec::new();
    for step in 0..150 {
        let key = Bytes::from(format!("k{}", random.next_u64() % 20));
        if random.next_u64().is_multiple_of(3) {
            client.delete(&Range::key(key.clone())).await.unwrap();
            model.remove(&key);
        } else {
            let value = Bytes::from(format!("v{step}"));
            client.put(key.clone(), value.clone()).await.unwrap();
            model.insert(key, value);
        }
        recorded.push((client.snapshot(At::Newest).await.unwrap(), model.clone()));
    }
    // Compact makes history unreadable only for etcd's clients.
    client.compact(recorded[100].0, false).await.unwrap();
    for (revision, copy) in recorded {
        let mut read = BTreeMap::new();
        let mut each = |kv: stele_metastore::client::KeyValue| {
            read.insert(kv.key, kv.value);
        };
        assert_eq!(client.read(&Range::all(), revision, &mut each).await.unwrap(), revision);
        assert_eq!(read, copy, "at revision {revision}");
    }
}

#[tokio::test]
async fn a_transaction_runs_again_when_what_it_read_has_changed() {
    let member = Member::start().await;
    let client = member.client().await;
    let (attempts, other) = (AtomicU64::new(0), client.clone());
    let (value, revision) = client
        .transact(async |transaction: Transaction| {
            let found = transaction.get_range(Range::prefix("a/")).await?;
            if attempts.fetch_add(1, Ordering::Relaxed) == 0 {
                // Put and deleted again, so that the newest state does not show
                // it.
                other.put("a/x", "here").await?;
                other.delete(&Range::key("a/x")).await?;
            }
            transaction.put("sum", found.len().to_string());
            assert_eq!(transaction.get("sum").await?.unwrap(), "0", "it reads its own writes");
            Ok(found.len())
        })
        .await
        .unwrap();
    assert_eq!((value, attempts.load(Ordering::Relaxed)), (0, 2));
    assert_eq!(client.get("sum", 0).await.unwrap().unwrap().mod_revision, revision);
    // Changes of keys that were not read do not conflict.
    let once = RetryOptions { attempts_max: 1, ..RetryOptions::default() };
    client
        .transact_with(once, async |transaction: Transaction| {
            transaction.get("sum").await?;
            client.put("elsewhere", "x").await?;
            transaction.put("sum", "1");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_clients_on_one_key_all_get_through() {
    const CLIENTS: u64 = 64;
    const ADDITIONS: u64 = 3;
    let member = Member::start().await;
    let attempts_most = Arc::new(AtomicU64::new(0));
    let mut running = Vec::new();
    for _ in 0..CLIENTS {
        let (client, most) = (member.client().await, attempts_most.clone());
        running.push(tokio::spawn(async move {
            for _ in 0..ADDITIONS {
                let attempts = AtomicU64::new(0);
                let body = |transaction| {
                    attempts.fetch_add(1, Ordering::Relaxed);
                    add_one(transaction, "counter")
                };
                client.transact(body).await.unwrap();
                most.fetch_max(attempts.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }));
    }
    for one in running {
        soon(one).await.unwrap();
    }
    let client = member.client().await;
    let counted = client.get("counter", 0).await.unwrap().map(|kv| kv.value);
    assert_eq!(number(counted), CLIENTS * ADDITIONS);
    println!("at most {} attempts", attempts_most.load(Ordering::Relaxed));
}

#[tokio::test]
async fn every_limit_of_a_transaction_names_itself() {
    let limits = ExecuteLimits {
        reads_max: 2,
        writes_max: 2,
        bytes_max: 200,
        age_max: Duration::from_secs(300),
    };
    let member = Member::start_with(|settings| settings.execute = limits).await;
    let client = member.client().await;
    let refusal = async |reads: usize, writes: usize, bytes: usize| {
        let body = async |transaction: Transaction| {
            for n in 0..reads {
                transaction.get(format!("r{n}")).await?;
            }
            (0..writes).for_each(|n| transaction.put(format!("w{n}"), vec![0; bytes]));
            Ok(())
        };
        client.transact(body).await.unwrap_err().to_string()
    };
    assert!(refusal(3, 1, 0).await.starts_with("ranges read by a transaction: 3 is over"));
    assert!(refusal(0, 3, 0).await.starts_with("writes of a transaction: 3 is over"));
    assert!(refusal(0, 1, 200).await.starts_with("bytes written by a transaction: 234 is over"));
}

#[tokio::test]
async fn a_watch_tells_every_change_in_order_from_the_revision_on() {
    let member = Member::start().await;
    let client = member.client().await;
    let first = client.put("w/a", "1").await.unwrap();
    client.put("elsewhere", "x").await.unwrap();
    let mut watch = client.watch(&Range::prefix("w/"), first).await.unwrap();
    client.put("w/a", "2").await.unwrap();
    client.delete(&Range::prefix("w/")).await.unwrap();
    let mut received = Vec::new();
    for _ in 0..3 {
        let event = soon(watch.next()).await.unwrap();
        let change = match event.change.unwrap() {
            Change::Put(kv) => String::from_utf8(kv.value.to_vec()).unwrap(),
            Change::Deleted(_) => "deleted".to_string(),
            Change::Lock(_) => "lock".to_string(),
        };
        received.push((event.revision - first, change, event.previous_value));
    }
    let before = |value: &'static str| Some(Bytes::from(value));
    let expected = [
        (0, "1".to_string(), None),
        (2, "2".to_string(), before("1")),
        (3, "deleted".to_string(), before("2")),
    ];
    assert_eq!(received, expected);
}

#[tokio::test]
async fn ten_thousand_renewals_write_nothing_to_the_log() {
    let member = Member::start().await;
    let client = member.client().await;
    let (id, ttl) = client.grant(60).await.unwrap();
    assert_eq!(ttl, 60);
    let before = member.log_stats();
    for _ in 0..10_000 {
        client.keep_alive(id).await.unwrap();
    }
    assert_eq!(member.log_stats(), before);
    client.revoke(id).await.unwrap();
    let gone = client.keep_alive(id).await.unwrap_err();
    assert!(matches!(gone, Error::SessionLost(_)), "{gone}");
}

#[tokio::test]
async fn locks_go_round_in_order_with_rising_tokens() {
    let member = Member::start().await;
    let client = member.client().await;
    let sessions = [
        client.session(60).await.unwrap(),
        client.session(60).await.unwrap(),
        client.session(60).await.unwrap(),
    ];
    let first = sessions[0].acquire("lock", Mode::Exclusive).await.unwrap();
    assert!(sessions[1].try_acquire("lock", Mode::Shared).await.unwrap().is_none());
    let mut waiting = Vec::new();
    for (session, waiters) in sessions[1..].iter().zip(1..) {
        let session = session.clone();
        waiting.push(tokio::spawn(async move { session.acquire("lock", Mode::Exclusive).await }));
        member.until(|lock| lock.waiters.len() == waiters, "lock").await;
    }
    let token = first.token();
    first.release().await.unwrap();
    let second = soon(waiting.remove(0)).await.unwrap().unwrap();
    assert!(second.token() > token);
    assert_eq!(second.session().id(), sessions[1].id());
    // The session ends, and its lock goes to the next waiter.
    let (third, ended) = (waiting.remove(0), sessions[1].id());
    client.revoke(ended).await.unwrap();
    let third = soon(third).await.unwrap().unwrap();
    assert!(third.token() > second.token());
    let lock = client.lock("lock").await.unwrap();
    assert_eq!(
        lock.holders.iter().map(|holder| holder.client_id).collect::<Vec<_>>(),
        [sessions[2].id()]
    );
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_the_queue() {
    let member = Member::start().await;
    let client = member.client().await;
    let (one, two) = (client.session(60).await.unwrap(), client.session(60).await.unwrap());
    let held = one.acquire("lock", Mode::Exclusive).await.unwrap();
    let waiting = tokio::spawn(async move { two.acquire("lock", Mode::Exclusive).await });
    member.until(|lock| lock.waiters.len() == 1, "lock").await;
    waiting.abort();
    member.until(|lock| lock.waiters.is_empty(), "lock").await;
    held.release().await.unwrap();
    member.until(|lock| lock.holders.is_empty(), "lock").await;
}

#[tokio::test]
async fn an_attempt_that_does_not_wait_disturbs_no_waiting_call_of_its_session() {
    let member = Member::start().await;
    let client = member.client().await;
    let (one, two) = (client.session(60).await.unwrap(), client.session(60).await.unwrap());
    let held = one.acquire("lock", Mode::Exclusive).await.unwrap();
    let waiter = two.clone();
    let waiting = tokio::spawn(async move { waiter.acquire("lock", Mode::Exclusive).await });
    member.until(|lock| lock.waiters.len() == 1, "lock").await;
    assert!(two.try_acquire("lock", Mode::Exclusive).await.unwrap().is_none());
    // Cancelling a second call of the session does not affect the first.
    let waiter = two.clone();
    let second = tokio::spawn(async move { waiter.acquire("lock", Mode::Exclusive).await });
    member.until(|lock| lock.waiters.len() == 2, "lock").await;
    second.abort();
    member.until(|lock| lock.waiters.len() == 1, "lock").await;
    held.release().await.unwrap();
    let held = soon(waiting).await.unwrap().unwrap();
    assert_eq!(held.session().id(), two.id());
    assert!(!two.is_lost());
}

#[tokio::test]
async fn a_release_ends_a_waiting_call_without_losing_the_session() {
    let member = Member::start().await;
    let client = member.client().await;
    let (one, two) = (client.session(60).await.unwrap(), client.session(60).await.unwrap());
    let held = one.acquire("lock", Mode::Exclusive).await.unwrap();
    let waiter = two.clone();
    let waiting = tokio::spawn(async move { waiter.acquire("lock", Mode::Exclusive).await });
    member.until(|lock| lock.waiters.len() == 1, "lock").await;
    client.release("lock", two.id()).await.unwrap();
    let ended = soon(waiting).await.unwrap().err().unwrap();
    assert!(!matches!(ended, Error::SessionLost(_)), "{ended}");
    assert_eq!(client.keep_alive(two.id()).await.unwrap(), 60);
    held.release().await.unwrap();
}

#[tokio::test]
async fn an_acquire_cancelled_before_its_answer_leaves_nothing_behind() {
    let member = Member::start().await;
    let client = member.client().await;
    let session = client.session(60).await.unwrap();
    let api = Native::new(member.node().clone());
    let mut attempts = 0;
    let before = loop {
        let before = member.node().revision();
        let (key, client_id) = (Bytes::from("lock"), session.id());
        let request = AcquireRequest { key, client_id, shared: false, no_wait: false };
        let mut call = api.acquire(tonic::Request::new(request));
        tokio::select! {
            biased;
            // On a fast disk the grant may be there already.
            _ = &mut call => client.release("lock", session.id()).await.unwrap(),
            () = std::future::ready(()) => break before,
        };
        attempts += 1;
        assert!(attempts < 1000, "no acquire waits for its proposal");
    };
    // Granted, and released again.
    let settled = async {
        while member.node().revision() < before + 2 {
            tokio::task::yield_now().await;
        }
    };
    soon(settled).await;
    let lock = client.lock("lock").await.unwrap();
    assert!(lock.holders.is_empty() && lock.waiters.is_empty(), "{lock:?}");
}

#[tokio::test]
async fn a_transaction_that_requires_a_lock_is_refused_when_it_is_not_held_any_more() {
    let member = Member::start().await;
    let client = member.client().await;
    let session = client.session(60).await.unwrap();
    let held = session.acquire("lock", Mode::Exclusive).await.unwrap();
    let write = async |transaction: Transaction| {
        transaction.require(&held);
        transaction.put("guarded", "x");
        Ok(())
    };
    client.transact(write).await.unwrap();
    held.clone().release().await.unwrap();
    let again = session.acquire("lock", Mode::Exclusive).await.unwrap();
    assert!(again.token() > held.token());
    let refused = client.transact(write).await.unwrap_err();
    assert!(refused.to_string().contains("does not hold the lock"), "{refused}");
}

#[tokio::test]
async fn a_lost_session_is_reported_to_its_owner() {
    let member = Member::start().await;
    let client = member.client().await;
    let session = client.session(2).await.unwrap();
    assert!(!session.is_lost());
    client.revoke(session.id()).await.unwrap();
    let why = soon(session.lost()).await;
    assert!(why.contains("lease not found"), "{why}");
    let refused = session.acquire("lock", Mode::Exclusive).await.err().unwrap();
    assert!(matches!(refused, Error::SessionLost(_)), "{refused}");
}

#[tokio::test]
async fn changes_of_locks_are_watched_and_survive_a_restart() {
    let mut member = Member::start().await;
    let client = member.client().await;
    let mut watch = client.watch(&Range::key("lock"), 0).await.unwrap();
    let session = client.session(60).await.unwrap();
    let held = session.acquire("lock", Mode::Shared).await.unwrap();
    let event = soon(watch.next()).await.unwrap();
    let Some(Change::Lock(lock)) = event.change else { panic!("{event:?}") };
    assert_eq!((lock.holders[0].token, lock.holders[0].shared), (held.token(), true));
    member.restart().await;
    let client = member.client().await;
    let lock = client.lock("lock").await.unwrap();
    assert_eq!(lock.holders[0].client_id, session.id());
    assert_eq!(lock.holders[0].token, held.token());
    assert_eq!(client.keep_alive(session.id()).await.unwrap(), 60);
}

struct Wakes(std::sync::atomic::AtomicUsize);

impl std::task::Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_call_that_waits_for_a_lock_is_woken_by_changes_of_that_lock_alone() {
    let member = Member::start().await;
    let client = member.client().await;
    let holder = client.session(60).await.unwrap();
    let lock = holder.acquire("lock", Mode::Exclusive).await.unwrap();
    let waiter = client.session(60).await.unwrap();
    let native = Native::new(member.node().clone());
    let request = AcquireRequest {
        key: "lock".into(),
        client_id: waiter.id(),
        shared: false,
        no_wait: false,
    };
    let mut acquiring = native.acquire(tonic::Request::new(request));
    let wakes = Arc::new(Wakes(Default::default()));
    let waker = std::task::Waker::from(wakes.clone());
    let mut context = std::task::Context::from_waker(&waker);
    let woken = || wakes.0.load(std::sync::atomic::Ordering::SeqCst);
    assert!(acquiring.as_mut().poll(&mut context).is_pending());
    member.until(|lock| lock.waiters.len() == 1, "lock").await;
    // Proposals are answered in order, so the call's own has been answered when
    // this one is.
    client.put("other", "").await.unwrap();
    assert!(acquiring.as_mut().poll(&mut context).is_pending());
    let before = woken();
    for at in 0..100 {
        client.put(format!("other/{at}"), "").await.unwrap();
        let other = holder.acquire(format!("lock/{at}"), Mode::Shared).await.unwrap();
        other.release().await.unwrap();
    }
    assert_eq!(woken(), before, "200 changes of other keys and locks");
    lock.release().await.unwrap();
    soon(async {
        while woken() == before {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let granted = acquiring.await.unwrap().into_inner();
    assert!(granted.granted);
}
