//! A coordinator in memory, for simulations. Requests take effect and are answered by
//! events of their own; some fail after they took effect, or take effect after they failed.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use stele_engine::world::Clock;
use stele_engine::world::sim::{Agenda, SimProcess};

use super::{
    Changed, Compare, Coordinator, Done, KeyValue, LeaseId, OnChange, Op, Transacted, Transaction,
    Unreachable, Watch,
};

/// The percentage of requests that go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EtcdFaults {
    /// Fail and have no effect.
    pub refused: u64,
    /// Take effect, and then fail.
    pub answer_lost: u64,
    /// Fail, and take effect later.
    pub late: u64,
}

/// The keys and leases. Clones share them.
#[derive(Clone)]
pub struct SimEtcd {
    agenda: Arc<Agenda>,
    state: Arc<Mutex<State>>,
}

struct State {
    revision: i64,
    keys: BTreeMap<Vec<u8>, KeyValue>,
    leases: BTreeMap<LeaseId, SimLease>,
    last_lease: i64,
    watches: Vec<Watcher>,
    faults: EtcdFaults,
    delay_max: Duration,
}

struct SimLease {
    ttl: Duration,
    expires: Duration,
}

struct Watcher {
    key: Vec<u8>,
    process: Arc<SimProcess>,
    each: Weak<OnChange>,
}

impl SimEtcd {
    pub fn new(agenda: &Arc<Agenda>) -> SimEtcd {
        let state = State {
            revision: 1,
            keys: BTreeMap::new(),
            leases: BTreeMap::new(),
            last_lease: 0,
            watches: Vec::new(),
            faults: EtcdFaults::default(),
            delay_max: Duration::from_millis(20),
        };
        SimEtcd { agenda: agenda.clone(), state: Arc::new(Mutex::new(state)) }
    }

    pub fn set_faults(&self, faults: EtcdFaults) {
        self.state.lock().faults = faults;
    }

    /// Connects a process.
    pub fn connect(&self, process: &Arc<SimProcess>) -> Arc<SimEtcdConnection> {
        Arc::new(SimEtcdConnection { etcd: self.clone(), process: process.clone() })
    }

    /// Returns all keys, as an observer sees them.
    pub fn keys(&self) -> BTreeMap<Vec<u8>, KeyValue> {
        self.state.lock().keys.clone()
    }

    /// Takes a lease away before its time, as a coordinator with a fault does.
    pub fn lose_lease(&self, lease: LeaseId) {
        self.state.lock().end_lease(lease);
    }

    /// Ends a lease when its time is over, or looks again when it may be.
    fn expire(&self, lease: LeaseId) {
        let now = self.agenda.elapsed();
        let mut state = self.state.lock();
        let Some(found) = state.leases.get(&lease) else { return };
        let left = found.expires.saturating_sub(now);
        if left.is_zero() {
            return state.end_lease(lease);
        }
        drop(state);
        let etcd = self.clone();
        self.agenda.after(left, move || etcd.expire(lease));
    }
}

impl State {
    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::Absent(key) => !self.keys.contains_key(key),
            Compare::Created(key, at) => self.keys.get(key).is_some_and(|it| it.created == *at),
            Compare::Modified(key, at) => self.keys.get(key).is_some_and(|it| it.modified == *at),
        }
    }

    fn transact(&mut self, transaction: &Transaction) -> Transacted {
        // A put with a lease that has lapsed makes the whole transaction fail.
        let is_leased = |op: &Op| match op {
            Op::Put { lease: Some(lease), .. } => self.leases.contains_key(lease),
            _ => true,
        };
        let applied = transaction.when.iter().all(|compare| self.holds(compare))
            && transaction.then.iter().all(is_leased);
        let ops = if applied { &transaction.then } else { &transaction.otherwise };
        let puts = |op: &Op| matches!(op, Op::Put { .. } | Op::Delete(_));
        if ops.iter().any(puts) {
            self.revision += 1;
        }
        let mut found = Vec::new();
        for op in ops {
            match op {
                Op::Put { key, value, lease } => {
                    let created = self.keys.get(key).map_or(self.revision, |it| it.created);
                    self.set(KeyValue {
                        key: key.clone(),
                        value: value.clone(),
                        created,
                        modified: self.revision,
                        lease: *lease,
                    });
                }
                Op::Delete(key) => self.delete(key),
                Op::Get(key) => found.extend(self.keys.get(key).cloned()),
                Op::GetAll(prefix) => {
                    let from = self.keys.range(prefix.clone()..);
                    let all = from.take_while(|(key, _)| key.starts_with(prefix));
                    found.extend(all.map(|(_, it)| it.clone()));
                }
            }
        }
        Transacted { applied, revision: self.revision, found }
    }

    fn set(&mut self, value: KeyValue) {
        self.notify(&value.key, Some(&value));
        self.keys.insert(value.key.clone(), value);
    }

    fn delete(&mut self, key: &[u8]) {
        if self.keys.remove(key).is_some() {
            self.notify(key, None);
        }
    }

    fn end_lease(&mut self, lease: LeaseId) {
        if self.leases.remove(&lease).is_none() {
            return;
        }
        self.revision += 1;
        let held = self.keys.values().filter(|it| it.lease == Some(lease));
        let held: Vec<Vec<u8>> = held.map(|it| it.key.clone()).collect();
        held.iter().for_each(|key| self.delete(key));
    }

    fn notify(&mut self, key: &[u8], value: Option<&KeyValue>) {
        self.watches.retain(|watch| watch.each.strong_count() > 0);
        for watch in self.watches.iter().filter(|watch| watch.key == key) {
            let changed = Changed { key: key.to_vec(), value: value.cloned() };
            let each = watch.each.clone();
            // All with the same delay: changes arrive in order.
            watch.process.after(self.delay_max, move || {
                if let Some(each) = each.upgrade() {
                    each(changed);
                }
            });
        }
    }
}

