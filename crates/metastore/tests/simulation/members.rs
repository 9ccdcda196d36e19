//! Changes of members and installs of snapshots, under writers and watchers, with
//! crashes at random moments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::world::{Files, Random, SeededRandom};
use stele_metastore::command::{Command, LEVEL_MAX, Put};
use stele_metastore::{Error, Node};
use tokio::time::{Instant, sleep};

use super::cluster::{Build, Cluster};
use super::seeds;

/// How long a condition may take to hold, in simulated time.
const PATIENCE: Duration = Duration::from_secs(120);
/// Runs a scenario in simulated time.
pub fn simulate(seed: u64, scenario: impl AsyncFnOnce(&mut Sim)) {
    simulate_build(seed, Build::default(), scenario);
}

fn simulate_build(seed: u64, build: Build, scenario: impl AsyncFnOnce(&mut Sim)) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let cluster = Cluster::new(3, seed, Build { purges: true, ..build });
        let random = SeededRandom::new(seed ^ 0x5eed);
        let mut sim = Sim { cluster, random, seed };
        for member in 1..=3 {
            sim.cluster.start(member).await.unwrap();
        }
        scenario(&mut sim).await;
    });
    runtime.shutdown_background();
}

pub struct Sim {
    pub cluster: Cluster,
    pub random: SeededRandom,
    pub seed: u64,
}

impl Sim {
    pub fn node(&self, member: u64) -> Arc<Node> {
        self.cluster.node(member).expect("the member runs")
    }

