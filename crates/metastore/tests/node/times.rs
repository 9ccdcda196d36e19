//! Timestamps of revisions, and their retention.

use stele_engine::world::Clock;

use super::*;

#[tokio::test]
async fn history_goes_after_a_day_of_running_whatever_the_wall_clock_says() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::<TestClock>::default());
    let hour = Duration::from_secs(3600);
    clock.set_wall(1_000_000_000_000_000);
    let node = open(dir.path(), &clock).await;
    node.run_duties().await.unwrap();
    let first = put(&node, "k", "1").await;
    let second = put(&node, "k", "2").await;
    clock.run(hour);
    node.run_duties().await.unwrap();
    put(&node, "k", "3").await;
    // The wall clock jumps a month ahead, then back.
    for jump in [30 * 24, -60 * 24] {
        let wall = clock.now_micros();
        clock.set_wall(wall + jump * hour.as_micros() as i64);
        clock.run(hour);
        node.run_duties().await.unwrap();
        assert!(at(&node, first).is_ok(), "nothing is a day old");
    }
    clock.run(21 * hour);
    node.run_duties().await.unwrap();
    assert!(at(&node, first).is_ok());
    clock.run(hour);
    node.run_duties().await.unwrap();
    assert_eq!(node.waterline(), second);
    assert!(matches!(at(&node, first), Err(Error::TooOld { .. })));
    assert_eq!(at(&node, second).unwrap(), [("k".into(), "2".into())]);
    assert_eq!(node.compacted(), second);
    // The engine drops what is below the line once the line is on disk.
    node.close().await.unwrap();
    let node = open(dir.path(), &clock).await;
    assert_eq!(node.waterline(), second);
    assert_eq!(at(&node, second).unwrap(), [("k".into(), "2".into())]);
}

#[tokio::test]
async fn a_moment_is_read_as_it_was() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::<TestClock>::default());
    let node = open(dir.path(), &clock).await;
    let mut recorded = vec![(clock.now_micros(), all(&node))];
    for round in 0..20 {
        clock.run(Duration::from_millis(1500));
        put(&node, &format!("k{}", round % 3), &round.to_string()).await;
        if round % 4 == 0 {
            node.propose(Command::Delete(Delete::new(KeyRange::single("k1")))).await.unwrap();
        }
        recorded.push((clock.now_micros(), all(&node)));
    }
    for (time, copy) in &recorded {
        let revision = node.revision_at(*time).unwrap();
        assert_eq!(&at(&node, revision).unwrap(), copy);
        let later = node.revision_at(*time + 1_000_000).unwrap();
        assert_eq!(&at(&node, later).unwrap(), copy, "until the next change");
    }
}

#[tokio::test]
async fn a_wall_clock_that_was_wrong_does_not_spoil_times_for_good() {
    const HOUR_MICROS: i64 = 3_600_000_000;
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::<TestClock>::default());
    let start = 1_000 * HOUR_MICROS;
    clock.set_wall(start);
    let node = open(dir.path(), &clock).await;
    // The first round initializes the clocks, a later one samples.
    node.run_duties().await.unwrap();
    put(&node, "a", "right").await;
    clock.run(Duration::from_secs(1200));
    node.run_duties().await.unwrap();
    clock.set_wall(start + 24 * 365 * 80 * HOUR_MICROS);
    put(&node, "a", "decades ahead").await;
    clock.set_wall(start + HOUR_MICROS / 3);
    let back = put(&node, "a", "right again").await;
    clock.run(Duration::from_secs(3 * 3600));
    put(&node, "a", "three hours later").await;
    let found = node.revision_at(start + 2 * HOUR_MICROS).unwrap();
    assert_eq!(found, back, "times run on from what is at most an hour ahead");
}

#[tokio::test]
async fn writes_after_a_downtime_have_the_time_of_the_clock() {
    const HOUR_MICROS: i64 = 3_600_000_000;
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::<TestClock>::default());
    clock.set_wall(1_000 * HOUR_MICROS);
    let node = open(dir.path(), &clock).await;
    node.run_duties().await.unwrap();
    let before = put(&node, "k", "before").await;
    clock.run(Duration::from_secs(120));
    node.run_duties().await.unwrap();
    node.close().await.unwrap();
    // Nothing runs for ten hours.
    clock.set_wall(1_010 * HOUR_MICROS);
    let node = open(dir.path(), &clock).await;
    let after = put(&node, "k", "after").await;
    assert_eq!(node.revision_at(1_010 * HOUR_MICROS - 1).unwrap(), before);
    assert_eq!(node.revision_at(1_010 * HOUR_MICROS).unwrap(), after);
    // A clock that then lags does not make timestamps decrease.
    node.close().await.unwrap();
    clock.set_wall(1_001 * HOUR_MICROS);
    let node = open(dir.path(), &clock).await;
    let late = put(&node, "k", "late").await;
    assert_eq!(node.revision_at(1_010 * HOUR_MICROS - 1).unwrap(), before);
    assert_eq!(node.revision_at(1_010 * HOUR_MICROS).unwrap(), late);
}
