//! Clients of all members that write and read until they are stopped, and what they saw.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stele_metastore::client::{At, Client, KeyValue, Range};
use tokio::task::JoinSet;

use super::register::{self, Call, Kind};
use crate::support::TIMEOUT;

const CLIENTS: u64 = 4;
const REGISTERS: u64 = 5;
/// A call without an answer by then has an unknown outcome.
const CALL_MAX: Duration = Duration::from_secs(2);
/// The pause after a call that failed.
const FAILED_PAUSE: Duration = Duration::from_millis(5);

/// Running clients.
pub struct Load {
    shared: Arc<Shared>,
    clients: JoinSet<Seen>,
}

struct Shared {
    members: Vec<Client>,
    begun: Instant,
    stopped: AtomicBool,
    acknowledged: AtomicU64,
}

/// What a client saw.
#[derive(Default)]
pub struct Seen {
    /// Keys whose writes were acknowledged.
    acknowledged: Vec<String>,
    registers: BTreeMap<u64, Vec<Call>>,
}

impl Load {
    pub fn start(members: Vec<Client>) -> Load {
        let (stopped, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
        let shared = Arc::new(Shared { members, begun: Instant::now(), stopped, acknowledged });
        let clients = (1..=CLIENTS).map(|client| shared.clone().run(client)).collect();
        Load { shared, clients }
    }

    /// Waits until more writes are acknowledged.
    pub async fn go_on(&self, why: &str) {
        let target = self.shared.acknowledged.load(Ordering::SeqCst) + 20;
        let begun = Instant::now();
        while self.shared.acknowledged.load(Ordering::SeqCst) < target {
            assert!(begun.elapsed() < TIMEOUT, "no writes are acknowledged: {why}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Stops the clients, and checks that every member has everything that was
    /// acknowledged and that the registers were linearizable.
    pub async fn finish(self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let mut seen = self.clients.join_all().await;
        for member in &self.shared.members {
            let mut last = Seen::default();
            let begun = Instant::now();
            for register in 0..REGISTERS {
                while self.shared.read(member, register, &mut last).await.is_err() {
                    assert!(begun.elapsed() < TIMEOUT, "a member does not answer");
                }
            }
            seen.push(last);
            let mut found = BTreeSet::new();
            let mut each = |kv: KeyValue| {
                found.insert(String::from_utf8(kv.key.to_vec()).unwrap());
            };
            let revision = member.snapshot(At::Newest).await.unwrap();
            member.read(&Range::prefix("w/"), revision, &mut each).await.unwrap();
            for key in seen.iter().flat_map(|seen| &seen.acknowledged) {
                assert!(found.contains(key), "{key} was acknowledged");
            }
        }
        let keys: usize = seen.iter().map(|seen| seen.acknowledged.len()).sum();
        let mut calls = 0;
        for register in 0..REGISTERS {
            let history = seen.iter().filter_map(|seen| seen.registers.get(&register));
            let history: Vec<Call> = history.flatten().copied().collect();
            register::check(&history).unwrap_or_else(|why| panic!("register {register}: {why}"));
            calls += history.len();
        }
        assert!(keys > 20 && calls > 100, "too few to prove anything: {keys} keys, {calls} calls");
    }
}

impl Shared {
    async fn run(self: Arc<Self>, client: u64) -> Seen {
        let (mut seen, mut random) = (Seen::default(), client);
        for number in 1.. {
            if self.stopped.load(Ordering::SeqCst) {
                break;
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let draw = random >> 33;
            let member = &self.members[(draw % self.members.len() as u64) as usize];
            let register = draw / 7 % REGISTERS;
            let value = client << 32 | number;
            let called = match draw / 64 % 5 {
                0 => self.write_key(member, value, &mut seen).await,
                1 | 2 => self.write(member, register, value, &mut seen).await,
                _ => self.read(member, register, &mut seen).await,
            };
            if called.is_err() {
                tokio::time::sleep(FAILED_PAUSE).await;
            }
        }
        seen
    }

    /// Writes a key of its own.
    async fn write_key(&self, member: &Client, value: u64, seen: &mut Seen) -> Result<(), ()> {
        let key = format!("w/{value}");
        within(member.put(key.clone(), "x")).await?;
        seen.acknowledged.push(key);
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn write(
        &self,
        member: &Client,
        register: u64,
        value: u64,
        seen: &mut Seen,
    ) -> Result<(), ()> {
        let begun = self.now();
        let put = within(member.put(format!("r/{register}"), value.to_string())).await;
        let ended = if put.is_ok() { self.now() } else { u64::MAX };
        let call = Call { begun, ended, kind: Kind::Write(value) };
        seen.registers.entry(register).or_default().push(call);
        self.acknowledged.fetch_add(u64::from(put.is_ok()), Ordering::SeqCst);
        put.map(drop)
    }

    async fn read(&self, member: &Client, register: u64, seen: &mut Seen) -> Result<(), ()> {
        let begun = self.now();
        let found = within(member.get(format!("r/{register}"), 0)).await?;
        let value = found.map_or(0, |kv| {
            std::str::from_utf8(&kv.value).unwrap().parse().expect("the value is a number")
        });
        let call = Call { begun, ended: self.now(), kind: Kind::Read(value) };
        seen.registers.entry(register).or_default().push(call);
        Ok(())
    }

    /// Returns the time in nanoseconds, never 0.
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap() + 1
    }
}

/// Returns the answer of a call that succeeds in time.
async fn within<T, E>(call: impl Future<Output = Result<T, E>>) -> Result<T, ()> {
    tokio::time::timeout(CALL_MAX, call).await.map_err(drop)?.map_err(drop)
}
