//! A store behaves like a plain ordered map of its whole history, whatever is flushed,
//! compacted, altered and reopened in between.
//!
//! `STELE_SEED=n` reruns one seed; `STELE_LONG=1` runs twenty times as much.

mod chance;
mod deletes;
mod history;
mod interrupt;
mod policy;
mod races;
mod reads;
mod run;
mod scans;
mod tablets;
mod tally;

use crate::support::tally::EventCounts;
use run::Run;
use tally::Tally;

const SEEDS: u64 = 60;
/// Numbers of tablets of each table.
const TABLETS: [usize; 2] = [1, 5];
const STEPS: usize = 1200;
const STEPS_LONG_FACTOR: usize = 4;
const SEEDS_LONG_FACTOR: u64 = 5;

/// Seeds that have found bugs before.
const KEPT: &str = include_str!("../seeds/model.txt");

#[test]
fn a_store_and_a_plain_map_agree_after_any_steps() {
    if let Ok(seed) = std::env::var("STELE_SEED") {
        let seed = seed.parse().expect("STELE_SEED is a number");
        for tablets in TABLETS {
            Run::new(seed, tablets).steps(STEPS * STEPS_LONG_FACTOR);
        }
        return;
    }
    let long = std::env::var_os("STELE_LONG").is_some();
    let steps = if long { STEPS * STEPS_LONG_FACTOR } else { STEPS };
    let seeds = if long { SEEDS * SEEDS_LONG_FACTOR } else { SEEDS };
    let kept = KEPT.lines().filter(|line| !line.starts_with('#'));
    let kept = kept.map(|line| line.trim().parse::<u64>().expect("a seed for each line"));
    let kept = kept.map(|seed| (seed, STEPS * STEPS_LONG_FACTOR));
    let mut tally = Tally::default();
    for (seed, steps) in kept.chain((0..seeds).map(|seed| (seed, steps))) {
        for tablets in TABLETS {
            let mut run = Run::new(seed, tablets);
            run.steps(steps);
            tally.add(&run.tally);
        }
    }
    println!("{tally:?}");
    tally.check();
}

#[test]
fn scale_3_2_a_store_and_a_plain_map_agree_although_outcomes_are_unknown() {
    if let Ok(seed) = std::env::var("STELE_SEED") {
        let seed = seed.parse().expect("STELE_SEED is a number");
        for tablets in TABLETS {
            Run::unsure(seed, tablets).steps(STEPS * STEPS_LONG_FACTOR);
        }
        return;
    }
    let seeds = if std::env::var_os("STELE_LONG").is_some() { SEEDS } else { SEEDS / 4 };
    for tablets in TABLETS {
        let mut unknown = 0;
        for seed in 0..seeds {
            let mut run = Run::unsure(seed, tablets);
            run.steps(STEPS);
            unknown += run.unknown;
        }
        assert!(unknown > 100 * seeds, "only {unknown} unknown outcomes");
    }
}

#[test]
fn scale_4_3_a_store_and_a_plain_map_agree_although_every_read_of_a_file_misses() {
    let seeds = if std::env::var_os("STELE_LONG").is_some() { SEEDS } else { SEEDS / 6 };
    for tablets in TABLETS {
        for seed in 0..seeds {
            Run::with_objects(seed, tablets).steps(STEPS);
        }
    }
}

#[test]
fn a_store_and_a_plain_map_agree_on_rows_deleted_over_and_over() {
    let (seeds, steps) =
        if std::env::var_os("STELE_LONG").is_some() { (200, 400) } else { (40, 150) };
    for seed in 0..seeds {
        for tablets in TABLETS {
            Run::new(seed, tablets).steps_of_deletes(steps);
        }
    }
}

#[test]
fn the_same_seed_writes_the_same_bytes() {
    for seed in [1, 2, 3] {
        let bytes = || {
            let mut run = Run::new(seed, 5);
            run.steps(400);
            run.files.files()
        };
        let (first, second) = (bytes(), bytes());
        let names: Vec<_> = first.keys().collect();
        assert_eq!(names, second.keys().collect::<Vec<_>>());
        for (name, bytes) in &first {
            assert!(*bytes == second[name], "{} differs for seed {seed}", name.display());
        }
        assert!(names.len() > 3, "the runs left files to compare: {names:?}");
    }
}
