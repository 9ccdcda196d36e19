//! The changes of an entry that is being applied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use stele_engine::{Commit, ScanSpec};

use crate::auth::AuthState;
use crate::command::ActiveAlarm;
use crate::error::Result;
use crate::state::{
    Change, KeyLockInfo, MemberState, Quotas, Sample, Staged, StoredLease, Watermarks, value_spec,
};
use crate::watch::Event;

/// Commits a part of an entry.
pub type CommitPart<'a> = &'a dyn Fn(&Commit) -> Result<()>;

/// The changes of an entry so far.
pub struct Overlay<'a> {
    pub state: &'a MemberState,
    /// The revision at which the stored state is read; later changes of the
    /// overlay are in `keys`. Rises when a part of the entry is committed.
    pub(super) base: i64,
    /// Reads a value as of `base`.
    pub(super) at_base: ScanSpec,
    pub watermarks: Watermarks,
    pub(super) keys: BTreeMap<Bytes, KeyChange>,
    pub(super) changes: Vec<(Change, i64)>,
    /// Set once the current proposal has changed something.
    pub(super) sub: Option<u32>,
    /// `None` when there are no watchers, or when the events are too large to
    /// keep.
    pub(super) events: Option<Vec<Event>>,
    pub(super) event_bytes: usize,
    /// The approximate size of `keys` and `changes`.
    pub(super) staged_bytes: usize,
    /// What the committed parts of the entry add to the counts, and the keys
    /// that they created.
    pub(super) counts: Staged,
    pub(super) created: Vec<Bytes>,
    pub(super) commit_part: CommitPart<'a>,
    pub(super) proposals: usize,
    /// Rows of `lease_keys` and `lock_keys`: true adds the row, false removes
    /// it.
    pub(super) lease_keys: BTreeMap<Vec<u8>, bool>,
    pub(super) lock_keys: BTreeMap<Vec<u8>, bool>,
    /// Keys whose locks changed.
    pub(super) locked: BTreeSet<Bytes>,
    /// Leases; `None` removes one.
    pub(super) leases: BTreeMap<i64, Option<StoredLease>>,
    pub sample: Option<Sample>,
    pub alarms: Option<Vec<ActiveAlarm>>,
    /// The user of the current proposal.
    pub user: Option<Arc<str>>,
    /// The users and roles, if the entry changes them.
    pub auth: Option<Arc<AuthState>>,
    /// Issued tokens and their users.
    pub tokens: Vec<(String, String)>,
    /// Quotas with their usage; `None` while there are none.
    pub quotas: Option<Arc<Quotas>>,
    /// The prefixes whose quota or usage changed.
    pub(super) quota_rows: BTreeSet<Bytes>,
}

/// The changes of an overlay to one key.
#[derive(Default)]
pub struct KeyChange {
    /// Whether the key exists in the stored state; set once the entry writes
    /// it.
    pub(super) lives_in_base: bool,
    /// Tails by revision, oldest first; `None` is a deletion.
    pub(super) versions: Vec<(i64, Option<Bytes>)>,
    /// Locks by revision, with their stored form.
    pub(super) locks: Vec<(i64, KeyLockInfo, Vec<u8>)>,
}

impl<'a> Overlay<'a> {
    /// Creates an overlay on the stored state as of `watermarks`.
    pub fn new(
        state: &'a MemberState,
        watermarks: Watermarks,
        watched: bool,
        commit_part: CommitPart<'a>,
    ) -> Overlay<'a> {
        Overlay {
            state,
            base: watermarks.revision,
            at_base: value_spec(watermarks.revision),
            watermarks,
            keys: BTreeMap::new(),
            changes: Vec::new(),
            sub: None,
            events: watched.then(Vec::new),
            event_bytes: 0,
            staged_bytes: 0,
            counts: Staged::new(),
            created: Vec::new(),
            commit_part,
            proposals: 0,
            lease_keys: BTreeMap::new(),
            lock_keys: BTreeMap::new(),
            locked: BTreeSet::new(),
            leases: BTreeMap::new(),
            sample: None,
            alarms: None,
            user: None,
            auth: None,
            tokens: Vec::new(),
            quotas: state.quotas(),
            quota_rows: BTreeSet::new(),
        }
    }

    /// Starts another proposal, made at this time. Its changes get a revision
    /// of their own.
    pub fn begin(&mut self, time_micros: i64) -> Result<()> {
        self.commit_staged_if_large()?;
        self.watermarks.time_micros = self.watermarks.time_micros.max(time_micros);
        self.sub = None;
        self.proposals += 1;
        Ok(())
    }

    /// Returns whether the current proposal is the first of its entry.
    pub fn is_first_proposal(&self) -> bool {
        self.proposals <= 1
    }

    /// Returns the revision at which the stored state is read.
    pub fn base(&self) -> i64 {
        self.base
    }

    pub fn staged_bytes(&self) -> usize {
        self.staged_bytes
    }

    pub fn makes_events(&self) -> bool {
        self.events.is_some()
    }

    /// Drops the events of this entry, which watchers then read from history.
    pub fn drop_events(&mut self) {
        self.events = None;
    }

    pub fn changed_keys(&self) -> &BTreeMap<Bytes, KeyChange> {
        &self.keys
    }

    /// Returns whether the entry has put or deleted a key since its base.
    pub fn has_changed(&self, key: &[u8]) -> bool {
        self.keys.get(key).is_some_and(|change| !change.versions.is_empty())
    }

    /// Starts another revision within the same proposal.
    pub fn begin_revision(&mut self) {
        self.sub = None;
    }

    pub fn revision(&self) -> i64 {
        self.watermarks.revision
    }
}
