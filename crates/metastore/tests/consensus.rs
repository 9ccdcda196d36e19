//! Consensus with one voter: acknowledged proposals survive everything,
//! unacknowledged ones are applied whole or not at all, and the machine sees
//! every entry once, in order.
//!
//! `STELE_SEED=n` runs one seed, `STELE_LONG=1` twenty times as many.

#[expect(dead_code, reason = "recorder.rs creates the world of these tests")]
#[path = "../../engine/tests/support/power.rs"]
mod power;
pub mod recorder;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use power::Powered;
use recorder::{DIR, Recorder, block_on, settings};
use stele_engine::world::sim::{SimFiles, disk_error};
use stele_engine::world::{Files, Random, SeededRandom};
use stele_metastore::Error;
use stele_metastore::consensus::{Position, RaftGroup};

fn bytes(text: impl ToString) -> Bytes {
    Bytes::from(text.to_string())
}

#[test]
fn a_proposal_is_answered_with_the_result_of_the_machine() {
    block_on(async {
        let recorder = Arc::new(Recorder::default());
        let group = RaftGroup::open(settings(SimFiles::new(1)), recorder.clone()).await.unwrap();
        let proposed: Vec<_> = (0..50).map(|n| group.propose(bytes(n))).collect();
        for (n, answer) in proposed.into_iter().enumerate() {
            assert_eq!(answer.await.unwrap(), n.to_string());
        }
        group.barrier().await.unwrap();
        let status = group.status();
        assert_eq!((status.leader, status.applied), (status.member, status.last));
        assert_eq!(recorder.applied_index(), status.applied);
        group.close().await.unwrap();
    });
}

/// Holds the first entry in the machine until ten other proposals are queued.
/// Returns the number of proposals of each entry, and the syncs after the first.
fn entry_sizes(
    limits: impl FnOnce(&mut stele_metastore::consensus::GroupSettings),
) -> (Vec<usize>, u64) {
    block_on(async {
        let recorder = Arc::new(Recorder::default());
        let mut settings = settings(SimFiles::new(1));
        limits(&mut settings);
        let group = RaftGroup::open(settings, recorder.clone()).await.unwrap();
        let gate = recorder.hold();
        let first = group.propose(bytes("first"));
        gate.wait_until_held();
        let (_, syncs) = group.log_stats();
        let others: Vec<_> = (0..10).map(|n| group.propose(bytes(n))).collect();
        gate.open();
        first.await.unwrap();
        for (n, answer) in others.into_iter().enumerate() {
            assert_eq!(answer.await.unwrap(), n.to_string());
        }
        let syncs = group.log_stats().1 - syncs;
        group.close().await.unwrap();
        (recorder.sizes().into_iter().filter(|size| *size > 0).collect(), syncs)
    })
}

#[test]
fn what_arrives_during_a_sync_makes_the_next_entry_with_one_sync_for_all() {
    assert_eq!(entry_sizes(|_| {}), (vec![1, 10], 1));
}

#[test]
fn an_entry_takes_no_more_proposals_and_bytes_than_it_may() {
    assert_eq!(entry_sizes(|settings| settings.entry_proposals_max = 4).0, [1, 4, 4, 2]);
    assert_eq!(entry_sizes(|settings| settings.entry_bytes_max = 3).0, [1, 3, 3, 3, 1]);
    assert_eq!(entry_sizes(|settings| settings.entry_bytes_max = 0).0, [1; 11]);
}

#[test]
fn too_many_proposals_are_refused_and_the_others_are_answered() {
    block_on(async {
        let recorder = Arc::new(Recorder::default());
        let mut settings = settings(SimFiles::new(1));
        settings.queue_proposals_max = 3;
        let group = RaftGroup::open(settings, recorder.clone()).await.unwrap();
        let gate = recorder.hold();
        let first = group.propose(bytes("first"));
        gate.wait_until_held();
        let queued: Vec<_> = (0..3).map(|n| group.propose(bytes(n))).collect();
        let refused = group.propose(bytes("refused")).await;
        assert!(matches!(refused, Err(Error::TooManyRequests)), "{refused:?}");
        gate.open();
        first.await.unwrap();
        for answer in queued {
            answer.await.unwrap();
        }
        group.propose(bytes("the queue has space again")).await.unwrap();
    });
}

