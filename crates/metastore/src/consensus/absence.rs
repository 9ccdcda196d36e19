//! A leader whose process has ended closes its connections. The others notice that
//! at once, and need not wait until its lease ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::raft::TransferLeaderRequest;
use tokio::time::sleep;

use super::Machine;
use super::member::ClusterMember;
use super::transport::Unreached;
use super::types::Vote;

/// How often a leader is asked whether it is still there, and the pause before each:
/// connections end one after the other.
const CHECKS_MAX: u32 = 3;
const CHECK_PAUSE: Duration = Duration::from_millis(10);
/// How often an election is started. The others may not have noticed yet.
const ELECTIONS_MAX: u32 = 5;

impl<M: Machine> ClusterMember<M> {
    /// Finds out whether the leader is still there, and otherwise starts an election.
    /// One that only lost a connection, or does not answer, is left alone.
    pub(super) async fn check_leader(self: Arc<Self>, leader: u64) {
        if self.checks_leader.swap(true, Ordering::AcqRel) {
            return;
        }
        for _ in 0..CHECKS_MAX {
            sleep(CHECK_PAUSE).await;
            match self.inquire(leader, Bytes::new()).await {
                Ok(_) => break,
                Err(Unreached::Unknown(_)) => {}
                Err(Unreached::NotSent(why)) => {
                    tracing::info!(leader = format_args!("{leader:x}"), why, "the leader is gone");
                    self.replace_leader(leader).await;
                    break;
                }
            }
        }
        self.checks_leader.store(false, Ordering::Release);
    }

    /// Lets this member vote although the lease of a leader has not ended, and stand for
    /// election. Those who still hear of the leader refuse (pre-vote). Reads and renewals
    /// do not rely on the lease.
    async fn replace_leader(&self, leader: u64) {
        let Some(vote) = self.vote_of(leader) else { return };
        // Handing over to another member ends the lease here, and does nothing else.
        let ends_lease = TransferLeaderRequest::new(vote, leader, None);
        if self.raft.handle_transfer_leader(ends_lease).await.is_err() {
            return;
        }
        for _ in 0..ELECTIONS_MAX {
            // All followers are here at the same time.
            let jitter = self.random.next_u64() % self.peers.heartbeat.as_micros().max(1) as u64;
            sleep(self.peers.heartbeat / 5 + Duration::from_micros(jitter)).await;
            if self.vote_of(leader) != Some(vote) {
                return;
            }
            if self.raft.trigger().elect(true).await.is_err() {
                return;
            }
        }
    }

    /// Returns the vote of this member if it is for this leader.
    fn vote_of(&self, leader: u64) -> Option<Vote> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let vote = metrics.vote;
        (vote.committed && vote.leader_id.voted_for == leader).then_some(vote)
    }
}
