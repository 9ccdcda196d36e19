//! Clusters of three and five members in one thread, from one seed: simulated
//! disks that lose what was not synced, a network that loses, delays,
//! duplicates and partitions, and simulated clocks.
//! `docs/metastore-cluster.md` lists the rules that are checked.

mod clients;
mod cluster;
mod faults;
mod history;
mod leases;
mod locks;
mod members;
mod network;
mod run;
mod scenarios;
mod transactions;
mod transfers;

use stele_metastore::command::LEVEL_OF_DEADLINES;
use stele_metastore::consensus::Rules;

use cluster::Build;
use run::run;
use scenarios::Scenario;

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
fn passes(scenario: Scenario, size: u64, seed: u64) -> String {
    run(scenario, size, seed, Build::default()).unwrap_or_else(|violation| panic!("{violation}"))
}

/// Runs random faults. Every third seed needs snapshots, every fourth has members of two
/// versions.
fn passes_random(size: u64, seed: u64) -> String {
    let mut build = Build { purges: seed.is_multiple_of(3), ..Build::default() };
    if seed % 4 == 1 {
        (build.mixed, build.level) = (true, LEVEL_OF_DEADLINES - 1);
    }
    let ran = run(Scenario::Random, size, seed, build);
    ran.unwrap_or_else(|violation| panic!("{violation}"))
}

#[test]
fn three_members_keep_every_promise_under_faults() {
    for seed in seeds(140) {
        passes_random(3, seed);
    }
}

#[test]
fn five_members_keep_every_promise_under_faults() {
    for seed in seeds(60) {
        passes_random(5, 1000 + seed);
    }
}

#[test]
fn a_seed_gives_the_same_run_every_time() {
    // Members of two versions, and snapshots.
    let trace = || passes_random(3, 9);
    let (first, second) = (trace(), trace());
    for (first, second) in first.lines().zip(second.lines()) {
        assert_eq!(first, second);
    }
    assert_eq!(first.len(), second.len());
}

/// Checks that a scenario passes if no rule is broken, and that one of 50 seeds
/// detects this build with one of these findings.
fn detects(scenario: Scenario, build: Build, findings: &[&str]) {
    for seed in seeds(2) {
        passes(scenario, 3, seed);
        passes(scenario, 5, seed);
    }
    let violation = (0..50).find_map(|seed| run(scenario, 3, seed, build).err());
    let violation = violation.expect("no seed detected the violation");
    let finding = violation.lines().next().expect("a violation has a first line");
    assert!(findings.iter().any(|expected| finding.contains(expected)), "{finding}");
}

/// Returns a build that breaks a rule.
fn breaks(rule: impl FnOnce(&mut Rules)) -> Build {
    let mut build = Build::default();
    rule(&mut build.rules);
    build
}

#[test]
fn entries_acknowledged_before_their_sync_are_detected() {
    let build = breaks(|rules| rules.acknowledge_before_sync = true);
    detects(Scenario::PowerLoss, build, &["answered and lost", "out of order"]);
}

#[test]
fn entries_applied_before_their_sync_are_detected() {
    let build = breaks(|rules| rules.apply_before_sync = true);
    detects(Scenario::LateSync, build, &["the log ends at entry"]);
}

#[test]
fn entries_committed_without_a_quorum_are_detected() {
    let build = breaks(|rules| rules.commit_without_quorum = true);
    let findings = ["answered and lost", "out of order", "has stopped", "the members differ"];
    detects(Scenario::Partitions, build, &findings);
}

#[test]
fn renewals_of_an_unconfirmed_leader_are_detected() {
    let build = breaks(|rules| rules.renew_without_confirmation = true);
    detects(Scenario::LateRenewal, build, &["stale"]);
}

#[test]
fn reads_of_an_unconfirmed_leader_are_detected() {
    let build = breaks(|rules| rules.read_without_confirmation = true);
    detects(Scenario::Partitions, build, &["out of order", "ended early"]);
}

#[test]
fn an_expiry_of_an_earlier_term_is_detected() {
    let build = breaks(|rules| rules.propose_without_fence = true);
    detects(Scenario::QueuedExpiry, build, &["ended early"]);
}

#[test]
fn a_log_replayed_with_an_old_cut_is_detected() {
    let build = breaks(|rules| rules.replay_old_cut = true);
    detects(Scenario::OldCut, build, &["answered and lost", "out of order"]);
}

#[test]
fn leases_that_begin_anew_with_each_leader_are_detected() {
    let build = Build { level: LEVEL_OF_DEADLINES - 1, ..Build::default() };
    detects(Scenario::Failovers, build, &["ended late"]);
}
