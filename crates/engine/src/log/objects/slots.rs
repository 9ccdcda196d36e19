//! The slots of a log that are under way: what was sent, what is durable, and what to do
//! about each answer. Decides only; `object_log` sends and waits.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::Bytes;

use super::object::{LogObject, ObjectKind};
use crate::error::Error;
use crate::rules::{OnDoubt, OnExists, Rules};
use crate::world::{Created, LogSlot};

/// An unanswered put is sent again after this multiple of the slowest of the last puts,
/// within these bounds.
const HEDGE_FACTOR: u32 = 3;
const HEDGE_AFTER_MIN: Duration = Duration::from_secs(1);
const HEDGE_AFTER_MAX: Duration = Duration::from_secs(10);
/// Number of puts whose duration is remembered.
const LATENCIES: usize = 100;
/// Delays before a failed put is sent again, doubled from the first to the longest.
const DELAY_FIRST: Duration = Duration::from_millis(50);
const DELAY_LONGEST: Duration = Duration::from_secs(2);

/// The slots beyond the durable prefix.
pub(super) struct Slots {
    epoch: u64,
    window: usize,
    rules: Rules,
    /// The next slot that belongs to nobody.
    next: u64,
    /// The slots just below `next`; the first one is not durable.
    puts: VecDeque<Put>,
    /// The highest index in a slot that is durable together with all before it.
    durable: u64,
    /// Durations of the last puts.
    latencies: VecDeque<Duration>,
}

struct Put {
    nonce: u128,
    /// Empty until it is sent.
    bytes: Bytes,
    /// Index of its last entry.
    last: u64,
    is_durable: bool,
    begun: Duration,
    /// When to send it again, unless there is an answer.
    due: Duration,
    attempts: u32,
    has_failed: bool,
}

/// What to do after an answer.
#[derive(Debug)]
pub(super) enum Next {
    /// Nothing: the put is sent again when it is due, or is known to be durable.
    Nothing,
    /// Everything up to this index is durable.
    Durable(u64),
    /// Read the object, to see whose it is.
    ReadBack,
    /// Stop: this server no longer owns its log.
    Halt(Error),
}

impl Slots {
    /// Returns the slots of a new log. Entries up to `last_index` belong to earlier ones.
    pub(super) fn new(epoch: u64, window: usize, last_index: u64, rules: Rules) -> Slots {
        Slots {
            epoch,
            window: window.max(1),
            rules,
            next: 0,
            puts: VecDeque::new(),
            durable: last_index,
            latencies: VecDeque::new(),
        }
    }

    /// Returns the next slot that belongs to nobody.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number of slots in the durable prefix.
    pub(super) fn prefix(&self) -> u64 {
        self.next - self.puts.len() as u64
    }

    pub(super) fn is_full(&self) -> bool {
        self.puts.len() >= self.window
    }

