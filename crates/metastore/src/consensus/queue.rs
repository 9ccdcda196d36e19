//! Proposals that wait to become an entry. Those that arrive while an entry is
//! being synced and applied form the next one (group commit).

use std::time::Duration;

use bytes::Bytes;
use stele_engine::fatal::{Condvar, Mutex};
use tokio::sync::{Notify, oneshot};

use super::Settings;
use crate::error::{Error, Result};

pub type Reply<A> = oneshot::Sender<Result<A>>;

pub struct Queue<A> {
    state: Mutex<State<A>>,
    /// Notified when there is something to take, or when the queue is closed.
    wake: Notify,
    /// Notified when `wanted` proposals are queued.
    gathered: Condvar,
    proposals_max: usize,
    bytes_max: usize,
    entry_proposals_max: usize,
    entry_bytes_max: usize,
}

struct State<A> {
    proposals: Vec<Bytes>,
    replies: Vec<Reply<A>>,
    bytes: usize,
    /// The number of proposals being waited for; 0 if nobody waits.
    wanted: usize,
    /// Why the queue accepts no more proposals; `None` while it is open.
    closed: Option<Error>,
}

/// The contents of one entry.
pub struct Batch<A> {
    pub proposals: Vec<Bytes>,
    pub replies: Vec<Reply<A>>,
}

impl<A> Queue<A> {
    pub fn new(settings: &Settings) -> Queue<A> {
        Queue {
            state: Mutex::new(State {
                proposals: Vec::new(),
                replies: Vec::new(),
                bytes: 0,
                wanted: 0,
                closed: None,
            }),
            wake: Notify::new(),
            gathered: Condvar::new(),
            proposals_max: settings.queue_proposals_max,
            bytes_max: settings.queue_bytes_max,
            entry_proposals_max: settings.entry_proposals_max.max(1),
            entry_bytes_max: settings.entry_bytes_max,
        }
    }

    /// Queues a proposal. Refuses it if the queue is full.
    pub fn push(&self, proposal: Bytes) -> Result<oneshot::Receiver<Result<A>>> {
        let (reply, answer) = oneshot::channel();
        let mut state = self.state.lock();
        if let Some(error) = &state.closed {
            return Err(error.clone());
        }
        let full = state.proposals.len() >= self.proposals_max
            || (state.bytes + proposal.len() > self.bytes_max && !state.proposals.is_empty());
        if full {
            return Err(Error::TooManyRequests);
        }
        state.bytes += proposal.len();
        state.proposals.push(proposal);
        state.replies.push(reply);
        let count = state.proposals.len();
        let complete = count == state.wanted;
        drop(state);
        if count == 1 {
            self.wake.notify_one();
        }
        if complete {
            self.gathered.notify_one();
        }
        Ok(answer)
    }

    /// Returns the next batch, at most as large as an entry may be; `None` once
    /// the queue is closed and empty.
    pub async fn take(&self) -> Option<Batch<A>> {
        loop {
            {
                let mut state = self.state.lock();
                if !state.proposals.is_empty() {
                    return Some(self.cut(&mut state));
                }
                if state.closed.is_some() {
                    return None;
                }
            }
            self.wake.notified().await;
        }
    }

    /// Blocks until `wanted` proposals are queued or `patience` has passed.
    /// Returns whether enough arrived.
    pub fn gather(&self, wanted: usize, patience: Duration) -> bool {
        let mut state = self.state.lock();
        state.wanted = wanted.min(self.entry_proposals_max);
        let missing =
            |state: &mut State<A>| state.proposals.len() < state.wanted && state.closed.is_none();
        self.gathered.wait_while_for(&mut state, missing, patience);
        let came = state.proposals.len() >= state.wanted;
        state.wanted = 0;
        came
    }

    /// Returns the number of queued proposals.
    pub fn len(&self) -> usize {
        self.state.lock().proposals.len()
    }

    /// Closes the queue to new proposals; queued ones stay.
    pub fn close(&self, why: Error) {
        self.state.lock().closed.get_or_insert(why);
        self.wake.notify_one();
        self.gathered.notify_one();
    }

    /// Refuses all queued proposals.
    pub fn refuse_all(&self, why: &Error) {
        let replies = {
            let mut state = self.state.lock();
            state.proposals.clear();
            state.bytes = 0;
            std::mem::take(&mut state.replies)
        };
        refuse(replies, why);
    }

    fn cut(&self, state: &mut State<A>) -> Batch<A> {
        let mut bytes = 0;
        let fits = |proposal: &Bytes| {
            bytes += proposal.len();
            bytes <= self.entry_bytes_max
        };
        // At least one, whatever its size.
        let fitting = state.proposals.iter().take(self.entry_proposals_max).map(fits);
        let count = fitting.take_while(|fits| *fits).count().max(1);
        if count == state.proposals.len() {
            state.bytes = 0;
            let proposals = std::mem::take(&mut state.proposals);
            // The next batch is likely to have the same size.
            state.proposals.reserve(count);
            let replies = std::mem::take(&mut state.replies);
            state.replies.reserve(count);
            return Batch { proposals, replies };
        }
        let proposals: Vec<Bytes> = state.proposals.drain(..count).collect();
        state.bytes -= proposals.iter().map(Bytes::len).sum::<usize>();
        Batch { proposals, replies: state.replies.drain(..count).collect() }
    }
}

/// Sends the same failure to all callers; those that are gone are ignored.
pub fn refuse<A>(replies: Vec<Reply<A>>, why: &Error) {
    for reply in replies {
        let _ = reply.send(Err(why.clone()));
    }
}
