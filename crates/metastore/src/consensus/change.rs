//! Changes of the members of a group, and why they are refused. The texts are
//! etcd's (`error`).

use std::collections::BTreeSet;

use bytes::{Buf, BufMut, Bytes};

use super::membership::{Member, MemberRecord};
use super::record::Decoded;
use crate::error::{Error, Result};

/// The maximum number of learners, as in etcd.
pub const LEARNERS_MAX: usize = 1;

/// A change of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// The id must never have been used.
    Add {
        id: u64,
        peer_urls: Vec<String>,
        learner: bool,
    },
    Remove {
        id: u64,
    },
    Update {
        id: u64,
        peer_urls: Vec<String>,
    },
    /// Makes a learner a voter.
    Promote {
        id: u64,
    },
    /// A member that has started publishes its name and its addresses for clients.
    Publish {
        id: u64,
        name: String,
        client_urls: Vec<String>,
    },
}

const ADD: u8 = 1;
const ADD_LEARNER: u8 = 2;
const REMOVE: u8 = 3;
const UPDATE: u8 = 4;
const PROMOTE: u8 = 5;
const PUBLISH: u8 = 6;

/// What became of a change at a member that may lead.
#[derive(Clone, Debug)]
pub enum Changed {
    /// The member does not lead.
    NotLeader,
    /// Committed by the entry at this index; 0 if it is not committed yet, because
    /// the new member is needed for that.
    Done(u64),
    Refused(Error),
}

/// Refusals by their code on the wire.
const REFUSALS: [Error; 9] = [
    Error::MemberNotFound,
    Error::PeerUrlsExist,
    Error::NotEnoughStarted,
    Error::Unhealthy,
    Error::NotLearner,
    Error::LearnerNotReady,
    Error::TooManyLearners,
    Error::Timeout,
    Error::MemberExists,
];

/// What a change is checked against.
pub struct Group<'a> {
    pub members: &'a [Member],
    /// The members that answered recently, including the leader.
    pub healthy: &'a BTreeSet<u64>,
    /// The learners that have caught up with the leader.
    pub caught_up: &'a BTreeSet<u64>,
}

impl Group<'_> {
    /// Refuses a change that is invalid or that would endanger the group, as etcd
    /// does.
    pub fn check(&self, change: &MemberChange) -> Result<()> {
        match change {
            MemberChange::Add { id, peer_urls, learner } => {
                if self.members.iter().any(|member| member.id == *id) {
                    return Err(Error::MemberExists);
                }
                self.check_urls(*id, peer_urls)?;
                let learners = self.members.iter().filter(|member| member.learner).count();
                if *learner && learners >= LEARNERS_MAX {
                    return Err(Error::TooManyLearners);
                }
                if !learner {
                    self.check_can_add_voter()?;
                }
                self.check_all_voters_healthy()
            }
            MemberChange::Remove { id } => self.check_can_remove(self.find(*id)?),
            MemberChange::Update { id, peer_urls } => {
                self.find(*id)?;
                self.check_urls(*id, peer_urls)
            }
            MemberChange::Promote { id } => {
                let member = self.find(*id)?;
                if !member.learner {
                    return Err(Error::NotLearner);
                }
                if !self.caught_up.contains(id) {
                    return Err(Error::LearnerNotReady);
                }
                self.check_can_add_voter()
            }
            MemberChange::Publish { id, .. } => self.find(*id).map(drop),
        }
    }

    fn find(&self, id: u64) -> Result<&Member> {
        self.members.iter().find(|member| member.id == id).ok_or(Error::MemberNotFound)
    }

    fn voters(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| !member.learner)
    }

    fn check_urls(&self, id: u64, urls: &[String]) -> Result<()> {
        let taken = |member: &Member| member.record.peer_urls.iter().any(|url| urls.contains(url));
        let mut others = self.members.iter().filter(|member| member.id != id);
        if others.any(taken) { Err(Error::PeerUrlsExist) } else { Ok(()) }
    }

    /// With the new voter, the started ones must be a majority. A group of one is
    /// the exception: otherwise it could never grow.
    fn check_can_add_voter(&self) -> Result<()> {
        let count = self.voters().count() + 1;
        let started = self.voters().filter(|member| member.record.is_started()).count();
        if started < majority(count) && !(started == 1 && count == 2) {
            return Err(Error::NotEnoughStarted);
        }
        Ok(())
    }

    fn check_all_voters_healthy(&self) -> Result<()> {
        let healthy = self.voters().all(|voter| self.healthy.contains(&voter.id));
        if healthy { Ok(()) } else { Err(Error::Unhealthy) }
    }

    /// Without the member, those that have started and those that answer must
    /// still be a majority. A member that does not answer can be removed.
    fn check_can_remove(&self, member: &Member) -> Result<()> {
        if member.learner {
            return Ok(());
        }
        let others: Vec<&Member> = self.voters().filter(|voter| voter.id != member.id).collect();
        let needed = majority(others.len());
        let started = others.iter().filter(|voter| voter.record.is_started()).count();
        if started < needed {
            return Err(Error::NotEnoughStarted);
        }
        let healthy = others.iter().filter(|voter| self.healthy.contains(&voter.id)).count();
        if self.healthy.contains(&member.id) && healthy < needed {
            return Err(Error::Unhealthy);
        }
        Ok(())
    }
}