/// A connection of a process to the coordinator.
pub struct SimEtcdConnection {
    etcd: SimEtcd,
    process: Arc<SimProcess>,
}

impl SimEtcdConnection {
    fn request<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&SimEtcd) -> T + Send + 'static,
        done: Done<T>,
    ) {
        if self.process.has_crashed() {
            // Nobody waits for an answer.
            return;
        }
        let (etcd, agenda, process) =
            (self.etcd.clone(), self.etcd.agenda.clone(), self.process.clone());
        let (EtcdFaults { refused, answer_lost, late }, delay_max) = {
            let state = self.etcd.state.lock();
            (state.faults, state.delay_max)
        };
        let (there, back) = (agenda.delay(delay_max), agenda.delay(delay_max));
        let lot = agenda.below(100);
        let lost = || Err(Unreachable("simulated".into()));
        if lot < refused {
            process.after(there + back, move || done(lost()));
        } else if lot < refused + answer_lost {
            agenda.after(there, move || drop(effect(&etcd)));
            process.after(there + back, move || done(lost()));
        } else if lot < refused + answer_lost + late {
            process.after(there, move || done(lost()));
            let later = there + agenda.delay(Duration::from_secs(20));
            agenda.after(later, move || drop(effect(&etcd)));
        } else {
            agenda.after(there, move || {
                let value = effect(&etcd);
                process.after(back, move || done(Ok(value)));
            });
        }
    }
}

impl Coordinator for SimEtcdConnection {
    fn transact(&self, transaction: Transaction, done: Done<Transacted>) {
        self.request(move |etcd| etcd.state.lock().transact(&transaction), done);
    }

    fn grant(&self, ttl: Duration, done: Done<LeaseId>) {
        let grant = move |etcd: &SimEtcd| {
            let expires = etcd.agenda.elapsed() + ttl;
            let mut state = etcd.state.lock();
            state.last_lease += 1;
            let lease = LeaseId(state.last_lease);
            state.leases.insert(lease, SimLease { ttl, expires });
            drop(state);
            etcd.expire(lease);
            lease
        };
        self.request(grant, done);
    }

    fn keep_alive(&self, lease: LeaseId, done: Done<bool>) {
        let keep = move |etcd: &SimEtcd| {
            let now = etcd.agenda.elapsed();
            let mut state = etcd.state.lock();
            let found = state.leases.get_mut(&lease);
            found.map(|found| found.expires = now + found.ttl).is_some()
        };
        self.request(keep, done);
    }

    fn revoke(&self, lease: LeaseId, done: Done<()>) {
        self.request(move |etcd| etcd.state.lock().end_lease(lease), done);
    }

    fn watch(&self, key: Vec<u8>, after: i64, each: OnChange) -> Box<dyn Watch> {
        let each = Arc::new(each);
        let mut state = self.etcd.state.lock();
        // What has changed since is reported at once, as one change.
        let value = state.keys.get(&key).cloned();
        if value.as_ref().is_none_or(|it| it.modified > after) {
            let (each, changed) = (each.clone(), Changed { key: key.clone(), value });
            self.process.after(state.delay_max, move || each(changed));
        }
        let process = self.process.clone();
        state.watches.push(Watcher { key, process, each: Arc::downgrade(&each) });
        Box::new(Held { _each: each })
    }
}