    /// Whether a put has failed, or has had no answer for long, and is not durable yet.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.puts.iter().any(|put| !put.is_durable && (put.has_failed || put.attempts > 1))
    }

    /// Assigns the next slot to a group of entries up to the index `last`. It is sent
    /// later.
    pub(super) fn assign(&mut self, nonce: u128, last: u64) -> LogSlot {
        assert!(!self.is_full(), "no more slots may be under way");
        let at = LogSlot { epoch: self.epoch, slot: self.next };
        self.next += 1;
        self.puts.push_back(Put {
            nonce,
            bytes: Bytes::new(),
            last,
            is_durable: false,
            begun: Duration::ZERO,
            due: Duration::MAX,
            attempts: 0,
            has_failed: false,
        });
        at
    }

    /// Notes that a slot is being sent for the first time.
    pub(super) fn sent(&mut self, slot: u64, bytes: Bytes, now: Duration) {
        let hedge_after = self.hedge_after();
        let put = self.put_mut(slot).expect("a slot is sent before it can be durable");
        (put.bytes, put.begun, put.due, put.attempts) = (bytes, now, now + hedge_after, 1);
    }

    /// Returns the puts that must be sent again now.
    pub(super) fn take_due(&mut self, now: Duration) -> Vec<(LogSlot, Bytes)> {
        let (hedge_after, first, epoch) = (self.hedge_after(), self.prefix(), self.epoch);
        let due = self.puts.iter_mut().zip(first..).filter(|(put, _)| put.is_due(now));
        due.map(|(put, slot)| {
            put.attempts += 1;
            put.due = now + hedge_after;
            (LogSlot { epoch, slot }, put.bytes.clone())
        })
        .collect()
    }

    /// Returns when the next put must be sent again.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let waiting = self.puts.iter().filter(|put| !put.is_durable);
        waiting.map(|put| put.due).min().filter(|due| *due < Duration::MAX)
    }

    /// Handles the answer to a put. Those for a durable slot are ignored: they are
    /// answers to other attempts.
    pub(super) fn answered(
        &mut self,
        slot: u64,
        answer: io::Result<Created>,
        now: Duration,
    ) -> Next {
        let (on_exists, on_doubt) = (self.rules.on_exists, self.rules.on_doubt);
        let Some(put) = self.put_mut(slot) else { return Next::Nothing };
        match answer {
            Ok(Created::New) => self.settle(slot, now),
            Ok(Created::Exists) if on_exists == OnExists::Success => self.settle(slot, now),
            Ok(Created::Exists) => {
                // If the answer to the read gets lost, the put is sent again.
                put.due = put.due.max(now + DELAY_LONGEST);
                Next::ReadBack
            }
            Err(_) if on_doubt == OnDoubt::Skip => self.settle(slot, now),
            Err(error) if on_doubt == OnDoubt::Halt => {
                Next::Halt(self.fenced(slot, format!("a put failed: {error}")))
            }
            Err(_) => {
                put.fail(now);
                Next::Nothing
            }
        }
    }

    /// Handles the object that was found in a slot.
    pub(super) fn read_back(
        &mut self,
        slot: u64,
        found: io::Result<Option<Bytes>>,
        now: Duration,
    ) -> Next {
        let at = LogSlot { epoch: self.epoch, slot };
        let Some(put) = self.put_mut(slot) else { return Next::Nothing };
        let bytes = match found {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                let what = "its object is gone: the log was recovered by another server";
                return Next::Halt(self.fenced(slot, what));
            }
            Err(_) => {
                put.fail(now);
                return Next::Nothing;
            }
        };
        match LogObject::decode(bytes, at) {
            Ok(object) if object.kind == ObjectKind::Seal => {
                Next::Halt(self.fenced(slot, "it holds the SEAL of another server"))
            }
            Ok(object) if object.nonce == put.nonce => self.settle(slot, now),
            Ok(_) => {
                Next::Halt(self.fenced(slot, "it holds an object that this server did not write"))
            }
            Err(error) => Next::Halt(self.fenced(slot, error.to_string())),
        }
    }

    /// Notes that a slot is durable.
    fn settle(&mut self, slot: u64, now: Duration) -> Next {
        let Some(put) = self.put_mut(slot) else { return Next::Nothing };
        put.is_durable = true;
        put.bytes = Bytes::new();
        let (latency, last) = (now.saturating_sub(put.begun), put.last);
        self.latencies.push_back(latency);
        if self.latencies.len() > LATENCIES {
            self.latencies.pop_front();
        }
        let before = self.durable;
        while let Some(put) = self.puts.pop_front_if(|put| put.is_durable) {
            self.durable = self.durable.max(put.last);
        }
        if !self.rules.acks_in_order {
            self.durable = self.durable.max(last);
        }
        if self.durable > before { Next::Durable(self.durable) } else { Next::Nothing }
    }

    fn fenced(&self, slot: u64, what: impl Into<String>) -> Error {
        let at = LogSlot { epoch: self.epoch, slot };
        Error::Fenced { epoch: self.epoch, what: format!("{at}: {}", what.into()) }
    }

    /// Returns a slot that is not known to be durable.
    fn put_mut(&mut self, slot: u64) -> Option<&mut Put> {
        let position = usize::try_from(slot.checked_sub(self.prefix())?).ok()?;
        self.puts.get_mut(position).filter(|put| !put.is_durable)
    }

    fn hedge_after(&self) -> Duration {
        let slowest = self.latencies.iter().max().copied().unwrap_or_default();
        (slowest * HEDGE_FACTOR).clamp(HEDGE_AFTER_MIN, HEDGE_AFTER_MAX)
    }
}

impl Put {
    fn is_due(&self, now: Duration) -> bool {
        !self.is_durable && self.due <= now
    }

