//! How often something can be done in a given time.

use std::time::{Duration, Instant};

/// Does `work` for so many seconds; it tells how many records it handled.
pub fn rate(seconds: f64, mut work: impl FnMut(u64) -> u64) -> f64 {
    let (begun, limit) = (Instant::now(), Duration::from_secs_f64(seconds));
    let (mut records, mut turn) = (0, 0);
    while begun.elapsed() < limit {
        for _ in 0..16 {
            records += work(turn);
            turn += 1;
        }
    }
    records as f64 / begun.elapsed().as_secs_f64()
}

/// The same for work that waits.
pub async fn rate_async(seconds: f64, mut work: impl AsyncFnMut(u64) -> u64) -> f64 {
    let (begun, limit) = (Instant::now(), Duration::from_secs_f64(seconds));
    let (mut records, mut turn) = (0, 0);
    while begun.elapsed() < limit {
        records += work(turn).await;
        turn += 1;
    }
    records as f64 / begun.elapsed().as_secs_f64()
}

pub fn say(what: &str, rate: f64) -> f64 {
    println!("{what:<44} {rate:>12.0} records/s");
    rate
}

pub fn say_ratio(what: &str, ratio: f64) {
    println!("{what:<44} {ratio:>12.2} x");
}

pub fn say_time(what: &str, rate: f64) {
    println!("{what:<44} {:>12.2} us", 1e6 / rate);
}
