//! Leadership handed over on request, to a member that is able to take it.

use std::sync::atomic::Ordering;

use openraft::async_runtime::watch::WatchReceiver;
use tokio::time::timeout;

use super::Machine;
use super::member::ClusterMember;
use super::message::{Moved, Request, response};
use super::transport::Lane;
use crate::error::{Error, Result};

impl<M: Machine> ClusterMember<M> {
    /// Has the leader hand over to a member, or to the one with the longest log.
    /// Returns once this member knows the new leader.
    pub async fn move_leader(&self, to: Option<u64>) -> Result<()> {
        let to = to.unwrap_or(0);
        let leader = self.shared.leader.load(Ordering::Acquire);
        let moved = match leader {
            0 => return Err(Error::NoLeader),
            leader if leader == self.shared.member => self.hand_over(to).await,
            leader => {
                let request = Request::MoveLeader(to).encode();
                let call = self.outbox.call(leader, Lane::Client, request);
                let called = timeout(self.peers.request_timeout, call).await;
                let bytes = called.ok().and_then(|bytes| bytes.ok()).ok_or(Error::Timeout)?;
                response::decode_moved(bytes).unwrap_or(Moved::TimedOut)
            }
        };
        match moved {
            Moved::Done => {}
            Moved::NotLeader => return Err(Error::NotLeader),
            Moved::BadTransferee => return Err(Error::BadTransferee),
            Moved::TimedOut => return Err(Error::Timeout),
        }
        let mut leadership = self.shared.leadership.subscribe();
        let known = leadership.wait_for(|now| {
            now.leader != 0 && if to == 0 { now.leader != leader } else { now.leader == to }
        });
        match timeout(self.peers.request_timeout, known).await {
            Ok(known) => known.map_err(|_| Error::Stopped),
            Err(_) => Err(Error::Timeout),
        }
    }

    /// Hands over to a voter, 0 for any, and waits until it leads.
    pub(super) async fn hand_over(&self, to: u64) -> Moved {
        let member = self.shared.member;
        if self.shared.leader.load(Ordering::Acquire) != member {
            return Moved::NotLeader;
        }
        if to == member {
            return Moved::Done;
        }
        if to != 0 && !self.is_voter(to) {
            return Moved::BadTransferee;
        }
        let Some(to) = Some(to).filter(|to| *to != 0).or_else(|| self.best_follower()) else {
            return Moved::BadTransferee;
        };
        // A leader that hands over serves nothing. If the other member cannot
        // take over, that would last for an election.
        if self.inquire(to, bytes::Bytes::new()).await.is_err() {
            return Moved::TimedOut;
        }
        if self.transfer_leader(Some(to)).await.is_err() {
            return Moved::NotLeader;
        }
        let mut leadership = self.shared.leadership.subscribe();
        let leads = leadership.wait_for(|now| now.leader == to);
        match timeout(self.peers.request_timeout, leads).await {
            Ok(Ok(())) => Moved::Done,
            _ => Moved::TimedOut,
        }
    }

    fn is_voter(&self, member: u64) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.voter_ids().any(|voter| voter == member)
    }
}
