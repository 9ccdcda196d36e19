//! The counters of the last 15 minutes, one sample per second, so that a page that was
//! just opened has a past to show.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::Serialize;

/// How many samples are kept: 15 minutes, and one before.
const SAMPLES_MAX: usize = 15 * 60 + 1;
/// Latency buckets: powers of two from 2^5 us to 2^24 us, and one above.
pub const BUCKETS: usize = 21;
const FIRST_POWER: u32 = 5;

/// The counters of a server at one time. All but the last three only increase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Seconds since 1970.
    pub at: u64,
    /// Calls that read rows, write rows, and all others.
    pub reads: u64,
    pub writes: u64,
    pub others: u64,
    pub failed: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// Writes that waited for memory, the log or shorter chains.
    pub throttled: u64,
    pub cpu_millis: u64,
    /// Calls that read or write rows, by their duration.
    pub buckets: [u64; BUCKETS],
    pub resident_bytes: u64,
    pub in_flight: u64,
    pub connections: u64,
}

/// The samples of the last 15 minutes.
#[derive(Default)]
pub struct History {
    samples: Mutex<VecDeque<Sample>>,
}

/// What happened between two samples, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    pub at: u64,
    pub reads: f32,
    pub writes: f32,
    pub others: f32,
    pub failed: f32,
    pub received_bytes: f32,
    pub sent_bytes: f32,
    pub throttled: f32,
    /// Processors in use.
    pub cpu: f32,
    /// Durations of calls that read or write rows; `None` if there were none.
    pub p50_micros: Option<u64>,
    pub p99_micros: Option<u64>,
    pub resident_bytes: u64,
    pub in_flight: u64,
    pub connections: u64,
}

impl History {
    pub fn add(&self, sample: Sample) {
        let mut samples = self.samples.lock();
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// Returns the rates after a time in seconds since 1970, the oldest first.
    pub fn since(&self, after: u64) -> Vec<Rates> {
        let samples = self.samples.lock();
        let pairs = samples.iter().zip(samples.iter().skip(1));
        pairs.filter(|(_, now)| now.at > after).map(|(before, now)| rates(before, now)).collect()
    }

    /// Returns the rates over the last samples together.
    pub fn over(&self, seconds: usize) -> Rates {
        let samples = self.samples.lock();
        let Some(now) = samples.back() else { return Rates::default() };
        let before = samples.len().saturating_sub(seconds.saturating_add(1));
        rates(&samples[before], now)
    }

    /// Returns how many writes waited during the last samples.
    pub fn throttled(&self, seconds: usize) -> u64 {
        let samples = self.samples.lock();
        let Some(now) = samples.back() else { return 0 };
        let before = samples.len().saturating_sub(seconds.saturating_add(1));
        now.throttled.saturating_sub(samples[before].throttled)
    }
}

fn rates(before: &Sample, now: &Sample) -> Rates {
    let seconds = now.at.saturating_sub(before.at).max(1) as f32;
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f32 / seconds;
    let mut buckets = [0; BUCKETS];
    for (at, bucket) in buckets.iter_mut().enumerate() {
        *bucket = now.buckets[at].saturating_sub(before.buckets[at]);
    }
    Rates {
        at: now.at,
        reads: rate(before.reads, now.reads),
        writes: rate(before.writes, now.writes),
        others: rate(before.others, now.others),
        failed: rate(before.failed, now.failed),
        received_bytes: rate(before.received_bytes, now.received_bytes),
        sent_bytes: rate(before.sent_bytes, now.sent_bytes),
        throttled: rate(before.throttled, now.throttled),
        cpu: rate(before.cpu_millis, now.cpu_millis) / 1000.0,
        p50_micros: quantile(&buckets, 0.5),
        p99_micros: quantile(&buckets, 0.99),
        resident_bytes: now.resident_bytes,
        in_flight: now.in_flight,
        connections: now.connections,
    }
}

/// Returns the time in microseconds below which this share of the calls ended, taking the
/// calls of a bucket as spread evenly over it.
pub fn quantile(buckets: &[u64; BUCKETS], share: f64) -> Option<u64> {
    let total: u64 = buckets.iter().sum();
    if total == 0 {
        return None;
    }
    let rank = share * total as f64;
    let mut below = 0;
    for (at, &count) in buckets.iter().enumerate() {
        if (below + count) as f64 >= rank && count > 0 {
            let bound = |at: usize| (1u64 << (FIRST_POWER as usize + at)) as f64;
            let low = if at == 0 { 0.0 } else { bound(at - 1) };
            let inside = ((rank - below as f64) / count as f64).clamp(0.0, 1.0);
            return Some((low + (bound(at) - low) * inside) as u64);
        }
        below += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, reads: u64) -> Sample {
        Sample { at, reads, ..Sample::default() }
    }

    #[test]
    fn fifteen_minutes_are_kept_and_the_oldest_go() {
        let history = History::default();
        assert_eq!((history.since(0), history.over(60)), (vec![], Rates::default()));
        for second in 0..2000 {
            history.add(sample(1000 + second, second * second));
        }
        let all = history.since(0);
        assert_eq!((all.len(), all[0].at, all[899].at), (900, 2100, 2999));
        assert_eq!(all[899].reads, (1999 * 1999 - 1998 * 1998) as f32);
        assert_eq!(history.since(2997).len(), 2);
        assert_eq!(history.over(10).reads, (1999 * 1999 - 1989 * 1989) as f32 / 10.0);
    }

    #[test]
    fn a_pause_between_samples_is_no_burst_and_a_restart_no_negative_rate() {
        let history = History::default();
        history.add(sample(0, 0));
        history.add(sample(10, 100));
        history.add(sample(11, 5));
        let rates: Vec<f32> = history.since(0).iter().map(|rates| rates.reads).collect();
        assert_eq!(rates, [10.0, 0.0]);
    }

    #[test]
    fn quantiles_lie_in_the_bucket_of_their_rank() {
        let mut buckets = [0; BUCKETS];
        assert_eq!(quantile(&buckets, 0.5), None);
        buckets[3] = 99;
        buckets[20] = 1;
        let median = quantile(&buckets, 0.5).unwrap();
        assert!((128..=256).contains(&median), "{median}");
        assert!(quantile(&buckets, 0.999).unwrap() > 1 << 24);
    }
}
