//! A member among others: what only the leader may do or answer.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::command::{Answer, Command, pack};
use crate::consensus::{GroupThreads, Leadership, LogIo, PeerSettings, Rules};
use crate::error::{Error, Result};
use crate::lease::{LeaseStatus, Question};

use super::lifecycle::{Node, Shared};

/// The settings of a member of a group of several.
#[derive(Clone)]
pub struct ClusterSettings {
    pub peers: PeerSettings,
    pub threads: GroupThreads,
    pub log_io: LogIo,
    pub rules: Rules,
}

impl ClusterSettings {
    pub fn new(peers: PeerSettings) -> ClusterSettings {
        ClusterSettings {
            peers,
            threads: GroupThreads::Several,
            log_io: LogIo::Thread,
            rules: Rules::default(),
        }
    }
}

/// The term in which this member acts as the leader.
#[derive(Default)]
pub struct ActingTerm(AtomicU64);

impl Node {
    /// Renews a lease at the leader. Returns its TTL, or `None` if it does not
    /// exist.
    pub async fn keep_alive(&self, id: i64) -> Result<Option<i64>> {
        if !self.shared.group.has_peers() {
            self.barrier().await?;
            return Ok(self.shared.leases.keep_alive(id));
        }
        let answer = self.shared.group.ask_leader(Question::Renew(id).encode()).await?;
        let status = Question::decode_answer(answer).map_err(bad_answer)?;
        Ok(status.map(|status| status.granted_seconds))
    }

    /// Returns the status of a lease at the leader, or `None` if it does not
    /// exist.
    pub async fn lease_status(&self, id: i64) -> Result<Option<LeaseStatus>> {
        self.barrier().await?;
        if !self.shared.group.has_peers() {
            return Ok(self.shared.leases.time_to_live(id));
        }
        let answer = self.shared.group.ask_leader(Question::Status(id).encode()).await?;
        Question::decode_answer(answer).map_err(bad_answer)
    }

    /// Hands leadership over to a member; to any if `to` is `None`.
    pub async fn transfer_leader(&self, to: Option<u64>) -> Result<()> {
        self.shared.group.transfer_leader(to).await
    }

    /// Waits until no leader has been known for a while.
    pub async fn leader_lost(&self) {
        let mut leadership = self.shared.group.leadership();
        if leadership.wait_for(|now| now.leader == 0).await.is_err() {
            // The group is closed.
            std::future::pending::<()>().await;
        }
    }
}

impl Shared {
    /// Returns the term if this member leads. In a new term, the deadlines of
    /// leases and the group clock continue from the log.
    pub(super) fn lead(&self) -> Option<u64> {
        let Leadership { term, leads, .. } = *self.group.leadership().borrow();
        if !leads {
            return None;
        }
        if self.acting.0.swap(term, Ordering::AcqRel) != term && self.group.has_peers() {
            self.leases.take_over(term, self.group.silence());
            self.last.reset();
        }
        Some(term)
    }

    /// Proposes a command of the leader, void if it leads no longer.
    pub(super) async fn propose_as_leader(&self, term: u64, command: &Command) -> Result<Answer> {
        if let Some(error) = self.applier.stalled_by() {
            return Err(error);
        }
        let time_micros = self.clocks.proposal_micros(|| self.state.sampled_time());
        self.group.propose_in_term(term, pack(command, time_micros)?).await?
    }
}

fn bad_answer(what: &'static str) -> Error {
    Error::Internal(format!("the leader sent a bad answer about a lease: {what}"))
}
