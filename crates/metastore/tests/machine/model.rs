//! A naive store with the same rules, which keeps a list of all states. Random
//! steps go to both, with restarts in between, and every answer must agree.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use stele_metastore::Error;
use stele_metastore::command::{
    Command, Compare, Delete, Execute, KeyRange, Op, Operand, Order, Put, RangeQuery, Relation,
    Target, Txn, Write,
};
use stele_metastore::watch::EventKind;

/// A key's value and metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub create: i64,
    pub modified: i64,
    pub version: i64,
    pub value: Vec<u8>,
    pub lease: i64,
}

pub type Keys = BTreeMap<Bytes, Entry>;

/// A change: kind, key, revision, previous value.
pub type ModelEvent = (EventKind, Bytes, i64, Option<Vec<u8>>);

/// The whole history, with one copy of the state per revision.
#[derive(Clone)]
pub struct Model {
    /// States by revision; the first is at revision 1.
    pub states: Vec<Keys>,
    pub events: Vec<ModelEvent>,
    pub compacted: i64,
    pub leases: BTreeSet<i64>,
}

/// An answer, as far as the model predicts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Refused(String),
    Put { revision: i64, prev: Option<Entry> },
    Delete { revision: i64, prev: Vec<(Bytes, Entry)>, deleted: i64 },
    Range { revision: i64, kvs: Vec<(Bytes, Entry)>, more: bool, count: i64 },
    Txn { succeeded: bool, ops: Vec<Outcome> },
    Done { revision: i64 },
}

impl Model {
    pub fn new() -> Model {
        Model {
            states: vec![Keys::new()],
            events: Vec::new(),
            compacted: -1,
            leases: BTreeSet::new(),
        }
    }

    pub fn revision(&self) -> i64 {
        self.states.len() as i64
    }

    pub fn at(&self, revision: i64) -> &Keys {
        &self.states[revision as usize - 1]
    }

    fn newest(&self) -> &Keys {
        self.states.last().unwrap()
    }

    /// Executes a command, as one revision or none.
    pub fn apply(&mut self, command: &Command) -> Outcome {
        let before = self.newest().clone();
        let mut step = Step { keys: before.clone(), before, changed: false, events: Vec::new() };
        let outcome = self.run(command, &mut step).unwrap_or_else(|error| {
            (step.changed, step.events) = (false, Vec::new());
            Outcome::Refused(error.to_string())
        });
        if step.changed {
            self.states.push(step.keys);
            self.events.extend(step.events);
        }
        match outcome {
            Outcome::Done { .. } => Outcome::Done { revision: self.revision() },
            other => other,
        }
    }

