//! Checks the stored keys against the hashes that every change updates. A
//! difference raises the alarm CORRUPT.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::lifecycle::{Node, Shared};
use super::reader::offload;
use crate::command::{Alarm, AlarmAction, Command, LEVEL_OF_HASHES};
use crate::error::Result;
use crate::state::BucketHashes;

/// A check takes at most this part of the time.
const TIME_SHARE: u32 = 100;

/// The result of a check of the stored keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verified {
    /// The keys have the hashes of this revision.
    Equal { revision: i64 },
    /// These buckets differ.
    Differs { revision: i64, buckets: Vec<usize> },
    /// The level has no hashes yet, the revision was dropped meanwhile, or the
    /// check was interrupted.
    Skipped,
}

impl Node {
    /// Returns the hashes as of a sample that was applied at this log index (0:
    /// the newest). Members sample at the same entries, once a minute if
    /// anything changed.
    pub fn bucket_hashes(&self, index: u64) -> Option<BucketHashes> {
        self.shared.state.hashes_at(index)
    }

    /// Reads all stored keys and compares them with the hashes of the state.
    /// Raises the alarm if they differ.
    pub async fn verify(&self) -> Result<Verified> {
        let verified = check(&self.shared, Arc::default()).await?;
        self.shared.report(&verified).await?;
        Ok(verified)
    }
}

impl Shared {
    async fn report(&self, verified: &Verified) -> Result<()> {
        let Verified::Differs { revision, buckets } = verified else { return Ok(()) };
        tracing::error!(
            revision,
            ?buckets,
            "the stored keys of the metastore differ from their hashes: restore this member from a \
             backup"
        );
        self.raise_corrupt(self.state.identity.member_id).await
    }

    pub(super) async fn raise_corrupt(&self, member: u64) -> Result<()> {
        if self.state.alarms().contains(&(member, Alarm::Corrupt)) {
            return Ok(());
        }
        let activate = AlarmAction::Activate { member, alarm: Alarm::Corrupt };
        self.propose(&Command::Alarm(activate)).await.map(drop)
    }
}

/// Computes the hashes of the stored keys at the newest revision, on another
/// thread.
async fn check(shared: &Shared, stop: Arc<AtomicBool>) -> Result<Verified> {
    let (watermarks, _) = shared.applier.history();
    if watermarks.level < LEVEL_OF_HASHES {
        return Ok(Verified::Skipped);
    }
    let (state, work) = (shared.state.clone(), shared.work.clone());
    offload(move || {
        let revision = watermarks.revision;
        let computed = state.recompute_buckets(revision, &|| !stop.load(Ordering::Relaxed));
        // Versions at the revision may have been dropped during the read.
        let retained = state.waterline() <= revision;
        drop(state);
        drop(work);
        Ok(match computed? {
            Some(computed) if retained => match computed.differing(&watermarks.buckets) {
                buckets if buckets.is_empty() => Verified::Equal { revision },
                buckets => Verified::Differs { revision, buckets },
            },
            _ => Verified::Skipped,
        })
    })
    .await
}

/// The task that checks the stored keys from time to time.
pub struct Verifier {
    task: Option<JoinHandle<()>>,
    stop: Arc<Notify>,
    stopped: Arc<AtomicBool>,
}

impl Verifier {
    pub fn start(shared: &Arc<Shared>) -> Verifier {
        let (stop, stopped) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let (node, ended, interrupted) = (Arc::downgrade(shared), stop.clone(), stopped.clone());
        let every = shared.settings.verify_every;
        let task = tokio::spawn(async move {
            let mut wait = every;
            loop {
                tokio::select! {
                    () = ended.notified() => return,
                    () = tokio::time::sleep(wait) => {}
                }
                let Some(shared) = node.upgrade() else { return };
                let begun = shared.clock().elapsed();
                let outcome = match check(&shared, interrupted.clone()).await {
                    Ok(verified) => shared.report(&verified).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = outcome {
                    tracing::warn!(%error, "the check of the metastore's keys failed");
                }
                let took = shared.clock().elapsed().saturating_sub(begun);
                wait = pause(every, took);
            }
        });
        Verifier { task: Some(task), stop, stopped }
    }

    /// Interrupts a check and waits until the task has ended.
    pub async fn stop(mut self) {
        self.interrupt();
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::warn!(%error, "the check of the metastore's keys did not stop cleanly");
        }
    }

    fn interrupt(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.stop.notify_one();
    }
}

impl Drop for Verifier {
    fn drop(&mut self) {
        self.interrupt();
    }
}

/// Returns the time until the next check.
fn pause(every: Duration, took: Duration) -> Duration {
    every.max(took.saturating_mul(TIME_SHARE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_check_runs_less_often() {
        let minute = Duration::from_secs(60);
        assert_eq!(pause(minute, Duration::from_millis(100)), minute);
        assert_eq!(pause(minute, Duration::from_secs(3)), Duration::from_secs(300));
    }
}
