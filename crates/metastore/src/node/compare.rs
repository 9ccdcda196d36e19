//! Compares the hashes of all members at one log entry. A difference raises the
//! alarm CORRUPT for the members that differ from the majority, as in etcd.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::lifecycle::{Node, Shared};
use crate::command::Alarm;
use crate::error::Result;
use crate::machine::Inquiry;
use crate::state::BucketHashes;

/// How long members that have not applied the entry yet are waited for.
const LAG_MAX: Duration = Duration::from_secs(5);
/// The pause before such a member is asked again.
const LAG_PAUSE: Duration = Duration::from_millis(100);
/// The member that an alarm names if no majority agrees, as in etcd.
const UNKNOWN_MEMBER: u64 = 0;

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The members that answered, this one included, have the same keys as of
    /// this log entry.
    Equal { index: u64, members: usize },
    /// These members differ.
    Differs { index: u64, members: Vec<Difference> },
    /// This member does not lead or has no hashes yet.
    Skipped,
}

/// A member whose keys differ from those of the majority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// 0 if no majority agrees.
    pub member: u64,
    /// The buckets of keys that differ.
    pub buckets: Vec<usize>,
}

impl Node {
    /// Compares the hashes of all members at the newest sample, if this member
    /// leads. Raises the alarm for those that differ.
    pub async fn compare_members(&self) -> Result<Compared> {
        self.shared.compare_members().await
    }
}

impl Shared {
    async fn compare_members(&self) -> Result<Compared> {
        let Some(ours) = self.state.hashes_at(0) else { return Ok(Compared::Skipped) };
        if !self.group.has_peers() || !self.group.leadership().borrow().leads {
            return Ok(Compared::Skipped);
        }
        let (index, members) = (ours.index, self.group.addresses());
        let mut hashes = BTreeMap::from([(self.state.identity.member_id, ours)]);
        let others = members.iter().map(|(member, _)| *member);
        for member in others.filter(|member| *member != self.state.identity.member_id) {
            if let Some(theirs) = self.hashes_of(member, index).await {
                hashes.insert(member, theirs);
            }
        }
        let differing = differences(&hashes, members.len());
        if differing.is_empty() {
            return Ok(Compared::Equal { index, members: hashes.len() });
        }
        for Difference { member, buckets } in &differing {
            if self.state.alarms().contains(&(*member, Alarm::Corrupt)) {
                continue;
            }
            tracing::error!(
                member = format_args!("{member:x}"),
                index,
                ?buckets,
                "the keys of a member differ from those of the majority: replace this member"
            );
            self.raise_corrupt(*member).await?;
        }
        Ok(Compared::Differs { index, members: differing })
    }

    /// Returns the hashes of a member at a log entry, or `None` if it does not
    /// answer or does not apply the entry in time.
    async fn hashes_of(&self, member: u64, index: u64) -> Option<BucketHashes> {
        let asked = async {
            loop {
                let question = Inquiry::Hashes { index }.encode();
                let answer = self.group.inquire(member, question).await.ok()?;
                match Inquiry::decode_hashes(answer).filter(|hashes| hashes.index == index) {
                    Some(hashes) => return Some(hashes),
                    None => tokio::time::sleep(LAG_PAUSE).await,
                }
            }
        };
        tokio::time::timeout(LAG_MAX, asked).await.ok().flatten()
    }
}

/// Returns the members that differ from the majority of all `members`, or one
/// difference without a member if no majority agrees.
fn differences(hashes: &BTreeMap<u64, BucketHashes>, members: usize) -> Vec<Difference> {
    let same = |one: &BucketHashes| hashes.values().filter(|other| same_keys(one, other)).count();
    let Some((_, trusted)) = hashes.iter().max_by_key(|(_, one)| same(one)) else {
        return Vec::new();
    };
    if same(trusted) == hashes.len() {
        return Vec::new();
    }
    let others = hashes.iter().filter(|(_, other)| !same_keys(trusted, other));
    if same(trusted) > members / 2 {
        let difference = |(member, other): (&u64, &BucketHashes)| Difference {
            member: *member,
            buckets: trusted.buckets.differing(&other.buckets),
        };
        return others.map(difference).collect();
    }
    let mut buckets: Vec<usize> =
        others.flat_map(|(_, other)| trusted.buckets.differing(&other.buckets)).collect();
    buckets.sort_unstable();
    buckets.dedup();
    vec![Difference { member: UNKNOWN_MEMBER, buckets }]
}

fn same_keys(one: &BucketHashes, other: &BucketHashes) -> bool {
    one.revision == other.revision && one.buckets == other.buckets
}

/// The task that compares the members from time to time.
pub struct Comparer {
    task: Option<JoinHandle<()>>,
    stop: Arc<Notify>,
}

impl Comparer {
    pub fn start(shared: &Arc<Shared>) -> Comparer {
        let stop = Arc::new(Notify::new());
        let (node, ended, every) =
            (Arc::downgrade(shared), stop.clone(), shared.settings.verify_every);
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = ended.notified() => return,
                    () = tokio::time::sleep(every) => {}
                }
                let Some(shared) = node.upgrade() else { return };
                tokio::select! {
                    biased;
                    () = ended.notified() => return,
                    compared = shared.compare_members() => if let Err(error) = compared {
                        tracing::warn!(%error, "the comparison of the metastore's members failed");
                    },
                }
            }
        });
        Comparer { task: Some(task), stop }
    }

    /// Interrupts a comparison and waits until the task has ended.
    pub async fn stop(mut self) {
        self.stop.notify_one();
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::warn!(%error, "the comparison of members did not stop cleanly");
        }
    }
}

impl Drop for Comparer {
    fn drop(&mut self) {
        self.stop.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{BUCKETS, Buckets};

    /// Members with hashes that differ in bucket 3 if their letters do.
    fn hashes(letters: &str) -> BTreeMap<u64, BucketHashes> {
        let hashes = |letter: char| {
            let mut buckets = [1; BUCKETS];
            buckets[3] = u64::from(letter);
            BucketHashes { index: 9, revision: 5, buckets: Buckets(buckets) }
        };
        (1..).zip(letters.chars().map(hashes)).collect()
    }

    #[test]
    fn the_minority_differs_and_without_a_majority_nobody_is_named() {
        let named = |letters: &str, members| -> Vec<(u64, Vec<usize>)> {
            let found = differences(&hashes(letters), members);
            found.into_iter().map(|Difference { member, buckets }| (member, buckets)).collect()
        };
        assert!(named("aaa", 3).is_empty());
        assert!(named("a", 3).is_empty());
        assert_eq!(named("aba", 3), [(2, vec![3])]);
        assert_eq!(named("baa", 3), [(1, vec![3])], "also if the leader differs");
        assert_eq!(named("abaca", 5), [(2, vec![3]), (4, vec![3])]);
        assert_eq!(named("ab", 3), [(UNKNOWN_MEMBER, vec![3])]);
        assert_eq!(named("abc", 3), [(UNKNOWN_MEMBER, vec![3])]);
        assert_eq!(named("aab", 5), [(UNKNOWN_MEMBER, vec![3])], "two of five are no majority");
    }

    #[test]
    fn equal_hashes_of_other_revisions_differ() {
        let mut three = hashes("aaa");
        three.get_mut(&3).unwrap().revision = 6;
        let expected = [Difference { member: 3, buckets: Vec::new() }];
        assert_eq!(differences(&three, 3), expected);
    }
}
