//! Questions about leases, which only the leader can answer.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};

use super::deadlines::Renewal;
use super::leases::{LeaseStatus, Leases};

const RENEW: u8 = 1;
const STATUS: u8 = 2;

/// A question about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Renews the lease.
    Renew(i64),
    Status(i64),
}

impl Question {
    pub fn encode(self) -> Bytes {
        let (tag, id) = match self {
            Question::Renew(id) => (RENEW, id),
            Question::Status(id) => (STATUS, id),
        };
        let mut out = vec![tag];
        out.put_i64_le(id);
        out.into()
    }

    fn decode(mut bytes: Bytes) -> Option<Question> {
        let tag = bytes.try_get_u8().ok()?;
        let id = bytes.try_get_i64_le().ok()?;
        match tag {
            RENEW => Some(Question::Renew(id)),
            STATUS => Some(Question::Status(id)),
            _ => None,
        }
    }

    /// Decodes an answer: the status of the lease, if it exists.
    pub fn decode_answer(mut bytes: Bytes) -> Result<Option<LeaseStatus>, &'static str> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let mut number = || bytes.try_get_i64_le().map_err(|_| "truncated");
        let (id, ttl_seconds, granted_seconds) = (number()?, number()?, number()?);
        Ok(Some(LeaseStatus { id, ttl_seconds, granted_seconds }))
    }
}

impl Leases {
    /// Answers a question that was received at a point of the monotonic clock.
    /// Returns `None` if the answer has to wait for an entry of the log.
    pub fn answer(&self, question: Bytes, asked: Duration) -> Option<Bytes> {
        let status = match Question::decode(question) {
            Some(Question::Renew(id)) => match self.renew(id, asked) {
                Renewal::Renewed(_) => self.time_to_live(id),
                Renewal::Ended => None,
                Renewal::Unrecorded => return None,
            },
            Some(Question::Status(id)) => self.time_to_live(id),
            None => None,
        };
        let Some(LeaseStatus { id, ttl_seconds, granted_seconds }) = status else {
            return Some(Bytes::new());
        };
        let mut out = Vec::with_capacity(24);
        [id, ttl_seconds, granted_seconds].into_iter().for_each(|number| out.put_i64_le(number));
        Some(out.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_as_it_was_written() {
        for question in [Question::Renew(7), Question::Status(-1)] {
            assert_eq!(Question::decode(question.encode()), Some(question));
        }
        for bytes in [&b""[..], b"\x01", b"\x09aaaaaaaa"] {
            assert_eq!(Question::decode(Bytes::copy_from_slice(bytes)), None);
        }
        assert_eq!(Question::decode_answer(Bytes::new()), Ok(None));
        Question::decode_answer(Bytes::from_static(b"123")).unwrap_err();
    }
}
