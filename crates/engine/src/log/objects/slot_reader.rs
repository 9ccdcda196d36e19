//! Reads the slots of a log, in order, several at a time.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_channel::oneshot;

use super::object::{LogObject, ObjectKind, path};
use crate::error::{Error, Result};
use crate::world::{LogSlot, LogStore};

/// Number of objects that are fetched at a time.
const READS_MAX: usize = 32;

/// A read that was started.
type Read = oneshot::Receiver<io::Result<Option<Bytes>>>;

/// Reads the objects of slots below the end of a log, as recovery does. All of them must
/// exist: the end is never inferred from a missing one.
pub struct SlotReader {
    store: Arc<dyn LogStore>,
    epoch: u64,
    /// The slots that were not returned yet.
    slots: Range<u64>,
    /// Reads of the first of these slots.
    under_way: VecDeque<Read>,
}

impl SlotReader {
    pub fn new(store: Arc<dyn LogStore>, epoch: u64, slots: Range<u64>) -> SlotReader {
        SlotReader { store, epoch, slots, under_way: VecDeque::new() }
    }

    fn start(&self, at: LogSlot) -> Read {
        let (ended, outcome) = oneshot::channel();
        self.store.read(at, Box::new(move |found| drop(ended.send(found))));
        outcome
    }

    /// Returns the next object; `None` after the last. After an error of I/O it can be
    /// called again. A missing or damaged object, or a SEAL, is data loss.
    pub async fn next(&mut self) -> Result<Option<LogObject>> {
        if self.slots.is_empty() {
            return Ok(None);
        }
        let sent = self.slots.start + self.under_way.len() as u64;
        let upto = self.slots.end.min(self.slots.start + READS_MAX as u64);
        for slot in sent..upto {
            let at = LogSlot { epoch: self.epoch, slot };
            self.under_way.push_back(self.start(at));
        }
        let at = LogSlot { epoch: self.epoch, slot: self.slots.start };
        let first = self.under_way.front_mut().expect("the first slot is being read");
        let found = first.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()));
        match found {
            Ok(_) => drop(self.under_way.pop_front()),
            // It is read again by the next call, before those after it.
            Err(_) => self.under_way.clear(),
        }
        let found = found.map_err(|error| Error::io("reading", &path(at), error))?;
        let damaged = |what: &str| Error::data_loss(&path(at), 0, what);
        let bytes =
            found.ok_or_else(|| damaged("an object before the end of the log is missing"))?;
        let object = LogObject::decode(bytes, at)?;
        if object.kind == ObjectKind::Seal {
            return Err(damaged("a SEAL is before the end of the log"));
        }
        self.slots.start += 1;
        Ok(Some(object))
    }
}
