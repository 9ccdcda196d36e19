//! Failed background work: backs off before each retry, and reports persistent
//! failures to callers and operators.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::claims::Work;
use crate::cell::commit::TableId;
use crate::config::TabletId;
use crate::error::Error;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Backoff after the first failure. It doubles with each further failure, up to
/// the maximum.
const BACKOFF: Duration = Duration::from_secs(1);
const COMPACT_BACKOFF_MAX: Duration = Duration::from_secs(60);
/// A flush is retried every second, because writers wait for it.
const FLUSH_BACKOFF_MAX: Duration = BACKOFF;
/// Work that failed this many times in a row is unlikely to succeed next time.
const FAILURES_MAX: u32 = 3;
/// Failures older than this are reported to those who wait for the work.
const REPORT_AFTER: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct Failures {
    failing: Mutex<BTreeMap<Work, Failing>>,
    /// Whether any work is failing.
    any: AtomicBool,
}

#[derive(Clone)]
struct Failing {
    error: Error,
    since: Instant,
    failures: u32,
    retry_at: Instant,
}

impl Failing {
    /// Returns the error to report to those who wait for the work: immediately
    /// if the disk is full, otherwise once the work has failed repeatedly for
    /// some time.
    fn to_report(&self) -> Option<Error> {
        let report = matches!(self.error, Error::DiskFull { .. })
            || (self.failures > 1 && self.since.elapsed() >= REPORT_AFTER);
        report.then(|| self.error.clone())
    }
}

/// Background work that failed and has not succeeded since.
#[derive(Clone, Debug)]
pub struct WorkFailure {
    pub work: Work,
    pub error: Error,
    /// Time since the first failure.
    pub age: Duration,
    /// Number of failures.
    pub failures: u32,
}

impl Failures {
    pub fn failed(&self, work: Work, error: &Error) {
        let now = Instant::now();
        let mut all = self.failing.lock();
        let failing = all.entry(work).or_insert_with(|| Failing {
            error: error.clone(),
            since: now,
            failures: 0,
            retry_at: now,
        });
        failing.error = error.clone();
        let doubled = BACKOFF * (1 << failing.failures.min(10));
        let backoff_max = if work.is_flush() { FLUSH_BACKOFF_MAX } else { COMPACT_BACKOFF_MAX };
        let full = matches!(error, Error::DiskFull { .. });
        failing.retry_at = now + if full { BACKOFF } else { doubled.min(backoff_max) };
        failing.failures = failing.failures.saturating_add(1);
        self.any.store(true, Ordering::Release);
    }

    pub fn succeeded(&self, work: Work) {
        if self.any() {
            let mut all = self.failing.lock();
            all.remove(&work);
            self.any.store(!all.is_empty(), Ordering::Release);
        }
    }

    /// Removes the work of a dropped table.
    pub fn forget(&self, dropped: TableId) {
        let mut all = self.failing.lock();
        all.retain(|work, _| match work {
            Work::Compact { table, .. }
            | Work::Flush { table, .. }
            | Work::Split { table, .. }
            | Work::Join { table, .. } => *table != dropped,
            Work::FlushAll => true,
        });
        self.any.store(!all.is_empty(), Ordering::Release);
    }

    /// Removes the work of a tablet that no longer exists.
    pub fn forget_tablet(&self, gone: TabletId) {
        let of_tablet = |work: &Work| match work {
            Work::Compact { tablet, .. }
            | Work::Split { tablet, .. }
            | Work::Join { tablet, .. } => *tablet == gone,
            Work::Flush { .. } | Work::FlushAll => false,
        };
        let mut all = self.failing.lock();
        all.retain(|work, _| !of_tablet(work));
        self.any.store(!all.is_empty(), Ordering::Release);
    }

    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether the work is backing off.
    pub fn backs_off(&self, work: Work) -> bool {
        self.backs_off_at(work, Instant::now())
    }

    fn backs_off_at(&self, work: Work, now: Instant) -> bool {
        let backs_off = |failing: &Failing| now < failing.retry_at;
        self.any() && self.failing.lock().get(&work).is_some_and(backs_off)
    }