/// Runs a member until its power fails after some file operations. Returns the
/// proposals that were answered.
async fn live(power: &Powered, recorder: Arc<Recorder>, names: std::ops::Range<u64>) -> Vec<u64> {
    let mut answered = Vec::new();
    let Ok(group) = RaftGroup::open(settings(power.clone()), recorder.clone()).await else {
        return answered;
    };
    for name in names {
        if name % 7 == 0 {
            recorder.flush();
        }
        if group.propose(bytes(name)).await.is_err() {
            assert!(power.is_out(), "refused without a reason");
            break;
        }
        answered.push(name);
    }
    drop(group);
    answered
}

#[test]
fn what_was_answered_survives_a_loss_of_power_at_any_moment() {
    block_on(async {
        for cut in 0..160 {
            let sim = SimFiles::new(cut);
            let power = Powered::new(sim.clone());
            power.cut_after(cut);
            let recorder = Arc::new(Recorder::default());
            let mut answered = live(&power, recorder.clone(), 0..20).await;
            let term = recorder.applied_term();
            // Power returns, fails once more in the middle, and then stays.
            let sim = if cut % 3 == 0 { sim.crash_keeping_writes() } else { sim.crash() };
            let again = Powered::new(sim.clone());
            again.cut_after(cut / 2);
            let recorder = Arc::new(recorder.as_of_flush());
            answered.extend(live(&again, recorder.clone(), 100..110).await);
            let sim = sim.crash();
            let recorder = Arc::new(recorder.as_of_flush());
            let group = RaftGroup::open(settings(sim), recorder.clone()).await.unwrap();
            assert!(group.status().term > term, "a term was used twice");
            let found = recorder.names();
            let kept: Vec<u64> =
                found.iter().copied().filter(|name| answered.contains(name)).collect();
            assert_eq!(kept, answered, "cut after {cut}: found {found:?}");
            // At most the last proposal of each run was neither answered nor
            // lost.
            assert!(found.len() <= answered.len() + 2, "found {found:?}, answered {answered:?}");
            group.propose(bytes(999)).await.unwrap();
        }
    });
}

#[test]
fn many_lives_with_many_callers_lose_nothing_that_was_answered() {
    let run = |seed: u64| {
        let random = SeededRandom::new(seed);
        let mut sim = SimFiles::new(seed);
        let mut recorder = Arc::new(Recorder::default());
        let mut answered = Vec::new();
        let mut next = 0;
        for life in 0..6 {
            let power = Powered::new(sim.clone());
            block_on(async {
                let opened = RaftGroup::open(settings(power.clone()), recorder.clone()).await;
                let group = opened.unwrap_or_else(|error| panic!("life {life}: {error}"));
                power.cut_after(random.next_u64() % 60);
                while !power.is_out() && next < (life + 1) * 200 {
                    let names = next..next + 1 + random.next_u64() % 8;
                    next = names.end;
                    let proposed: Vec<_> =
                        names.map(|name| (name, group.propose(bytes(name)))).collect();
                    for (name, answer) in proposed {
                        if answer.await.is_ok() {
                            answered.push(name);
                        }
                    }
                    if random.next_u64().is_multiple_of(5) {
                        recorder.flush();
                    }
                }
            });
            sim = if random.next_u64().is_multiple_of(2) {
                sim.crash()
            } else {
                sim.crash_keeping_writes()
            };
            recorder = Arc::new(recorder.as_of_flush());
        }
        let group = block_on(RaftGroup::open(settings(sim), recorder.clone())).unwrap();
        let found = recorder.names();
        assert!(found.is_sorted(), "out of order: {found:?}");
        let lost: Vec<_> = answered.iter().filter(|name| !found.contains(name)).collect();
        assert!(lost.is_empty(), "seed {seed}: answered and lost: {lost:?}");
        drop(group);
        answered.len()
    };
    if let Ok(seed) = std::env::var("STELE_SEED") {
        run(seed.parse().expect("STELE_SEED is a number"));
        return;
    }
    let seeds = if std::env::var("STELE_LONG").is_ok() { 400 } else { 20 };
    let answered: usize = (0..seeds).map(run).sum();
    assert!(answered > 100, "too few to prove anything: {answered}");
}

