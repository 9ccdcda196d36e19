//! PUT and DEL: the outcome of each record is determined in the order of the vector,
//! from the stored record and the earlier elements; the result is one commit.

use std::sync::Arc;

use bytes::Bytes;
use stele_engine::{CommitBuilder, FoldId, Txn, View};

use super::checks::{check_key, check_value, check_vector};
use super::manage::OVERTAKEN_MAX;
use super::{Catalogues, Written};
use crate::catalogue::{Catalogue, Totals};
use crate::error::{Error, Result};
use crate::fid::Fid;
use crate::flags::{self, Flag, Flags};
use crate::layout::{self, Object, Space};
use crate::proto::{Code, DelRequest, PutRequest, Record, Target, WriteReply};

/// One element of a vector of writes.
struct Change<'a> {
    key: &'a [u8],
    cookie: &'a [u8],
    expected: Option<&'a [u8]>,
    /// The value to store; `None` deletes.
    value: Option<&'a [u8]>,
}

/// A key of the vector, and the remaining change.
struct Decided<'a> {
    key: &'a [u8],
    /// The value to store; `None` deletes.
    value: Option<&'a [u8]>,
}

/// The record of a key while a vector is processed.
enum RecordState<'a> {
    Absent,
    /// As stored: its length, and the value if a change expects one.
    Stored(usize, Option<Vec<u8>>),
    /// As set by the vector.
    Set(&'a [u8]),
}

impl RecordState<'_> {
    fn exists(&self) -> bool {
        !matches!(self, RecordState::Absent)
    }

    fn is(&self, expected: &[u8]) -> bool {
        match self {
            RecordState::Absent => false,
            RecordState::Stored(_, value) => value.as_deref() == Some(expected),
            RecordState::Set(value) => *value == expected,
        }
    }
}

/// Returns the outcome of a change to a record in this state, and whether it takes
/// effect.
fn decide(state: &RecordState<'_>, change: &Change<'_>, flags: Flags) -> (Code, bool) {
    let exists = state.exists();
    if let Some(expected) = change.expected
        && !state.is(expected)
    {
        return (if exists { Code::Unexpected } else { Code::Absent }, false);
    }
    match (change.value, exists) {
        (Some(_), true) if flags.has(Flag::InsertOnly) => (Code::Exists, false),
        (Some(_), true) if flags.has(Flag::CreateIfAbsent) => (Code::Ok, false),
        (Some(_), _) | (None, true) => (Code::Ok, true),
        (None, false) => (Code::Absent, false),
    }
}

/// The effects of a vector before they are applied.
#[derive(Default)]
struct Plan<'a> {
    codes: Vec<i32>,
    /// In key order.
    decided: Vec<Decided<'a>>,
    totals: Totals,
    /// Number of changes that take effect.
    count: u64,
    /// The newest commit that was read.
    read_at: Txn,
}

impl Plan<'_> {
    /// Returns whether the changes are applied, given the rejected ones.
    fn is_applied(&self, flags: Flags) -> bool {
        let refused = self.codes.iter().any(|code| *code != Code::Ok as i32);
        !(refused && flags.has(Flag::AllOrNothing))
    }
}

impl Catalogues {
    pub fn put(&self, request: &PutRequest) -> Result<Written<WriteReply>> {
        self.put_all(request.catalogue.as_ref(), &request.records, request.flags)
    }

    /// Stores the records of a request of any number of messages.
    pub fn put_all(
        &self,
        target: Option<&Target>,
        records: &[Record],
        flags: u32,
    ) -> Result<Written<WriteReply>> {
        let flags = Flags::check(flags, flags::PUT)?;
        check_vector(records.len())?;
        for record in records {
            check_key(&record.key)?;
            check_value(&record.value)?;
        }
        if flags.has(Flag::InsertOnly) && records.iter().any(|record| record.expected.is_some()) {
            let what = "INSERT_ONLY cannot be combined with an expected value";
            return Err(Error::invalid(what));
        }
        let changes = records.iter().map(|record| Change {
            key: &record.key,
            cookie: &record.cookie,
            expected: record.expected.as_deref(),
            value: Some(&record.value),
        });
        self.change(target, &changes.collect::<Vec<_>>(), flags)
    }