    /// Whether any flush is backing off.
    pub fn flush_backs_off(&self) -> bool {
        let now = Instant::now();
        let backs_off =
            |(work, failing): (&Work, &Failing)| work.is_flush() && now < failing.retry_at;
        self.any() && self.failing.lock().iter().any(backs_off)
    }

    /// Returns the time until the next retry.
    pub fn next_retry(&self) -> Option<Duration> {
        self.next_retry_at(Instant::now())
    }

    fn next_retry_at(&self, now: Instant) -> Option<Duration> {
        if !self.any() {
            return None;
        }
        let all = self.failing.lock();
        all.values().filter_map(|failing| failing.retry_at.checked_duration_since(now)).min()
    }

    /// Returns why memory is not flushed, if that must be reported to waiters.
    pub fn of_flush(&self) -> Option<Error> {
        if !self.any() {
            return None;
        }
        let all = self.failing.lock();
        let mut flushes = all.iter().filter(|(work, _)| work.is_flush());
        flushes.find_map(|(_, failing)| failing.to_report())
    }

    /// Returns why the chains of a tablet are not compacted, if that must be
    /// reported to waiters.
    pub fn of_chains(&self, table: TableId, tablet: TabletId) -> Option<Error> {
        if !self.any() {
            return None;
        }
        let of_tablet = |work: &Work| match work {
            Work::Compact { table: of, tablet: id, .. } => (*of, *id) == (table, tablet),
            _ => false,
        };
        let all = self.failing.lock();
        let mut chains = all.iter().filter(|(work, _)| of_tablet(work));
        chains.find_map(|(_, failing)| failing.to_report())
    }

    /// Whether a chain cannot be compacted because a file is damaged.
    pub fn is_damaged(&self, work: Work) -> bool {
        let damaged = |failing: &Failing| {
            failing.failures >= FAILURES_MAX
                && matches!(failing.error, Error::CellDisorder(_) | Error::DataLoss { .. })
        };
        self.any() && self.failing.lock().get(&work).is_some_and(damaged)
    }

    pub fn all(&self) -> Vec<WorkFailure> {
        let all = self.failing.lock();
        let failure = |(work, failing): (&Work, &Failing)| WorkFailure {
            work: *work,
            error: failing.error.clone(),
            age: failing.since.elapsed(),
            failures: failing.failures,
        };
        all.iter().map(failure).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLUSH: Work = Work::Flush { table: TableId(1), group: 0 };
    const TABLET: TabletId = TabletId { incarnation: 1, number: 1 };
    const COMPACT: Work = Work::Compact { table: TableId(2), tablet: TABLET, group: 0 };

    fn full() -> Error {
        Error::DiskFull { doing: "writing", path: "f".into() }
    }

    #[test]
    fn a_full_disk_is_reported_at_once_and_cleared_by_the_next_success() {
        let (failures, begun) = (Failures::default(), Instant::now());
        failures.failed(FLUSH, &full());
        assert!(matches!(failures.of_flush(), Some(Error::DiskFull { .. })));
        assert!(failures.of_chains(TableId(1), TABLET).is_none());
        assert!(failures.backs_off_at(FLUSH, begun) && !failures.backs_off_at(COMPACT, begun));
        assert!(!failures.backs_off_at(FLUSH, Instant::now() + BACKOFF));
        assert!(failures.next_retry_at(begun).is_some_and(|left| left >= BACKOFF));
        failures.succeeded(FLUSH);
        assert!(failures.of_flush().is_none() && !failures.any() && failures.all().is_empty());
    }

    #[test]
    fn another_failure_is_reported_only_after_a_retry() {
        let failures = Failures::default();
        failures.failed(FLUSH, &Error::Closed);
        assert!(failures.of_flush().is_none());
        assert_eq!(failures.all().len(), 1);
    }

    #[test]
    fn a_damaged_chain_is_distinguished_from_a_failing_disk() {
        let failures = Failures::default();
        for _ in 0..FAILURES_MAX {
            assert!(!failures.is_damaged(COMPACT));
            failures.failed(COMPACT, &Error::CellDisorder(String::new()));
        }
        assert!(failures.is_damaged(COMPACT));
        failures.failed(COMPACT, &full());
        assert!(!failures.is_damaged(COMPACT));
        failures.forget(TableId(2));
        assert!(!failures.any());
    }
}
