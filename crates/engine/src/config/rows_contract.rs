//! The contract of [`TabletRows`], checked on every implementation: the rows in a
//! manifest and rows in memory, both also behind a connection that loses answers.

mod fixture;

use std::sync::Arc;

use super::rows::*;
use super::sim_rows::{Fate, RowFaults, SimRows};
use super::*;
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::error::{Error, Result};
use crate::world::sim::{Operation, disk_full};
use crate::world::{Random, SeededRandom};
use fixture::{Fixture, Gate, Halves, TABLE, key, numbers, of, splice};

#[test]
fn scale_3_2_a_mutation_is_applied_once_and_only_to_the_row_that_it_expects() {
    for fixture in Fixture::all() {
        let mutation = fixture.append(key(Some("m")), 1);
        let before = fixture.read(key(Some("m"))).unwrap();
        let wrong = |change: fn(&mut Mutation)| {
            let mut mutation = mutation.clone();
            change(&mut mutation);
            let answer = fixture.submit(of(&[&mutation]));
            let Outcome::Refused(found) = &answer.outcomes[0] else { panic!("{answer:?}") };
            found.clone()
        };
        assert_eq!(wrong(|mutation| mutation.expected.rev += 1), Some(before.clone()));
        assert_eq!(wrong(|mutation| mutation.expected.load += 1), Some(before.clone()));
        assert_eq!(wrong(|mutation| mutation.expected.id.number += 7), Some(before.clone()));
        assert_eq!(wrong(|mutation| mutation.key.table = TableId(9)), None);
        assert_eq!(wrong(|mutation| mutation.key.end = Some(b"n".to_vec())), None);
        assert_eq!(fixture.read(key(Some("m"))), Some(before.clone()));

        let answer = fixture.submit(of(&[&mutation]));
        assert!(matches!(answer.outcomes[0], Outcome::Applied), "{answer:?}");
        let after = fixture.read(key(Some("m"))).unwrap();
        assert!(after.config.rev > before.config.rev);
        assert_eq!((after.op, numbers(&after.config)), (Some(mutation.op), vec![1]));
        // A duplicate finds its own id in the row.
        let answer = fixture.submit(of(&[&mutation]));
        let Outcome::Refused(found) = &answer.outcomes[0] else { panic!("{answer:?}") };
        assert_eq!(*found, Some(after.clone()));
        assert_eq!(fixture.read(key(Some("m"))), Some(after));
    }
}

#[test]
fn scale_3_1_mutations_of_a_submission_are_independent_and_each_is_all_or_nothing() {
    for fixture in Fixture::all() {
        let sound = fixture.append(key(Some("m")), 1);
        let tablet = fixture.read(key(None)).unwrap().config;
        // The second edit names a file that is not there.
        let edits = [splice(&tablet, &[], &[2]), splice(&tablet, &[9], &[3])];
        let wrong = fixture.mutation(key(None), 2, &edits);
        let outcomes = fixture.submit(of(&[&wrong, &sound])).outcomes;
        assert!(matches!(outcomes[..], [Outcome::Refused(Some(_)), Outcome::Applied]));
        assert_eq!(fixture.numbers(key(Some("m"))), [1]);
        assert_eq!(fixture.numbers(key(None)), []);
    }
}

