//! Settles changes of rows: submits them and finds out what became of them, for every
//! implementation of [`TabletRows`].
//!
//! A row has one mutation under way at a time. Changes that arrive meanwhile wait and
//! then go together, in one mutation per row and one submission for all rows that are
//! free. If an outcome is unknown, the row is read until it tells: the same mutation is
//! submitted again if it has not arrived.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::rows::{
    Answer, Done, Expected, Found, Mutation, OpId, Outcome, Rider, RowEdit, RowKey, Submission,
    TabletRow, TabletRows,
};
use super::{ConfigEdit, ConfigEditor, TabletConfig, TabletConfigs, TabletId};
use crate::cell::commit::TableId;
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, NoIoGuard, NoIoMutex, assert_io_allowed};

pub struct Settler {
    rows: Arc<dyn TabletRows>,
    /// The store's own config.
    config: Arc<ConfigEditor>,
    incarnation: u64,
    /// Number of mutations so far.
    ops: AtomicU64,
    state: NoIoMutex<State>,
    /// Notified when requests have ended.
    changed: Condvar,
}

/// A change of a row whose tablet is held by the caller: nobody else changes its bounds.
#[derive(Clone, Debug)]
pub struct RowChange {
    pub key: RowKey,
    /// The tablet and its load.
    pub tablet: (TabletId, u64),
    /// The row before it, which a join removes.
    pub lower: Option<(RowKey, (TabletId, u64))>,
    pub edit: RowEdit,
}

impl RowChange {
    fn keys(&self) -> impl Iterator<Item = &RowKey> {
        std::iter::once(&self.key).chain(self.lower.iter().map(|(key, _)| key))
    }

    /// Whether it can be part of a mutation with others.
    fn joins_others(&self) -> bool {
        matches!(self.edit, RowEdit::Splice(_))
    }
}

#[derive(Default)]
struct State {
    /// Number of requests so far.
    requests: u64,
    /// In the order of arrival.
    waiting: Vec<Request>,
    /// The rows with a mutation under way.
    busy: BTreeSet<RowKey>,
    ended: BTreeMap<u64, Result<bool>>,
    /// For each row that was changed: its `rev` is above this one.
    passed: BTreeMap<RowKey, u64>,
}

struct Request {
    number: u64,
    changes: Vec<RowChange>,
    riders: Vec<ConfigEdit>,
}

impl Request {
    fn keys(&self) -> impl Iterator<Item = &RowKey> {
        self.changes.iter().flat_map(RowChange::keys)
    }
}

impl State {
    /// Notes that a mutation was applied.
    fn passed(&mut self, piece: &Piece) {
        let Mutation { key, expected, lower, .. } = &piece.mutation;
        self.passed.insert(key.clone(), expected.rev);
        if let Some((gone, _)) = lower {
            self.passed.remove(gone);
        }
    }

    /// Takes the requests that can be submitted now, if `number` is one of them. None
    /// overtakes an earlier one that has a row in common with it.
    fn take(&mut self, number: u64) -> Vec<Request> {
        let (mut shared, mut alone) = (BTreeSet::new(), BTreeSet::new());
        let (mut blocked, mut chosen) = (BTreeSet::new(), BTreeSet::new());
        for request in &self.waiting {
            let joins = request.changes.iter().all(RowChange::joins_others);
            let is_free = |key: &&RowKey| !self.busy.contains(key) && !blocked.contains(key);
            let fits = |key: &&RowKey| !alone.contains(key) && (joins || !shared.contains(key));
            if request.keys().all(|key| is_free(&key) && fits(&key)) {
                if joins { &mut shared } else { &mut alone }.extend(request.keys());
                chosen.insert(request.number);
            } else {
                blocked.extend(request.keys());
            }
        }
        if !chosen.contains(&number) {
            return Vec::new();
        }
        let is_chosen = |request: &mut Request| chosen.contains(&request.number);
        let taken: Vec<Request> = self.waiting.extract_if(.., is_chosen).collect();
        self.busy.extend(taken.iter().flat_map(Request::keys).cloned());
        taken
    }
}