/// Returns the number of segment files.
fn segments(sim: &SimFiles) -> usize {
    let files = sim.files();
    files.keys().filter(|path| path.extension().is_some_and(|end| end == "log")).count()
}

#[test]
fn the_log_is_purged_when_the_machine_is_on_disk_and_opens_from_there() {
    block_on(async {
        let sim = SimFiles::new(4);
        let mut small = settings(sim.clone());
        small.log.segment_bytes = 4 << 10;
        small.log.recycle_max = 1;
        let recorder = Arc::new(Recorder::default());
        let group = RaftGroup::open(small.clone(), recorder.clone()).await.unwrap();
        let segments = || segments(&sim);
        for n in 0..100 {
            group.propose(bytes(format!("{n:0500}"))).await.unwrap();
        }
        assert!(segments() > 10, "50 kB in segments of 4 kB");
        recorder.flush();
        for _ in 0..3 {
            group.propose(bytes("7")).await.unwrap();
        }
        assert!(segments() < 5, "{} segments are left", segments());
        group.close().await.unwrap();
        let recorder = Arc::new(recorder.as_of_flush());
        assert_eq!(recorder.names().len(), 100);
        let group = RaftGroup::open(small, recorder.clone()).await.unwrap();
        assert_eq!(recorder.names().len(), 103);
        group.propose(bytes("8")).await.unwrap();
    });
}

#[test]
fn a_full_disk_leaves_the_log_long_and_it_is_purged_later() {
    block_on(async {
        let sim = SimFiles::new(4);
        let mut small = settings(sim.clone());
        small.log.segment_bytes = 64 << 10;
        let recorder = Arc::new(Recorder::default());
        let group = RaftGroup::open(small.clone(), recorder.clone()).await.unwrap();
        let segments = || segments(&sim);
        for n in 0..100 {
            group.propose(bytes(format!("{n:03000}"))).await.unwrap();
        }
        let before = segments();
        let used: usize = sim.files().values().map(Vec::len).sum();
        sim.set_capacity(Some(used as u64));
        recorder.flush();
        for _ in 0..3 {
            group.propose(bytes("7")).await.unwrap();
        }
        assert_eq!(segments(), before, "there was no space for a new head");
        sim.set_capacity(None);
        recorder.flush();
        for _ in 0..3 {
            group.propose(bytes("8")).await.unwrap();
        }
        group.close().await.unwrap();
        let recorder = Arc::new(recorder.as_of_flush());
        drop(RaftGroup::open(small, recorder.clone()).await.unwrap());
        assert_eq!(recorder.names().len(), 106);
        assert!(sim.files().contains_key(Path::new("/raft/head")), "the head has moved");
    });
}

#[test]
fn an_idle_group_does_not_wake() {
    block_on(async {
        let group = RaftGroup::open(settings(SimFiles::new(1)), Arc::<Recorder>::default());
        let group = group.await.unwrap();
        group.propose(bytes(1)).await.unwrap();
        const HOUR: Duration = Duration::from_secs(3600);
        // A paused clock advances to the next timer whenever the thread is
        // idle, so an hour passes as fast as its timers allow.
        let passing = group.runtime().spawn(async {
            tokio::time::pause();
            // Once the library finds its ticks disabled, it waits for them to
            // be enabled.
            tokio::time::sleep(HOUR).await;
            let metrics = tokio::runtime::Handle::current().metrics();
            let before = metrics.worker_park_count(0);
            tokio::time::sleep(HOUR).await;
            metrics.worker_park_count(0) - before
        });
        let wakes = passing.await.unwrap();
        assert!(wakes < 10, "it woke {wakes} times in an hour");
    });
}

