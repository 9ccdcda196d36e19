//! Deadlines of leases over changes of leaders, with two members of a group that
//! share a clock.

use std::sync::Arc;
use std::time::Duration;

use stele_engine::world::{Clock, World};
use stele_metastore::command::{Command, LEVEL_MAX, encode};
use stele_metastore::consensus::{Committed, Machine};
use stele_metastore::lease::{Deadlines, Leases, Renewal};
use stele_metastore::machine::{self, MachineParts, MachineSettings};
use stele_metastore::state::Identity;
use tempfile::TempDir;

use crate::clock::TestClock;

const SECOND: Duration = Duration::from_secs(1);
const TTL: u32 = 10;
const LEASE: i64 = 7;

struct Group {
    clock: Arc<TestClock>,
    dirs: Vec<TempDir>,
    members: Vec<MachineParts>,
    index: u64,
    term: u64,
}

impl Group {
    /// Returns a group whose member 0 leads, with a lease.
    fn new() -> Group {
        let clock = Arc::<TestClock>::default();
        let dirs: Vec<TempDir> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
        let members = dirs.iter().map(|dir| open(dir, &clock)).collect();
        let mut group = Group { clock, dirs, members, index: 0, term: 1 };
        group.apply(Command::RaiseLevel { level: LEVEL_MAX });
        group.lead(0, Duration::ZERO);
        group.apply(Command::LeaseGrant { id: LEASE, ttl_seconds: TTL.into() });
        group.record(0);
        group
    }

    fn leases(&self, member: usize) -> &Leases {
        &self.members[member].leases
    }

    fn apply(&mut self, command: Command) {
        self.apply_entry(&[command]);
    }

    fn apply_entry(&mut self, commands: &[Command]) {
        self.index += 1;
        for member in &self.members {
            let proposals = commands.iter().map(|command| encode(command, 0)).collect();
            let (index, term) = (self.index, self.term);
            let entry = Committed { index, term, proposals, awaited: false };
            let answers = member.applier.apply(entry).unwrap();
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        }
    }

    /// Makes a member the leader of the next term.
    fn lead(&mut self, member: usize, silence: Duration) {
        self.term += 1;
        self.apply_entry(&[]);
        self.leases(member).take_over(self.term, silence);
    }

    /// Records what is due at the leader.
    fn record(&mut self, leader: usize) {
        let Deadlines { clock_micros, leases } = self.leases(leader).take_unrecorded().unwrap();
        self.apply(Command::LeaseDeadlines { clock_micros, deadlines: leases });
    }

    fn renew(&self, member: usize) -> Renewal {
        self.leases(member).renew(LEASE, self.clock.elapsed())
    }

    /// Returns how long the lease lasts at a leader.
    fn run_out(&self, leader: usize) -> Duration {
        let from = self.clock.elapsed();
        while self.leases(leader).expired(1).is_empty() {
            self.clock.run(SECOND / 4);
        }
        self.clock.elapsed() - from
    }
}

fn open(dir: &TempDir, clock: &Arc<TestClock>) -> MachineParts {
    let world = World { clock: clock.clone(), spawner: None, ..World::real() };
    let identity = || Identity { cluster_id: 1, member_id: 2 };
    let parts = machine::open(dir.path(), MachineSettings::default(), world, identity).unwrap();
    parts.leases.set_has_peers();
    parts
}

#[test]
fn a_lease_ends_after_its_ttl_over_any_number_of_leaders() {
    let mut group = Group::new();
    // Each of them leads for two seconds, and then nobody for one.
    for term in 1..5 {
        group.clock.run(3 * SECOND);
        let leader = term % 2;
        group.lead(leader, SECOND);
        group.record(leader);
        let left = group.leases(leader).time_to_live(LEASE).unwrap().ttl_seconds;
        assert!(left <= i64::from(TTL) - 2 * term as i64 + 1, "{left} s after {term} leaders");
    }
    let left = group.run_out(0);
    assert!((2 * SECOND..=4 * SECOND).contains(&left), "{left:?}");
}

#[test]
fn a_renewal_is_answered_once_its_deadline_is_recorded() {
    let mut group = Group::new();
    group.clock.run(SECOND);
    assert_eq!(group.renew(0), Renewal::Unrecorded);
    group.record(0);
    assert_eq!(group.renew(0), Renewal::Renewed(TTL.into()));
    // The next one is covered.
    group.clock.run(3 * SECOND);
    assert_eq!(group.renew(0), Renewal::Renewed(TTL.into()));
    group.clock.run(3 * SECOND);
    assert_eq!(group.renew(0), Renewal::Unrecorded);
    // It was not answered, but the one three seconds before was.
    group.lead(1, Duration::ZERO);
    let left = group.run_out(1) + 3 * SECOND;
    assert!((TTL * SECOND..=TTL * SECOND * 3 / 2).contains(&left), "{left:?}");
    assert_eq!(group.leases(0).renew(99, Duration::ZERO), Renewal::Ended);
}

#[test]
fn a_new_leader_renews_nothing_before_it_has_recorded_its_clock() {
    let mut group = Group::new();
    assert_eq!(group.renew(0), Renewal::Renewed(TTL.into()));
    group.lead(1, Duration::ZERO);
    assert_eq!(group.renew(1), Renewal::Unrecorded);
    group.record(1);
    assert_eq!(group.renew(1), Renewal::Renewed(TTL.into()));
    // The old leader knows the new term.
    assert_eq!(group.renew(0), Renewal::Unrecorded);
}

#[test]
fn a_deadline_in_the_log_outlives_all_members() {
    let mut group = Group::new();
    group.clock.run(6 * SECOND);
    group.record(0);
    for member in &group.members {
        member.state.store.flush(member.state.tables.user).unwrap();
    }
    group.members.clear();
    group.members = group.dirs.iter().map(|dir| open(dir, &group.clock)).collect();
    // Nobody led in this hour.
    group.clock.run(3600 * SECOND);
    group.lead(1, 3600 * SECOND);
    let left = group.run_out(1);
    assert!((4 * SECOND..=5 * SECOND).contains(&left), "{left:?}");
}
