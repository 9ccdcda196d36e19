//! Clients: they append and read, one call after the other, and note what they saw.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_channel::oneshot;
use parking_lot::Mutex;
use stele_engine::world::Clock;
use stele_engine::world::sim::SimProcess;

use crate::history::{Call, What};
use crate::server::{OnReply, Reply};
use crate::simulation::Cluster;

const ROWS: u8 = 2;
/// The time after which a client stops waiting for an answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The longest time that a message between client and server takes.
const NETWORK_DELAY_MAX: Duration = Duration::from_millis(50);

pub struct Clients {
    shared: Arc<Shared>,
}

struct Shared {
    cluster: Arc<Cluster>,
    calls: Mutex<Vec<Call>>,
    numbers: AtomicU64,
    is_stopped: AtomicBool,
}

impl Clients {
    pub fn start(cluster: &Arc<Cluster>) -> Clients {
        let shared = Arc::new(Shared {
            cluster: cluster.clone(),
            calls: Mutex::default(),
            numbers: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
        });
        for _ in 0..cluster.scenario.clients {
            let process = SimProcess::start(&cluster.agenda);
            process.spawn(shared.clone().work(process.clone()));
        }
        Clients { shared }
    }

    pub fn stop(&self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
    }

    pub fn rows(&self) -> u8 {
        ROWS
    }

    pub fn calls(&self) -> Vec<Call> {
        self.shared.calls.lock().clone()
    }

    pub fn reads(&self) -> usize {
        let calls = self.shared.calls.lock();
        calls.iter().filter(|call| matches!(call.what, What::Read(_))).count()
    }

    /// Reads a row until there is an answer. `None` if there is none in time.
    pub fn last_read(&self, row: u8, time: Duration) -> Option<Vec<u64>> {
        let found = Arc::new(Mutex::new(None));
        let process = SimProcess::start(&self.shared.cluster.agenda);
        let (shared, slot, sleeper) = (self.shared.clone(), found.clone(), process.clone());
        process.spawn(async move {
            loop {
                if let Some(read) = shared.read(&sleeper, row).await {
                    *slot.lock() = Some(read);
                    return;
                }
                sleeper.sleep(Duration::from_millis(100)).await;
            }
        });
        self.shared.cluster.agenda.run_for(time, || found.lock().is_some());
        found.lock().take()
    }
}

impl Shared {
    async fn work(self: Arc<Self>, process: Arc<SimProcess>) {
        let agenda = &self.cluster.agenda;
        while !self.is_stopped.load(Ordering::SeqCst) {
            process.sleep(Duration::from_millis(agenda.below(250))).await;
            let row = agenda.below(ROWS.into()) as u8;
            if agenda.chance(40) {
                self.read(&process, row).await;
            } else {
                self.append(&process, row).await;
            }
        }
    }

    async fn append(&self, process: &Arc<SimProcess>, row: u8) {
        let number = self.numbers.fetch_add(1, Ordering::SeqCst) + 1;
        let begun = self.cluster.agenda.elapsed();
        let reply =
            self.call(process, row, move |server, reply| server.append(row, number, reply)).await;
        let ended = Some(self.cluster.agenda.elapsed());
        let call = match reply {
            Some(Reply::Appended) => Call { row, begun, ended, what: What::Append(number) },
            Some(Reply::Refused) => Call { row, begun, ended, what: What::Refused(number) },
            _ => Call { row, begun, ended: None, what: What::Append(number) },
        };
        self.calls.lock().push(call);
    }

    /// Reads a row. Returns what was found, if there was an answer.
    async fn read(&self, process: &Arc<SimProcess>, row: u8) -> Option<Vec<u64>> {
        let begun = self.cluster.agenda.elapsed();
        let reply = self.call(process, row, move |server, reply| server.read(row, reply)).await;
        let Some(Reply::Found(found)) = reply else { return None };
        let ended = Some(self.cluster.agenda.elapsed());
        let what = What::Read(found.clone());
        self.calls.lock().push(Call { row, begun, ended, what });
        Some(found)
    }

    /// Calls a server: most of the time the one that owns the tablet. `None` if there is
    /// no answer.
    async fn call(
        &self,
        process: &Arc<SimProcess>,
        row: u8,
        call: impl FnOnce(crate::server::Server, OnReply) + Send + 'static,
    ) -> Option<Reply> {
        let (cluster, agenda) = (&self.cluster, &self.cluster.agenda);
        let any = agenda.below(cluster.scenario.servers as u64) as usize;
        let owner = cluster.owner_of(row).filter(|_| !agenda.chance(cluster.scenario.strays));
        let server = cluster.server(owner.unwrap_or(any))?;
        let (ended, answer) = oneshot::channel();
        // Whichever comes first: the reply or the timeout.
        let ended = Arc::new(Mutex::new(Some(ended)));
        let end = |ended: &Mutex<Option<oneshot::Sender<Option<Reply>>>>, reply| {
            if let Some(ended) = ended.lock().take() {
                let _ = ended.send(reply);
            }
        };
        let (replied, events) = (ended.clone(), agenda.clone());
        let reply: OnReply = Box::new(move |reply| {
            let back = events.delay(NETWORK_DELAY_MAX);
            events.after(back, move || end(&replied, Some(reply)));
        });
        let target = server.process().clone();
        target.after(agenda.delay(NETWORK_DELAY_MAX), move || call(server, reply));
        process.after(TIMEOUT, move || end(&ended, None));
        answer.await.unwrap_or(None)
    }
}
