//! The background duties of a node: recording deadlines and expiring leases, sampling time, dropping
//! history and clearing alarms whose cause is gone. One task, which sleeps
//! until the next duty is due.

use std::sync::Arc;
use std::time::Duration;

use stele_engine::fatal::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::lifecycle::Shared;
use crate::command::{Alarm, AlarmAction, Command};
use crate::error::{Error, Result};
use crate::lease::Deadlines;

/// The maximum number of leases that one log entry revokes, so that other
/// proposals can run in between.
const EXPIRED_AT_ONCE: usize = 500;

/// The pause after a duty failed.
const WAIT_AFTER_FAILURE: Duration = Duration::from_millis(500);

/// When duties last ran, by the monotonic clock.
#[derive(Default)]
pub struct LastRound {
    times: Mutex<Option<Times>>,
}

#[derive(Clone, Copy)]
struct Times {
    sampled: Duration,
    waterline_moved: Duration,
}

/// The background task.
pub struct Duties {
    task: Option<JoinHandle<()>>,
    stop: Arc<Notify>,
}

impl Duties {
    /// Starts the task. It does not keep the node alive between two rounds.
    pub fn start(shared: &Arc<Shared>) -> Duties {
        let stop = Arc::new(Notify::new());
        let (node, wake, stopped) = (Arc::downgrade(shared), shared.wake.clone(), stop.clone());
        let task = tokio::spawn(async move {
            let mut leadership = match node.upgrade() {
                Some(shared) => shared.group.leadership(),
                None => return,
            };
            while let Some(shared) = node.upgrade() {
                let wait = wait(&shared);
                drop(shared);
                tokio::select! {
                    biased;
                    () = stopped.notified() => return,
                    () = wake.notified() => {}
                    Ok(()) = leadership.changed() => {}
                    () = tokio::time::sleep(wait) => {}
                }
                let Some(shared) = node.upgrade() else { return };
                if let Err(error) = run(&shared).await {
                    drop(shared);
                    if matches!(error, Error::Stopped) {
                        return;
                    }
                    tracing::warn!(%error, "a background task of the metastore failed");
                    tokio::time::sleep(WAIT_AFTER_FAILURE).await;
                }
            }
        });
        Duties { task: Some(task), stop }
    }

    /// Stops the task and waits until it has ended.
    pub async fn stop(mut self) {
        self.stop.notify_one();
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::warn!(%error, "the background tasks of the metastore did not stop cleanly");
        }
    }
}

impl Drop for Duties {
    fn drop(&mut self) {
        self.stop.notify_one();
    }
}

/// Returns the time until the next duty.
fn wait(shared: &Shared) -> Duration {
    let retention = &shared.settings.retention;
    let regular = retention.sample_every.min(retention.waterline_every);
    if !shared.group.leadership().borrow().leads {
        return regular;
    }
    let (due, record) = (shared.leases.next_due(), shared.leases.next_record());
    due.into_iter().chain(record).fold(regular, Duration::min)
}

/// Runs all duties that are due.
pub async fn run(shared: &Shared) -> Result<()> {
    // The duties of the others are the leader's; each lets its own engine drop
    // history.
    let Some(term) = shared.lead() else {
        return shared.applier.sync_engine_waterline();
    };
    record_deadlines(shared, term).await?;
    expire(shared, term).await?;
    if shared.can_clear_alarm() {
        let member = shared.state.identity.member_id;
        let clear = AlarmAction::Deactivate { member, alarm: Alarm::NoSpace };
        shared.propose_as_leader(term, &Command::Alarm(clear)).await?;
    }
    retain(shared, term).await
}

/// Records the group clock and deadlines of leases, for the next leader.
async fn record_deadlines(shared: &Shared, term: u64) -> Result<()> {
    while let Some(unrecorded) = shared.leases.take_unrecorded() {
        let Deadlines { clock_micros, leases } = unrecorded.clone();
        let record = Command::LeaseDeadlines { clock_micros, deadlines: leases };
        if let Err(error) = shared.propose_as_leader(term, &record).await {
            shared.leases.record_again(&unrecorded);
            return Err(error);
        }
    }
    Ok(())
}

/// Revokes the expired leases.
async fn expire(shared: &Shared, term: u64) -> Result<()> {
    loop {
        let ids = shared.leases.expired(EXPIRED_AT_ONCE);
        if ids.is_empty() {
            return Ok(());
        }
        let expire = Command::Expire { ids: ids.clone() };
        if let Err(error) = shared.propose_as_leader(term, &expire).await {
            shared.leases.retry_later(&ids);
            return Err(error);
        }
        // One entry deletes a bounded number of keys, so leases may remain.
        shared.leases.expire_again(&ids);
    }
}

/// Samples the clocks and drops history that need not be retained.
async fn retain(shared: &Shared, term: u64) -> Result<()> {
    let retention = &shared.settings.retention;
    let now = shared.clock().elapsed();
    let times = shared.last.get_or_start(now);
    let by_bytes = shared.sample_due_by_bytes();
    let sample_due = now - times.sampled >= retention.sample_every || by_bytes;
    let waterline_due = now - times.waterline_moved >= retention.waterline_every;
    if sample_due || waterline_due {
        let clock_micros = shared.leases.group_micros();
        sample_and_move_waterline(shared, term, clock_micros, waterline_due).await?;
        shared.last.update(|times| {
            times.sampled = now;
            times.waterline_moved = if waterline_due { now } else { times.waterline_moved };
        });
    }
    shared.applier.sync_engine_waterline()
}

/// Samples the clock if anything changed since the last sample, and moves the
/// waterline if that is due or if there is too much history.
async fn sample_and_move_waterline(
    shared: &Shared,
    term: u64,
    clock_micros: i64,
    waterline_due: bool,
) -> Result<()> {
    let retention = &shared.settings.retention;
    let (watermarks, samples) = shared.applier.history();
    if samples.last().is_none_or(|newest| newest.revision < watermarks.revision) {
        shared.propose_as_leader(term, &Command::Sample { clock_micros }).await?;
    }
    let (watermarks, samples) = shared.applier.history();
    if (waterline_due || retention.is_over_budget(&watermarks, &samples))
        && let Some(revision) = retention.waterline(&watermarks, &samples, clock_micros)
    {
        shared.propose_as_leader(term, &Command::Waterline { revision }).await?;
    }
    Ok(())
}

impl LastRound {
    /// Returns the times of the last round, which the first one initializes.
    fn get_or_start(&self, now: Duration) -> Times {
        *self.times.lock().get_or_insert(Times { sampled: now, waterline_moved: now })
    }

    /// Forgets the last round, because another member ran the rounds since.
    pub fn reset(&self) {
        *self.times.lock() = None;
    }

    fn update(&self, change: impl FnOnce(&mut Times)) {
        if let Some(times) = self.times.lock().as_mut() {
            change(times);
        }
    }
}
