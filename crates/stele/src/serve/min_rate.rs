//! The minimum rate of a request body: after a grace period its bytes must keep arriving
//! at a given rate, and earlier if other requests wait for the memory that it holds.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::timeouts::timeouts;

const BYTES_PER_SECOND_MIN: u64 = 256 << 10;
/// The minimum rate of a body that blocks others, over each interval of
/// `Timeouts::body_contended`.
const CONTENDED_BYTES_PER_SECOND_MIN: u64 = 1 << 20;

/// Tracks one message from the moment it first had to be waited for.
#[derive(Default)]
pub struct MinRate(Option<Measurement>);

struct Measurement {
    since: Instant,
    /// When progress was last sampled, and how much had arrived by then.
    sampled: Instant,
    arrived: usize,
    next_sample: Pin<Box<Sleep>>,
}

impl MinRate {
    /// Restarts the measurement: for a new message, or after time that the client could
    /// not use.
    pub fn restart(&mut self) {
        self.0 = None;
    }

    /// Completes with the elapsed time when `arrived` bytes are too few.
    pub fn poll_overdue(
        &mut self,
        cx: &mut Context<'_>,
        arrived: usize,
        delays_others: impl Fn() -> bool,
    ) -> Poll<Duration> {
        let measured = self.0.get_or_insert_with(|| Measurement::new(arrived));
        loop {
            ready!(measured.next_sample.as_mut().poll(cx));
            let now = Instant::now();
            let passed = now - measured.since;
            if passed >= allowed(arrived as u64) {
                return Poll::Ready(passed);
            }
            let expected =
                (now - measured.sampled).as_secs_f64() * CONTENDED_BYTES_PER_SECOND_MIN as f64;
            if ((arrived - measured.arrived) as f64) < expected && delays_others() {
                return Poll::Ready(passed);
            }
            *measured = Measurement { since: measured.since, ..Measurement::new(arrived) };
        }
    }
}

impl Measurement {
    fn new(arrived: usize) -> Measurement {
        let now = Instant::now();
        let next_sample = Box::pin(tokio::time::sleep_until(now + timeouts().body_contended));
        Measurement { since: now, sampled: now, arrived, next_sample }
    }
}

/// Returns the time within which this many bytes must be received.
fn allowed(arrived: u64) -> Duration {
    let millis = arrived.saturating_mul(1000) / BYTES_PER_SECOND_MIN;
    timeouts().body + Duration::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_has_half_a_minute_and_then_must_keep_its_rate() {
        let started = Instant::now();
        let mut rate = MinRate::default();
        let after = poll_fn(|cx| rate.poll_overdue(cx, 0, || false)).await;
        assert!((30..=31).contains(&after.as_secs()), "{after:?}");
        let rest = poll_fn(|cx| rate.poll_overdue(cx, 10 << 20, || false)).await;
        assert!((70..=71).contains(&rest.as_secs()), "{rest:?}");
        rate.restart();
        let hindering = poll_fn(|cx| rate.poll_overdue(cx, 200 << 20, || true)).await;
        assert_eq!(hindering.as_secs(), 1);
        assert!(started.elapsed() < Duration::from_secs(80));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_begins_to_delay_others_is_detected_at_once() {
        let started = Instant::now();
        let mut rate = MinRate::default();
        let hinders = || started.elapsed() > Duration::from_secs(5);
        let after = poll_fn(|cx| rate.poll_overdue(cx, 0, hinders)).await;
        assert!((5..=7).contains(&after.as_secs()), "{after:?}");
    }
}
