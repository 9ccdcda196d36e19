//! Turns the changes of the overlay into engine commits.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use stele_engine::{Commit, CommitBuilder};

use super::Overlay;
use crate::auth::AuthState;
use crate::command::ActiveAlarm;
use crate::error::Result;
use crate::state::{LOCK, Quotas, Sample, Staged, VALUE, Watermarks, changes, value_spec};
use crate::watch::Event;

/// An entry whose changes are packed, to be committed and published.
pub struct FinishedEntry {
    pub commit: Commit,
    pub watermarks: Watermarks,
    pub events: Option<Vec<Event>>,
    pub counts: Staged,
    /// Keys that did not exist before.
    pub created: Vec<Bytes>,
    /// Keys whose locks changed.
    pub locked: BTreeSet<Bytes>,
    pub alarms: Option<Vec<ActiveAlarm>>,
    pub auth: Option<Arc<AuthState>>,
    /// Issued tokens and their users.
    pub tokens: Vec<(String, String)>,
    pub sample: Option<Sample>,
    /// The quotas, if one or its usage changed.
    pub quotas: Option<Arc<Quotas>>,
}

impl Overlay<'_> {
    /// Moves the base after a part of the entry is committed, so that later
    /// reads find it in the store.
    pub fn move_base(&mut self) {
        self.base = self.watermarks.revision;
        self.at_base = value_spec(self.base);
    }

    /// Commits a part of the entry ahead of the rest.
    pub fn commit_ahead(&self, commit: Commit) -> Result<()> {
        (self.commit_part)(&commit)
    }

    /// Adds created (1) and deleted (-1) keys to the counts.
    pub fn stage_counts<'k>(&mut self, keys: impl Iterator<Item = (&'k Bytes, i64)>) {
        for (start, delta) in self.state.counts.read().stage(keys) {
            *self.counts.entry(start).or_default() += delta;
        }
    }

    /// Drops the staged changes after they have been committed.
    pub fn forget_staged(&mut self) {
        let keys = std::mem::take(&mut self.keys);
        let growing = keys.iter().map(|(key, change)| (key, change.growth()));
        self.stage_counts(growing.filter(|(_, growth)| *growth != 0));
        let created = keys.into_iter().filter(|(_, change)| change.growth() > 0);
        self.created.extend(created.map(|(key, _)| key));
        self.changes.clear();
        self.staged_bytes = 0;
    }

    /// Adds the rows of `user` and `changes`. With `ends`, also removes the
    /// changes below a waterline that has moved.
    pub fn push_changes(&self, commit: &mut CommitBuilder, ends: bool) {
        let (state, watermarks) = (self.state, &self.watermarks);
        let tables = &state.tables;
        if !self.keys.is_empty() {
            commit.table(tables.user);
        }
        for (key, change) in &self.keys {
            commit.row(key);
            for (revision, tail) in &change.versions {
                match tail {
                    Some(tail) => commit.set(VALUE, b"", *revision, tail),
                    None => commit.mark(VALUE, b"", *revision, b""),
                };
            }
            for (revision, info, bytes) in &change.locks {
                match info.is_free() {
                    false => commit.set(LOCK, b"", *revision, bytes),
                    true => commit.mark(LOCK, b"", *revision, bytes),
                };
            }
        }
        let line_moved = ends && watermarks.waterline > state.waterline();
        if line_moved || !self.changes.is_empty() {
            commit.table(tables.changes);
        }
        if line_moved {
            commit.delete_range(&changes::rows(0, watermarks.waterline - 1));
        }
        for (change, time_micros) in &self.changes {
            change.push(commit, *time_micros);
        }
    }

    /// Packs the remaining changes into a commit.
    pub fn finish(mut self) -> FinishedEntry {
        let (state, watermarks) = (self.state, self.watermarks);
        let tables = &state.tables;
        let mut commit = CommitBuilder::new();
        self.push_changes(&mut commit, true);
        self.forget_staged();
        state.counts.read().push(&self.counts, &mut commit, tables);
        tables.push_leases(&mut commit, &self.leases, &self.lease_keys, &self.lock_keys);
        let line_moved = watermarks.waterline > state.waterline();
        if line_moved || self.sample.is_some() {
            tables.push_time(&mut commit, self.sample.as_ref(), line_moved.then_some(&watermarks));
        }
        let auth = self.auth.as_ref().map(|auth| auth.changed_rows(&state.auth.get()));
        let auth = auth.as_deref().unwrap_or_default();
        tables.push_meta(&mut commit, &watermarks, self.alarms.as_deref(), auth);
        let quotas = self.quotas.filter(|_| !self.quota_rows.is_empty());
        if let Some(quotas) = &quotas {
            tables.push_quotas(&mut commit, quotas, &self.quota_rows);
        }
        FinishedEntry {
            commit: commit.finish(),
            watermarks,
            created: self.created,
            locked: self.locked,
            events: self.events,
            counts: self.counts,
            alarms: self.alarms,
            auth: self.auth,
            tokens: self.tokens,
            sample: self.sample,
            quotas,
        }
    }
}
