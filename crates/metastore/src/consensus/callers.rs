//! The callers that wait for the answers of an entry.

use std::sync::atomic::{AtomicU64, Ordering};

use stele_engine::fatal::Mutex;

use super::queue::{AnswerSender, refuse};
use crate::error::Error;

/// The callers that wait for the answers of the entry in progress.
pub struct Callers<A> {
    slot: Mutex<Option<(u64, Vec<AnswerSender<A>>)>>,
    /// The error with which the machine stopped the group.
    failure: Mutex<Option<Error>>,
    applied: AtomicU64,
}

impl<A> Callers<A> {
    pub fn new(applied: u64) -> Callers<A> {
        Callers {
            slot: Mutex::new(None),
            failure: Mutex::new(None),
            applied: AtomicU64::new(applied),
        }
    }

    /// Returns the index of the last entry applied.
    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    pub fn set_applied(&self, index: u64) {
        self.applied.store(index, Ordering::Release);
    }

    /// Returns the error with which the machine stopped the group.
    pub fn failure(&self) -> Option<Error> {
        self.failure.lock().clone()
    }

    /// Records the first failure of the machine.
    pub fn set_failure(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
    }

    /// Registers the callers of the entry with this ticket.
    pub fn begin(&self, ticket: u64, senders: Vec<AnswerSender<A>>) {
        let before = self.slot.lock().replace((ticket, senders));
        assert!(before.is_none(), "entries are written one at a time");
    }

    /// Returns whether any caller of the entry is still waiting.
    pub fn is_awaited(&self, ticket: u64) -> bool {
        let slot = self.slot.lock();
        let mine = slot.as_ref().filter(|(of, _)| *of == ticket);
        mine.is_some_and(|(_, senders)| senders.iter().any(|sender| !sender.is_closed()))
    }

    /// Fails the callers of an entry that is not applied, or whose outcome is
    /// unknown.
    pub fn abandon(&self, why: &Error) {
        if let Some((_, senders)) = self.slot.lock().take() {
            refuse(senders, why);
        }
    }

    /// Sends the answers of the entry with this ticket.
    pub fn answer(&self, ticket: u64, answers: Vec<A>) {
        let waiting = self.slot.lock().take_if(|(of, _)| *of == ticket);
        let Some((_, senders)) = waiting else { return };
        assert_eq!(senders.len(), answers.len(), "one answer for each proposal");
        for (sender, answer) in senders.into_iter().zip(answers) {
            let _ = sender.send(Ok(answer));
        }
    }
}
