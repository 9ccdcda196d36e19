//! The messages between members. Entries are encoded as they are in the log
//! (`record`). Integers are little-endian; `docs/metastore-cluster.md` specifies
//! the format.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use openraft::entry::RaftEntry;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use openraft::raft::{TransferLeaderError, TransferLeaderRequest};

use super::Position;
use super::change::MemberChange;
use super::membership::{
    Member, get_members, get_membership, is_plain, put_members, put_membership,
};
use super::record::{Decoded, decode_entry, encode_entry};
use super::snapshot::SnapshotFile;
use super::types::{Entry, EntryData, LogId, StoredMembership, Types, Vote};

const APPEND: u8 = 1;
const VOTE: u8 = 2;
const PRE_VOTE: u8 = 3;
const TRANSFER: u8 = 4;
const FORWARD: u8 = 5;
const READ_INDEX: u8 = 6;
const ASK: u8 = 7;
const CHANGE: u8 = 8;
const MEMBERS: u8 = 9;
const SNAPSHOT_BEGIN: u8 = 10;
const SNAPSHOT_CHUNK: u8 = 11;
const SNAPSHOT_END: u8 = 12;
const INQUIRE: u8 = 16;
const MOVE_LEADER: u8 = 17;

/// A request of another member.
pub enum Request {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<Types>),
    PreVote(VoteRequest<Types>),
    Transfer(TransferLeaderRequest<Types>),
    /// Proposals for the leader.
    Forward(EntryData),
    /// Asks the leader for the index that a linearizable read must wait for.
    ReadIndex,
    /// A question for the leader's machine.
    Ask(Bytes),
    /// A question for the member's own machine, whether it leads or not.
    Inquire(Bytes),
    /// Asks the leader to hand over to a member; to any if it is 0.
    MoveLeader(u64),
    /// A change of the members, for the leader.
    Change(MemberChange),
    /// Asks any member for the members, on behalf of one that joins.
    Members,
    SnapshotBegin(SnapshotBegin),
    SnapshotChunk(SnapshotChunk),
    /// All files were received: asks to install the snapshot at this position.
    SnapshotEnd {
        vote: Vote,
        position: Position,
    },
}

/// Announces a snapshot.
pub struct SnapshotBegin {
    pub vote: Vote,
    /// The entry that it is as of.
    pub position: Position,
    pub membership: StoredMembership,
    pub description: Bytes,
    pub files: Vec<SnapshotFile>,
}

/// A piece of a file of a snapshot.
pub struct SnapshotChunk {
    pub position: Position,
    pub file: u32,
    pub offset: u64,
    pub bytes: Bytes,
}

/// The response to all messages about a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotReply {
    /// The next piece to send: a file and an offset. After the last file, the
    /// snapshot is complete.
    Next {
        file: u32,
        offset: u64,
    },
    /// The vote of the receiver, which has the snapshot or does not need it, or
    /// knows a later leader.
    Vote(Vote),
    Failed(String),
}

/// What became of forwarded proposals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Committed.
    Committed = 1,
    /// Not appended to any log.
    Refused = 2,
    /// Appended, and removed from that log by a later leader.
    Discarded = 3,
    /// May or may not be committed.
    Unknown = 4,
}

/// What became of a request to hand over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The other member leads.
    Done = 1,
    /// The member that was asked does not lead.
    NotLeader = 2,
    /// The member to hand over to is not a voter.
    BadTransferee = 3,
    /// The other member does not lead in time.
    TimedOut = 4,
}

const TRUNCATED: &str = "truncated message";