#[test]
fn scale_3_4_riders_are_written_with_their_mutations_in_one_record_or_not_at_all() {
    let fixture = Fixture::new(false);
    let head = |segment| vec![ConfigEdit::SetLogHead { segment }];
    let stale = fixture.append(key(None), 1);
    assert!(matches!(fixture.submit(of(&[&stale])).outcomes[..], [Outcome::Applied]));
    let sound = fixture.append(key(Some("m")), 2);
    let mut submission = of(&[&stale, &sound]);
    submission.riders = vec![
        Rider { mutations: vec![0, 1], edits: head(9) },
        Rider { mutations: vec![1], edits: head(5) },
    ];
    let syncs = fixture.sim.counters().syncs;
    assert_eq!(fixture.submit(submission).riders, [false, true]);
    assert_eq!(fixture.sim.counters().syncs, syncs + 1);
    assert_eq!(fixture.config.read().unwrap().log_head, 5);
    // A write that fails leaves nothing; what is refused stays refused.
    fixture.sim.fail_next(Operation::Write, "manifest", disk_full());
    let next = fixture.append(key(Some("m")), 3);
    let mut submission = of(&[&sound, &next]);
    submission.riders = vec![Rider { mutations: vec![1], edits: head(7) }];
    let answer = fixture.submit(submission.clone());
    let [Outcome::Refused(_), Outcome::Failed(Error::DiskFull { .. })] = &answer.outcomes[..]
    else {
        panic!("{answer:?}")
    };
    assert_eq!((answer.riders[0], fixture.config.read().unwrap().log_head), (false, 5));
    assert!(fixture.submit(submission).riders[0], "there is space again");
}

/// A table and its tablets as a list of ends and files.
type Model = Vec<(RowKey, Vec<u64>)>;

/// Drives a settler and a model through the same random changes.
struct Walk {
    settler: Settler,
    random: SeededRandom,
    model: Model,
    next: u64,
}

impl Walk {
    fn below(&self, bound: usize) -> usize {
        (self.random.next_u64() % bound as u64) as usize
    }

    fn row(&self, key: &RowKey) -> Arc<TabletConfig> {
        self.settler.read(std::slice::from_ref(key)).unwrap().remove(0)
    }

    fn step(&mut self) {
        match self.below(10) {
            0 if self.model.len() < 6 => self.split(),
            1 if self.model.len() > 1 => self.join(),
            _ => self.change_files(),
        }
        for (key, files) in &self.model {
            assert_eq!(numbers(&self.row(key)), *files);
        }
    }

    /// Changes the files of one or two tablets at once, with a rider.
    fn change_files(&mut self) {
        let mut changes = Vec::new();
        let from = self.below(self.model.len());
        for at in (from..self.model.len()).take(2) {
            let key = self.model[at].0.clone();
            let row = self.row(&key);
            self.next += 1;
            let mut edit = splice(&row, &[], &[self.next]);
            let replaces = self.below(4) == 0;
            if let RowEdit::Splice(splice) = &mut edit
                && replaces
            {
                splice.remove = row.files().map(Reference::key).collect();
            }
            changes.push(RowChange { key, tablet: (row.id, row.load), lower: None, edit });
            let files = &mut self.model[at].1;
            if replaces {
                files.clear();
            }
            files.push(self.next);
        }
        let head = ConfigEdit::SetLogHead { segment: self.next };
        assert!(self.settler.settle(changes, vec![head]).unwrap(), "the rider is written");
    }

    fn split(&mut self) {
        let at = vec![b'a' + self.below(26) as u8, b'a' + self.below(26) as u8];
        let is_before = |(key, _): &(RowKey, _)| key.end.as_ref().is_none_or(|end| *end > at);
        let place = self.model.iter().position(is_before).unwrap();
        let key = self.model[place].0.clone();
        let row = self.row(&key);
        if row.rows.start == at {
            return;
        }
        let edit = RowEdit::Split(Split {
            table: TABLE,
            tablet: row.id,
            load: row.load,
            row: at.clone(),
            shares: row.files().map(|_| 1).collect(),
        });
        let change = RowChange { key, tablet: (row.id, row.load), lower: None, edit };
        self.settler.settle(vec![change], Vec::new()).unwrap();
        self.model.insert(place, (RowKey { table: TABLE, end: Some(at) }, Vec::new()));
        self.read_back(place);
        self.read_back(place + 1);
    }

    /// Takes the files of a tablet as they are: how a split or join divides and pairs
    /// them is checked elsewhere.
    fn read_back(&mut self, place: usize) {
        self.model[place].1 = numbers(&self.row(&self.model[place].0));
    }

