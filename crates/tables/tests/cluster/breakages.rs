//! Each rule, switched off, is missed: a scenario aimed at it breaks within 50 seeds. Rules
//! that are a second line of defence are switched off together with the first. The tests
//! of `with_engine` do the same with the engine in place of lists.

use std::time::Duration;

use stele_engine::world::sim::LogFaults;
use stele_engine::{OnDoubt, OnExists, WalkFrom};
use stele_tables::coordinate::EtcdFaults;

use crate::history::Violation;
use crate::promises::EARLY_LOSSES;
use crate::simulation::{Scenario, Switches, simulate};

const SEEDS: u64 = 50;

/// Servers that are paused for longer than their lease.
const PAUSES: Scenario =
    Scenario { crashes: 0, pauses: 45, pause_max: Duration::from_secs(25), ..Scenario::MIXED };
/// Servers that crash, with much of the log under way.
const CRASHES: Scenario = Scenario {
    crashes: 40,
    pauses: 0,
    clients: 8,
    log: LogFaults { refused: 10, answer_lost: 10, late: 10, timed_out: 2, doubled: 5 },
    log_delay_max: Duration::from_millis(300),
    ..Scenario::MIXED
};
/// Servers that truncate their logs often, with a coordinator that is slow to answer.
const FLOORS: Scenario = Scenario {
    flushes: 90,
    moves: 0,
    etcd: EtcdFaults { refused: 5, answer_lost: 10, late: 25 },
    ..CRASHES
};
/// A tablet that moves between servers.
const MOVES: Scenario = Scenario { moves: 40, crashes: 15, pauses: 0, ..Scenario::MIXED };

/// Checks that a scenario breaks without a rule, and not with it. Returns how.
fn missed(scenario: Scenario, change: fn(&mut Switches)) -> Violation {
    let mut switches = Switches::CORRECTED;
    change(&mut switches);
    assert_ne!(switches, Switches::CORRECTED);
    let broken =
        (0..SEEDS).find_map(|seed| Some((seed, simulate(seed, switches, scenario).err()?)));
    let (seed, violation) = broken.expect("nobody misses the rule");
    let sound = simulate(seed, Switches::CORRECTED, scenario);
    assert!(sound.is_ok(), "seed {seed} with all rules: {sound:?}");
    println!("seed {seed}: {:.80}", format!("{violation:?}"));
    violation
}

fn is_lost(violation: &Violation) -> bool {
    matches!(violation, Violation::Lost(_))
}

#[test]
fn lease_gates_reads() {
    let violation = missed(PAUSES, |switches| switches.lease_gates_reads = false);
    assert!(matches!(violation, Violation::Stale { .. }), "{violation:?}");
}

#[test]
fn wait_for_lease() {
    // Reads of a server that was fenced while its lease lives are stale.
    missed(Scenario { strays: 60, ..PAUSES }, |switches| switches.rules.wait_for_lease = false);
}

#[test]
fn scale_7_4_absent_for() {
    // Without the wait, leases that end too early make reads stale.
    let broken = (0..SEEDS)
        .find_map(|seed| simulate(seed, Switches::CORRECTED, EARLY_LOSSES).err())
        .expect("nobody misses the wait");
    assert!(matches!(broken, Violation::Stale { .. }), "{broken:?}");
}

#[test]
fn seal_with_lease_gates_acks() {
    missed(PAUSES, |switches| {
        switches.rules.seal = false;
        switches.lease_gates_acks = false;
    });
}

#[test]
fn on_exists_with_lease_gates_acks() {
    missed(PAUSES, |switches| {
        switches.rules.on_exists = OnExists::Success;
        switches.lease_gates_acks = false;
    });
}

#[test]
fn acks_in_order() {
    assert!(is_lost(&missed(CRASHES, |switches| switches.rules.acks_in_order = false)));
}

#[test]
fn on_doubt_skips() {
    missed(CRASHES, |switches| switches.rules.on_doubt = OnDoubt::Skip);
}

#[test]
fn floor_after_config() {
    missed(FLOORS, |switches| switches.rules.floor_after_config = false);
}

#[test]
fn floor_before_delete() {
    missed(FLOORS, |switches| switches.rules.floor_before_delete = false);
}

#[test]
fn floor_only_rises() {
    missed(FLOORS, |switches| switches.rules.floor_only_rises = false);
}

#[test]
fn walk_from_zero() {
    missed(FLOORS, |switches| switches.rules.walk_from = WalkFrom::Zero);
}

#[test]
fn walk_from_a_listing() {
    missed(CRASHES, |switches| switches.rules.walk_from = WalkFrom::Listing);
}

#[test]
fn durable_reads() {
    missed(CRASHES, |switches| switches.durable_reads = false);
}

#[test]
fn server_conditional() {
    missed(PAUSES, |switches| switches.rules.server_conditional = false);
}

#[test]
fn recoverer_conditional() {
    let scenario = Scenario { rivals: 100, ..PAUSES };
    missed(scenario, |switches| switches.rules.recoverer_conditional = false);
}

#[test]
fn base_per_load() {
    missed(MOVES, |switches| switches.rules.base_per_load = false);
}

#[test]
fn skip_flushed() {
    let violation = missed(CRASHES, |switches| switches.rules.skip_flushed = false);
    assert!(matches!(violation, Violation::Doubled(_)), "{violation:?}");
}

mod with_engine {
    use super::*;

    /// Returns a scenario whose servers have the engine, and a tablet for each row.
    fn engine(scenario: Scenario) -> Scenario {
        let Scenario { tablets, fragments, .. } = Scenario::ENGINE;
        Scenario { engine: true, tablets, fragments, ..scenario }
    }

    #[test]
    fn lease_gates_reads() {
        let violation = missed(engine(PAUSES), |switches| switches.lease_gates_reads = false);
        assert!(matches!(violation, Violation::Stale { .. }), "{violation:?}");
    }

    #[test]
    fn acks_in_order() {
        missed(engine(CRASHES), |switches| switches.rules.acks_in_order = false);
    }

    #[test]
    fn floor_before_delete() {
        missed(engine(FLOORS), |switches| switches.rules.floor_before_delete = false);
    }

    #[test]
    fn floor_only_rises() {
        missed(engine(FLOORS), |switches| switches.rules.floor_only_rises = false);
    }

    #[test]
    fn walk_from_zero() {
        missed(engine(FLOORS), |switches| switches.rules.walk_from = WalkFrom::Zero);
    }

    #[test]
    fn recoverer_conditional() {
        let scenario = Scenario { rivals: 100, ..engine(PAUSES) };
        missed(scenario, |switches| switches.rules.recoverer_conditional = false);
    }

    #[test]
    fn base_per_load() {
        missed(engine(MOVES), |switches| switches.rules.base_per_load = false);
    }

    #[test]
    fn skip_flushed() {
        let violation = missed(engine(CRASHES), |switches| switches.rules.skip_flushed = false);
        assert!(matches!(violation, Violation::Doubled(_)), "{violation:?}");
    }
}
