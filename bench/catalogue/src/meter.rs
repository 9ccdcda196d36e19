//! Measures and prints rates.

use std::time::{Duration, Instant};

/// Repeats `work`, which returns the number of records it handled, for `seconds`, and
/// returns the records per second.
pub fn rate(seconds: f64, mut work: impl FnMut(u64) -> u64) -> f64 {
    let (started, limit) = (Instant::now(), Duration::from_secs_f64(seconds));
    let (mut records, mut turn) = (0, 0);
    while started.elapsed() < limit {
        for _ in 0..16 {
            records += work(turn);
            turn += 1;
        }
    }
    records as f64 / started.elapsed().as_secs_f64()
}

/// Does the same as [`rate`] for asynchronous work.
pub async fn rate_async(seconds: f64, mut work: impl AsyncFnMut(u64) -> u64) -> f64 {
    let (started, limit) = (Instant::now(), Duration::from_secs_f64(seconds));
    let (mut records, mut turn) = (0, 0);
    while started.elapsed() < limit {
        records += work(turn).await;
        turn += 1;
    }
    records as f64 / started.elapsed().as_secs_f64()
}

pub fn print_rate(what: &str, rate: f64) -> f64 {
    println!("{what:<44} {rate:>12.0} records/s");
    rate
}

pub fn print_ratio(what: &str, ratio: f64) {
    println!("{what:<44} {ratio:>12.2} x");
}

pub fn print_time(what: &str, rate: f64) {
    println!("{what:<44} {:>12.2} us", 1e6 / rate);
}
