//! What a member that starts with an empty directory learns from the others: the
//! ids of the cluster and its own, and whether it has been started before.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;

use super::frame::{self, Frame};
use super::handshake::{self, Hello};
use super::roster::{PeerUrl, Roster};
use super::transport::{PeerTls, open};
use crate::consensus::{Member, members_message};
use crate::error::{Error, Result};

/// How long a member may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// A cluster as one of its members describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterView {
    pub cluster_id: u64,
    pub members: Vec<Member>,
}

/// Asks the other members of a roster, in turn, until one answers.
pub async fn discover(roster: &Roster, tls: Option<&PeerTls>) -> Result<ClusterView> {
    let mut why = Vec::new();
    for (_, url) in roster.others() {
        match tokio::time::timeout(ANSWER_MAX, ask(url, tls)).await {
            Ok(Ok(view)) => return Ok(view),
            Ok(Err(error)) => why.push(format!("{url}: {error}")),
            Err(_) => why.push(format!("{url}: no answer within {ANSWER_MAX:?}")),
        }
    }
    Err(Error::Config(format!(
        "no member of the cluster could be asked about it ({}): start them first, and check \
         --initial-cluster",
        why.join("; ")
    )))
}

async fn ask(url: &PeerUrl, tls: Option<&PeerTls>) -> io::Result<ClusterView> {
    let mut stream = open(url, tls).await?;
    handshake::introduce(&mut stream, Hello::JOINING).await?;
    let (cluster_id, _) = handshake::read_ids(&mut stream).await?;
    let request = Frame { id: 1, payload: members_message::request() };
    frame::write(&mut stream, &request).await?;
    tokio::io::AsyncWriteExt::flush(&mut stream).await?;
    let answer = frame::read(&mut stream).await?;
    let answer = answer.map_or(Bytes::new(), |frame| frame.payload);
    let members = members_message::decode_response(answer);
    let members = members.map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what))?;
    Ok(ClusterView { cluster_id, members })
}

impl ClusterView {
    /// Returns the id of the member that joins from an empty directory: the one that
    /// was added with its address and has never been started.
    pub fn id_of_new(&self, roster: &Roster) -> Result<u64> {
        let url = roster.url().to_string();
        let mine = self.members.iter().find(|member| member.record.peer_urls.contains(&url));
        let Some(mine) = mine else {
            return Err(Error::Config(format!(
                "{url} is not the address of a member: add it first with `stele metastore member \
                 add --peer-urls {url}`"
            )));
        };
        if mine.record.is_started() {
            return Err(lost(mine));
        }
        Ok(mine.id)
    }

    /// Refuses to create a cluster from an empty directory if the cluster exists
    /// and this member was part of it.
    pub fn check_new(&self, roster: &Roster) -> Result<()> {
        if self.cluster_id != roster.cluster_id() {
            return Ok(());
        }
        match self.members.iter().find(|member| member.id == roster.member_id()) {
            Some(mine) if mine.record.is_started() => Err(lost(mine)),
            Some(_) => Ok(()),
            None => Err(Error::Removed { member: roster.member_id() }),
        }
    }

    /// Returns the first address of each member.
    pub fn addresses(&self) -> BTreeMap<u64, String> {
        let address = |member: &Member| {
            let url = member.record.peer_urls.first().cloned().unwrap_or_default();
            (member.id, url)
        };
        self.members.iter().map(address).collect()
    }
}

fn lost(member: &Member) -> Error {
    let (id, name) = (member.id, &member.record.name);
    Error::Config(format!(
        "member {id:x} has already been bootstrapped as \"{name}\", but its data directory is empty: \
         it has forgotten its votes and entries and cannot come back under its id. Remove it with \
         `stele metastore member remove {id:x}`, add it again, and start it with \
         --initial-cluster-state existing"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consensus::MemberRecord;

    #[test]
    fn a_member_joins_under_its_address_and_a_wiped_one_is_refused() {
        let three = "a=http://127.0.0.1:1,b=http://127.0.0.1:2,c=http://127.0.0.1:3";
        let roster = Roster::parse("c", three).unwrap();
        let mut record = MemberRecord::at("http://127.0.0.1:3");
        let view = |id, record: &MemberRecord| ClusterView {
            cluster_id: roster.cluster_id(),
            members: vec![Member { id, record: record.clone(), learner: true }],
        };
        assert_eq!(view(77, &record).id_of_new(&roster).unwrap(), 77);
        // In a new cluster, members start one after the other.
        view(roster.member_id(), &record).check_new(&roster).unwrap();
        let removed = view(77, &record).check_new(&roster).unwrap_err();
        assert!(removed.to_string().contains("has been removed"), "{removed}");
        record.name = "c".into();
        let wiped = view(roster.member_id(), &record);
        for refusal in [wiped.check_new(&roster), wiped.id_of_new(&roster).map(drop)] {
            let refusal = refusal.unwrap_err().to_string();
            assert!(refusal.contains("has already been bootstrapped"), "{refusal}");
        }
        record.peer_urls.clear();
        let unknown = view(77, &record).id_of_new(&roster).unwrap_err().to_string();
        assert!(unknown.contains("member add"), "{unknown}");
    }
}
