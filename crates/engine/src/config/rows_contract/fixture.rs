//! Rows to check the contract on, and the config of the store that uses them.

use std::path::Path;
use std::sync::Arc;

use super::super::rows::*;
use super::super::*;
use crate::cell::commit::TableId;
use crate::error::Error;
use crate::schema::{Family, Schema};
use crate::sync::Mutex;
use crate::txn::Txn;
use crate::world::sim::{SimFiles, disk_full};

pub const TABLE: TableId = TableId(1);

/// Returns the config of a table of two tablets that meet at `m`.
pub fn configs() -> Configs {
    let schema = Arc::new(Schema::with_families([Family::new("f")]).unwrap());
    let create = ConfigEdit::CreateTable { name: "t".into(), schema, splits: vec![b"m".to_vec()] };
    Configs::default().edited(0, &[ConfigEdit::TakeIncarnation, create]).unwrap()
}

pub fn key(end: Option<&str>) -> RowKey {
    RowKey { table: TABLE, end: end.map(|end| end.as_bytes().to_vec()) }
}

pub fn file(number: u64) -> Reference {
    Reference {
        name: FileName { incarnation: 1, number },
        bytes: 100,
        cells: 1,
        txn_min: Txn::ZERO,
        txn_max: Txn::ZERO,
        rows: None,
        families: None,
        facts: None,
        share: 100,
        unit: 0,
        joins: false,
    }
}

/// Returns the edit of a tablet that removes and adds files.
pub fn splice(tablet: &TabletConfig, remove: &[u64], add: &[u64]) -> RowEdit {
    let reference = |number: &u64| {
        let known = tablet.files().find(|file| file.name.number == *number);
        known.map_or_else(|| file(*number).key(), Reference::key)
    };
    RowEdit::Splice(Splice {
        table: TABLE,
        tablet: tablet.id,
        load: tablet.load,
        start: tablet.rows.start.clone(),
        group: 0,
        remove: remove.iter().map(reference).collect(),
        add: add.iter().map(|&number| file(number)).collect(),
        flushed: None,
    })
}

pub fn numbers(tablet: &TabletConfig) -> Vec<u64> {
    tablet.files().map(|file| file.name.number).collect()
}

/// Rows in memory, each changed by itself. Riders are left to the caller.
struct MemoryRows {
    state: Mutex<(Configs, Vec<(RowKey, OpId)>)>,
}

impl MemoryRows {
    fn new() -> MemoryRows {
        MemoryRows { state: Mutex::new((configs(), Vec::new())) }
    }

    fn find(&self, key: &RowKey) -> Option<TabletRow> {
        let (configs, ops) = &*self.state.lock();
        let mut tablets = configs.tables.get(&key.table)?.tablets.iter();
        let config = tablets.find(|tablet| tablet.rows.end == key.end)?.clone();
        let op = ops.iter().rev().find(|(changed, _)| changed == key).map(|(_, op)| *op);
        Some(TabletRow { config, op })
    }

    fn mutate(&self, mutation: &Mutation) -> Outcome {
        let found = self.find(&mutation.key);
        let as_expected = |key: &RowKey, expected: &Expected| {
            self.find(key).is_some_and(|row| row.expected() == *expected)
        };
        let mut lower = mutation.lower.iter();
        if !as_expected(&mutation.key, &mutation.expected)
            || !lower.all(|(key, expected)| as_expected(key, expected))
        {
            return Outcome::Refused(found);
        }
        let (configs, ops) = &mut *self.state.lock();
        let edits: Vec<ConfigEdit> = mutation.edits.iter().cloned().map(Into::into).collect();
        match configs.edited(configs.revision, &edits) {
            Ok(edited) => {
                *configs = edited;
                ops.push((mutation.key.clone(), mutation.op));
                Outcome::Applied
            }
            Err(_) => Outcome::Refused(found),
        }
    }
}

impl TabletRows for MemoryRows {
    fn submit(&self, submission: Submission, done: Done<Answer>) {
        let outcomes = submission.mutations.iter().map(|mutation| self.mutate(mutation)).collect();
        done(Answer { outcomes, riders: vec![false; submission.riders.len()] });
    }

    fn read(&self, keys: Vec<RowKey>, done: Done<Vec<Found>>) {
        let found = |key: &RowKey| self.find(key).map_or(Found::Missing, Found::Row);
        done(keys.iter().map(found).collect());
    }
}

/// Rows under test, and the config of the store that uses them.
pub struct Fixture {
    pub sim: SimFiles,
    pub config: Arc<ConfigEditor>,
    pub rows: Arc<dyn TabletRows>,
}