impl Request {
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Request::Append(append) => return encode_append(append),
            Request::Vote(vote) => put_vote_request(&mut out, VOTE, vote),
            Request::PreVote(vote) => put_vote_request(&mut out, PRE_VOTE, vote),
            Request::Transfer(transfer) => {
                out.put_u8(TRANSFER);
                put_vote(&mut out, transfer.from_leader());
                out.put_u64_le(*transfer.to_node_id());
                put_log_id(&mut out, transfer.last_log_id());
            }
            Request::Forward(data) => {
                out.put_u8(FORWARD);
                // An entry without a position yet.
                let payload = openraft::EntryPayload::Normal(data.clone());
                let log_id = Position { index: 1, term: 0 }.log_id().expect("index 1 has an id");
                out.extend_from_slice(&encode_entry(&Entry { log_id, payload }));
            }
            Request::ReadIndex => out.put_u8(READ_INDEX),
            Request::Ask(question) => {
                out.put_u8(ASK);
                out.extend_from_slice(question);
            }
            Request::Inquire(question) => {
                out.put_u8(INQUIRE);
                out.extend_from_slice(question);
            }
            Request::MoveLeader(to) => {
                out.put_u8(MOVE_LEADER);
                out.put_u64_le(*to);
            }
            Request::Change(change) => {
                out.put_u8(CHANGE);
                change.put(&mut out);
            }
            Request::Members => out.put_u8(MEMBERS),
            Request::SnapshotBegin(begin) => begin.put(&mut out),
            Request::SnapshotChunk(chunk) => {
                out.reserve(chunk.bytes.len() + 40);
                out.put_u8(SNAPSHOT_CHUNK);
                put_position(&mut out, chunk.position);
                out.put_u32_le(chunk.file);
                out.put_u64_le(chunk.offset);
                out.put_u32_le(crc32c::crc32c(&chunk.bytes));
                out.extend_from_slice(&chunk.bytes);
            }
            Request::SnapshotEnd { vote, position } => {
                out.put_u8(SNAPSHOT_END);
                put_vote(&mut out, vote);
                put_position(&mut out, *position);
            }
        }
        out.into()
    }

    pub fn decode(mut bytes: Bytes) -> Decoded<Request> {
        Ok(match get_u8(&mut bytes)? {
            APPEND => Request::Append(decode_append(bytes)?),
            VOTE => Request::Vote(get_vote_request(&mut bytes)?),
            PRE_VOTE => Request::PreVote(get_vote_request(&mut bytes)?),
            TRANSFER => {
                let from = get_vote(&mut bytes)?;
                let to = get_u64(&mut bytes)?;
                Request::Transfer(TransferLeaderRequest::new(from, to, get_log_id(&mut bytes)?))
            }
            FORWARD => match decode_entry(1, bytes)?.payload {
                openraft::EntryPayload::Normal(data) if data.origin != 0 => Request::Forward(data),
                _ => return Err("a forwarded entry has no proposals"),
            },
            READ_INDEX => Request::ReadIndex,
            ASK => Request::Ask(bytes),
            INQUIRE => Request::Inquire(bytes),
            MOVE_LEADER => Request::MoveLeader(get_u64(&mut bytes)?),
            CHANGE => Request::Change(MemberChange::get(&mut bytes)?),
            MEMBERS => Request::Members,
            SNAPSHOT_BEGIN => Request::SnapshotBegin(SnapshotBegin::get(&mut bytes)?),
            SNAPSHOT_CHUNK => {
                let position = get_position(&mut bytes)?;
                let file = get_u32(&mut bytes)?;
                let offset = get_u64(&mut bytes)?;
                if get_u32(&mut bytes)? != crc32c::crc32c(&bytes) {
                    return Err("the checksum of a piece of a snapshot is wrong");
                }
                Request::SnapshotChunk(SnapshotChunk { position, file, offset, bytes })
            }
            SNAPSHOT_END => {
                let vote = get_vote(&mut bytes)?;
                Request::SnapshotEnd { vote, position: get_position(&mut bytes)? }
            }
            _ => return Err("unknown kind of message"),
        })
    }
}

