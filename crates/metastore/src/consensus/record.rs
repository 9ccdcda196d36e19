//! The encoding of entries, votes and memberships in the log, independent of
//! the library's own. `docs/format-raft-log.md` specifies it.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use openraft::EntryPayload;

use super::Position;
use super::membership::{get_membership, is_plain, put_membership};
use super::types::{Entry, EntryData, Membership, Vote};

const KIND_BLANK: u8 = 1;
const KIND_PROPOSALS: u8 = 2;
const KIND_MEMBERSHIP: u8 = 3;
/// Proposals with the member and the ticket of their callers.
const KIND_TICKETED: u8 = 4;
/// A membership with a record of each member.
const KIND_RECORDS: u8 = 5;
const STATE_VERSION: u8 = 1;
/// The membership has a record of each member.
const STATE_VERSION_RECORDS: u8 = 2;
const VOTE_NONE: u8 = 0;
const VOTE_GIVEN: u8 = 1;
const VOTE_WON: u8 = 2;

/// Bytes before the proposals themselves: kind, term, count.
const PROPOSALS_HEAD_BYTES: usize = 1 + 8 + 4;
/// Bytes of the origin and the ticket of an entry.
const TICKET_BYTES: usize = 8 + 8;

/// A decoded value, or what is wrong with the stored bytes.
pub type Decoded<T> = Result<T, &'static str>;

/// Returns the encoded size of an entry with these proposals.
pub fn proposals_bytes(proposals: &[Bytes]) -> usize {
    PROPOSALS_HEAD_BYTES + proposals.iter().map(|proposal| 4 + proposal.len()).sum::<usize>()
}

pub fn encode_entry(entry: &Entry) -> Bytes {
    let term = entry.log_id.leader_id.term;
    let mut out = Vec::new();
    match &entry.payload {
        EntryPayload::Blank => {
            out.put_u8(KIND_BLANK);
            out.put_u64_le(term);
        }
        EntryPayload::Normal(EntryData { origin, ticket, proposals }) => {
            out.reserve(proposals_bytes(proposals) + TICKET_BYTES);
            out.put_u8(if *origin == 0 { KIND_PROPOSALS } else { KIND_TICKETED });
            out.put_u64_le(term);
            if *origin != 0 {
                out.put_u64_le(*origin);
                out.put_u64_le(*ticket);
            }
            out.put_u32_le(length(proposals.len()));
            proposals.iter().for_each(|proposal| out.put_u32_le(length(proposal.len())));
            proposals.iter().for_each(|proposal| out.put_slice(proposal));
        }
        EntryPayload::Membership(membership) => {
            out.put_u8(if is_plain(membership) { KIND_MEMBERSHIP } else { KIND_RECORDS });
            out.put_u64_le(term);
            put_membership(&mut out, membership);
        }
    }
    out.into()
}

fn length(count: usize) -> u32 {
    u32::try_from(count).expect("an entry is far below 4 GiB")
}

/// Decodes an entry; its proposals share the memory of `bytes`.
pub fn decode_entry(index: u64, mut bytes: Bytes) -> Decoded<Entry> {
    let truncated = |_| "truncated entry";
    let kind = bytes.try_get_u8().map_err(truncated)?;
    let term = bytes.try_get_u64_le().map_err(truncated)?;
    let payload = match kind {
        KIND_BLANK => EntryPayload::Blank,
        KIND_PROPOSALS => {
            let proposals = Arc::new(get_proposals(&mut bytes)?);
            EntryPayload::Normal(EntryData { origin: 0, ticket: 0, proposals })
        }
        KIND_TICKETED => {
            let origin = bytes.try_get_u64_le().map_err(truncated)?;
            let ticket = bytes.try_get_u64_le().map_err(truncated)?;
            if origin == 0 {
                return Err("an entry has no origin");
            }
            let proposals = Arc::new(get_proposals(&mut bytes)?);
            EntryPayload::Normal(EntryData { origin, ticket, proposals })
        }
        KIND_MEMBERSHIP | KIND_RECORDS => {
            EntryPayload::Membership(get_membership(&mut bytes, kind == KIND_MEMBERSHIP)?)
        }
        _ => return Err("unknown kind of entry"),
    };
    if bytes.has_remaining() {
        return Err("trailing bytes after an entry");
    }
    let log_id = Position { index, term }.log_id().ok_or("an entry has index 0")?;
    Ok(Entry { log_id, payload })
}

fn get_proposals(bytes: &mut Bytes) -> Decoded<Vec<Bytes>> {
    let count = bytes.try_get_u32_le().map_err(|_| "truncated entry")? as usize;
    if bytes.remaining() / 4 < count {
        return Err("truncated list of proposals");
    }
    let mut lengths = bytes.split_to(4 * count);
    let mut proposals = Vec::with_capacity(count);
    for _ in 0..count {
        let length = lengths.get_u32_le() as usize;
        if bytes.remaining() < length {
            return Err("truncated proposal");
        }
        proposals.push(bytes.split_to(length));
    }
    Ok(proposals)
}

/// The state that a member stores besides its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardState {
    pub member: u64,
    pub vote: Option<Vote>,
    /// The last entry that is no longer in the log.
    pub purged: Position,
    /// The last membership up to `purged`, and its position.
    pub membership_at: Position,
    pub membership: Membership,
}

