//! Proposals that wait to become an entry. Those that arrive while an entry is
//! being synced and applied form the next one (group commit).

use std::time::Duration;

use bytes::Bytes;
use stele_engine::fatal::{Condvar, Mutex};
use tokio::sync::{Notify, oneshot};

use super::GroupSettings;
use crate::error::{Error, Result};

/// Sends the answer to the caller of a proposal.
pub type AnswerSender<A> = oneshot::Sender<Result<A>>;

/// A bounded queue of proposals.
pub struct Queue<A> {
    queued: Mutex<Queued<A>>,
    /// Notified when there is something to take, or when the queue is closed.
    wake: Notify,
    /// Notified when `wanted` proposals are queued.
    complete: Condvar,
    proposals_max: usize,
    bytes_max: usize,
    entry_proposals_max: usize,
    entry_bytes_max: usize,
}

struct Queued<A> {
    proposals: Vec<Bytes>,
    senders: Vec<AnswerSender<A>>,
    bytes: usize,
    /// The number of proposals being waited for; 0 if nobody waits.
    wanted: usize,
    /// Why the queue accepts no more proposals; `None` while it is open.
    closed: Option<Error>,
}

/// The contents of one entry.
pub struct ProposalBatch<A> {
    pub proposals: Vec<Bytes>,
    pub senders: Vec<AnswerSender<A>>,
}

impl<A> Queue<A> {
    pub fn new(settings: &GroupSettings) -> Queue<A> {
        Queue {
            queued: Mutex::new(Queued {
                proposals: Vec::new(),
                senders: Vec::new(),
                bytes: 0,
                wanted: 0,
                closed: None,
            }),
            wake: Notify::new(),
            complete: Condvar::new(),
            proposals_max: settings.queue_proposals_max,
            bytes_max: settings.queue_bytes_max,
            entry_proposals_max: settings.entry_proposals_max.max(1),
            entry_bytes_max: settings.entry_bytes_max,
        }
    }

    /// Queues a proposal. Refuses it if the queue is full.
    pub fn push(&self, proposal: Bytes) -> Result<oneshot::Receiver<Result<A>>> {
        let (sender, answer) = oneshot::channel();
        let mut queued = self.queued.lock();
        if let Some(error) = &queued.closed {
            return Err(error.clone());
        }
        let full = queued.proposals.len() >= self.proposals_max
            || (queued.bytes + proposal.len() > self.bytes_max && !queued.proposals.is_empty());
        if full {
            return Err(Error::TooManyRequests);
        }
        queued.bytes += proposal.len();
        queued.proposals.push(proposal);
        queued.senders.push(sender);
        let count = queued.proposals.len();
        let complete = count == queued.wanted;
        drop(queued);
        if count == 1 {
            self.wake.notify_one();
        }
        if complete {
            self.complete.notify_one();
        }
        Ok(answer)
    }

    /// Returns the next batch, at most as large as an entry may be; `None` once
    /// the queue is closed and empty.
    pub async fn take(&self) -> Option<ProposalBatch<A>> {
        loop {
            {
                let mut queued = self.queued.lock();
                if !queued.proposals.is_empty() {
                    return Some(self.take_batch(&mut queued));
                }
                if queued.closed.is_some() {
                    return None;
                }
            }
            self.wake.notified().await;
        }
    }

    /// Blocks until `wanted` proposals are queued or `linger` has passed.
    /// Returns whether enough arrived.
    pub fn wait_for(&self, wanted: usize, linger: Duration) -> bool {
        let mut queued = self.queued.lock();
        queued.wanted = wanted.min(self.entry_proposals_max);
        let missing = |queued: &mut Queued<A>| {
            queued.proposals.len() < queued.wanted && queued.closed.is_none()
        };
        self.complete.wait_while_for(&mut queued, missing, linger);
        let arrived = queued.proposals.len() >= queued.wanted;
        queued.wanted = 0;
        arrived
    }

    /// Returns the number of queued proposals.
    pub fn len(&self) -> usize {
        self.queued.lock().proposals.len()
    }

    /// Closes the queue to new proposals; queued ones stay.
    pub fn close(&self, why: Error) {
        self.queued.lock().closed.get_or_insert(why);
        self.wake.notify_one();
        self.complete.notify_one();
    }

    /// Refuses all queued proposals.
    pub fn refuse_all(&self, why: &Error) {
        let senders = {
            let mut queued = self.queued.lock();
            queued.proposals.clear();
            queued.bytes = 0;
            std::mem::take(&mut queued.senders)
        };
        refuse(senders, why);
    }

    fn take_batch(&self, queued: &mut Queued<A>) -> ProposalBatch<A> {
        let mut bytes = 0;
        let fits = |proposal: &Bytes| {
            bytes += proposal.len();
            bytes <= self.entry_bytes_max
        };
        // At least one, whatever its size.
        let fitting = queued.proposals.iter().take(self.entry_proposals_max).map(fits);
        let count = fitting.take_while(|fits| *fits).count().max(1);
        if count == queued.proposals.len() {
            queued.bytes = 0;
            let proposals = std::mem::take(&mut queued.proposals);
            // The next batch is likely to have the same size.
            queued.proposals.reserve(count);
            let senders = std::mem::take(&mut queued.senders);
            queued.senders.reserve(count);
            return ProposalBatch { proposals, senders };
        }
        let proposals: Vec<Bytes> = queued.proposals.drain(..count).collect();
        queued.bytes -= proposals.iter().map(Bytes::len).sum::<usize>();
        ProposalBatch { proposals, senders: queued.senders.drain(..count).collect() }
    }
}

/// Sends the same failure to all callers; those that are gone are ignored.
pub fn refuse<A>(senders: Vec<AnswerSender<A>>, why: &Error) {
    for sender in senders {
        let _ = sender.send(Err(why.clone()));
    }
}
