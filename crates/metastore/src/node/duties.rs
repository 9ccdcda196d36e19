//! The background duties of a node: expiring leases, sampling time, dropping
//! history and clearing alarms whose cause is gone. One task, which sleeps
//! until the next duty is due.

use std::sync::Arc;
use std::time::Duration;

use stele_engine::fatal::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::Shared;
use crate::command::{Alarm, AlarmAction, Command};
use crate::error::{Error, Result};

/// The maximum number of leases that one log entry revokes, so that other
/// proposals can run in between.
const EXPIRED_AT_ONCE: usize = 500;

const WAIT_AFTER_FAILURE: Duration = Duration::from_millis(500);

/// When duties last ran, by the monotonic clock.
#[derive(Default)]
pub struct Last {
    state: Mutex<Option<Times>>,
}

#[derive(Clone, Copy)]
struct Times {
    /// The group clock, and the monotonic clock at that point.
    clock_micros: i64,
    elapsed: Duration,
    sampled: Duration,
    line_moved: Duration,
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
        let (node, nudge, stopped) = (Arc::downgrade(shared), shared.nudge.clone(), stop.clone());
        let task = tokio::spawn(async move {
            while let Some(shared) = node.upgrade() {
                let wait = wait(&shared);
                drop(shared);
                tokio::select! {
                    () = stopped.notified() => return,
                    () = nudge.notified() => {}
                    () = tokio::time::sleep(wait) => {}
                }
                let Some(shared) = node.upgrade() else { return };
                if let Err(error) = run(&shared).await {
                    drop(shared);
                    if matches!(error, Error::Stopped) {
                        return;
                    }
                    tracing::warn!(%error, "a background duty of the metastore failed");
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
            tracing::warn!(%error, "the duties of the metastore did not end well");
        }
    }
}

impl Drop for Duties {
    fn drop(&mut self) {
        self.stop.notify_one();
    }
}

fn wait(shared: &Shared) -> Duration {
    let retention = &shared.settings.retention;
    let regular = retention.sample_every.min(retention.waterline_every);
    shared.leases.next_due().map_or(regular, |due| due.min(regular))
}

/// Runs all duties that are due.
pub async fn run(shared: &Shared) -> Result<()> {
    expire(shared).await?;
    if shared.clears_alarm() {
        let member = shared.state.identity.member_id;
        let clear = AlarmAction::Deactivate { member, alarm: Alarm::NoSpace };
        shared.propose(&Command::Alarm(clear)).await?;
    }
    retain(shared).await
}

async fn expire(shared: &Shared) -> Result<()> {
    loop {
        let ids = shared.leases.expired(EXPIRED_AT_ONCE);
        if ids.is_empty() {
            return Ok(());
        }
        if let Err(error) = shared.propose(&Command::Expire { ids: ids.clone() }).await {
            shared.leases.spare(&ids);
            return Err(error);
        }
        // One entry deletes a bounded number of keys, so leases may remain.
        shared.leases.expire_again(&ids);
    }
}

async fn retain(shared: &Shared) -> Result<()> {
    let retention = &shared.settings.retention;
    let now = shared.clock().elapsed();
    let times = shared.last.at_or_begin(now, || shared.applier.history().0.clock_micros);
    let by_bytes = shared.samples_by_bytes();
    let sample_due = now - times.sampled >= retention.sample_every || by_bytes;
    let line_due = now - times.line_moved >= retention.waterline_every;
    if sample_due || line_due {
        let ran = i64::try_from((now - times.elapsed).as_micros()).unwrap_or(i64::MAX);
        move_on(shared, times.clock_micros.saturating_add(ran), line_due).await?;
        shared.last.update(|times| {
            times.sampled = now;
            times.line_moved = if line_due { now } else { times.line_moved };
        });
    }
    shared.applier.settle_waterline()
}

/// Samples the clock if anything changed since the last sample, and moves the
/// waterline if that is due or if there is too much history.
async fn move_on(shared: &Shared, clock_micros: i64, line_due: bool) -> Result<()> {
    let retention = &shared.settings.retention;
    let (numbers, samples) = shared.applier.history();
    if samples.last().is_none_or(|newest| newest.revision < numbers.revision) {
        shared.propose(&Command::Sample { clock_micros }).await?;
    }
    let (numbers, samples) = shared.applier.history();
    if (line_due || retention.is_over_budget(&numbers, &samples))
        && let Some(revision) = retention.waterline(&numbers, &samples, clock_micros)
    {
        shared.propose(&Command::Waterline { revision }).await?;
    }
    Ok(())
}

impl Last {
    /// Returns the times of the last round. The first round initializes them:
    /// the group clock continues from its value in the log.
    fn at_or_begin(&self, now: Duration, clock_micros: impl FnOnce() -> i64) -> Times {
        let mut state = self.state.lock();
        *state.get_or_insert_with(|| Times {
            clock_micros: clock_micros(),
            elapsed: now,
            sampled: now,
            line_moved: now,
        })
    }

    fn update(&self, change: impl FnOnce(&mut Times)) {
        if let Some(times) = self.state.lock().as_mut() {
            change(times);
        }
    }
}