    fn run(&mut self, command: &Command, step: &mut Step) -> Result<Outcome, Error> {
        let done = Outcome::Done { revision: 0 };
        match command {
            Command::Put(put) => {
                self.check_put(put)?;
                Ok(self.put(put, step))
            }
            Command::Delete(delete) => Ok(self.delete(delete, step)),
            Command::Txn(txn) => self.txn(txn, step),
            Command::Compact { revision } => {
                if *revision <= self.compacted {
                    return Err(Error::Compacted { compacted: self.compacted });
                }
                if *revision > self.revision() {
                    return Err(Error::FutureRevision);
                }
                self.compacted = *revision;
                Ok(done)
            }
            Command::LeaseGrant { id, .. } => {
                if !self.leases.insert(*id) {
                    return Err(Error::LeaseExists);
                }
                Ok(done)
            }
            Command::LeaseRevoke { id } => {
                if !self.leases.remove(id) {
                    return Err(Error::LeaseNotFound);
                }
                let revision = self.revision() + 1;
                let leased = step.keys.iter().filter(|(_, entry)| entry.lease == *id);
                for key in leased.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
                    step.remove(&key, revision);
                }
                Ok(done)
            }
            Command::Execute(execute) => self.execute(execute, step).map(|()| done),
            other => panic!("the model does not know {other:?}"),
        }
    }

    fn check_put(&self, put: &Put) -> Result<(), Error> {
        if put.lease.is_some_and(|id| id != 0 && !self.leases.contains(&id)) {
            return Err(Error::LeaseNotFound);
        }
        let keeps = put.value.is_none() || put.lease.is_none();
        if keeps && !self.newest().contains_key(&put.key) {
            return Err(Error::KeyNotFound);
        }
        Ok(())
    }

    fn put(&self, put: &Put, step: &mut Step) -> Outcome {
        let revision = self.revision() + 1;
        let prev = step.keys.get(&put.key).cloned();
        let kept = |of: fn(&Entry) -> Vec<u8>| prev.as_ref().map(of).unwrap_or_default();
        let entry = Entry {
            create: prev.as_ref().map_or(revision, |prev| prev.create),
            modified: revision,
            version: prev.as_ref().map_or(1, |prev| prev.version + 1),
            value: put.value.as_ref().map_or_else(|| kept(|e| e.value.clone()), |v| v.to_vec()),
            lease: put.lease.unwrap_or(prev.as_ref().map_or(0, |prev| prev.lease)),
        };
        step.insert(&put.key, entry);
        Outcome::Put { revision, prev: prev.filter(|_| put.prev_kv) }
    }

    fn delete(&self, delete: &Delete, step: &mut Step) -> Outcome {
        let found: Vec<_> = select(&step.keys, &delete.range);
        for (key, _) in &found {
            step.remove(key, self.revision() + 1);
        }
        let deleted = found.len() as i64;
        let prev = if delete.prev_kv { found } else { Vec::new() };
        Outcome::Delete { revision: self.revision() + i64::from(step.changed), prev, deleted }
    }

    /// Executes a range outside of a transaction.
    pub fn range(&self, query: &RangeQuery) -> Outcome {
        match self.check_range(query) {
            Ok(()) => self.range_in(query, self.newest(), self.revision()),
            Err(error) => Outcome::Refused(error.to_string()),
        }
    }

    fn check_range(&self, query: &RangeQuery) -> Result<(), Error> {
        if query.revision > self.revision() {
            return Err(Error::FutureRevision);
        }
        if query.revision > 0 && query.revision < self.compacted {
            return Err(Error::Compacted { compacted: self.compacted });
        }
        Ok(())
    }

    fn range_in(&self, query: &RangeQuery, newest: &Keys, revision: i64) -> Outcome {
        let keys = if query.revision > 0 { self.at(query.revision) } else { newest };
        let mut kvs = select(keys, &query.range);
        let count = kvs.len() as i64;
        if query.count_only {
            return Outcome::Range { revision, kvs: Vec::new(), more: false, count };
        }
        let filters = [query.mod_min, query.mod_max, query.create_min, query.create_max];
        let filtered = filters.iter().any(|bound| *bound != 0);
        if query.order == Order::None && !filtered && query.limit > 0 {
            kvs.truncate(query.limit as usize + 1);
        }
        let within = |value: i64, min: i64, max: i64| {
            (min == 0 || value >= min) && (max == 0 || value <= max)
        };
        kvs.retain(|(_, entry)| {
            within(entry.modified, query.mod_min, query.mod_max)
                && within(entry.create, query.create_min, query.create_max)
        });
        let by = |entry: &(Bytes, Entry)| match query.target {
            Target::Key => (entry.0.to_vec(), 0),
            Target::Version => (vec![], entry.1.version),
            Target::Create => (vec![], entry.1.create),
            Target::Mod => (vec![], entry.1.modified),
            Target::Value => (entry.1.value.clone(), 0),
        };
        if query.order == Order::Descend {
            kvs.sort_by_key(|entry| std::cmp::Reverse(by(entry)));
        } else if query.target != Target::Key {
            kvs.sort_by_key(by);
        }
        let more = query.limit > 0 && kvs.len() as i64 > query.limit;
        if more {
            kvs.truncate(query.limit as usize);
        }
        if query.keys_only {
            kvs.iter_mut().for_each(|(_, entry)| entry.value.clear());
        }
        Outcome::Range { revision, kvs, more, count }
    }

    fn txn(&self, txn: &Txn, step: &mut Step) -> Result<Outcome, Error> {
        let chosen = self.chosen(txn);
        chosen.iter().try_for_each(|op| match op {
            Op::Put(put) => self.check_put(put),
            _ => Ok(()),
        })?;
        chosen.iter().try_for_each(|op| match op {
            Op::Range(query) => self.check_range(query),
            _ => Ok(()),
        })?;
        Ok(self.execute_txn(txn, step))
    }

    /// Returns all operations on the path that the compares choose.
    fn chosen<'t>(&self, txn: &'t Txn) -> Vec<&'t Op> {
        let branch = if self.holds(txn) { &txn.success } else { &txn.failure };
        let nested = branch.iter().flat_map(|op| match op {
            Op::Txn(txn) => self.chosen(txn),
            other => vec![other],
        });
        nested.collect()
    }

    fn execute_txn(&self, txn: &Txn, step: &mut Step) -> Outcome {
        let succeeded = self.holds(txn);
        let branch = if succeeded { &txn.success } else { &txn.failure };
        let ops = branch.iter().map(|op| match op {
            Op::Put(put) => self.put(put, step),
            Op::Delete(delete) => self.delete(delete, step),
            Op::Range(query) => {
                let revision = self.revision() + i64::from(step.changed);
                self.range_in(query, &step.keys, revision)
            }
            Op::Txn(txn) => self.execute_txn(txn, step),
        });
        Outcome::Txn { succeeded, ops: ops.collect() }
    }

    fn holds(&self, txn: &Txn) -> bool {
        txn.compares.iter().all(|compare| {
            let found = select(self.newest(), &compare.range);
            if found.is_empty() {
                let zero = Entry { create: 0, modified: 0, version: 0, value: vec![], lease: 0 };
                return !matches!(compare.operand, Operand::Value(_)) && holds(compare, &zero);
            }
            found.iter().all(|(_, entry)| holds(compare, entry))
        })
    }

    fn execute(&self, execute: &Execute, step: &mut Step) -> Result<(), Error> {
        let read = execute.read_revision;
        if read > self.revision() {
            return Err(Error::FutureRead { revision: read, newest: self.revision() });
        }
        if execute
            .writes
            .iter()
            .any(|write| write.lease != 0 && !self.leases.contains(&write.lease))
        {
            return Err(Error::LeaseNotFound);
        }
        for (_, key, revision, _) in &self.events {
            if *revision > read && execute.reads.iter().any(|range| range.contains(key)) {
                let (key, changed) = (key.clone(), *revision);
                return Err(Error::Conflict { read_revision: read, key, changed });
            }
        }
        let revision = self.revision() + 1;
        for Write { key, value, lease } in &execute.writes {
            match value {
                Some(value) => {
                    let lease = Some(*lease);
                    self.put(&Put { lease, ..Put::new(key.clone(), value.clone()) }, step);
                }
                None => step.remove(key, revision),
            }
        }
        Ok(())
    }
}

