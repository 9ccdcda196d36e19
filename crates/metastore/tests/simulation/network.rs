//! A network in memory: messages are delayed, lost, duplicated and reordered,
//! and links are cut in one direction or both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use stele_engine::world::{Random, SeededRandom};
use stele_grpc::Pending;
use stele_metastore::consensus::{Inbox, Lane, Transport, Unreached};
use tokio::sync::Notify;

/// After this, a lost message is reported to its sender.
const LOST: Duration = Duration::from_secs(1);

/// The number of messages of one run. A run that sends more goes round in
/// circles, possibly without any time passing.
const MESSAGES_MAX: u64 = 1_000_000;

/// The network of a cluster.
pub struct Network {
    random: SeededRandom,
    state: Mutex<State>,
    messages: AtomicU64,
    /// The bytes of snapshots that have arrived.
    pub snapshot_bytes: AtomicU64,
    exhausted: Notify,
}

#[derive(Default)]
struct State {
    inboxes: BTreeMap<u64, (u64, Arc<dyn Inbox>)>,
    cut: BTreeSet<(u64, u64)>,
    incarnations: u64,
    /// In percent.
    lost: u64,
    duplicated: u64,
    delay_micros_max: u64,
}

impl Network {
    pub fn new(seed: u64) -> Arc<Network> {
        let state = State { delay_micros_max: 3000, ..State::default() };
        Arc::new(Network {
            random: SeededRandom::new(seed),
            state: Mutex::new(state),
            messages: AtomicU64::new(0),
            snapshot_bytes: AtomicU64::new(0),
            exhausted: Notify::new(),
        })
    }

    /// Waits until too many messages were sent.
    pub async fn exhausted(&self) -> String {
        self.exhausted.notified().await;
        format!("in circles: the members sent {MESSAGES_MAX} messages")
    }

    /// Counts a message. Never returns after the last one.
    async fn count(&self) {
        if self.messages.fetch_add(1, Ordering::Relaxed) >= MESSAGES_MAX {
            self.exhausted.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// Returns the transport of a member that starts.
    pub fn transport(self: &Arc<Self>, member: u64) -> Arc<SimTransport> {
        let mut state = self.state.lock();
        state.incarnations += 1;
        let incarnation = state.incarnations;
        Arc::new(SimTransport { network: self.clone(), member, incarnation })
    }

    /// Disconnects a member that crashes.
    pub fn remove(self: &Arc<Self>, member: u64) {
        if self.state.lock().inboxes.remove(&member).is_some() {
            self.reset(member);
        }
    }

    /// Ends all connections of a member, which the others notice soon.
    pub fn reset(self: &Arc<Self>, member: u64) {
        let inboxes: Vec<_> = self.state.lock().inboxes.clone().into_iter().collect();
        for (other, (incarnation, inbox)) in inboxes {
            if other == member || self.loses(member, other) {
                continue;
            }
            let network = self.clone();
            tokio::spawn(async move {
                network.delay().await;
                if network.inbox(other).is_some_and(|(of, _)| of == incarnation) {
                    inbox.disconnected(member);
                }
            });
        }
    }

    /// Cuts the link from one member to another.
    pub fn cut(&self, from: u64, to: u64) {
        self.state.lock().cut.insert((from, to));
    }

    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.cut.clear();
        (state.lost, state.duplicated, state.delay_micros_max) = (0, 0, 3000);
    }

    pub fn degrade(&self, lost: u64, duplicated: u64, delay_micros_max: u64) {
        let mut state = self.state.lock();
        (state.lost, state.duplicated, state.delay_micros_max) =
            (lost, duplicated, delay_micros_max);
    }

    async fn delay(&self) {
        let max = self.state.lock().delay_micros_max;
        tokio::time::sleep(Duration::from_micros(self.random.next_u64() % max.max(1))).await;
    }

    /// Never returns in a run of a member that has crashed: it sends and
    /// receives nothing more.
    async fn wait_if_crashed(&self, member: u64, incarnation: u64) {
        if self.inbox(member).is_none_or(|(of, _)| of != incarnation) {
            std::future::pending::<()>().await;
        }
    }

    fn loses(&self, from: u64, to: u64) -> bool {
        let state = self.state.lock();
        state.cut.contains(&(from, to)) || self.random.next_u64() % 100 < state.lost
    }

    fn duplicates(&self) -> bool {
        self.random.next_u64() % 100 < self.state.lock().duplicated
    }

    fn inbox(&self, member: u64) -> Option<(u64, Arc<dyn Inbox>)> {
        self.state.lock().inboxes.get(&member).cloned()
    }
}

/// The transport of one run of a member.
pub struct SimTransport {
    network: Arc<Network>,
    member: u64,
    incarnation: u64,
}

impl Transport for SimTransport {
    fn call(
        &self,
        to: u64,
        lane: Lane,
        request: Bytes,
    ) -> Pending<'static, Result<Bytes, Unreached>> {
        let (network, from, incarnation) = (self.network.clone(), self.member, self.incarnation);
        Box::pin(async move {
            network.count().await;
            network.delay().await;
            network.wait_if_crashed(from, incarnation).await;
            if network.loses(from, to) {
                tokio::time::sleep(LOST).await;
                return Err(Unreached::Unknown("the request was lost".into()));
            }
            let Some((receiver, inbox)) = network.inbox(to) else {
                return Err(Unreached::NotSent("the member is down".into()));
            };
            if lane == Lane::Snapshot {
                network.snapshot_bytes.fetch_add(request.len() as u64, Ordering::Relaxed);
            }
            // A connection delivers each request once; only the library's own
            // messages may arrive twice.
            if lane != Lane::Client && network.duplicates() {
                let (network, again) = (network.clone(), inbox.receive(from, request.clone()));
                tokio::spawn(async move {
                    network.delay().await;
                    again.await
                });
            }
            // The receiver goes on when the caller has given up.
            let response = tokio::spawn(inbox.receive(from, request)).await;
            let response = response.map_err(|error| Unreached::Unknown(error.to_string()))?;
            network.delay().await;
            let restarted = network.inbox(to).is_none_or(|(of, _)| of != receiver);
            if restarted || network.loses(to, from) {
                tokio::time::sleep(LOST).await;
                return Err(Unreached::Unknown("the response was lost".into()));
            }
            network.wait_if_crashed(from, incarnation).await;
            Ok(response)
        })
    }

    fn serve(&self, inbox: Arc<dyn Inbox>) {
        self.network.state.lock().inboxes.insert(self.member, (self.incarnation, inbox));
    }

    fn close(&self) {
        if self.network.inbox(self.member).is_some_and(|(of, _)| of == self.incarnation) {
            self.network.remove(self.member);
        }
    }
}
