//! How snapshots are sent, and leadership handed over by a member whose disk stalls.

use std::sync::atomic::Ordering;
use std::time::Duration;

use stele_engine::world::Random;
use stele_metastore::command::{Command, Put};
use tokio::time::{Instant, sleep};

use super::members::{Sim, simulate};

/// The size of a piece of a snapshot.
const PIECE_BYTES: u64 = 1 << 20;
/// The rate at which these snapshots are sent.
const BYTES_PER_SECOND: u64 = 1 << 20;
const VALUE_BYTES: usize = 64 << 10;

/// Writes values that cannot be compressed.
async fn fill(sim: &Sim, member: u64, bytes: u64) {
    for number in 0..bytes / VALUE_BYTES as u64 {
        let words = (0..VALUE_BYTES / 8).flat_map(|_| sim.random.next_u64().to_le_bytes());
        let put = Put::new(format!("fill/{number}"), words.collect::<Vec<u8>>());
        sim.node(member).propose(Command::Put(put)).await.unwrap();
    }
}

#[test]
fn an_interrupted_snapshot_is_resumed_at_the_rate_that_is_set() {
    simulate(8000, async |sim| {
        sim.cluster.tune = Box::new(|_, peers| peers.snapshot_bytes_per_second = BYTES_PER_SECOND);
        for member in 1..=3 {
            sim.cluster.crash(member);
        }
        for member in 1..=3 {
            sim.cluster.start(member).await.unwrap();
        }
        sim.until("there is a leader", async || sim.cluster.leader().is_some()).await;
        let leader = sim.cluster.leader().unwrap();
        let lags = (1..=3).find(|member| *member != leader).unwrap();
        sim.isolate(lags);
        let reached = sim.node(lags).status().last;
        fill(sim, leader, 5 * PIECE_BYTES).await;
        sim.write(leader, 160, "x").await;
        sim.purge(leader, reached).await;
        let network = sim.cluster.network.clone();
        let received = || network.snapshot_bytes.load(Ordering::Relaxed);
        let begun = Instant::now();
        network.heal();
        sim.until("a part has arrived", async || received() > 2 * PIECE_BYTES).await;
        sim.isolate(lags);
        sleep(Duration::from_secs(3)).await;
        network.heal();
        sim.until("the snapshot is installed", async || sim.has_installed(lags)).await;
        // One piece may have arrived without its response.
        let (received, took) = (received(), begun.elapsed());
        assert!((5 * PIECE_BYTES..7 * PIECE_BYTES).contains(&received), "{received} bytes");
        assert!(took > Duration::from_secs(received / BYTES_PER_SECOND), "{took:?}");
        sim.agree(&[1, 2, 3]).await;
    });
}

#[test]
fn a_leader_whose_disk_stalls_hands_over_after_a_second() {
    simulate(8100, async |sim| {
        sim.until("there is a leader", async || sim.cluster.leader().is_some()).await;
        sim.all_started().await;
        let leader = sim.cluster.leader().unwrap();
        let other = (1..=3).find(|member| *member != leader).unwrap();
        let stall = Duration::from_secs(30);
        sim.cluster.set_sync_times(leader, stall..stall * 2);
        let begun = Instant::now();
        // The others have a majority without it.
        sim.write(other, 8, "x").await;
        sim.until("another leads", async || {
            let leads = |member| sim.node(member).status().leader_id == member;
            (1..=3).any(|member| member != leader && leads(member))
        })
        .await;
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        sim.cluster.heal_disks();
        sim.write(other, 8, "y").await;
        sim.agree(&[1, 2, 3]).await;
    });
}