    pub fn del(&self, request: &DelRequest) -> Result<Written<WriteReply>> {
        let flags = Flags::check(request.flags, flags::DEL)?;
        check_vector(request.keys.len())?;
        for key in &request.keys {
            check_key(&key.key)?;
        }
        let changes = request.keys.iter().map(|key| Change {
            key: &key.key,
            cookie: &key.cookie,
            expected: key.expected.as_deref(),
            value: None,
        });
        self.change(request.catalogue.as_ref(), &changes.collect::<Vec<_>>(), flags)
    }

    fn change(
        &self,
        target: Option<&Target>,
        changes: &[Change<'_>],
        flags: Flags,
    ) -> Result<Written<WriteReply>> {
        let mut overtaken = 0;
        loop {
            let (fid, catalogue) = self.find(target)?;
            if fid.is_reserved() {
                return Err(Error::Reserved(fid));
            }
            let Some(catalogue) = catalogue else {
                if !flags.has(Flag::CreateCatalogue) {
                    return Err(Error::NoCatalogue(fid));
                }
                match self.change_in_new(fid, changes, flags, overtaken == OVERTAKEN_MAX)? {
                    Some(written) => return Ok(written),
                    None => {
                        overtaken += 1;
                        continue;
                    }
                }
            };
            let _locked = catalogue.lock_keys(changes.iter().map(|change| change.key));
            if catalogue.is_dropped() {
                // The catalogue was deleted before its keys were locked: look it up
                // again.
                continue;
            }
            let plan = self.plan(Some(&catalogue), changes, flags)?;
            let txn = self.commit_plan(&catalogue, &plan)?;
            let no_wait = flags.has(Flag::NoWait);
            let reply = self.reply(&catalogue, changes, plan, flags, txn);
            return Ok(Written { reply, txn, no_wait });
        }
    }

    /// Determines the effects of the vector. Without a catalogue there are no records
    /// yet.
    fn plan<'a>(
        &self,
        catalogue: Option<&Catalogue>,
        changes: &[Change<'a>],
        flags: Flags,
    ) -> Result<Plan<'a>> {
        let mut order: Vec<usize> = (0..changes.len()).collect();
        if !order.is_sorted_by_key(|&at| changes[at].key) {
            order.sort_by_key(|&at| changes[at].key);
        }
        let mut plan = Plan { codes: vec![0; changes.len()], ..Plan::default() };
        for group in order.chunk_by(|&a, &b| changes[a].key == changes[b].key) {
            let key = changes[group[0]].key;
            let mut state = match catalogue {
                Some(catalogue) => self.stored(catalogue, changes, group, &mut plan)?,
                None => RecordState::Absent,
            };
            let before = match &state {
                RecordState::Stored(bytes, _) => Some(*bytes),
                _ => None,
            };
            let mut acts = false;
            for &at in group {
                let (code, acting) = decide(&state, &changes[at], flags);
                plan.codes[at] = code as i32;
                if acting {
                    acts = true;
                    plan.count += 1;
                    state = changes[at].value.map_or(RecordState::Absent, RecordState::Set);
                }
            }
            let value = match state {
                RecordState::Set(value) => Some(value),
                _ => None,
            };
            if !acts || (before.is_none() && value.is_none()) {
                continue;
            }
            if let Some(bytes) = before {
                plan.totals.remove(key, bytes);
            }
            if let Some(value) = value {
                plan.totals.add(key, value.len());
            }
            plan.decided.push(Decided { key, value });
        }
        if !plan.is_applied(flags) {
            (plan.decided, plan.totals, plan.count) = (Vec::new(), Totals::default(), 0);
        }
        Ok(plan)
    }