impl SnapshotBegin {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(SNAPSHOT_BEGIN);
        put_vote(out, &self.vote);
        put_position(out, self.position);
        put_log_id(out, self.membership.log_id().as_ref());
        out.put_u8(u8::from(is_plain(self.membership.membership())));
        put_membership(out, self.membership.membership());
        out.put_u32_le(u32::try_from(self.description.len()).expect("a description is small"));
        out.extend_from_slice(&self.description);
        out.put_u32_le(u32::try_from(self.files.len()).expect("a snapshot has few files"));
        for file in &self.files {
            out.put_u16_le(u16::try_from(file.name.len()).expect("names of files are short"));
            out.extend_from_slice(file.name.as_bytes());
            out.put_u64_le(file.bytes);
        }
    }

    fn get(bytes: &mut Bytes) -> Decoded<SnapshotBegin> {
        let vote = get_vote(bytes)?;
        let position = get_position(bytes)?;
        let membership_at = get_log_id(bytes)?;
        let plain = get_u8(bytes)? != 0;
        let membership = StoredMembership::new(membership_at, get_membership(bytes, plain)?);
        let length = get_u32(bytes)? as usize;
        if bytes.remaining() < length {
            return Err(TRUNCATED);
        }
        let description = bytes.split_to(length);
        let mut files = Vec::new();
        for _ in 0..get_u32(bytes)? {
            let length = usize::from(bytes.try_get_u16_le().map_err(|_| TRUNCATED)?);
            if bytes.remaining() < length {
                return Err(TRUNCATED);
            }
            let name = String::from_utf8(bytes.split_to(length).into());
            let name = name.map_err(|_| "the name of a file is not UTF-8")?;
            files.push(SnapshotFile { name, bytes: get_u64(bytes)? });
        }
        Ok(SnapshotBegin { vote, position, membership, description, files })
    }
}

impl SnapshotReply {
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            SnapshotReply::Next { file, offset } => {
                out.put_u8(1);
                out.put_u32_le(*file);
                out.put_u64_le(*offset);
            }
            SnapshotReply::Vote(vote) => {
                out.put_u8(2);
                put_vote(&mut out, vote);
            }
            SnapshotReply::Failed(why) => {
                out.put_u8(3);
                out.extend_from_slice(why.as_bytes());
            }
        }
        out.into()
    }

    pub fn decode(mut bytes: Bytes) -> Decoded<SnapshotReply> {
        Ok(match get_u8(&mut bytes)? {
            1 => SnapshotReply::Next { file: get_u32(&mut bytes)?, offset: get_u64(&mut bytes)? },
            2 => SnapshotReply::Vote(get_vote(&mut bytes)?),
            3 => SnapshotReply::Failed(String::from_utf8_lossy(&bytes).into_owned()),
            _ => return Err("unknown response about a snapshot"),
        })
    }
}

fn encode_append(append: &AppendEntriesRequest<Types>) -> Bytes {
    let entries: Vec<Bytes> = append.entries.iter().map(encode_entry).collect();
    let bytes: usize = entries.iter().map(|entry| entry.len() + 12).sum();
    let mut out = Vec::with_capacity(bytes + 80);
    out.put_u8(APPEND);
    put_vote(&mut out, &append.vote);
    put_log_id(&mut out, append.prev_log_id.as_ref());
    put_log_id(&mut out, append.leader_commit.as_ref());
    out.put_u32_le(u32::try_from(entries.len()).expect("an append has few entries"));
    for (entry, bytes) in append.entries.iter().zip(entries) {
        out.put_u64_le(Position::of(&entry.log_id()).index);
        out.put_u32_le(u32::try_from(bytes.len()).expect("an entry is far below 4 GiB"));
        out.extend_from_slice(&bytes);
    }
    out.into()
}

