//! A store survives random operations and a crash at any point. The recovered state is
//! a prefix of the commits that contains everything acknowledged.
//!
//! `STELE_SEED=n` runs one seed, `STELE_LONG=1` twenty times as many.

#[path = "crash/damage.rs"]
mod damage;
#[path = "support/die.rs"]
mod die;
#[path = "crash/history.rs"]
mod history;
#[path = "crash/life.rs"]
mod life;
#[path = "support/power.rs"]
mod power;
#[path = "crash/stories.rs"]
mod stories;

use life::{Survivor, Tally};

const SEEDS: u64 = 150;
const LIVES: u64 = 10;
/// Seeds that have failed before.
const KEPT: &[u64] = &[181];

fn run(seed: u64) -> Tally {
    struct Told(u64);
    impl Drop for Told {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("run again with STELE_SEED={}", self.0);
            }
        }
    }
    let _told = Told(seed);
    let mut survivor = Survivor::new(seed);
    for _ in 0..LIVES {
        survivor.live();
    }
    survivor.tally
}

#[test]
fn what_was_promised_survives_every_death_and_nothing_is_half_applied() {
    if let Ok(seed) = std::env::var("STELE_SEED") {
        println!("{:?}", run(seed.parse().expect("STELE_SEED is a number")));
        return;
    }
    let factor = if std::env::var("STELE_LONG").is_ok() { 20 } else { 1 };
    let mut sum = Tally::default();
    for seed in KEPT.iter().copied().chain(0..SEEDS * factor) {
        sum.add(&run(seed));
    }
    println!("{sum:?}");
    for (what, number) in sum.parts() {
        assert!(number >= SEEDS / 3, "too few {what} to prove anything: {sum:?}");
    }
}