#[test]
fn a_full_disk_refuses_proposals_until_there_is_space() {
    block_on(async {
        let sim = SimFiles::new(1);
        let recorder = Arc::new(Recorder::default());
        let group = RaftGroup::open(settings(sim.clone()), recorder.clone()).await.unwrap();
        let used: usize = sim.files().values().map(Vec::len).sum();
        sim.set_capacity(Some(used as u64));
        let large = Bytes::from(vec![b'0'; 3 << 20]);
        let refused = group.propose(large.clone()).await.unwrap_err();
        assert!(refused.to_string().contains("disk is full"), "{refused}");
        sim.set_capacity(None);
        group.propose(large).await.unwrap();
        assert_eq!(recorder.names().len(), 1);
    });
}

#[test]
fn a_failed_sync_stops_the_group_and_nothing_answered_is_lost() {
    block_on(async {
        let sim = SimFiles::new(6);
        let recorder = Arc::new(Recorder::default());
        let group = RaftGroup::open(settings(sim.clone()), recorder.clone()).await.unwrap();
        group.propose(bytes(1)).await.unwrap();
        sim.fail_next(stele_engine::world::sim::Operation::Sync, "log", disk_error());
        group.propose(bytes(2)).await.unwrap_err();
        group.propose(bytes(3)).await.unwrap_err();
        group.barrier().await.unwrap_err();
        drop(group);
        let recorder = Arc::new(recorder.as_of_flush());
        let group = RaftGroup::open(settings(sim.crash()), recorder.clone()).await.unwrap();
        assert!(recorder.names().starts_with(&[1]));
        group.propose(bytes(4)).await.unwrap();
    });
}

#[test]
fn a_machine_that_fails_stops_the_group_with_its_own_words() {
    block_on(async {
        let recorder = Arc::new(Recorder::default());
        let group = RaftGroup::open(settings(SimFiles::new(1)), recorder.clone()).await.unwrap();
        let refused = group.propose(bytes("fail")).await.unwrap_err();
        assert!(refused.to_string().contains("this entry fails"), "{refused}");
        let refused = group.propose(bytes(2)).await.unwrap_err();
        assert!(refused.to_string().contains("this entry fails"), "{refused}");
        assert!(group.close().await.is_err());
    });
}

#[test]
fn a_log_that_does_not_belong_is_refused_with_a_sentence() {
    let sim = SimFiles::new(1);
    let recorder = Arc::new(Recorder::default());
    let refusal = |sim: SimFiles, recorder: Recorder, member: u64| {
        let mut settings = settings(sim);
        settings.member = member;
        block_on(RaftGroup::open(settings, Arc::new(recorder))).err().unwrap().to_string()
    };
    block_on(async {
        let group = RaftGroup::open(settings(sim.clone()), recorder.clone()).await.unwrap();
        for n in 0..3 {
            group.propose(bytes(n)).await.unwrap();
        }
        recorder.flush();
        for n in 3..5 {
            group.propose(bytes(n)).await.unwrap();
        }
        group.close().await.unwrap();
    });
    let other = refusal(sim.clone(), recorder.as_of_flush(), 0xabc);
    assert!(other.contains("log of member 1, not of member abc"), "{other}");
    let lost_log = refusal(SimFiles::new(2), recorder.as_of_flush(), 1);
    assert!(lost_log.contains("the log ends at entry 0, but the state"), "{lost_log}");
    let lost_state = refusal(sim.clone(), Recorder::default(), 1);
    assert!(lost_state.contains("but the state has applied only up to entry 0"), "{lost_state}");
    let mut differing = recorder.as_of_flush();
    differing.set_applied(Position { index: differing.applied_index(), term: 77 });
    let differs = refusal(sim, differing, 1);
    assert!(differs.contains("different terms for entry"), "{differs}");
}

#[test]
fn a_directory_is_opened_by_one_group_at_a_time() {
    let sim = SimFiles::new(1);
    let group =
        block_on(RaftGroup::open(settings(sim.clone()), Arc::<Recorder>::default())).unwrap();
    let second = block_on(RaftGroup::open(settings(sim.clone()), Arc::<Recorder>::default()));
    assert!(second.is_err_and(|error| error.to_string().contains("in use")));
    drop(group);
    assert!(sim.exists(Path::new(DIR)).unwrap());
}
