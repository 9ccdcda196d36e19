//! Random histories of a log checked against a model: what is read is always a
//! prefix of what was appended and contains at least everything synced.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::log::ItemKind;
use crate::world::SeededRandom;

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<usize>),
    Sync,
    Cut(u64),
    PutState(u16, u8),
    Release(u64),
    Close,
    Kill,
    LosePower(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![8 => 0usize..200, 1 => 200usize..4000];
    prop_oneof![
        6 => prop::collection::vec(bytes, 1..6).prop_map(Step::Append),
        3 => Just(Step::Sync),
        1 => (0u64..5).prop_map(Step::Cut),
        1 => (0u16..3, any::<u8>()).prop_map(|(stream, state)| Step::PutState(stream, state)),
        1 => (0u64..10).prop_map(Step::Release),
        1 => Just(Step::Close),
        1 => Just(Step::Kill),
        2 => any::<u64>().prop_map(Step::LosePower),
    ]
}

/// The operations on a log, in order.
#[derive(Clone, Debug, PartialEq)]
enum Done {
    Entry(u64, Bytes),
    Cut(u64),
    State(u16, u8),
}

#[derive(Default)]
struct Model {
    done: Vec<Done>,
    /// Number of operations that are synced.
    synced: usize,
    next_index: u64,
}

impl Model {
    fn states(done: &[Done]) -> BTreeMap<u16, Bytes> {
        let states = done.iter().filter_map(|done| match done {
            Done::State(stream, state) => Some((*stream, Bytes::from(vec![*state; 8]))),
            _ => None,
        });
        states.collect()
    }

    /// Finds how many of the operations were read back; any mismatch is a
    /// failure.
    fn check(&mut self, test_log: &TestLog, floor: u64) {
        let (items, end) = test_log.read().unwrap();
        let found: Vec<Done> = items
            .into_iter()
            .filter_map(|item| match item.kind {
                ItemKind::Data => Some(Done::Entry(item.index, item.payload)),
                ItemKind::Cut => Some(Done::Cut(item.index)),
                ItemKind::State => None,
            })
            .collect();
        let fits = |upto: &usize| {
            let done = &self.done[..*upto];
            let without_states: Vec<&Done> =
                done.iter().filter(|done| !matches!(done, Done::State(..))).collect();
            let Some(released) = without_states.len().checked_sub(found.len()) else {
                return false;
            };
            without_states[released..].iter().copied().eq(found.iter())
                && without_states[..released].iter().all(|done| match done {
                    Done::Entry(index, _) => *index < floor,
                    _ => true,
                })
                && end.states == Model::states(done)
        };
        let kept = (self.synced..=self.done.len()).rev().find(fits);
        let kept = kept.unwrap_or_else(|| panic!("{found:?} is not a prefix of {:?}", self.done));
        self.done.truncate(kept);
        // A new incarnation makes durable what it has read before it continues.
        self.synced = kept;
    }
}

fn live(steps: Vec<Step>, recycle_max: usize) {
    let mut test_log = TestLog::new(1024);
    test_log.options.recycle_max = recycle_max;
    let mut model = Model { next_index: 1, ..Model::default() };
    let mut floor = 0;
    let mut writer = test_log.start();
    for step in steps {
        match step {
            Step::Append(sizes) => {
                let mut batch = Vec::new();
                for bytes in sizes {
                    let payload = payload(model.next_index, bytes);
                    batch.push(entry(model.next_index, payload.clone()));
                    model.done.push(Done::Entry(model.next_index, payload));
                    model.next_index += 1;
                }
                writer.append(&batch).unwrap();
            }
            Step::Sync => {
                writer.sync().unwrap();
                model.synced = model.done.len();
            }
            Step::Cut(back) => {
                let from = model.next_index.saturating_sub(back).max(1);
                writer.cut(0, from).unwrap();
                model.done.push(Done::Cut(from));
            }
            Step::PutState(stream, state) => {
                writer.put_state(stream, &[state; 8]).unwrap();
                model.done.push(Done::State(stream, state));
            }
            Step::Release(back) => {
                // Only what is synced can be durable elsewhere.
                writer.sync().unwrap();
                model.synced = model.done.len();
                floor = floor.max(model.next_index.saturating_sub(back));
                test_log.head = writer.head_for(&[(0, floor)]);
                writer.release_below(test_log.head).unwrap();
            }
            Step::Close => {
                writer.close().unwrap();
                model.synced = model.done.len();
                model.check(&test_log, floor);
                writer = test_log.start();
            }
            Step::Kill => {
                model.synced = model.done.len();
                model.check(&test_log, floor);
                writer = test_log.start();
            }
            Step::LosePower(seed) => {
                test_log.disk.lose_power(&SeededRandom::new(seed));
                model.check(&test_log, floor);
                writer = test_log.start();
            }
        }
    }
    model.synced = model.done.len();
    model.check(&test_log, floor);
}

proptest! {
    #[test]
    fn what_is_read_is_a_prefix_that_holds_all_that_was_synced(
        steps in prop::collection::vec(step(), 1..60),
        recycle_max in 0usize..4,
    ) {
        live(steps, recycle_max);
    }
}