    fn join(&mut self) {
        let place = self.below(self.model.len() - 1);
        let [lower, upper] = [place, place + 1].map(|at| self.row(&self.model[at].0));
        let held = |tablet: &TabletConfig| (tablet.id, tablet.load);
        let row = upper.rows.start.clone();
        let ids = (held(&lower), held(&upper));
        let edit = RowEdit::Join(Join { table: TABLE, row, lower: ids.0, upper: ids.1 });
        let gone = self.model.remove(place).0;
        let key = self.model[place].0.clone();
        let change = RowChange { key, tablet: ids.1, lower: Some((gone, ids.0)), edit };
        self.settler.settle(vec![change], Vec::new()).unwrap();
        self.read_back(place);
    }
}

#[test]
fn scale_3_1_changes_are_applied_once_whatever_is_lost_late_or_doubled() {
    const SEEDS: u64 = 60;
    let mut counts = [0; 4];
    for seed in 0..SEEDS {
        for fixture in Fixture::all() {
            let rates = RowFaults { unknown: 40, late: 30, reads: 30 };
            let rows = Arc::new(SimRows::new(fixture.rows.clone(), seed, rates));
            let mut walk = Walk {
                settler: fixture.settler(rows.clone()),
                random: SeededRandom::new(seed ^ 0xA5),
                model: vec![(key(Some("m")), Vec::new()), (key(None), Vec::new())],
                next: 0,
            };
            (0..60).for_each(|_| walk.step());
            assert_eq!(fixture.config.read().unwrap().log_head, walk.next);
            assert!(fixture.config.failure().is_none());
            let done = rows.counts();
            let done = [done.lost, done.answers_lost, done.late, done.reads];
            counts.iter_mut().zip(done).for_each(|(sum, count)| *sum += count);
        }
    }
    assert!(counts.iter().all(|&count| count > 10 * SEEDS), "{counts:?}");
}

#[cfg(not(feature = "shuttle"))]
#[test]
fn scale_3_1_changes_that_wait_for_a_row_go_together_in_its_next_mutation() {
    for fixture in Fixture::all() {
        let gate = Gate::new(&fixture.rows);
        let settler = fixture.settler(gate.clone());
        let append = |key: &RowKey, number: u64| {
            let row = fixture.read(key.clone()).unwrap().config;
            let edit = splice(&row, &[], &[number]);
            let change =
                RowChange { key: key.clone(), tablet: (row.id, row.load), lower: None, edit };
            settler.settle(vec![change], Vec::new())
        };
        let (append, settler, gate) = (&append, &settler, &*gate);
        std::thread::scope(|scope| {
            let wait_until = |count: &dyn Fn() -> usize, expected: usize| {
                while count() != expected {
                    std::thread::yield_now();
                }
            };
            scope.spawn(move || append(&key(None), 1).unwrap());
            wait_until(&|| gate.state.lock().held.len(), 1);
            for number in [2, 3] {
                scope.spawn(move || append(&key(None), number).unwrap());
                wait_until(&|| settler.waiting(), number as usize - 1);
            }
            // Another row is free.
            scope.spawn(move || append(&key(Some("m")), 4).unwrap());
            wait_until(&|| gate.state.lock().held.len(), 2);
            gate.open();
        });
        let edits = |submission: &Submission| -> Vec<usize> {
            submission.mutations.iter().map(|mutation| mutation.edits.len()).collect()
        };
        let submitted: Vec<_> = gate.state.lock().submitted.iter().map(edits).collect();
        assert_eq!(submitted, [vec![1], vec![1], vec![2]]);
        assert_eq!(fixture.numbers(key(None)), [1, 2, 3]);
        assert_eq!(fixture.numbers(key(Some("m"))), [4]);
    }
}

fn change(row: &TabletRow, number: u64) -> RowChange {
    let config = &row.config;
    let key = RowKey { table: TABLE, end: config.rows.end.clone() };
    let edit = splice(config, &[], &[number]);
    RowChange { key, tablet: (config.id, config.load), lower: None, edit }
}

