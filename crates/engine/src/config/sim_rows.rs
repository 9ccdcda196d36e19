//! Rows whose answers get lost, for tests: what is submitted may not arrive, arrive
//! late or twice, or be applied without an answer; reads may fail or return an earlier
//! state. All randomness comes from the seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rows::{
    Answer, Done, Found, Mutation, Outcome, Rider, RowKey, Submission, TabletRow, TabletRows,
};
use crate::sync::Mutex;
use crate::world::{Random, SeededRandom};

/// Called whenever an answer is lost, with no lock held.
pub type Probe = Arc<dyn Fn() + Send + Sync>;

/// Rows behind an unreliable connection.
pub struct SimRows {
    rows: Arc<dyn TabletRows>,
    random: SeededRandom,
    state: Mutex<SimState>,
}

#[derive(Default)]
struct SimState {
    rates: RowFaults,
    /// The fates of the next mutations, before those that depend on chance.
    planned: Vec<Fate>,
    /// Copies that have not arrived yet.
    late: Vec<Mutation>,
    /// Earlier states of rows.
    earlier: BTreeMap<RowKey, TabletRow>,
    probe: Option<Probe>,
    counts: RowFaultCounts,
}

/// How often something goes wrong, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowFaults {
    /// Mutations without an answer: half of them arrive.
    pub unknown: u64,
    /// Mutations of which a copy arrives later.
    pub late: u64,
    /// Reads that fail or return an earlier state.
    pub reads: u64,
}

/// What went wrong so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowFaultCounts {
    pub lost: u64,
    pub answers_lost: u64,
    pub late: u64,
    pub reads: u64,
}

/// What happens to a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Arrives and is answered.
    Answered,
    /// Never arrives.
    Lost,
    /// Arrives, but the answer does not.
    AnswerLost,
}

impl SimRows {
    pub fn new(rows: Arc<dyn TabletRows>, seed: u64, rates: RowFaults) -> SimRows {
        let state = SimState { rates, ..SimState::default() };
        SimRows { rows, random: SeededRandom::new(seed), state: Mutex::new(state) }
    }

    pub fn set_rates(&self, rates: RowFaults) {
        self.state.lock().rates = rates;
    }

    /// Decides what happens to the next mutations, in the order of submission.
    pub fn plan(&self, fates: &[Fate]) {
        let mut state = self.state.lock();
        state.planned = fates.iter().rev().copied().collect();
    }

    pub fn set_probe(&self, probe: Option<Probe>) {
        self.state.lock().probe = probe;
    }

    pub fn counts(&self) -> RowFaultCounts {
        self.state.lock().counts
    }

    fn percent(&self, rate: u64) -> bool {
        self.random.next_u64() % 100 < rate
    }

    /// Lets some of the late copies arrive.
    fn deliver_late(&self) {
        let mut state = self.state.lock();
        let due: Vec<Mutation> = state.late.extract_if(.., |_| self.percent(40)).collect();
        state.counts.late += due.len() as u64;
        drop(state);
        for mutation in due {
            let submission = Submission { mutations: vec![mutation], riders: Vec::new() };
            self.rows.submit(submission, Box::new(|_| ()));
        }
    }

    /// Chooses what happens to each mutation, and keeps copies that arrive later.
    fn fates(&self, mutations: &[Mutation]) -> Vec<Fate> {
        let mut state = self.state.lock();
        let RowFaults { unknown, late, .. } = state.rates;
        let mut fates = Vec::with_capacity(mutations.len());
        for mutation in mutations {
            let fate = state.planned.pop().unwrap_or_else(|| {
                let lost = if self.percent(50) { Fate::Lost } else { Fate::AnswerLost };
                if self.percent(unknown) { lost } else { Fate::Answered }
            });
            state.counts.lost += u64::from(fate == Fate::Lost);
            state.counts.answers_lost += u64::from(fate == Fate::AnswerLost);
            if self.percent(late) {
                state.late.push(mutation.clone());
            }
            fates.push(fate);
        }
        fates
    }

    /// Drops late copies of mutations that have failed for good.
    fn forget_failed(&self, mutations: &[Mutation], outcomes: &[Outcome]) {
        let failed = mutations.iter().zip(outcomes);
        let failed = failed.filter(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
        let mut state = self.state.lock();
        for (mutation, _) in failed {
            state.late.retain(|late| late.op != mutation.op);
        }
    }
}

impl TabletRows for SimRows {
    fn submit(&self, submission: Submission, done: Done<Answer>) {
        self.deliver_late();
        let fates = self.fates(&submission.mutations);
        let arriving: Vec<usize> = (0..fates.len()).filter(|&at| fates[at] != Fate::Lost).collect();
        let answer = if arriving.is_empty() && !fates.is_empty() {
            Answer::default()
        } else {
            let part = part_of(&submission, &arriving);
            let slot: Arc<Mutex<Answer>> = Arc::default();
            let answered = slot.clone();
            self.rows.submit(part, Box::new(move |answer| *answered.lock() = answer));
            std::mem::take(&mut *slot.lock())
        };
        let mut outcomes = vec![Outcome::Unknown; fates.len()];
        for (at, outcome) in arriving.into_iter().zip(answer.outcomes) {
            // A failure that is certain is always reported.
            if fates[at] == Fate::Answered || matches!(outcome, Outcome::Failed(_)) {
                outcomes[at] = outcome;
            }
        }
        self.forget_failed(&submission.mutations, &outcomes);
        let is_unknown = |outcome: &Outcome| matches!(outcome, Outcome::Unknown);
        let probe = self.state.lock().probe.clone();
        if let Some(probe) = probe.filter(|_| outcomes.iter().any(is_unknown)) {
            probe();
        }
        // Whoever got no answer does not know of the riders either.
        let answered = !outcomes.iter().any(is_unknown);
        let riders = submission.riders.iter().enumerate();
        let riders = riders.map(|(at, _)| answered && answer.riders.get(at) == Some(&true));
        done(Answer { outcomes, riders: riders.collect() });
    }

    fn read(&self, keys: Vec<RowKey>, done: Done<Vec<Found>>) {
        self.deliver_late();
        let slot: Arc<Mutex<Vec<Found>>> = Arc::default();
        let answered = slot.clone();
        self.rows.read(keys.clone(), Box::new(move |found| *answered.lock() = found));
        let mut found = std::mem::take(&mut *slot.lock());
        let mut state = self.state.lock();
        for (key, found) in keys.into_iter().zip(&mut found) {
            let Found::Row(row) = &*found else { continue };
            let earlier = state.earlier.insert(key, row.clone());
            if self.percent(state.rates.reads) {
                state.counts.reads += 1;
                let earlier = earlier.filter(|earlier| earlier.config.id == row.config.id);
                *found = earlier.map_or(Found::Unknown, Found::Row);
            }
        }
        drop(state);
        done(found);
    }
}

/// Returns the mutations at some positions. Riders that need others stay behind: they
/// are replaced with ones that are never written.
fn part_of(submission: &Submission, arriving: &[usize]) -> Submission {
    let rider = |rider: &Rider| {
        let places = rider.mutations.iter().map(|at| arriving.binary_search(at));
        match places.collect::<Result<Vec<usize>, usize>>() {
            Ok(mutations) => Rider { mutations, edits: rider.edits.clone() },
            Err(_) => Rider { mutations: vec![usize::MAX], edits: Vec::new() },
        }
    };
    Submission {
        mutations: arriving.iter().map(|&at| submission.mutations[at].clone()).collect(),
        riders: submission.riders.iter().map(rider).collect(),
    }
}