    /// Reads the record of a key that a group of changes shares.
    fn stored<'a>(
        &self,
        catalogue: &Catalogue,
        changes: &[Change<'a>],
        group: &[usize],
        plan: &mut Plan<'_>,
    ) -> Result<RecordState<'a>> {
        let wants_value = group.iter().any(|&at| changes[at].expected.is_some());
        let first = &changes[group[0]];
        let place = self.sealer.open_record(catalogue.object, first.cookie);
        let row = catalogue.space.row(first.key);
        let mut state = RecordState::Absent;
        let local = self.local(catalogue.space.table);
        let read = local.read_first(&row, &View::Latest, place.as_ref(), |cell| {
            let value = wants_value.then(|| cell.value.to_vec());
            state = RecordState::Stored(cell.value.len(), value);
        });
        let read = self.tenure().open(read)?;
        self.count_place(&read);
        plan.read_at = plan.read_at.max(read.txn);
        Ok(state)
    }

    /// Applies the changes. Returns the commit that the reply is based on.
    fn commit_plan(&self, catalogue: &Catalogue, plan: &Plan<'_>) -> Result<Txn> {
        if plan.decided.is_empty() {
            return Ok(plan.read_at);
        }
        let mut commit = CommitBuilder::new();
        self.append(&mut commit, &catalogue.space, catalogue.object, plan);
        let txn = self.apply(&commit.finish())?;
        catalogue.count(plan.totals);
        Ok(txn)
    }

    /// Copies each value into the commit, which is the only copy on the write path.
    fn append(&self, commit: &mut CommitBuilder, space: &Space, object: Object, plan: &Plan<'_>) {
        commit.table(space.table);
        append_totals(commit, object, plan.totals);
        let mut row = space.prefix.clone();
        for Decided { key, value } in &plan.decided {
            row.truncate(space.prefix.len());
            row.extend_from_slice(key);
            commit.row(&row);
            match value {
                Some(value) => {
                    commit.set(layout::FAMILY, b"", 0, value);
                    self.count_copied(value.len());
                }
                None => {
                    commit.delete_row();
                }
            }
        }
    }

    /// Creates the catalogue and changes it in one commit. Returns `None` if it exists
    /// by now, or if others were created in the meantime: then the caller retries. With
    /// `hold`, no other catalogues can be created.
    fn change_in_new(
        &self,
        fid: Fid,
        changes: &[Change<'_>],
        flags: Flags,
        hold: bool,
    ) -> Result<Option<Written<WriteReply>>> {
        let held = hold.then(|| self.lock_creation());
        let object = held.as_deref().copied().unwrap_or_else(|| *self.lock_creation());
        if self.lookup_fid(fid)?.is_some() {
            return Ok(None);
        }
        if self.is_retired(fid)? {
            return Err(Error::Retired(fid));
        }
        let plan = self.plan(None, changes, flags)?;
        let no_wait = flags.has(Flag::NoWait);
        if plan.decided.is_empty() {
            // Nothing is applied, so the catalogue is not created either.
            let txn = self.latest()?;
            let (applied, codes) = (plan.is_applied(flags), plan.codes);
            let reply = WriteReply { codes, applied, txn: txn.raw(), ..Default::default() };
            return Ok(Some(Written { reply, txn, no_wait }));
        }
        let space = Space::of_object(self.ids.records_of(fid), object);
        let mut commit = CommitBuilder::new();
        commit.table(self.ids.meta);
        self.append_new(&mut commit, &[(fid, object)], object + 1);
        self.append(&mut commit, &space, object, &plan);
        let Some(txn) = self.apply_creation(&commit.finish(), object, object + 1, held)? else {
            return Ok(None);
        };
        let reply = match self.lookup_fid(fid)? {
            Some(catalogue) => self.reply(&catalogue, changes, plan, flags, txn),
            // Deleted since by another request; this write came first.
            None => {
                let applied = plan.is_applied(flags);
                let (codes, count) = (plan.codes, plan.count);
                WriteReply { codes, count, applied, txn: txn.raw(), ..Default::default() }
            }
        };
        Ok(Some(Written { reply, txn, no_wait }))
    }

    fn reply(
        &self,
        catalogue: &Arc<Catalogue>,
        changes: &[Change<'_>],
        plan: Plan<'_>,
        flags: Flags,
        txn: Txn,
    ) -> WriteReply {
        let stores = changes.first().is_some_and(|change| change.value.is_some());
        let applied = plan.is_applied(flags);
        let mut reply = WriteReply {
            codes: plan.codes,
            count: plan.count,
            applied,
            txn: txn.raw(),
            ..Default::default()
        };
        if stores && applied && !flags.has(Flag::NoCookies) {
            let mut unplaced = Vec::new();
            self.sealer.seal_record(catalogue.object, None, &mut unplaced);
            let unplaced = Bytes::from(unplaced);
            let cookie = |code: &i32| if *code == 0 { unplaced.clone() } else { Bytes::new() };
            reply.cookies = reply.codes.iter().map(cookie).collect();
            reply.catalogue_cookie = self.catalogue_cookie(catalogue).into();
        }
        reply
    }
}

/// Adds to the totals of a catalogue.
pub(super) fn append_totals(commit: &mut CommitBuilder, object: Object, change: Totals) {
    if change == Totals::default() {
        return;
    }
    commit.row(&layout::totals_row(object));
    for (column, number) in [(layout::BYTES, change.bytes), (layout::RECORDS, change.records)] {
        commit.merge(FoldId::SUM, layout::FAMILY, column, 0, &number.to_be_bytes());
    }
}