impl Settler {
    pub(crate) fn new(
        rows: Arc<dyn TabletRows>,
        config: Arc<ConfigEditor>,
        incarnation: u64,
    ) -> Settler {
        Settler {
            rows,
            config,
            incarnation,
            ops: AtomicU64::new(0),
            state: NoIoMutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Applies all changes, durably, and then `riders`, which are edits of the store's
    /// own config. Returns whether the riders are durable, too. An error means that no
    /// change was applied, or that the store has failed.
    pub fn settle(&self, changes: Vec<RowChange>, riders: Vec<ConfigEdit>) -> Result<bool> {
        assert_io_allowed();
        if self.submit(changes, riders.clone())? {
            return Ok(true);
        }
        // They are implied by the changes, so it is enough to write them later.
        let written = self.config.edit(&riders);
        Ok(written.inspect_err(|error| tracing::warn!(%error, "the log is kept")).is_ok())
    }

    /// Returns rows that were just changed and that nobody changes meanwhile. Fails if the
    /// store has.
    pub fn read(&self, keys: &[RowKey]) -> Result<Vec<Arc<TabletConfig>>> {
        loop {
            let rows: Option<Vec<TabletRow>> = self.find_newest(keys)?.into_iter().collect();
            if let Some(rows) = rows {
                return Ok(rows.into_iter().map(|row| row.config).collect());
            }
            self.check_failure()?;
        }
    }

    /// Fails if the store has: nobody waits for outcomes any more.
    fn check_failure(&self) -> Result<()> {
        self.config.failure().map_or(Ok(()), Err)
    }

    /// Notes that all rows of a table were changed with its schema, by a caller that has
    /// them to itself.
    pub fn note_changed(&self, table: TableId, rows: &TabletConfigs) {
        let mut state = self.state.lock();
        for row in rows.iter() {
            let key = RowKey { table, end: row.rows.end.clone() };
            state.passed.insert(key, row.rev.saturating_sub(1));
        }
    }

    /// Forgets the rows of a table that was dropped.
    pub fn forget(&self, table: TableId) {
        self.state.lock().passed.retain(|key, _| key.table != table);
    }

    /// Returns the number of requests that wait for rows.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Waits for the turn of a request and submits it, along with others that wait.
    fn submit(&self, changes: Vec<RowChange>, riders: Vec<ConfigEdit>) -> Result<bool> {
        let mut state = self.state.lock();
        state.requests += 1;
        let number = state.requests;
        state.waiting.push(Request { number, changes, riders });
        loop {
            if let Some(ended) = state.ended.remove(&number) {
                return ended;
            }
            let batch = state.take(number);
            if batch.is_empty() {
                NoIoGuard::wait(&mut state, &self.changed);
                continue;
            }
            drop(state);
            let (ended, pieces) = self.decide(&batch);
            state = self.state.lock();
            pieces.iter().filter(|piece| piece.is_applied()).for_each(|piece| state.passed(piece));
            for key in batch.iter().flat_map(Request::keys) {
                state.busy.remove(key);
            }
            state.ended.extend(batch.iter().map(|request| request.number).zip(ended));
            self.changed.notify_all();
        }
    }

    /// Submits requests until all outcomes are known. Returns how each ended, and the
    /// mutations.
    fn decide(&self, requests: &[Request]) -> (Vec<Result<bool>>, Vec<Piece>) {
        let mut batch = match self.batch(requests) {
            Ok(batch) => batch,
            Err(error) => return (vec![Err(error); requests.len()], Vec::new()),
        };
        loop {
            self.submit_open(&mut batch);
            let read = self.read_open(&mut batch.pieces);
            if !batch.pieces.iter().any(Piece::is_open) {
                break;
            }
            if let Err(error) = read.and_then(|()| self.check_failure()) {
                return (vec![Err(error); requests.len()], Vec::new());
            }
        }
        let Batch { pieces, parts } = batch;
        (parts.iter().map(|part| self.ending(part, &pieces)).collect(), pieces)
    }

    /// Returns one mutation per row, with all changes of the row.
    fn batch<'r>(&self, requests: &'r [Request]) -> Result<Batch<'r>> {
        let keys: BTreeSet<&RowKey> = requests.iter().flat_map(Request::keys).collect();
        let keys: Vec<RowKey> = keys.into_iter().cloned().collect();
        let found: BTreeMap<&RowKey, Option<TabletRow>> =
            keys.iter().zip(self.find_newest(&keys)?).collect();
        let expect = |key: &RowKey, held: (TabletId, u64)| {
            let row = found[key].as_ref();
            let row = row.filter(|row| (row.config.id, row.config.load) == held);
            row.map(TabletRow::expected).ok_or_else(|| self.refused(key))
        };
        let mut batch = Batch { pieces: Vec::new(), parts: Vec::new() };
        let mut places: BTreeMap<&RowKey, usize> = BTreeMap::new();
        for request in requests {
            let mut of_request = Vec::with_capacity(request.changes.len());
            for RowChange { key, tablet, lower, edit } in &request.changes {
                let expected = expect(key, *tablet)?;
                let place = *places.entry(key).or_insert(batch.pieces.len());
                if place == batch.pieces.len() {
                    batch.pieces.push(Piece::new(self.mutation(key.clone(), expected)));
                }
                let mutation = &mut batch.pieces[place].mutation;
                if let Some((key, held)) = lower {
                    mutation.lower = Some((key.clone(), expect(key, *held)?));
                }
                mutation.edits.push(edit.clone());
                of_request.push(place);
            }
            batch.parts.push(Part { request, pieces: of_request, written: false });
        }
        Ok(batch)
    }

