//! Memberships as they are stored and sent: the voters, and a record of each
//! member. `docs/format-raft-log.md` specifies the format.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, BufMut, Bytes};
use stele_engine::fatal::Mutex;

use super::record::Decoded;
use super::types::Membership;

/// What the group knows about a member besides its id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberRecord {
    /// Empty until the member has started for the first time.
    pub name: String,
    /// Its addresses for other members.
    pub peer_urls: Vec<String>,
    /// Its addresses for clients, published by the member itself.
    pub client_urls: Vec<String>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub id: u64,
    pub record: MemberRecord,
    /// Receives the log but does not vote.
    pub learner: bool,
}

impl MemberRecord {
    /// Returns the record of a member of which only the address is known.
    pub fn at(peer_url: impl Into<String>) -> MemberRecord {
        MemberRecord { peer_urls: vec![peer_url.into()], ..MemberRecord::default() }
    }

    /// Returns whether the member has started and published its name.
    pub fn is_started(&self) -> bool {
        !self.name.is_empty()
    }

    /// Returns whether the record has nothing but an address, as all records had
    /// before members could be changed.
    fn is_plain(&self) -> bool {
        self.name.is_empty() && self.client_urls.is_empty() && self.peer_urls.len() <= 1
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        put_text(out, &self.name);
        for urls in [&self.peer_urls, &self.client_urls] {
            out.put_u16_le(short_length(urls.len()));
            urls.iter().for_each(|url| put_text(out, url));
        }
    }

    pub fn get(bytes: &mut Bytes) -> Decoded<MemberRecord> {
        let name = get_text(bytes)?;
        let mut urls = || -> Decoded<Vec<String>> {
            let count = bytes.try_get_u16_le().map_err(|_| TRUNCATED)?;
            (0..count).map(|_| get_text(bytes)).collect()
        };
        Ok(MemberRecord { name, peer_urls: urls()?, client_urls: urls()? })
    }
}

/// The members as of the last entry that a member has applied.
pub struct AppliedMembers {
    own: u64,
    all: Mutex<Arc<Vec<Member>>>,
    /// Whether this member does not vote, to check without the lock.
    learner: AtomicBool,
}

impl AppliedMembers {
    pub fn new(own: u64, membership: &Membership) -> AppliedMembers {
        let members = AppliedMembers { own, all: Mutex::default(), learner: AtomicBool::new(true) };
        members.set(membership);
        members
    }

    pub fn set(&self, membership: &Membership) {
        let all = members_of(membership);
        let voter = all.iter().any(|member| member.id == self.own && !member.learner);
        *self.all.lock() = Arc::new(all);
        self.learner.store(!voter, Ordering::Release);
    }

    pub fn all(&self) -> Arc<Vec<Member>> {
        self.all.lock().clone()
    }

    /// Returns whether this member does not vote, or does not know yet that it does.
    pub fn is_learner(&self) -> bool {
        self.learner.load(Ordering::Acquire)
    }
}

const TRUNCATED: &str = "truncated membership";

/// Returns all members, ordered by id.
pub fn members_of(membership: &Membership) -> Vec<Member> {
    let voters: BTreeSet<u64> = membership.voter_ids().collect();
    let member = |(id, record): (&u64, &MemberRecord)| Member {
        id: *id,
        record: record.clone(),
        learner: !voters.contains(id),
    };
    membership.nodes().map(member).collect()
}

/// Encodes a list of members, for members that join.
pub fn put_members(out: &mut Vec<u8>, members: &[Member]) {
    out.put_u16_le(short_length(members.len()));
    for member in members {
        out.put_u64_le(member.id);
        out.put_u8(u8::from(member.learner));
        member.record.put(out);
    }
}

pub fn get_members(bytes: &mut Bytes) -> Decoded<Vec<Member>> {
    let count = bytes.try_get_u16_le().map_err(|_| TRUNCATED)?;
    let member = |_| {
        let id = bytes.try_get_u64_le().map_err(|_| TRUNCATED)?;
        let learner = bytes.try_get_u8().map_err(|_| TRUNCATED)? != 0;
        Ok(Member { id, learner, record: MemberRecord::get(bytes)? })
    };
    (0..count).map(member).collect()
}

/// Returns whether a membership is stored in the first format, which has only an
/// address of each member.
pub fn is_plain(membership: &Membership) -> bool {
    membership.nodes().all(|(_, record)| record.is_plain())
}

/// Encodes a membership, in the first format if it [`is_plain`].
pub fn put_membership(out: &mut Vec<u8>, membership: &Membership) {
    let configs = membership.get_joint_config();
    out.put_u16_le(short_length(configs.len()));
    for config in configs {
        out.put_u16_le(short_length(config.len()));
        config.iter().for_each(|member| out.put_u64_le(*member));
    }
    let plain = is_plain(membership);
    out.put_u16_le(short_length(membership.nodes().count()));
    for (member, record) in membership.nodes() {
        out.put_u64_le(*member);
        match plain {
            true => put_text(out, record.peer_urls.first().map_or("", String::as_str)),
            false => record.put(out),
        }
    }
}

pub fn get_membership(bytes: &mut Bytes, plain: bool) -> Decoded<Membership> {
    let truncated = |_| TRUNCATED;
    let mut configs = Vec::new();
    for _ in 0..bytes.try_get_u16_le().map_err(truncated)? {
        let mut config = BTreeSet::new();
        for _ in 0..bytes.try_get_u16_le().map_err(truncated)? {
            config.insert(bytes.try_get_u64_le().map_err(truncated)?);
        }
        configs.push(config);
    }
    let mut nodes = BTreeMap::new();
    for _ in 0..bytes.try_get_u16_le().map_err(truncated)? {
        let member = bytes.try_get_u64_le().map_err(truncated)?;
        let record = match plain {
            true => {
                let address = get_text(bytes)?;
                let peer_urls = if address.is_empty() { Vec::new() } else { vec![address] };
                MemberRecord { peer_urls, ..MemberRecord::default() }
            }
            false => MemberRecord::get(bytes)?,
        };
        nodes.insert(member, record);
    }
    if configs.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(configs, nodes).map_err(|_| "invalid membership")
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.put_u16_le(short_length(text.len()));
    out.put_slice(text.as_bytes());
}

fn get_text(bytes: &mut Bytes) -> Decoded<String> {
    let length = usize::from(bytes.try_get_u16_le().map_err(|_| TRUNCATED)?);
    if bytes.remaining() < length {
        return Err("truncated name or address of a member");
    }
    let text = String::from_utf8(bytes.split_to(length).into());
    text.map_err(|_| "the name or address of a member is not UTF-8")
}

fn short_length(count: usize) -> u16 {
    u16::try_from(count).expect("a group has a few members with short addresses")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_lists_of_members_are_read_as_they_were_written() {
        let record = MemberRecord {
            name: "a".into(),
            peer_urls: vec!["http://h:1".into(), "http://h:2".into()],
            client_urls: vec!["http://h:3".into()],
        };
        let members = vec![
            Member { id: 1, record: record.clone(), learner: false },
            Member { id: 2, record: MemberRecord::default(), learner: true },
        ];
        let mut out = Vec::new();
        put_members(&mut out, &members);
        let bytes = Bytes::from(out);
        assert_eq!(get_members(&mut bytes.clone()), Ok(members));
        for cut in 0..bytes.len() {
            get_members(&mut bytes.slice(..cut)).unwrap_err();
        }
        assert!(!record.is_plain() && record.is_started());
        assert!(MemberRecord::at("x").is_plain() && !MemberRecord::at("x").is_started());
    }
}
