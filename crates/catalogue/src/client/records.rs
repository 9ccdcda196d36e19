//! The stream of records of a Next or Prev.

use std::collections::VecDeque;

use tonic::codec::Streaming;

use super::{Result, Segments};
use crate::proto::{Code, NextReply};

/// An item of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A record of the start with this number.
    Record { start: u32, key: Segments, value: Segments, cookie: bytes::Bytes },
    /// All records of the start have been returned.
    End { start: u32, code: Code, count: u64 },
}

pub struct Records {
    messages: Streaming<NextReply>,
    ready: VecDeque<Step>,
    /// The pinned txn, available after the last item.
    pub pinned: Option<u64>,
}

impl Records {
    pub(super) fn new(messages: Streaming<NextReply>) -> Records {
        Records { messages, ready: VecDeque::new(), pinned: None }
    }

    /// Returns the next item; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Step>> {
        while self.ready.is_empty() {
            let Some(message) = self.messages.message().await? else { return Ok(None) };
            self.take(message);
        }
        Ok(self.ready.pop_front())
    }

    fn take(&mut self, message: NextReply) {
        if message.pinned != 0 {
            self.pinned = Some(message.pinned);
        }
        for group in message.groups {
            let (start, code) = (group.start, group.code());
            self.ready.extend(group.records.into_iter().map(|item| Step::Record {
                start,
                key: item.key.into(),
                value: item.value.into(),
                cookie: item.cookie,
            }));
            if group.last {
                self.ready.push_back(Step::End { start, code, count: group.count });
            }
        }
    }
}
