//! The callers that wait for the answers of entries.

use std::collections::BTreeMap;

use stele_engine::fatal::Mutex;
use tokio::sync::oneshot;

use super::queue::{AnswerSender, refuse};
use super::watch;
use crate::error::Error;

/// The callers that wait for the answers of entries in flight, by ticket.
pub struct Callers<A> {
    waiting: Mutex<BTreeMap<u64, Waiting<A>>>,
    /// The error with which the machine stopped the group.
    failure: Mutex<Option<Error>>,
    applied: watch::Sender<u64>,
}

struct Waiting<A> {
    senders: Vec<AnswerSender<A>>,
    /// Dropped when the callers have their answers.
    _done: oneshot::Sender<()>,
}

impl<A> Callers<A> {
    pub fn new(applied: u64) -> Callers<A> {
        Callers {
            waiting: Mutex::new(BTreeMap::new()),
            failure: Mutex::new(None),
            applied: watch::Sender::new(applied),
        }
    }

    /// Returns the index of the last entry applied.
    pub fn applied(&self) -> u64 {
        *self.applied.borrow()
    }

    pub fn set_applied(&self, index: u64) {
        self.applied.send_replace(index);
    }

    /// Waits until the entry at `index` is applied.
    pub async fn wait_applied(&self, index: u64) {
        let mut applied = self.applied.subscribe();
        let reached = applied.wait_for(|applied| *applied >= index).await;
        reached.expect("the sender lives as long as the callers");
    }

    /// Returns the error with which the machine stopped the group.
    pub fn failure(&self) -> Option<Error> {
        self.failure.lock().clone()
    }

    /// Records the first failure of the machine.
    pub fn set_failure(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
    }

    /// Registers the callers of the entry with this ticket. The receiver ends
    /// when they have their answers.
    pub fn begin(&self, ticket: u64, senders: Vec<AnswerSender<A>>) -> oneshot::Receiver<()> {
        let (done, answered) = oneshot::channel();
        let before = self.waiting.lock().insert(ticket, Waiting { senders, _done: done });
        assert!(before.is_none(), "each entry has a ticket of its own");
        answered
    }

    /// Returns whether any caller of the entry is still waiting.
    pub fn is_awaited(&self, ticket: u64) -> bool {
        let waiting = self.waiting.lock();
        let mine = waiting.get(&ticket);
        mine.is_some_and(|waiting| waiting.senders.iter().any(|sender| !sender.is_closed()))
    }

    /// Fails the callers of one entry that is not applied, or whose outcome is
    /// unknown.
    pub fn abandon(&self, ticket: u64, why: &Error) {
        if let Some(waiting) = self.waiting.lock().remove(&ticket) {
            refuse(waiting.senders, why);
        }
    }

    /// Fails the callers of all entries.
    pub fn abandon_all(&self, why: &Error) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_values().for_each(|waiting| refuse(waiting.senders, why));
    }

    /// Sends the answers of the entry with this ticket.
    pub fn answer(&self, ticket: u64, answers: Vec<A>) {
        let Some(waiting) = self.waiting.lock().remove(&ticket) else { return };
        assert_eq!(waiting.senders.len(), answers.len(), "one answer for each proposal");
        for (sender, answer) in waiting.senders.into_iter().zip(answers) {
            let _ = sender.send(Ok(answer));
        }
    }
}
