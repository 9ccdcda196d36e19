//! Clusters of three and five members in one thread, from one seed: simulated
//! disks that lose what was not synced, a network that loses, delays,
//! duplicates and partitions, and one simulated clock.
//! `docs/metastore-cluster.md` lists the rules that are checked.

mod clients;
mod cluster;
mod history;
mod members;
mod network;
mod run;

use stele_metastore::consensus::Rules;

use run::run;

/// The number of seeds; more with STELE_LONG.
fn seeds(few: u64) -> std::ops::Range<u64> {
    let long = std::env::var_os("STELE_LONG").is_some();
    let first = std::env::var("STELE_SEED").ok().and_then(|seed| seed.parse().ok());
    match first {
        Some(seed) => seed..seed + 1,
        None => 0..if long { few * 50 } else { few },
    }
}

/// Runs a seed that violates no rule, and returns its trace.
fn passes(size: u64, seed: u64) -> String {
    run(size, seed, Rules::default()).unwrap_or_else(|violation| panic!("{violation}"))
}

#[test]
fn three_members_keep_every_promise_under_faults() {
    for seed in seeds(20) {
        passes(3, seed);
    }
}

#[test]
fn five_members_keep_every_promise_under_faults() {
    for seed in seeds(10) {
        passes(5, 1000 + seed);
    }
}

#[test]
fn a_seed_gives_the_same_run_every_time() {
    let (first, second) = (passes(3, 7), passes(3, 7));
    for (first, second) in first.lines().zip(second.lines()) {
        assert_eq!(first, second);
    }
    assert_eq!(first.len(), second.len());
}

/// Returns the first violation that seeds find.
fn caught(rules: Rules) -> String {
    let found = (0..60).find_map(|seed| run(3, seed, rules).err());
    found.expect("no seed caught the violation")
}

#[test]
fn reads_of_an_unconfirmed_leader_are_caught() {
    caught(Rules { read_without_confirmation: true, ..Rules::default() });
}
