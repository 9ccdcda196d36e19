//! Faults of members under load: nothing acknowledged is lost, reads and writes are
//! linearizable, and all members have the same keys in the end.

use std::time::Instant;

use rustix::process::Signal;

use super::load::Load;
use super::members::{Members, NAMES};

fn is_long() -> bool {
    std::env::var_os("STELE_LONG").is_some()
}

/// Kills the leader again and again.
async fn kill_leaders(cluster: &mut Members, load: &Load, times: usize) {
    for _ in 0..times {
        let leader = cluster.leader().await;
        cluster.kill(leader);
        load.go_on("the leader was killed").await;
        cluster.restart(leader);
    }
    load.go_on("the killed members are back").await;
}

/// Stops the process of the leader, and lets it go on after another leads.
async fn pause_leader(cluster: &Members, load: &Load) {
    let leader = cluster.leader().await;
    cluster.signal(leader, Signal::STOP);
    let other = cluster.leader_but(Some(leader)).await;
    load.go_on("the leader was paused").await;
    cluster.signal(leader, Signal::CONT);
    cluster.catch_up(leader, other).await;
    load.go_on("the former leader goes on").await;
}

/// Cuts the leader off from the others.
async fn cut_leader_off(cluster: &Members, load: &Load) {
    let leader = cluster.leader().await;
    cluster.network.cut_off(cluster.id(leader));
    let other = cluster.leader_but(Some(leader)).await;
    load.go_on("the leader was cut off").await;
    cluster.network.heal();
    cluster.catch_up(leader, other).await;
}

/// Fills the disk of the leader, which must not stop the others.
async fn fill_disk(cluster: &mut Members, load: &Load) {
    let leader = cluster.leader().await;
    cluster.set_disk_full(leader, true);
    let other = cluster.leader_but(Some(leader)).await;
    load.go_on("the disk of the leader is full").await;
    cluster.set_disk_full(leader, false);
    cluster.kill(leader);
    cluster.restart(leader);
    cluster.catch_up(leader, other).await;
}

/// Ends and starts one member after the other.
async fn restart_in_turn(cluster: &mut Members, load: &Load) {
    for member in 0..NAMES.len() {
        cluster.terminate(member);
        load.go_on("a member was stopped").await;
        cluster.restart(member);
        let leader = cluster.leader().await;
        cluster.catch_up(member, leader).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_fail_in_every_way_lose_and_reorder_nothing() {
    let mut cluster = Members::start().await;
    let load = Load::start((0..NAMES.len()).map(|member| cluster.client(member)).collect());
    load.go_on("all members run").await;
    for _ in 0..if is_long() { 20 } else { 1 } {
        kill_leaders(&mut cluster, &load, if is_long() { 5 } else { 2 }).await;
        pause_leader(&cluster, &load).await;
        cut_leader_off(&cluster, &load).await;
        fill_disk(&mut cluster, &load).await;
        restart_in_turn(&mut cluster, &load).await;
    }
    load.finish().await;
    cluster.assert_equal().await;
}

/// Prints how long it takes from the kill of the leader to the first write that another
/// member acknowledges. Run with
/// `STELE_LONG=1 cargo test --release -p stele --test process -- --nocapture failover`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_takes_an_election_and_little_more() {
    if !is_long() {
        return;
    }
    let mut cluster = Members::start().await;
    let mut times = Vec::new();
    for number in 0..20 {
        let leader = cluster.leader().await;
        let client = cluster.client((leader + 1) % NAMES.len());
        client.put("k", "before").await.unwrap();
        cluster.kill(leader);
        let begun = Instant::now();
        while client.put("k", number.to_string()).await.is_err() {}
        times.push(begun.elapsed());
        cluster.restart(leader);
        cluster.catch_up(leader, (leader + 1) % NAMES.len()).await;
    }
    times.sort_unstable();
    let [shortest, median, longest] = [times[0], times[times.len() / 2], times[times.len() - 1]];
    println!("kill to first acknowledged write: {shortest:?} {median:?} {longest:?}");
}
