//! The header of responses: the cluster and member that answer, the revision
//! and the term.

use bytes::BytesMut;

use crate::wire::Fields;

/// Field numbers of `ResponseHeader`.
const CLUSTER_ID: u8 = 1;
const MEMBER_ID: u8 = 2;
const REVISION: u8 = 3;
const RAFT_TERM: u8 = 4;

/// The field of the header in every response.
const HEADER: u8 = 1;

/// The header of one response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub cluster_id: u64,
    pub member_id: u64,
    pub revision: i64,
    pub raft_term: u64,
}

impl Header {
    /// Returns the header of a response inside that of a transaction.
    pub fn within(revision: i64) -> Header {
        Header { revision, ..Header::default() }
    }

    pub fn write(&self, out: &mut BytesMut) {
        out.nested(HEADER, |out| {
            out.uint(CLUSTER_ID, self.cluster_id);
            out.uint(MEMBER_ID, self.member_id);
            out.int(REVISION, self.revision);
            out.uint(RAFT_TERM, self.raft_term);
        });
    }

    pub fn message(&self) -> super::proto::ResponseHeader {
        super::proto::ResponseHeader {
            cluster_id: self.cluster_id,
            member_id: self.member_id,
            revision: self.revision,
            raft_term: self.raft_term,
        }
    }
}