    fn mutation(&self, key: RowKey, expected: Expected) -> Mutation {
        let number = self.ops.fetch_add(1, Ordering::Relaxed);
        let op = OpId { incarnation: self.incarnation, number };
        Mutation { key, expected, lower: None, edits: Vec::new(), op }
    }

    /// Submits the mutations whose outcome is open, with the riders of requests that
    /// they complete.
    fn submit_open(&self, batch: &mut Batch<'_>) {
        let Batch { pieces, parts } = batch;
        let open: Vec<usize> = (0..pieces.len()).filter(|&at| pieces[at].is_open()).collect();
        let mutations = open.iter().map(|&at| pieces[at].mutation.clone()).collect();
        let is_hopeful = |&at: &usize| pieces[at].is_open() || pieces[at].is_applied();
        let riding = parts.iter_mut().filter(|part| {
            !part.written && !part.request.riders.is_empty() && part.pieces.iter().all(is_hopeful)
        });
        let mut riding: Vec<&mut Part<'_>> = riding.collect();
        let rider = |part: &&mut Part<'_>| {
            let mutations = part.pieces.iter().filter_map(|at| open.binary_search(at).ok());
            Rider { mutations: mutations.collect(), edits: part.request.riders.clone() }
        };
        let riders = riding.iter().map(rider).collect();
        let submission = Submission { mutations, riders };
        let answer: Answer = ask(|done| self.rows.submit(submission, done));
        for (at, outcome) in open.into_iter().zip(answer.outcomes) {
            pieces[at].note(outcome);
        }
        for (part, written) in riding.iter_mut().zip(answer.riders) {
            part.written = written;
        }
    }

    /// Reads the rows of mutations whose outcome is open, until each row tells the
    /// outcome or shows that the mutation has not arrived.
    fn read_open(&self, pieces: &mut [Piece]) -> Result<()> {
        let mut left: Vec<&mut Piece> = pieces.iter_mut().filter(|piece| piece.is_open()).collect();
        while !left.is_empty() {
            let keys: Vec<RowKey> = left.iter().map(|piece| piece.mutation.key.clone()).collect();
            let mut rows = self.find(&keys)?.into_iter();
            left.retain_mut(|piece| !piece.note_read(rows.next().flatten()));
        }
        Ok(())
    }

    /// Returns rows, none of them older than the last change from here.
    fn find_newest(&self, keys: &[RowKey]) -> Result<Vec<Option<TabletRow>>> {
        loop {
            let rows = self.find(keys)?;
            let state = self.state.lock();
            let is_newest = |(key, row): (&RowKey, &Option<TabletRow>)| {
                let passed = state.passed.get(key);
                row.as_ref().is_none_or(|row| passed.is_none_or(|passed| row.config.rev > *passed))
            };
            if keys.iter().zip(&rows).all(is_newest) {
                return Ok(rows);
            }
            drop(state);
            self.check_failure()?;
        }
    }

    /// Returns rows as they are stored, or as they once were.
    fn find(&self, keys: &[RowKey]) -> Result<Vec<Option<TabletRow>>> {
        let mut rows: BTreeMap<&RowKey, Option<TabletRow>> = BTreeMap::new();
        loop {
            let left: Vec<&RowKey> = keys.iter().filter(|key| !rows.contains_key(key)).collect();
            if left.is_empty() {
                return Ok(keys.iter().map(|key| rows[key].clone()).collect());
            }
            let asked = left.iter().map(|&key| key.clone()).collect();
            let found: Vec<Found> = ask(|done| self.rows.read(asked, done));
            for (key, found) in left.into_iter().zip(found) {
                match found {
                    Found::Row(row) => drop(rows.insert(key, Some(row))),
                    Found::Missing => drop(rows.insert(key, None)),
                    Found::Unknown => self.check_failure()?,
                }
            }
        }
    }

    fn ending(&self, part: &Part<'_>, pieces: &[Piece]) -> Result<bool> {
        let (mut applied, mut failed) = (0, None);
        for piece in part.pieces.iter().map(|&at| &pieces[at]) {
            match &piece.outcome {
                Outcome::Applied => applied += 1,
                Outcome::Failed(error) => failed = Some(error.clone()),
                Outcome::Refused(_) | Outcome::Unknown => {
                    return Err(self.refused(&piece.mutation.key));
                }
            }
        }
        match failed {
            None => Ok(part.written || part.request.riders.is_empty()),
            // Those that were applied cannot be undone.
            Some(error) if applied > 0 => Err(self.config.fail(error)),
            Some(error) => Err(error),
        }
    }

    /// Stops the store: a row that it holds was changed by somebody else.
    fn refused(&self, key: &RowKey) -> Error {
        let what = "a row of its tablets is not as this store left it";
        self.config.fail(Error::EditRefused { table: key.table.0, what })
    }
}