    /// Notes that an attempt failed, and when to make the next.
    fn fail(&mut self, now: Duration) {
        self.has_failed = true;
        let delay = DELAY_FIRST * (1 << self.attempts.saturating_sub(1).min(10));
        self.due = self.due.min(now + delay.min(DELAY_LONGEST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn slots(window: usize) -> Slots {
        Slots::new(7, window, 10, Rules::CORRECTED)
    }

    /// Sends a slot with one entry.
    fn send(slots: &mut Slots, index: u64) -> u64 {
        let at = slots.assign(u128::from(index), index);
        slots.sent(at.slot, bytes(at.slot, index), NOW);
        at.slot
    }

    fn bytes(slot: u64, index: u64) -> Bytes {
        LogObject::data(LogSlot { epoch: 7, slot }, u128::from(index), &[])
    }

    fn failed() -> io::Result<Created> {
        Err(io::ErrorKind::TimedOut.into())
    }

    #[test]
    fn r4_4_slots_become_durable_in_order_whatever_the_order_of_the_answers() {
        let mut slots = slots(4);
        for index in 11..15 {
            send(&mut slots, index);
        }
        assert!(slots.is_full());
        assert!(matches!(slots.answered(1, Ok(Created::New), NOW), Next::Nothing));
        assert!(matches!(slots.answered(3, Ok(Created::New), NOW), Next::Nothing));
        assert_eq!(slots.prefix(), 0);
        assert!(matches!(slots.answered(0, Ok(Created::New), NOW), Next::Durable(12)));
        assert_eq!((slots.prefix(), slots.is_full()), (2, false));
        assert!(matches!(slots.answered(2, Ok(Created::New), NOW), Next::Durable(14)));
        assert_eq!(slots.prefix(), slots.next());
    }

    #[test]
    fn r4_2_a_put_in_doubt_keeps_its_slot_and_is_sent_again_with_the_same_bytes() {
        let mut slots = slots(4);
        let slot = send(&mut slots, 11);
        assert!(slots.take_due(NOW).is_empty() && !slots.is_in_doubt());
        let mut now = NOW;
        for attempt in 1..20 {
            assert!(matches!(slots.answered(slot, failed(), now), Next::Nothing));
            assert!(slots.is_in_doubt());
            let due = slots.next_due().unwrap();
            assert!(due > now && due <= now + DELAY_LONGEST, "attempt {attempt}");
            now = due;
            let again = slots.take_due(now);
            assert_eq!(again, [(LogSlot { epoch: 7, slot }, bytes(slot, 11))]);
        }
        // An answer to an earlier attempt counts, and later ones are ignored.
        assert!(matches!(slots.answered(slot, Ok(Created::New), now), Next::Durable(11)));
        assert!(matches!(slots.answered(slot, Ok(Created::Exists), now), Next::Nothing));
        assert!(matches!(slots.answered(slot, failed(), now), Next::Nothing));
        assert!(matches!(slots.read_back(slot, Ok(None), now), Next::Nothing));
        assert!(!slots.is_in_doubt() && slots.next_due().is_none());
    }

    #[test]
    fn r4_2_an_unanswered_put_is_sent_again_after_a_while() {
        let mut slots = slots(4);
        send(&mut slots, 11);
        assert_eq!(slots.next_due(), Some(NOW + HEDGE_AFTER_MIN));
        assert!(slots.take_due(NOW + HEDGE_AFTER_MIN / 2).is_empty());
        assert_eq!(slots.take_due(NOW + HEDGE_AFTER_MIN).len(), 1);
        let slow = Duration::from_secs(2);
        assert!(matches!(slots.answered(0, Ok(Created::New), NOW + slow), Next::Durable(11)));
        // A slow store is given more time.
        let slot = send(&mut slots, 12);
        assert_eq!(slots.next_due(), Some(NOW + slow * HEDGE_FACTOR));
        assert!(matches!(slots.answered(slot, Ok(Created::New), NOW), Next::Durable(12)));
    }

    #[test]
    fn r4_3_an_object_that_exists_is_read_back_and_only_our_own_counts() {
        let found = |object: Option<Bytes>| {
            let mut slots = slots(4);
            send(&mut slots, 11);
            assert!(matches!(slots.answered(0, Ok(Created::Exists), NOW), Next::ReadBack));
            slots.read_back(0, Ok(object), NOW)
        };
        assert!(matches!(found(Some(bytes(0, 11))), Next::Durable(11)));
        let at = LogSlot { epoch: 7, slot: 0 };
        for object in [Some(LogObject::seal(at, 11)), Some(bytes(0, 12)), Some(Bytes::new()), None]
        {
            assert!(matches!(found(object), Next::Halt(Error::Fenced { epoch: 7, .. })));
        }
        // A read that fails is no answer.
        let mut slots = slots(4);
        send(&mut slots, 11);
        assert!(matches!(slots.answered(0, Ok(Created::Exists), NOW), Next::ReadBack));
        let failed = Err(io::ErrorKind::TimedOut.into());
        assert!(matches!(slots.read_back(0, failed, NOW), Next::Nothing));
        assert_eq!(slots.take_due(NOW + DELAY_LONGEST).len(), 1);
    }
}
