//! Sends requests to other members, and keeps what their answers tell about the
//! members: who has been removed, and who has lost its data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use stele_engine::fatal::Mutex;

use super::membership::{Member, MemberRecord};
use super::transport::{Lane, Transport, Unreached};

/// The response to every request of a member that has been removed.
pub const REMOVED: &[u8] = &[255];

/// The requests of this member to others.
pub struct Outbox {
    transport: Arc<dyn Transport>,
    members: Mutex<BTreeMap<u64, MemberRecord>>,
    /// The members whose last response was that this one has been removed.
    refused_by: Mutex<BTreeSet<u64>>,
    /// The members that were reported to have lost their data.
    reported: Mutex<BTreeSet<u64>>,
}

impl Outbox {
    pub fn new(transport: Arc<dyn Transport>) -> Outbox {
        Outbox {
            transport,
            members: Mutex::default(),
            refused_by: Mutex::default(),
            reported: Mutex::default(),
        }
    }

    /// Replaces the members that can be reached.
    pub fn set_members(&self, members: &[Member]) {
        let records: BTreeMap<_, _> =
            members.iter().map(|member| (member.id, member.record.clone())).collect();
        let mut known = self.members.lock();
        if *known != records {
            *known = records;
            drop(known);
            self.transport.set_members(members);
        }
    }

    pub async fn call(&self, to: u64, lane: Lane, request: Bytes) -> Result<Bytes, Unreached> {
        let response = self.transport.call(to, lane, request).await?;
        if response == REMOVED {
            self.refused_by.lock().insert(to);
            return Err(Unreached::NotSent("this member has been removed".into()));
        }
        self.refused_by.lock().remove(&to);
        Ok(response)
    }

    /// Returns whether a majority of the other voters answered that this member has
    /// been removed. One is not enough: what it knows of the members may be the log of
    /// an earlier leader.
    pub fn is_refused_by_majority(&self, others: &BTreeSet<u64>) -> bool {
        let refused = self.refused_by.lock().intersection(others).count();
        refused > others.len() / 2
    }

    /// Returns whether a member whose log is empty must have lost it: it has been
    /// started before, and published its name only after it had entries.
    pub fn has_lost_its_log(&self, member: u64) -> bool {
        let lost = self.members.lock().get(&member).is_some_and(MemberRecord::is_started);
        if lost && self.reported.lock().insert(member) {
            tracing::error!(
                member = format_args!("{member:x}"),
                "the member has lost its data and cannot come back under its id: remove it, \
                 and add it again as a new member"
            );
        }
        lost
    }
}