impl Fixture {
    pub fn new(in_memory: bool) -> Fixture {
        let sim = SimFiles::new(1);
        let manifest = Manifest::create(Arc::new(sim.clone()), Path::new("/"), configs()).unwrap();
        let config = Arc::new(ConfigEditor::new(Box::new(manifest)));
        let rows: Arc<dyn TabletRows> = if in_memory {
            Arc::new(MemoryRows::new())
        } else {
            Arc::new(ManifestRows::new(config.clone()))
        };
        Fixture { sim, config, rows }
    }

    /// Returns all implementations.
    pub fn all() -> [Fixture; 2] {
        [false, true].map(Fixture::new)
    }

    pub fn settler(&self, rows: Arc<dyn TabletRows>) -> Settler {
        Settler::new(rows, self.config.clone(), 1)
    }

    pub fn read(&self, key: RowKey) -> Option<TabletRow> {
        match answer(|done| self.rows.read(vec![key], done)).pop() {
            Some(Found::Row(row)) => Some(row),
            found => {
                assert!(matches!(found, Some(Found::Missing)), "{found:?}");
                None
            }
        }
    }

    pub fn submit(&self, submission: Submission) -> Answer {
        answer(|done| self.rows.submit(submission, done))
    }

    pub fn mutation(&self, key: RowKey, number: u64, edits: &[RowEdit]) -> Mutation {
        let expected = self.read(key.clone()).expect("the row is there").expected();
        let op = OpId { incarnation: 1, number };
        Mutation { key, expected, lower: None, edits: edits.to_vec(), op }
    }

    /// Returns a mutation that appends a file of the same number.
    pub fn append(&self, key: RowKey, number: u64) -> Mutation {
        let edit = splice(&self.read(key.clone()).unwrap().config, &[], &[number]);
        self.mutation(key, number, &[edit])
    }

    pub fn numbers(&self, key: RowKey) -> Vec<u64> {
        numbers(&self.read(key).unwrap().config)
    }
}

/// Returns the answer of an implementation that gives it at once.
pub fn answer<T: Send + 'static>(call: impl FnOnce(Done<T>)) -> T {
    let slot = Arc::new(Mutex::new(None));
    let answered = slot.clone();
    call(Box::new(move |answer| *answered.lock() = Some(answer)));
    slot.lock().take().expect("answered at once")
}

pub fn of(mutations: &[&Mutation]) -> Submission {
    let mutations = mutations.iter().map(|&mutation| mutation.clone()).collect();
    Submission { mutations, riders: Vec::new() }
}

/// Rows that note every submission and can delay answers until they are released.
pub struct Gate {
    rows: Arc<dyn TabletRows>,
    pub state: Mutex<GateState>,
}

#[derive(Default)]
pub struct GateState {
    closed: bool,
    pub submitted: Vec<Submission>,
    pub held: Vec<(Submission, Done<Answer>)>,
}

impl Gate {
    pub fn new(rows: &Arc<dyn TabletRows>) -> Arc<Gate> {
        let state = GateState { closed: true, ..GateState::default() };
        Arc::new(Gate { rows: rows.clone(), state: Mutex::new(state) })
    }

    /// Submits what was held, and holds nothing more.
    pub fn open(&self) {
        let mut state = self.state.lock();
        state.closed = false;
        let held = std::mem::take(&mut state.held);
        drop(state);
        held.into_iter().for_each(|(submission, done)| self.rows.submit(submission, done));
    }
}

impl TabletRows for Gate {
    fn submit(&self, submission: Submission, done: Done<Answer>) {
        let mut state = self.state.lock();
        state.submitted.push(submission.clone());
        if state.closed {
            state.held.push((submission, done));
        } else {
            drop(state);
            self.rows.submit(submission, done);
        }
    }

    fn read(&self, keys: Vec<RowKey>, done: Done<Vec<Found>>) {
        self.rows.read(keys, done);
    }
}

/// Rows that apply the first mutation of a submission and fail for the others.
pub struct Halves(pub Arc<dyn TabletRows>);

impl TabletRows for Halves {
    fn submit(&self, submission: Submission, done: Done<Answer>) {
        let first = of(&[&submission.mutations[0]]);
        let mut answer = answer(|done| self.0.submit(first, done));
        let failed = Error::io("writing", Path::new("m"), disk_full());
        answer.outcomes.resize(submission.mutations.len(), Outcome::Failed(failed));
        done(answer);
    }

    fn read(&self, keys: Vec<RowKey>, done: Done<Vec<Found>>) {
        self.0.read(keys, done);
    }
}