/// Keeps a watch.
struct Held {
    _each: Arc<OnChange>,
}

impl Watch for Held {}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        agenda: Arc<Agenda>,
        etcd: SimEtcd,
        connection: Arc<SimEtcdConnection>,
    }

    impl Bench {
        fn new(seed: u64) -> Bench {
            let agenda = Agenda::new(seed);
            let etcd = SimEtcd::new(&agenda);
            let connection = etcd.connect(&SimProcess::start(&agenda));
            Bench { agenda, etcd, connection }
        }

        fn answer<T: Send + 'static>(
            &self,
            start: impl FnOnce(&dyn Coordinator, Done<T>),
        ) -> Result<T, Unreachable> {
            let slot = Arc::new(Mutex::new(None));
            let answered = slot.clone();
            start(&*self.connection, Box::new(move |answer| *answered.lock() = Some(answer)));
            assert!(self.agenda.run_for(Duration::from_secs(60), || slot.lock().is_some()));
            slot.lock().take().unwrap()
        }

        fn transact(&self, when: Vec<Compare>, then: Vec<Op>) -> Result<Transacted, Unreachable> {
            let transaction = Transaction { when, then, otherwise: vec![Op::Get(b"k".to_vec())] };
            self.answer(|etcd, done| etcd.transact(transaction, done))
        }
    }

    fn put(value: &'static str) -> Vec<Op> {
        vec![Op::put(b"k".to_vec(), value)]
    }

    #[test]
    fn a_transaction_is_applied_if_its_conditions_hold() {
        let bench = Bench::new(1);
        let key = b"k".to_vec();
        let first = bench.transact(vec![Compare::Absent(key.clone())], put("1")).unwrap();
        assert!(first.applied);
        let again = bench.transact(vec![Compare::Absent(key.clone())], put("2")).unwrap();
        assert!(!again.applied && again.found[0].value == "1");
        let modified = vec![Compare::Modified(key.clone(), first.revision)];
        let second = bench.transact(modified.clone(), put("2")).unwrap();
        assert!(second.applied && second.revision > first.revision);
        assert!(!bench.transact(modified, put("3")).unwrap().applied);
        let created = vec![Compare::Created(key.clone(), first.revision)];
        assert!(bench.transact(created, vec![Op::Delete(key)]).unwrap().applied);
        assert!(bench.etcd.keys().is_empty());
    }

    #[test]
    fn keys_of_a_lease_go_when_it_lapses_and_watches_report_it() {
        let bench = Bench::new(1);
        let lease = bench.answer(|etcd, done| etcd.grant(Duration::from_secs(10), done)).unwrap();
        let value = bytes::Bytes::from_static(b"v");
        let op = Op::Put { key: b"k".to_vec(), value, lease: Some(lease) };
        let put = bench.transact(vec![], vec![op]).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = seen.clone();
        let each = Box::new(move |changed: Changed| noted.lock().push(changed.value.is_some()));
        let _watch = bench.connection.watch(b"k".to_vec(), put.revision, each);
        for _ in 0..5 {
            bench.agenda.run_for(Duration::from_secs(5), || false);
            assert!(bench.answer(|etcd, done| etcd.keep_alive(lease, done)).unwrap());
        }
        assert!(seen.lock().is_empty() && bench.etcd.keys().len() == 1);
        bench.agenda.run_for(Duration::from_secs(11), || false);
        assert_eq!((bench.etcd.keys().len(), &**seen.lock()), (0, &[false][..]));
        assert!(!bench.answer(|etcd, done| etcd.keep_alive(lease, done)).unwrap());
    }

    #[test]
    fn a_request_without_an_answer_may_have_been_applied_or_be_applied_later() {
        let outcomes = |faults: EtcdFaults| {
            let bench = Bench::new(1);
            bench.etcd.set_faults(faults);
            assert!(bench.transact(vec![], put("1")).is_err());
            let soon = bench.etcd.keys().len();
            bench.agenda.run_for(Duration::from_secs(60), || false);
            (soon, bench.etcd.keys().len())
        };
        let none = EtcdFaults::default();
        assert_eq!(outcomes(EtcdFaults { refused: 100, ..none }), (0, 0));
        assert_eq!(outcomes(EtcdFaults { answer_lost: 100, ..none }), (1, 1));
        assert_eq!(outcomes(EtcdFaults { late: 100, ..none }), (0, 1));
    }
}