    pub async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds().await {
            assert!(Instant::now() < deadline, "seed {}: never: {what}", self.seed);
            sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn all_started(&self) {
        self.until("all members have published their names", async || {
            self.cluster.alive().into_iter().all(|member| {
                let members = self.node(member).members().unwrap();
                members.len() >= 3 && members.iter().all(|member| member.record.is_started())
            })
        })
        .await;
    }

    /// Writes keys through a member, several at a time.
    pub async fn write(&self, member: u64, count: u64, value: &str) {
        let mut tasks = tokio::task::JoinSet::new();
        for writer in 0..8 {
            let (node, value) = (self.node(member), value.to_string());
            tasks.spawn(async move {
                for number in 0..count / 8 {
                    let put = Put::new(format!("k/{writer}/{}", number % 50), value.clone());
                    while node.propose(Command::Put(put.clone())).await.is_err() {
                        sleep(Duration::from_millis(100)).await;
                    }
                }
            });
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Waits until the logs of all members that have applied as much as this one
    /// no longer reach an entry.
    pub async fn purge(&self, member: u64, beyond: u64) {
        let applied = self.node(member).status().applied;
        self.until("the logs are purged", async || {
            let nodes = self.cluster.alive().into_iter().map(|member| self.node(member));
            nodes.filter(|node| node.status().applied + 8 > applied).all(|node| {
                node.flush().unwrap();
                node.group().purged() > beyond
            })
        })
        .await;
    }

    pub fn isolate(&self, member: u64) {
        for other in self.cluster.alive().into_iter().filter(|other| *other != member) {
            self.cluster.network.cut(member, other);
            self.cluster.network.cut(other, member);
        }
    }

    /// Returns whether a member has installed a snapshot.
    pub fn has_installed(&self, member: u64) -> bool {
        let files = self.cluster.disk(member);
        files.exists("/member/current".as_ref()).unwrap()
    }

    /// Waits until these members have the same state.
    pub async fn agree(&self, members: &[u64]) {
        self.until("the members agree", async || {
            let states = members.iter().map(|member| self.node(*member).status());
            let states: Vec<_> = states.map(|state| (state.applied, state.last)).collect();
            states.iter().all(|(applied, last)| applied == last && *last == states[0].1)
        })
        .await;
        let hash = |member: &u64| {
            let node = self.node(*member);
            (node.revision(), node.compacted(), node.hash_now().unwrap())
        };
        let hashes: Vec<_> = members.iter().map(hash).collect();
        assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "seed {}: {hashes:?}", self.seed);
    }
}

/// Follows all changes on a member. Returns the keys with their revisions, or the
/// compacted revision at which it ended.
async fn watch(node: Arc<Node>, until: i64) -> Result<BTreeMap<i64, Vec<u8>>, i64> {
    let mut cursor = node.watch().cursor(2);
    let mut seen = BTreeMap::new();
    while cursor.next() <= until {
        cursor.changed().await;
        let mut events = Vec::new();
        match cursor.take(until, &mut |_| true, &mut events) {
            Ok(()) => {}
            Err(Error::Compacted { compacted }) => return Err(compacted),
            Err(error) => panic!("{error}"),
        }
        for event in events {
            let last = seen.last_key_value().map_or(1, |(revision, _)| *revision);
            assert!(event.revision > last, "{} follows {last}", event.revision);
            seen.insert(event.revision, event.key().to_vec());
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(seen)
}

#[test]
fn snapshots_are_installed_under_watchers() {
    for seed in seeds(2) {
        simulate(2000 + seed, async |sim| {
            sim.all_started().await;
            sim.write(1, 40, "before").await;
            let compacts = seed % 2 == 1;
            let leader = sim.cluster.leader().unwrap();
            let lags = (1..=3).find(|member| *member != leader).unwrap();
            let first = sim.node(lags).revision();
            let last = first + 900 + 1;
            let watching = tokio::spawn(watch(sim.node(lags), last - 1));
            sleep(Duration::from_secs(1)).await;
            let slow = sim.node(lags).watch().cursor(2);
            sim.isolate(lags);
            let reached = sim.node(lags).status().last;
            sim.write(leader, 904, "while it is away").await;
            if compacts {
                let revision = first + 300;
                let compact = Command::Compact { revision };
                sim.node(leader).propose(compact).await.unwrap();
            }
            sim.purge(leader, reached).await;
            sim.cluster.network.heal();
            sim.until("the snapshot is installed", async || sim.has_installed(lags)).await;
            sim.write(lags, 40, "after").await;
            sim.agree(&[1, 2, 3]).await;
            match watching.await.unwrap() {
                Ok(seen) => {
                    assert!(!compacts, "seed {seed}: it missed what was compacted");
                    let all: Vec<i64> = (seen.keys().next().copied().unwrap()..last).collect();
                    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), all, "seed {seed}");
                }
                Err(compacted) => assert_eq!((compacts, compacted), (true, first + 300)),
            }
            assert_eq!(slow.next(), 2);
            drop(slow);
        });
    }
}

#[test]
fn a_crash_while_a_snapshot_is_installed_leaves_the_old_or_the_new_state() {
    for seed in seeds(3) {
        simulate(3000 + seed, async |sim| {
            sim.all_started().await;
            let leader = sim.cluster.leader().unwrap();
            let lags = (1..=3).find(|member| *member != leader).unwrap();
            let reached = sim.node(lags).status().last;
            sim.cluster.crash(lags);
            sim.write(leader, 904, "while it is away").await;
            sim.purge(leader, reached).await;
            for _ in 0..8 {
                sim.cluster.start(lags).await.unwrap();
                let micros = sim.random.next_u64() % 400_000;
                sleep(Duration::from_micros(micros)).await;
                sim.cluster.crash(lags);
            }
            sim.cluster.start(lags).await.unwrap();
            sim.write(leader, 40, "after").await;
            sim.agree(&[1, 2, 3]).await;
            assert!(sim.has_installed(lags), "seed {seed}: it was caught up without a snapshot");
        });
    }
}

#[test]
fn a_learner_joins_by_a_snapshot_is_promoted_and_outvotes_a_removed_member() {
    for seed in seeds(2) {
        simulate(4000 + seed, async |sim| {
            sim.all_started().await;
            let leader = sim.cluster.leader().unwrap();
            sim.write(leader, 904, "x").await;
            sim.purge(leader, 1).await;
            let follower = (1..=3).find(|member| *member != leader).unwrap();
            let id = sim.node(follower).add_member(vec!["http://h:4".into()], true).await.unwrap();
            let early = sim.node(follower).promote_member(id).await;
            assert_eq!(early.unwrap_err().to_string(), Error::LearnerNotReady.to_string());
            sim.cluster.add(id);
            sim.cluster.start(id).await.unwrap();
            assert!(sim.node(id).is_learner());
            sim.until("it is promoted", async || {
                sim.node(follower).promote_member(id).await.is_ok()
            })
            .await;
            assert!(sim.has_installed(id));
            sim.all_started().await;
            let removed = sim.cluster.leader().unwrap();
            let other = (1..=3).find(|member| *member != removed).unwrap();
            sim.until("it is removed", async || {
                let done = sim.node(other).remove_member(removed).await;
                matches!(done, Ok(()) | Err(Error::MemberNotFound))
            })
            .await;
            sim.until("the removed member stops", async || {
                let failure = sim.node(removed).group().failure();
                matches!(failure, Some(Error::Removed { member }) if member == removed)
            })
            .await;
            sim.cluster.crash(removed);
            sim.write(id, 40, "after").await;
            let members = sim.cluster.alive();
            assert_eq!(members.len(), 3);
            sim.agree(&members).await;
        });
    }
}

#[test]
fn members_are_upgraded_in_turn_and_the_level_is_raised_when_all_speak_it() {
    for seed in seeds(2) {
        let build = Build { level: LEVEL_MAX - 1, mixed: true, ..Build::default() };
        simulate_build(6000 + seed, build, async |sim| {
            sim.all_started().await;
            sim.write(1, 40, "before").await;
            for member in [3, 2] {
                let refused = sim.node(1).raise_level_of_group(LEVEL_MAX).await;
                let refused = refused.unwrap_err().to_string();
                assert!(refused.contains("speaks only level"), "{refused}");
                sim.cluster.upgrade(member);
                sim.cluster.crash(member);
                sim.cluster.start(member).await.unwrap();
                sim.write(member, 40, "between").await;
            }
            sim.node(2).raise_level_of_group(LEVEL_MAX).await.unwrap();
            sim.write(3, 40, "after").await;
            sim.agree(&[1, 2, 3]).await;
            for member in 1..=3 {
                assert_eq!(sim.node(member).level(), LEVEL_MAX, "seed {seed}");
            }
        });
    }
}

#[test]
fn a_member_that_does_not_speak_the_level_stops_until_it_is_upgraded() {
    let build = Build { level: LEVEL_MAX - 1, mixed: true, ..Build::default() };
    simulate_build(7000, build, async |sim| {
        sim.all_started().await;
        sim.cluster.upgrade(2);
        sim.cluster.crash(2);
        sim.cluster.start(2).await.unwrap();
        sim.write(1, 40, "before").await;
        // Proposed without asking the members.
        sim.node(1).raise_level(LEVEL_MAX, &[]).await.unwrap();
        sim.until("the old member stops", async || {
            let failure = sim.node(3).group().failure();
            matches!(failure, Some(Error::UnknownEntry { why, .. }) if why.contains("is unknown"))
        })
        .await;
        sim.write(2, 40, "without it").await;
        sim.cluster.crash(3);
        sim.cluster.upgrade(3);
        sim.cluster.start(3).await.unwrap();
        sim.write(3, 40, "after").await;
        sim.agree(&[1, 2, 3]).await;
    });
}

#[test]
fn a_wiped_voter_does_not_count() {
    for seed in seeds(2) {
        simulate(5000 + seed, async |sim| {
            sim.all_started().await;
            sim.write(1, 80, "x").await;
            let leader = sim.cluster.leader().unwrap();
            let wiped = (1..=3).find(|member| *member != leader).unwrap();
            let other = (1..=3).find(|member| *member != leader && *member != wiped).unwrap();
            sim.cluster.crash(wiped);
            sim.cluster.add(wiped);
            sim.cluster.start(wiped).await.unwrap();
            sim.write(leader, 80, "without it").await;
            assert!(sim.node(wiped).status().applied <= 1, "seed {seed}");
            // With a vote of the wiped member, the other could lead alone.
            let revision = sim.node(other).revision();
            sim.cluster.crash(leader);
            sleep(Duration::from_secs(20)).await;
            let leads = |member| sim.node(member).status().leader_id == member;
            assert!(
                !leads(other) && !leads(wiped),
                "seed {seed}: it was elected by a wiped member"
            );
            sim.cluster.start(leader).await.unwrap();
            sim.write(other, 40, "after").await;
            assert!(sim.node(other).revision() > revision);
            sim.agree(&[leader, other]).await;
        });
    }
}
