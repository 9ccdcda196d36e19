//! Delays before retries. They are random, so that callers that failed together
//! do not retry together.

use std::time::Duration;

/// Returns the delay before a retry: at least half and at most all of `first`,
/// doubled for each of the `earlier` retries up to `longest`.
pub fn delay(first: Duration, longest: Duration, earlier: u32) -> Duration {
    let bound = first.saturating_mul(1 << earlier.min(30)).min(longest);
    bound / 2 + jitter(bound / 2)
}

/// Returns a random duration of up to `longest`.
pub fn jitter(longest: Duration) -> Duration {
    longest.mul_f64(fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_to_a_bound_and_vary_by_half() {
        let (first, longest) = (Duration::from_millis(10), Duration::from_millis(100));
        for (earlier, bound) in [10, 20, 40, 80, 100, 100].into_iter().enumerate() {
            let bound = Duration::from_millis(bound);
            for _ in 0..100 {
                let delay = delay(first, longest, earlier as u32);
                assert!(bound / 2 <= delay && delay <= bound, "{delay:?} of {bound:?}");
            }
        }
        assert!(delay(first, longest, u32::MAX) <= longest);
        assert_eq!(delay(Duration::ZERO, Duration::ZERO, 3), Duration::ZERO);
    }
}