/// Returns how many of `count` voters are a majority.
pub fn majority(count: usize) -> usize {
    count / 2 + 1
}

impl MemberChange {
    pub fn put(&self, out: &mut Vec<u8>) {
        let (kind, id, record) = match self {
            MemberChange::Add { id, peer_urls, learner } => {
                let kind = if *learner { ADD_LEARNER } else { ADD };
                (kind, id, Some(addresses(peer_urls)))
            }
            MemberChange::Remove { id } => (REMOVE, id, None),
            MemberChange::Update { id, peer_urls } => (UPDATE, id, Some(addresses(peer_urls))),
            MemberChange::Promote { id } => (PROMOTE, id, None),
            MemberChange::Publish { id, name, client_urls } => {
                let (name, client_urls) = (name.clone(), client_urls.clone());
                (PUBLISH, id, Some(MemberRecord { name, client_urls, ..MemberRecord::default() }))
            }
        };
        out.put_u8(kind);
        out.put_u64_le(*id);
        if let Some(record) = record {
            record.put(out);
        }
    }

    pub fn get(bytes: &mut Bytes) -> Decoded<MemberChange> {
        let truncated = |_| "truncated change of a member";
        let kind = bytes.try_get_u8().map_err(truncated)?;
        let id = bytes.try_get_u64_le().map_err(truncated)?;
        Ok(match kind {
            ADD | ADD_LEARNER => {
                let peer_urls = MemberRecord::get(bytes)?.peer_urls;
                MemberChange::Add { id, peer_urls, learner: kind == ADD_LEARNER }
            }
            REMOVE => MemberChange::Remove { id },
            UPDATE => MemberChange::Update { id, peer_urls: MemberRecord::get(bytes)?.peer_urls },
            PROMOTE => MemberChange::Promote { id },
            PUBLISH => {
                let MemberRecord { name, client_urls, .. } = MemberRecord::get(bytes)?;
                MemberChange::Publish { id, name, client_urls }
            }
            _ => return Err("unknown change of a member"),
        })
    }
}

fn addresses(peer_urls: &[String]) -> MemberRecord {
    MemberRecord { peer_urls: peer_urls.to_vec(), ..MemberRecord::default() }
}

