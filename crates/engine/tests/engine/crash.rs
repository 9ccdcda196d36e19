//! A store survives random operations and a crash at any point. The recovered state is
//! a prefix of the commits that contains everything acknowledged.
//!
//! `STELE_SEED=n` runs one seed, `STELE_LONG=1` twenty times as many.

mod damage;
mod history;
mod life;
mod stories;

use std::cell::Cell;

use stele_engine::config::RowFaults;

use crate::support::tally::{EventCounts, run_seeds};
use crate::support::unsure::UNSURE;
use life::{Survivor, Tally};

const SEEDS: u64 = 100;
const LIVES: u64 = 10;
/// Seeds that have failed before.
const KEPT: &[u64] = &[181];

/// Lives through a seed with 1 and with 5 tablets per table. Returns also the number of
/// unknown outcomes.
fn run(seed: u64, rates: RowFaults) -> (Tally, u64) {
    let (mut tally, mut unknown) = (Tally::default(), 0);
    for tablets in [1, 5] {
        let mut survivor = Survivor::new(seed, tablets, rates);
        for _ in 0..LIVES {
            survivor.live();
        }
        tally.add(&survivor.tally);
        unknown += survivor.unknown;
    }
    (tally, unknown)
}

#[test]
fn what_was_promised_survives_every_death_and_nothing_is_half_applied() {
    run_seeds(KEPT, SEEDS, SEEDS / 3, |seed| run(seed, RowFaults::default()).0);
}

#[test]
fn scale_4_what_was_promised_survives_with_fragments_in_an_object_store() {
    run_seeds(&[], SEEDS / 2, SEEDS / 6, |seed| {
        let mut tally = Tally::default();
        for (tablets, rates) in [(1, RowFaults::default()), (5, UNSURE)] {
            let mut survivor = Survivor::with_objects(seed, tablets, rates);
            for _ in 0..LIVES {
                survivor.live();
            }
            survivor.check_collected();
            survivor.live();
            tally.add(&survivor.tally);
        }
        tally
    });
}

#[test]
fn scale_3_2_what_was_promised_survives_although_outcomes_are_unknown() {
    let unknown = Cell::new(0);
    run_seeds(&[], SEEDS / 2, SEEDS / 6, |seed| {
        let (tally, of_seed) = run(seed, UNSURE);
        unknown.set(unknown.get() + of_seed);
        tally
    });
    assert!(unknown.get() > 10 * SEEDS, "only {} unknown outcomes", unknown.get());
}