#[test]
fn scale_3_7_a_row_that_somebody_else_has_changed_stops_the_store() {
    for fixture in Fixture::all() {
        let rows = Arc::new(SimRows::new(fixture.rows.clone(), 1, RowFaults::default()));
        let settler = fixture.settler(rows.clone());
        let row = fixture.read(key(None)).unwrap();
        // The mutation is lost, and before it is sent again the row has changed.
        rows.plan(&[Fate::Lost]);
        let foreign = fixture.append(key(None), 7);
        let other = fixture.rows.clone();
        rows.set_probe(Some(Arc::new(move || other.submit(of(&[&foreign]), Box::new(|_| ())))));
        let stopped = |outcome: Result<bool>| matches!(outcome, Err(Error::Stopped(_)));
        assert!(stopped(settler.settle(vec![change(&row, 1)], Vec::new())));
        assert!(stopped(fixture.config.failure().map_or(Ok(true), Err)));
        assert!(!fixture.config.edit_left_no_trace(), "files may be named: they are kept");
        assert!(stopped(fixture.config.edit(&[ConfigEdit::TakeGeneration]).map(|_| true)));
        assert_eq!(fixture.numbers(key(None)), [7]);
    }
}

#[test]
fn scale_3_7_a_tablet_with_another_load_stops_the_store_and_gets_no_mutation() {
    for fixture in Fixture::all() {
        let settler = fixture.settler(fixture.rows.clone());
        let row = fixture.read(key(None)).unwrap();
        let mut stale = change(&row, 1);
        stale.tablet.1 += 1;
        assert!(matches!(settler.settle(vec![stale], Vec::new()), Err(Error::Stopped(_))));
        assert_eq!(fixture.read(key(None)), Some(row));
    }
}

#[test]
fn scale_3_5_what_is_half_applied_and_cannot_be_completed_stops_the_store() {
    for fixture in Fixture::all() {
        let rows = [key(None), key(Some("m"))].map(|key| fixture.read(key).unwrap());
        let settler = fixture.settler(Arc::new(Halves(fixture.rows.clone())));
        let both = rows.iter().map(|row| change(row, 1)).collect();
        assert!(matches!(settler.settle(both, Vec::new()), Err(Error::Stopped(_))));
        assert!(fixture.config.failure().is_some());
    }
}

#[test]
fn scale_3_2_a_failure_that_left_no_trace_is_an_error_and_the_next_attempt_succeeds() {
    let fixture = Fixture::new(false);
    let settler = fixture.settler(fixture.rows.clone());
    let row = fixture.read(key(None)).unwrap();
    fixture.sim.fail_next(Operation::Write, "manifest", disk_full());
    let failed = settler.settle(vec![change(&row, 1)], Vec::new());
    assert!(matches!(failed, Err(Error::DiskFull { .. })), "{failed:?}");
    assert!(fixture.config.failure().is_none() && fixture.config.edit_left_no_trace());
    assert_eq!(fixture.numbers(key(None)), []);
    settler.settle(vec![change(&row, 2)], Vec::new()).unwrap();
    assert_eq!(fixture.numbers(key(None)), [2]);
}

#[test]
fn scale_3_1_a_key_is_the_end_of_a_tablet_and_survives_its_split() {
    for fixture in Fixture::all() {
        let row = fixture.read(key(None)).unwrap().config;
        let (table, tablet, load) = (TABLE, row.id, row.load);
        let split = Split { table, tablet, load, row: b"s".to_vec(), shares: Vec::new() };
        let mutation = fixture.mutation(key(None), 1, &[RowEdit::Split(split)]);
        assert!(matches!(fixture.submit(of(&[&mutation])).outcomes[..], [Outcome::Applied]));
        let [lower, upper] = [key(Some("s")), key(None)].map(|key| fixture.read(key).unwrap());
        assert_eq!(lower.config.rows, RowRange::new("m", "s"));
        assert_eq!((upper.config.id, upper.op), (row.id, Some(mutation.op)));
    }
}