impl HardState {
    pub fn new(member: u64) -> HardState {
        HardState {
            member,
            vote: None,
            purged: Position::default(),
            membership_at: Position::default(),
            membership: Membership::default(),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let plain = is_plain(&self.membership);
        out.put_u8(if plain { STATE_VERSION } else { STATE_VERSION_RECORDS });
        out.put_u64_le(self.member);
        let (kind, term, candidate) = match &self.vote {
            None => (VOTE_NONE, 0, 0),
            Some(vote) => {
                let kind = if vote.committed { VOTE_WON } else { VOTE_GIVEN };
                (kind, vote.leader_id.term, vote.leader_id.voted_for)
            }
        };
        out.put_u8(kind);
        out.put_u64_le(term);
        out.put_u64_le(candidate);
        for position in [self.purged, self.membership_at] {
            out.put_u64_le(position.index);
            out.put_u64_le(position.term);
        }
        put_membership(&mut out, &self.membership);
        out
    }

    pub fn decode(mut bytes: Bytes) -> Decoded<HardState> {
        let truncated = |_| "truncated state";
        let version = bytes.try_get_u8().map_err(truncated)?;
        if !matches!(version, STATE_VERSION | STATE_VERSION_RECORDS) {
            return Err("unknown version of the state");
        }
        let member = bytes.try_get_u64_le().map_err(truncated)?;
        let kind = bytes.try_get_u8().map_err(truncated)?;
        let term = bytes.try_get_u64_le().map_err(truncated)?;
        let candidate = bytes.try_get_u64_le().map_err(truncated)?;
        let vote = match kind {
            VOTE_NONE => None,
            VOTE_GIVEN => Some(Vote::new(term, candidate)),
            VOTE_WON => Some(Vote::new_committed(term, candidate)),
            _ => return Err("unknown kind of vote"),
        };
        let mut position = || -> Decoded<Position> {
            let index = bytes.try_get_u64_le().map_err(truncated)?;
            Ok(Position { index, term: bytes.try_get_u64_le().map_err(truncated)? })
        };
        let (purged, membership_at) = (position()?, position()?);
        let membership = get_membership(&mut bytes, version == STATE_VERSION)?;
        Ok(HardState { member, vote, purged, membership_at, membership })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use openraft::LogId;
    use openraft::vote::leader_id_std::CommittedLeaderId;
    use proptest::prelude::*;

    use super::super::membership::MemberRecord;
    use super::*;

    fn membership() -> Membership {
        let node = MemberRecord::at;
        let unknown = MemberRecord::default();
        let nodes = BTreeMap::from([(1, node("a:2380")), (9, node("b:2380")), (4, unknown)]);
        let configs = vec![BTreeSet::from([1, 9]), BTreeSet::from([1])];
        Membership::new(configs, nodes).unwrap()
    }

    /// A membership in which one member has published its name.
    fn published() -> Membership {
        let client_urls = vec!["http://c:2379".to_string()];
        let started = MemberRecord { name: "c".into(), client_urls, ..MemberRecord::at("c:1") };
        let nodes = BTreeMap::from([(1, MemberRecord::at("a:2380")), (3, started)]);
        Membership::new(vec![BTreeSet::from([1])], nodes).unwrap()
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let proposals = [&b"one"[..], b"", b"three"].map(Bytes::from_static).to_vec();
        let data = EntryData { origin: 0, ticket: 5, proposals: Arc::new(proposals.clone()) };
        let ticketed = EntryData { origin: 9, ..data.clone() };
        let payloads = [
            EntryPayload::Blank,
            EntryPayload::Normal(data),
            EntryPayload::Normal(ticketed),
            EntryPayload::Membership(membership()),
            EntryPayload::Membership(published()),
        ];
        for payload in payloads {
            let log_id = LogId::new(CommittedLeaderId::new(3), 41);
            let entry = Entry { log_id, payload };
            let bytes = encode_entry(&entry);
            for cut in 0..bytes.len() {
                decode_entry(42, bytes.slice(..cut)).unwrap_err();
            }
            let read = decode_entry(42, bytes.clone()).unwrap();
            assert_eq!(read.log_id, log_id);
            match (&read.payload, &entry.payload) {
                (EntryPayload::Blank, EntryPayload::Blank) => {}
                (EntryPayload::Normal(read), EntryPayload::Normal(written)) => {
                    let ticket = if written.origin == 0 { 0 } else { written.ticket };
                    assert_eq!((read.origin, read.ticket), (written.origin, ticket));
                    assert_eq!(*read.proposals, proposals);
                    let more = if written.origin == 0 { 0 } else { TICKET_BYTES };
                    assert_eq!(bytes.len(), proposals_bytes(&proposals) + more);
                }
                (EntryPayload::Membership(read), EntryPayload::Membership(written)) => {
                    assert_eq!(read, written);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let votes = [None, Some(Vote::new(4, 1)), Some(Vote::new_committed(5, 9))];
        for (vote, membership) in votes.into_iter().zip([membership(), published(), membership()]) {
            let at = |index, term| Position { index, term };
            let state = HardState {
                member: 7,
                vote,
                purged: at(100, 3),
                membership_at: at(1, 0),
                membership,
            };
            let bytes = Bytes::from(state.encode());
            assert_eq!(HardState::decode(bytes.clone()), Ok(state));
            for cut in 0..bytes.len() {
                HardState::decode(bytes.slice(..cut)).unwrap_err();
            }
        }
        let fresh = HardState::new(1);
        assert_eq!(HardState::decode(fresh.encode().into()), Ok(fresh));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = HardState::decode(bytes.clone().into());
            for kind in 0..6 {
                let mut entry = bytes.clone();
                entry.insert(0, kind);
                let _ = decode_entry(1, entry.into());
            }
        }
    }
}