/// Requests that are submitted together.
struct Batch<'r> {
    /// One per row.
    pieces: Vec<Piece>,
    parts: Vec<Part<'r>>,
}

/// A request as part of a batch.
struct Part<'r> {
    request: &'r Request,
    /// Positions of its mutations.
    pieces: Vec<usize>,
    /// Whether its riders are written.
    written: bool,
}

/// A mutation and what is known of its outcome.
struct Piece {
    mutation: Mutation,
    outcome: Outcome,
}

impl Piece {
    fn new(mutation: Mutation) -> Piece {
        Piece { mutation, outcome: Outcome::Unknown }
    }

    fn is_open(&self) -> bool {
        matches!(self.outcome, Outcome::Unknown)
    }

    fn is_applied(&self) -> bool {
        matches!(self.outcome, Outcome::Applied)
    }

    /// Notes an answer. A mutation that was applied before is refused when it arrives
    /// again, but the row has its id.
    fn note(&mut self, outcome: Outcome) {
        self.outcome = match outcome {
            Outcome::Refused(Some(row)) if row.op == Some(self.mutation.op) => Outcome::Applied,
            outcome => outcome,
        };
    }

    /// Notes the row after an unknown outcome. Returns false if the row is older than
    /// the one that was changed: then it proves nothing.
    fn note_read(&mut self, row: Option<TabletRow>) -> bool {
        let expected = self.mutation.expected.rev;
        self.outcome = match row {
            Some(row) if row.op == Some(self.mutation.op) => Outcome::Applied,
            Some(row) if row.config.rev < expected => return false,
            // It has not arrived: the same is submitted again.
            Some(row) if row.config.rev == expected => Outcome::Unknown,
            row => Outcome::Refused(row),
        };
        true
    }
}

/// Waits for the answer to a call.
fn ask<T: Send + 'static>(call: impl FnOnce(Done<T>)) -> T {
    let slot: Arc<(Mutex<Option<T>>, Condvar)> = Arc::new((Mutex::new(None), Condvar::new()));
    let answered = slot.clone();
    call(Box::new(move |answer| {
        *answered.0.lock() = Some(answer);
        answered.1.notify_one();
    }));
    let mut answer = slot.0.lock();
    loop {
        match answer.take() {
            Some(answer) => return answer,
            None => slot.1.wait(&mut answer),
        }
    }
}