impl Changed {
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Changed::NotLeader => out.put_u8(0),
            Changed::Done(index) => {
                out.put_u8(1);
                out.put_u64_le(*index);
            }
            Changed::Refused(error) => {
                out.put_u8(2);
                let same = |known: &Error| known.to_string() == error.to_string();
                let code = REFUSALS.iter().position(same).map_or(0, |at| at + 1);
                out.put_u8(u8::try_from(code).expect("there are few refusals"));
                if code == 0 {
                    out.extend_from_slice(error.to_string().as_bytes());
                }
            }
        }
        out.into()
    }

    pub fn decode(mut bytes: Bytes) -> Decoded<Changed> {
        let truncated = |_| "truncated response to a change of a member";
        Ok(match bytes.try_get_u8().map_err(truncated)? {
            0 => Changed::NotLeader,
            1 => Changed::Done(bytes.try_get_u64_le().map_err(truncated)?),
            2 => {
                let code = usize::from(bytes.try_get_u8().map_err(truncated)?);
                let known = code.checked_sub(1).and_then(|at| REFUSALS.into_iter().nth(at));
                let text = || Error::Internal(String::from_utf8_lossy(&bytes).into_owned());
                Changed::Refused(known.unwrap_or_else(text))
            }
            _ => return Err("unknown response to a change of a member"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, learner: bool, started: bool) -> Member {
        let name = if started { format!("m{id}") } else { String::new() };
        let record = MemberRecord { name, ..MemberRecord::at(format!("http://h:{id}")) };
        Member { id, record, learner }
    }

    fn add(id: u64, learner: bool) -> MemberChange {
        MemberChange::Add { id, peer_urls: vec![format!("http://h:{id}")], learner }
    }

    /// Checks a change; all members are healthy except `silent`.
    fn check(members: &[Member], silent: &[u64], change: MemberChange) -> Option<String> {
        let ids = members.iter().map(|member| member.id);
        let healthy: BTreeSet<u64> = ids.filter(|id| !silent.contains(id)).collect();
        let group = Group { members, healthy: &healthy, caught_up: &BTreeSet::from([7]) };
        group.check(&change).err().map(|error| error.to_string())
    }

    #[test]
    fn changes_that_endanger_the_group_are_refused_with_etcds_texts() {
        let three = [1, 2, 3].map(|id| member(id, false, true));
        let refused = |text: &str| Some(format!("etcdserver: {text}"));
        assert_eq!(check(&three, &[], add(4, false)), None);
        assert_eq!(check(&three, &[], add(4, true)), None);
        assert_eq!(check(&three, &[], add(3, true)), refused("member ID already exist"));
        assert_eq!(check(&three, &[2], add(4, true)), refused("unhealthy cluster"));
        let taken =
            MemberChange::Add { id: 4, peer_urls: vec!["http://h:3".into()], learner: true };
        assert_eq!(check(&three, &[], taken), refused("Peer URLs already exists"));
        assert_eq!(check(&three, &[], MemberChange::Remove { id: 9 }), refused("member not found"));
        assert_eq!(check(&three, &[], MemberChange::Remove { id: 1 }), None);
        // A member that is down can be removed, the others are a majority.
        assert_eq!(check(&three, &[3], MemberChange::Remove { id: 3 }), None);
        assert_eq!(
            check(&three, &[3], MemberChange::Remove { id: 2 }),
            refused("unhealthy cluster")
        );
        let promote = |id| MemberChange::Promote { id };
        assert_eq!(check(&three, &[], promote(1)), refused("can only promote a learner member"));
        let mut learners = three.to_vec();
        learners.push(member(7, true, true));
        assert_eq!(check(&learners, &[], promote(7)), None);
        assert_eq!(check(&learners, &[], MemberChange::Remove { id: 7 }), None);
        assert_eq!(
            check(&learners, &[], add(8, true)),
            refused("too many learner members in cluster")
        );
        learners[3].id = 6;
        assert_eq!(
            check(&learners, &[], promote(6)),
            refused("can only promote a learner member which is in sync with leader")
        );
        // Two of four would be started.
        let two = [member(1, false, true), member(2, false, true), member(3, false, false)];
        let few = "re-configuration failed due to not enough started members";
        assert_eq!(check(&two, &[], add(4, false)), refused(few));
        assert_eq!(check(&two, &[], MemberChange::Remove { id: 1 }), refused(few));
        // A group of one may grow, and not vanish.
        assert_eq!(check(&three[..1], &[], add(4, false)), None);
        assert_eq!(check(&three[..1], &[], MemberChange::Remove { id: 1 }), refused(few));
        let update = |id, url: &str| MemberChange::Update { id, peer_urls: vec![url.into()] };
        assert_eq!(check(&three, &[], update(1, "http://h:1")), None);
        assert_eq!(
            check(&three, &[], update(1, "http://h:2")),
            refused("Peer URLs already exists")
        );
    }

    #[test]
    fn changes_and_their_outcomes_are_read_as_they_were_written() {
        let urls = vec!["http://h:1".to_string()];
        let changes = [
            add(1, true),
            add(1, false),
            MemberChange::Remove { id: 2 },
            MemberChange::Update { id: 3, peer_urls: urls.clone() },
            MemberChange::Promote { id: 4 },
            MemberChange::Publish { id: 5, name: "a".into(), client_urls: urls },
        ];
        for change in changes {
            let mut out = Vec::new();
            change.put(&mut out);
            let bytes = Bytes::from(out);
            assert_eq!(MemberChange::get(&mut bytes.clone()), Ok(change));
            for cut in 0..bytes.len() {
                MemberChange::get(&mut bytes.slice(..cut)).unwrap_err();
            }
        }
        let text = |changed: &Changed| format!("{changed:?}");
        let refused = REFUSALS.into_iter().map(Changed::Refused);
        for changed in refused.chain([Changed::NotLeader, Changed::Done(9)]) {
            let read = Changed::decode(changed.encode()).unwrap();
            assert_eq!(text(&read), text(&changed));
        }
    }
}
