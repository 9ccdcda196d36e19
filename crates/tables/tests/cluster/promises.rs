//! What a cluster promises whatever goes wrong.

use std::time::Duration;

use stele_engine::world::sim::LogFaults;
use stele_tables::LeaseTimes;
use stele_tables::coordinate::EtcdFaults;

use crate::simulation::{Run, Scenario, Switches, simulate};

fn seeds() -> u64 {
    if std::env::var_os("STELE_LONG").is_some() { 2_000 } else { 60 }
}

/// Runs a scenario with many seeds, or with that of `STELE_SEED`. Returns what the runs did.
fn check(scenario: Scenario, seeds: u64) -> Vec<Run> {
    let chosen = std::env::var("STELE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = chosen.map_or(0..seeds, |seed: u64| seed..seed + 1);
    let run = |seed| match simulate(seed, Switches::CORRECTED, scenario) {
        Ok(run) => run,
        Err(violation) => panic!("STELE_SEED={seed}: {violation:?}"),
    };
    seeds.map(run).collect()
}

#[test]
fn r11_nothing_acknowledged_is_lost_and_calls_are_linearizable_whatever_fails() {
    let runs = check(Scenario::MIXED, seeds());
    let sum = |of: fn(&Run) -> u64| runs.iter().map(of).sum::<u64>() / runs.len() as u64;
    // The runs did something: writes, reads, restarts and changes of the owner.
    assert!(sum(|run| run.appended as u64) > 100, "{runs:?}");
    assert!(sum(|run| run.read as u64) > 100, "{runs:?}");
    assert!(sum(|run| run.epochs as u64) > 5, "{runs:?}");
    assert!(sum(|run| run.loads) > 5, "{runs:?}");
}

#[test]
fn r7_a_tablet_that_moves_all_the_time_loses_nothing() {
    let scenario = Scenario { moves: 40, crashes: 5, pauses: 5, ..Scenario::MIXED };
    let runs = check(scenario, seeds() / 4);
    assert!(runs.iter().all(|run| run.loads > 5), "{runs:?}");
}

#[test]
fn r2_4_without_faults_nobody_halts_and_the_owner_stays() {
    let scenario = Scenario {
        moves: 0,
        crashes: 0,
        pauses: 0,
        etcd: EtcdFaults::default(),
        log: LogFaults::default(),
        ..Scenario::MIXED
    };
    for run in check(scenario, 5) {
        assert_eq!((run.epochs, run.loads), (3, 2), "{run:?}");
        assert!(run.appended > 300, "{run:?}");
    }
}

#[test]
fn r4_2_faults_of_the_store_of_logs_alone_halt_nobody() {
    let log = LogFaults { refused: 15, answer_lost: 10, late: 10, timed_out: 3, doubled: 10 };
    let scenario = Scenario { moves: 0, crashes: 0, pauses: 0, log, ..Scenario::MIXED };
    let scenario = Scenario { etcd: EtcdFaults::default(), ..scenario };
    for run in check(scenario, 10) {
        assert_eq!((run.epochs, run.loads), (3, 2), "{run:?}");
    }
}

#[test]
fn r8_servers_that_only_pause_are_recovered_and_find_it_out() {
    let scenario =
        Scenario { crashes: 0, pauses: 40, pause_max: Duration::from_secs(40), ..Scenario::MIXED };
    let runs = check(scenario, seeds() / 4);
    assert!(runs.iter().any(|run| run.loads > 5), "{runs:?}");
}

/// Leases that end too early, as with etcd before 3.5.13.
pub const EARLY_LOSSES: Scenario =
    Scenario { early_losses: 30, crashes: 0, pauses: 0, strays: 60, ..Scenario::MIXED };

#[test]
fn scale_7_4_reads_are_fresh_although_the_coordinator_ends_leases_too_early() {
    let absent_for = LeaseTimes::default().ttl;
    let runs = check(Scenario { absent_for, ..EARLY_LOSSES }, seeds() / 4);
    assert!(runs.iter().all(|run| run.loads > 3), "{runs:?}");
}

#[test]
fn r11_with_the_engine_nothing_acknowledged_is_lost_and_calls_are_linearizable() {
    let runs = check(Scenario::ENGINE, seeds() / 2);
    let sum = |of: fn(&Run) -> u64| runs.iter().map(of).sum::<u64>() / runs.len() as u64;
    assert!(sum(|run| run.appended as u64) > 80, "{runs:?}");
    assert!(sum(|run| run.read as u64) > 80, "{runs:?}");
    assert!(sum(|run| run.epochs as u64) > 5, "{runs:?}");
    assert!(sum(|run| run.loads) > 3, "{runs:?}");
    assert!(sum(|run| run.collected.0 as u64) > 3, "{runs:?}");
    assert!(sum(|run| run.collected.1 as u64) > 3, "{runs:?}");
}

#[test]
fn one_seed_gives_one_run() {
    for seed in 0..5 {
        let run = || simulate(seed, Switches::CORRECTED, Scenario::MIXED);
        assert_eq!(run(), run(), "seed {seed}");
    }
}