fn decode_append(mut bytes: Bytes) -> Decoded<AppendEntriesRequest<Types>> {
    let vote = get_vote(&mut bytes)?;
    let prev_log_id = get_log_id(&mut bytes)?;
    let leader_commit = get_log_id(&mut bytes)?;
    let mut entries = Vec::new();
    for _ in 0..bytes.try_get_u32_le().map_err(|_| TRUNCATED)? {
        let index = get_u64(&mut bytes)?;
        let length = bytes.try_get_u32_le().map_err(|_| TRUNCATED)? as usize;
        if bytes.remaining() < length {
            return Err(TRUNCATED);
        }
        // Copied, because the entry is kept and the message may be larger.
        let entry = Bytes::copy_from_slice(&bytes.split_to(length));
        entries.push(decode_entry(index, entry)?);
    }
    Ok(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
}

/// Encodes the responses, and decodes those of other members.
pub mod response {
    use super::*;

    /// The response to an append. A conflict says whether the log is empty but for
    /// the entry that creates a group.
    pub fn append(response: &AppendEntriesResponse<Types>, empty: bool) -> Bytes {
        let mut out = Vec::new();
        match response {
            AppendEntriesResponse::Conflict if empty => out.put_u8(5),
            AppendEntriesResponse::Success => out.put_u8(1),
            AppendEntriesResponse::PartialSuccess(log_id) => {
                out.put_u8(2);
                put_log_id(&mut out, log_id.as_ref());
            }
            AppendEntriesResponse::Conflict => out.put_u8(3),
            AppendEntriesResponse::HigherVote(vote) => {
                out.put_u8(4);
                put_vote(&mut out, vote);
            }
        }
        out.into()
    }

    /// Returns the response, and whether the member's log is empty.
    pub fn decode_append(mut bytes: Bytes) -> Decoded<(AppendEntriesResponse<Types>, bool)> {
        let kind = get_u8(&mut bytes)?;
        let response = match kind {
            1 => AppendEntriesResponse::Success,
            2 => AppendEntriesResponse::PartialSuccess(get_log_id(&mut bytes)?),
            3 | 5 => AppendEntriesResponse::Conflict,
            4 => AppendEntriesResponse::HigherVote(get_vote(&mut bytes)?),
            _ => return Err("unknown response to an append"),
        };
        Ok((response, kind == 5))
    }

    pub fn vote(response: &VoteResponse<Types>) -> Bytes {
        let mut out = Vec::new();
        put_vote(&mut out, &response.vote);
        out.put_u8(u8::from(response.vote_granted));
        put_log_id(&mut out, response.last_log_id.as_ref());
        out.into()
    }

    pub fn decode_vote(mut bytes: Bytes) -> Decoded<VoteResponse<Types>> {
        let vote = get_vote(&mut bytes)?;
        let granted = get_u8(&mut bytes)? != 0;
        Ok(VoteResponse::new(vote, get_log_id(&mut bytes)?, granted))
    }

    pub fn transfer(response: &Result<(), TransferLeaderError<Types>>) -> Bytes {
        let mut out = Vec::new();
        match response {
            Ok(()) => out.put_u8(1),
            Err(TransferLeaderError::VoteChanged { expected, actual }) => {
                out.put_u8(2);
                put_vote(&mut out, expected);
                put_vote(&mut out, actual);
            }
            Err(TransferLeaderError::LogNotFlushed { expected, actual }) => {
                out.put_u8(3);
                put_log_id(&mut out, expected.as_ref());
                put_log_id(&mut out, actual.as_ref());
            }
        }
        out.into()
    }

    pub fn decode_transfer(mut bytes: Bytes) -> Decoded<Result<(), TransferLeaderError<Types>>> {
        Ok(match get_u8(&mut bytes)? {
            1 => Ok(()),
            2 => {
                let (expected, actual) = (get_vote(&mut bytes)?, get_vote(&mut bytes)?);
                Err(TransferLeaderError::VoteChanged { expected, actual })
            }
            3 => {
                let (expected, actual) = (get_log_id(&mut bytes)?, get_log_id(&mut bytes)?);
                Err(TransferLeaderError::LogNotFlushed { expected, actual })
            }
            _ => return Err("unknown response to a leader transfer"),
        })
    }

    pub fn placed(placed: Placed) -> Bytes {
        vec![placed as u8].into()
    }

    pub fn decode_placed(mut bytes: Bytes) -> Decoded<Placed> {
        Ok(match get_u8(&mut bytes)? {
            1 => Placed::Committed,
            2 => Placed::Refused,
            3 => Placed::Discarded,
            4 => Placed::Unknown,
            _ => return Err("unknown response to forwarded proposals"),
        })
    }

    /// `None` if the member does not lead.
    pub fn read_index(index: Option<u64>) -> Bytes {
        let mut out = Vec::new();
        out.put_u8(u8::from(index.is_some()));
        out.put_u64_le(index.unwrap_or(0));
        out.into()
    }

    pub fn decode_read_index(mut bytes: Bytes) -> Decoded<Option<u64>> {
        let leads = get_u8(&mut bytes)? != 0;
        let index = get_u64(&mut bytes)?;
        Ok(leads.then_some(index))
    }

    pub fn members(members: &[Member]) -> Bytes {
        let mut out = Vec::new();
        put_members(&mut out, members);
        out.into()
    }

    pub fn decode_members(mut bytes: Bytes) -> Decoded<Vec<Member>> {
        get_members(&mut bytes)
    }

    /// `None` if the member does not lead.
    pub fn answer(answer: Option<Bytes>) -> Bytes {
        let mut out = vec![u8::from(answer.is_some())];
        out.extend_from_slice(&answer.unwrap_or_default());
        out.into()
    }

    pub fn decode_answer(mut bytes: Bytes) -> Decoded<Option<Bytes>> {
        let leads = get_u8(&mut bytes)? != 0;
        Ok(leads.then_some(bytes))
    }

    pub fn moved(moved: Moved) -> Bytes {
        vec![moved as u8].into()
    }

    pub fn decode_moved(mut bytes: Bytes) -> Decoded<Moved> {
        Ok(match get_u8(&mut bytes)? {
            1 => Moved::Done,
            2 => Moved::NotLeader,
            3 => Moved::BadTransferee,
            4 => Moved::TimedOut,
            _ => return Err("unknown response to a request to hand over"),
        })
    }
}

fn put_vote_request(out: &mut Vec<u8>, tag: u8, request: &VoteRequest<Types>) {
    out.put_u8(tag);
    put_vote(out, &request.vote);
    put_log_id(out, request.last_log_id.as_ref());
    out.put_u8(u8::from(request.leadership_transfer));
}

fn get_vote_request(bytes: &mut Bytes) -> Decoded<VoteRequest<Types>> {
    let mut request = VoteRequest::new(get_vote(bytes)?, get_log_id(bytes)?);
    request.leadership_transfer = get_u8(bytes)? != 0;
    Ok(request)
}

fn put_vote(out: &mut Vec<u8>, vote: &Vote) {
    out.put_u64_le(vote.leader_id.term);
    out.put_u64_le(vote.leader_id.voted_for);
    out.put_u8(u8::from(vote.committed));
}

fn get_vote(bytes: &mut Bytes) -> Decoded<Vote> {
    let (term, candidate) = (get_u64(bytes)?, get_u64(bytes)?);
    let committed = get_u8(bytes)? != 0;
    Ok(if committed { Vote::new_committed(term, candidate) } else { Vote::new(term, candidate) })
}

/// Index 0 means none.
fn put_log_id(out: &mut Vec<u8>, log_id: Option<&LogId>) {
    let Position { index, term } = log_id.map(Position::of).unwrap_or_default();
    out.put_u64_le(index);
    out.put_u64_le(term);
}

fn get_log_id(bytes: &mut Bytes) -> Decoded<Option<LogId>> {
    let (index, term) = (get_u64(bytes)?, get_u64(bytes)?);
    Ok(Position { index, term }.log_id())
}

fn put_position(out: &mut Vec<u8>, position: Position) {
    out.put_u64_le(position.index);
    out.put_u64_le(position.term);
}

fn get_position(bytes: &mut Bytes) -> Decoded<Position> {
    Ok(Position { index: get_u64(bytes)?, term: get_u64(bytes)? })
}

fn get_u32(bytes: &mut Bytes) -> Decoded<u32> {
    bytes.try_get_u32_le().map_err(|_| TRUNCATED)
}

fn get_u8(bytes: &mut Bytes) -> Decoded<u8> {
    bytes.try_get_u8().map_err(|_| TRUNCATED)
}

fn get_u64(bytes: &mut Bytes) -> Decoded<u64> {
    bytes.try_get_u64_le().map_err(|_| TRUNCATED)
}

/// Returns proposals as the data of an entry.
pub fn entry_data(origin: u64, ticket: u64, proposals: Vec<Bytes>) -> EntryData {
    EntryData { origin, ticket, proposals: Arc::new(proposals) }
}

/// The request of a member that joins, and its response, for `peer`.
pub mod members {
    use super::*;

    pub fn request() -> Bytes {
        Request::Members.encode()
    }

    pub fn decode_response(bytes: Bytes) -> Decoded<Vec<Member>> {
        response::decode_members(bytes)
    }
}

#[cfg(test)]
mod tests {
    use openraft::EntryPayload;
    use proptest::prelude::*;

    use super::*;

    fn log_id(index: u64, term: u64) -> LogId {
        Position { index, term }.log_id().unwrap()
    }

    #[test]
    fn every_request_is_read_as_it_was_written() {
        let data = entry_data(7, 8, vec![Bytes::from_static(b"one"), Bytes::new()]);
        let entries = vec![
            Entry { log_id: log_id(4, 2), payload: EntryPayload::Normal(data.clone()) },
            Entry { log_id: log_id(5, 3), payload: EntryPayload::Blank },
        ];
        let (vote, prev_log_id) = (Vote::new_committed(3, 9), Some(log_id(3, 2)));
        let append = AppendEntriesRequest { vote, prev_log_id, entries, leader_commit: None };
        let mut asked = VoteRequest::new(Vote::new(4, 2), prev_log_id);
        asked.leadership_transfer = true;
        let requests = [
            Request::Append(append),
            Request::Vote(asked.clone()),
            Request::PreVote(asked),
            Request::Transfer(TransferLeaderRequest::new(vote, 5, None)),
            Request::Forward(data),
            Request::ReadIndex,
            Request::Ask(Bytes::from_static(b"question")),
            Request::Inquire(Bytes::from_static(b"question")),
            Request::MoveLeader(7),
            Request::Change(MemberChange::Remove { id: 4 }),
            Request::Members,
            Request::SnapshotBegin(SnapshotBegin {
                vote,
                position: Position { index: 9, term: 3 },
                membership: StoredMembership::default(),
                description: Bytes::from_static(b"tables"),
                files: vec![SnapshotFile { name: "f1".into(), bytes: 77 }],
            }),
            Request::SnapshotChunk(SnapshotChunk {
                position: Position { index: 9, term: 3 },
                file: 1,
                offset: 2,
                bytes: Bytes::from_static(b"cells"),
            }),
            Request::SnapshotEnd { vote, position: Position { index: 9, term: 3 } },
        ];
        for request in requests {
            let bytes = request.encode();
            let read = Request::decode(bytes.clone()).unwrap();
            assert_eq!(read.encode(), bytes);
            if !matches!(request, Request::Ask(_) | Request::Inquire(_)) {
                for cut in 0..bytes.len() {
                    assert!(Request::decode(bytes.slice(..cut)).is_err(), "{cut}");
                }
            }
        }
    }

    #[test]
    fn every_reply_about_a_snapshot_is_read_as_it_was_written() {
        let replies = [
            SnapshotReply::Next { file: 3, offset: 1 << 40 },
            SnapshotReply::Vote(Vote::new(3, 9)),
            SnapshotReply::Failed("the disk is full".into()),
        ];
        for reply in replies {
            assert_eq!(SnapshotReply::decode(reply.encode()), Ok(reply));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            for kind in 0..18 {
                let mut message = bytes.clone();
                message.insert(0, kind);
                let _ = Request::decode(message.clone().into());
                let _ = response::decode_append(message.clone().into());
                let _ = response::decode_vote(message.clone().into());
                let _ = response::decode_transfer(message.clone().into());
                let _ = response::decode_placed(message.clone().into());
                let _ = response::decode_read_index(message.clone().into());
                let _ = response::decode_members(message.clone().into());
                let _ = SnapshotReply::decode(message.clone().into());
                let _ = super::super::change::Changed::decode(message.clone().into());
                let _ = response::decode_answer(message.clone().into());
                let _ = response::decode_moved(message.into());
            }
        }
    }
}
