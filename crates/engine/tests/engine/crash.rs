//! A store survives random operations and a crash at any point. The recovered state is
//! a prefix of the commits that contains everything acknowledged.
//!
//! `STELE_SEED=n` runs one seed, `STELE_LONG=1` twenty times as many.

mod damage;
mod history;
mod life;
mod stories;

use crate::support::tally::{EventCounts, run_seeds};
use life::{Survivor, Tally};

const SEEDS: u64 = 100;
const LIVES: u64 = 10;
/// Seeds that have failed before.
const KEPT: &[u64] = &[181];

fn run(seed: u64) -> Tally {
    let mut tally = Tally::default();
    for tablets in [1, 5] {
        let mut survivor = Survivor::new(seed, tablets);
        for _ in 0..LIVES {
            survivor.live();
        }
        tally.add(&survivor.tally);
    }
    tally
}

#[test]
fn what_was_promised_survives_every_death_and_nothing_is_half_applied() {
    run_seeds(KEPT, SEEDS, SEEDS / 3, run);
}
