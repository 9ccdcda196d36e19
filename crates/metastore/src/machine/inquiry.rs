//! Questions that every member answers about itself, whether it leads or not.
//! The answers are messages of the native API, so that members of different
//! versions understand each other.

use bytes::{Buf, BufMut, Bytes};
use prost::Message;

use super::Applier;
use crate::consensus::GroupStatus;
use crate::proto::native::{GetHashesResponse, MemberStatus};
use crate::state::{BUCKETS, BucketHashes, Buckets};

const HASHES: u8 = 1;
const STATUS: u8 = 2;

/// A question to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inquiry {
    /// Its hashes as of the sample at this log index.
    Hashes { index: u64 },
    /// Its progress and size.
    Status,
}

impl Inquiry {
    pub fn encode(self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Inquiry::Hashes { index } => {
                out.put_u8(HASHES);
                out.put_u64_le(index);
            }
            Inquiry::Status => out.put_u8(STATUS),
        }
        out.into()
    }

    fn decode(mut bytes: Bytes) -> Option<Inquiry> {
        match bytes.try_get_u8().ok()? {
            HASHES => Some(Inquiry::Hashes { index: bytes.try_get_u64_le().ok()? }),
            STATUS => Some(Inquiry::Status),
            _ => None,
        }
    }

    /// Decodes the answer to [`Inquiry::Hashes`]; `None` if the member has no
    /// hashes of that entry.
    pub fn decode_hashes(answer: Bytes) -> Option<BucketHashes> {
        let answer = GetHashesResponse::decode(answer).ok()?;
        let buckets: [u64; BUCKETS] = answer.buckets.try_into().ok()?;
        let (index, revision) = (answer.index, answer.revision);
        Some(BucketHashes { index, revision, buckets: Buckets(buckets) })
    }

    /// Decodes the answer to [`Inquiry::Status`].
    pub fn decode_status(answer: Bytes) -> Option<MemberStatus> {
        MemberStatus::decode(answer).ok().filter(|status| status.member_id != 0)
    }
}

impl From<BucketHashes> for GetHashesResponse {
    fn from(hashes: BucketHashes) -> GetHashesResponse {
        let BucketHashes { index, revision, buckets } = hashes;
        GetHashesResponse { index, revision, buckets: buckets.0.to_vec() }
    }
}

impl Applier {
    /// Answers a question; an unknown one with nothing.
    pub(super) fn answer(&self, question: Bytes, group: GroupStatus) -> Bytes {
        match Inquiry::decode(question) {
            Some(Inquiry::Hashes { index }) => {
                let hashes = self.state().hashes_at(index);
                hashes.map(GetHashesResponse::from).unwrap_or_default().encode_to_vec().into()
            }
            Some(Inquiry::Status) => self.status(group).encode_to_vec().into(),
            None => Bytes::new(),
        }
    }

    fn status(&self, group: GroupStatus) -> MemberStatus {
        let state = self.state();
        MemberStatus {
            member_id: group.member,
            leader_id: group.leader,
            term: group.term,
            last_index: group.last,
            applied_index: group.applied,
            revision: state.revision(),
            live_bytes: state.live_bytes(),
            stored_bytes: state.stored_bytes(),
            level: state.level(),
            level_spoken: self.level_spoken(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            ..MemberStatus::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_as_it_was_written() {
        for question in [Inquiry::Hashes { index: 7 }, Inquiry::Status] {
            assert_eq!(Inquiry::decode(question.encode()), Some(question));
        }
        for bytes in [&b""[..], b"\x01", b"\x01aaaaaaa", b"\x09"] {
            assert_eq!(Inquiry::decode(Bytes::copy_from_slice(bytes)), None);
        }
    }

    #[test]
    fn an_answer_without_hashes_or_a_member_is_none() {
        let hashes = BucketHashes { index: 3, revision: 9, buckets: Buckets([5; BUCKETS]) };
        let answer = GetHashesResponse::from(hashes).encode_to_vec();
        assert_eq!(Inquiry::decode_hashes(answer.into()), Some(hashes));
        for bytes in [&b""[..], b"\x01", b"\xff\xff"] {
            assert_eq!(Inquiry::decode_hashes(Bytes::copy_from_slice(bytes)), None);
            assert_eq!(Inquiry::decode_status(Bytes::copy_from_slice(bytes)), None);
        }
    }
}