/// The state while a command is executed.
struct Step {
    before: Keys,
    keys: Keys,
    changed: bool,
    events: Vec<ModelEvent>,
}

impl Step {
    /// Records a put. Its event has the value before the revision; none if the
    /// key is new.
    fn insert(&mut self, key: &Bytes, entry: Entry) {
        let (revision, created) = (entry.modified, entry.create == entry.modified);
        self.keys.insert(key.clone(), entry);
        self.changed = true;
        let prev = self.before.get(key).filter(|_| !created).map(|prev| prev.value.clone());
        self.events.push((EventKind::Put, key.clone(), revision, prev));
    }

    fn remove(&mut self, key: &Bytes, revision: i64) {
        if self.keys.remove(key).is_some() {
            self.changed = true;
            let prev = self.before.get(key).map(|prev| prev.value.clone());
            self.events.push((EventKind::Delete, key.clone(), revision, prev));
        }
    }
}

fn select(keys: &Keys, range: &KeyRange) -> Vec<(Bytes, Entry)> {
    let inside = keys.iter().filter(|(key, _)| range.contains(key));
    inside.map(|(key, entry)| (key.clone(), entry.clone())).collect()
}

fn holds(compare: &Compare, entry: &Entry) -> bool {
    let ordering = match &compare.operand {
        Operand::Version(given) => entry.version.cmp(given),
        Operand::Create(given) => entry.create.cmp(given),
        Operand::Mod(given) => entry.modified.cmp(given),
        Operand::Lease(given) => entry.lease.cmp(given),
        Operand::Value(given) => entry.value[..].cmp(&given[..]),
        Operand::Unknown => std::cmp::Ordering::Equal,
    };
    match compare.relation {
        Relation::Equal => ordering.is_eq(),
        Relation::Greater => ordering.is_gt(),
        Relation::Less => ordering.is_lt(),
        Relation::NotEqual => ordering.is_ne(),
        Relation::Any => true,
    }
}
