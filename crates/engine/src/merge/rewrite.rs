//! The output of flush and compaction: merged runs without what no reader can see any
//! more.
//!
//! Live snapshots divide the txns into stripes: two txns are in one stripe if no
//! snapshot lies between them. A cell may be dropped only because of something in its
//! own stripe; otherwise the change would be visible to some snapshot.

use super::coverage::Coverage;
use super::cursor::Cursor;
use super::kway::Merge;
use crate::cell::fold::{FoldId, Folds};
use crate::cell::key::{self, KeyParts, Kind, Level};
use crate::cell::range_tombstone::RangeTombstones;
use crate::cell::rows::RowRange;
use crate::error::{Error, Result};
use crate::schema::{FamilyRef, Ranks, Schema};
use crate::txn::Txn;

/// The rules that determine what may be dropped.
pub struct RewriteRules<'a> {
    /// Live snapshots, ascending. The last is at or above every txn rewritten.
    pub snapshots: &'a [Txn],
    /// The runs include the oldest one of the chain, so tombstones have nothing left
    /// below them to cover.
    pub rooted: bool,
    /// Whether some file of the chain has families that belong to other chains.
    pub restricted: bool,
    /// The maximum timestamp of any cell in the older runs of the chain, if they have
    /// cells.
    pub older_timestamp_max: Option<i64>,
    pub now_micros: i64,
    pub schema: &'a Schema,
    /// Only families of this group are kept.
    pub group: usize,
    pub folds: &'a Folds,
    /// Only these rows are kept.
    pub rows: &'a RowRange,
}

impl RewriteRules<'_> {
    fn stripe(&self, txn: Txn) -> usize {
        self.snapshots.partition_point(|&snapshot| snapshot < txn)
    }
}

/// Receives the entries that a rewrite keeps, in key order.
pub trait RewriteOutput {
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Returns whether the rewrite should stop before the next row.
    fn is_full(&self) -> bool;
}

/// The result of a rewrite.
pub struct Rewritten {
    /// The remaining range tombstones over the rewritten rows.
    pub range_tombstones: RangeTombstones,
    /// The row before which it stopped; `None` if no rows are left.
    pub end: Option<Vec<u8>>,
}

/// Rewrites merged runs into `out`.
pub struct Rewrite<'a, C, O> {
    rules: &'a RewriteRules<'a>,
    merge: &'a mut Merge<C>,
    range_tombstones: RangeTombstones,
    out: &'a mut O,
    state: RewriteState,
}

#[derive(Default)]
struct RewriteState {
    /// The last entry read.
    key: Vec<u8>,
    parts: Option<KeyParts>,
    row: Vec<u8>,
    coverage: Coverage,
    /// The last tombstone of the whole row. Runs that come from several groups may each
    /// have it.
    row_tombstone: Option<Txn>,
    family: Option<FamilyRef>,
    ranks: Ranks,
    version: Option<VersionState>,
    pending: Option<Pending>,
}

/// The progress within the current version.
struct VersionState {
    timestamp: i64,
    /// The stripe whose newest entry has been seen.
    stripe: usize,
    /// A value was found: older entries of the stripe are superseded.
    closed: bool,
    /// The policy drops everything of this version in the oldest stripe.
    purged: bool,
}

/// Folded operands, waiting for what lies below them.
struct Pending {
    /// The key of the newest operand.
    key: Vec<u8>,
    fold: FoldId,
    operand: Vec<u8>,
}

impl<'a, C: Cursor, O: RewriteOutput> Rewrite<'a, C, O> {
    /// Creates a rewrite; `range_tombstones` are the range tombstones of all runs.
    pub fn new(
        rules: &'a RewriteRules<'a>,
        merge: &'a mut Merge<C>,
        range_tombstones: &RangeTombstones,
        out: &'a mut O,
    ) -> Self {
        let range_tombstones = range_tombstones.clipped(rules.rows);
        Rewrite { rules, merge, range_tombstones, out, state: RewriteState::default() }
    }

    /// Rewrites all rows, or as many as `out` accepts. Calls `proceed` every few
    /// blocks; returns `None` if it returns false.
    pub fn run(mut self, proceed: &dyn Fn() -> bool) -> Result<Option<Rewritten>> {
        const BYTES_BETWEEN_CHECKS: usize = 64 << 10;
        let bound = self.rules.rows.end.as_deref().map(key::row_start);
        self.merge.seek(&key::row_start(&self.rules.rows.start))?;
        let mut taken = BYTES_BETWEEN_CHECKS;
        let mut end = None;
        while self.merge.valid() && bound.as_deref().is_none_or(|bound| self.merge.key() < bound) {
            if taken >= BYTES_BETWEEN_CHECKS {
                taken = 0;
                if !proceed() {
                    return Ok(None);
                }
            }
            if self.out.is_full() {
                end = self.next_row();
                if end.is_some() {
                    break;
                }
            }
            taken += self.merge.key().len() + self.merge.value().len();
            self.take()?;
            self.merge.advance()?;
        }
        self.end_version()?;
        if let Some(end) = &end {
            let done = RowRange { start: self.rules.rows.start.clone(), end: Some(end.clone()) };
            self.range_tombstones = self.range_tombstones.clipped(&done);
        }
        self.retain_range_tombstones();
        Ok(Some(Rewritten { range_tombstones: self.range_tombstones, end }))
    }

    /// Returns the row of the next entry if it differs from that of the last.
    fn next_row(&self) -> Option<Vec<u8>> {
        let prefix = key::row_prefix(self.merge.key())?;
        let begun = key::row_prefix(&self.state.key)?;
        (begun != prefix).then(|| key::row_of(prefix)).flatten()
    }

    /// Keeps, of each range, the newest txn of every stripe; a rooted run needs none for
    /// the oldest stripe.
    fn retain_range_tombstones(&mut self) {
        let rules = self.rules;
        self.range_tombstones.retain(|_, txns| {
            let mut kept: Vec<Txn> = txns.to_vec();
            kept.dedup_by_key(|txn| rules.stripe(*txn));
            kept.retain(|&txn| !(rules.rooted && rules.stripe(txn) == 0));
            kept
        });
    }

    fn take(&mut self) -> Result<()> {
        let parts = self.enter()?;
        if parts.level != Level::RowTombstone && self.state.family.is_none() {
            return Ok(());
        }
        if parts.level == Level::Cell {
            return self.take_cell(&parts);
        }
        if parts.level == Level::RowTombstone
            && self.state.row_tombstone.replace(parts.txn) == Some(parts.txn)
        {
            return Ok(());
        }
        let stripe = self.rules.stripe(parts.txn);
        let added = self.state.coverage.add(parts.level, stripe, parts.txn, self.merge.value());
        if !added.any || (self.rules.rooted && stripe == 0) {
            return Ok(());
        }
        self.out.add(self.merge.key(), self.merge.value())
    }

    /// Makes the entry's row, family and column the current ones.
    fn enter(&mut self) -> Result<KeyParts> {
        let entry = self.merge.key();
        let parts = KeyParts::parse(entry).ok_or_else(|| {
            Error::CellDisorder(format!("\"{}\" is not a cell key", entry.escape_ascii()))
        })?;
        let same = |end: fn(&KeyParts) -> usize| {
            self.state.parts.is_some_and(|last| {
                end(&last) == end(&parts) && self.state.key[..end(&last)] == entry[..end(&parts)]
            })
        };
        let same_row = same(|parts| parts.row_end);
        let same_family = same_row && same(|parts| parts.family_end);
        let same_column = same_family && same(|parts| parts.column_end);
        if !same_column {
            self.end_version()?;
        }
        let entry = self.merge.key();
        let state = &mut self.state;
        if !same_row {
            key::unescape_into(parts.escaped_row(entry), &mut state.row);
            state.row_tombstone = None;
            let rules = self.rules;
            let txns = self.range_tombstones.txns_over(&state.row);
            state.coverage.enter_row(txns.map(|txn| (rules.stripe(txn), txn)));
        }
        if !same_family {
            if same_row {
                state.coverage.enter_family();
            }
            let found = self.rules.schema.find(parts.family(entry));
            state.family = found.filter(|at| at.group == self.rules.group);
        }
        if !same_column {
            state.coverage.enter_column();
            state.ranks = Ranks::default();
        }
        state.key.clear();
        state.key.extend_from_slice(entry);
        state.parts = Some(parts);
        Ok(parts)
    }

    fn take_cell(&mut self, parts: &KeyParts) -> Result<()> {
        let stripe = self.rules.stripe(parts.txn);
        let deleted = self.state.coverage.covers_in_stripe(stripe, parts.timestamp, parts.txn);
        let family = self.state.family.expect("cells of other groups are dropped");
        if deleted || self.rules.schema.predates(family, parts.txn) {
            return Ok(());
        }
        let newer = self.state.version.as_ref();
        if newer.is_none_or(|version| version.timestamp != parts.timestamp) {
            self.begin_version(parts, stripe)?;
        } else if newer.is_some_and(|version| version.stripe != stripe) {
            self.begin_stripe(parts, stripe)?;
        }
        let version = self.state.version.as_ref().expect("a version has begun");
        if version.closed || (version.purged && stripe == 0) {
            return Ok(());
        }
        match parts.kind {
            Kind::Merge(fold) => self.take_operand(FoldId(fold)),
            Kind::Put | Kind::Marker => self.take_base(parts.kind),
            Kind::Tombstone => unreachable!("a cell is not a tombstone"),
        }
    }

    fn begin_version(&mut self, parts: &KeyParts, stripe: usize) -> Result<()> {
        self.end_version()?;
        let purged = stripe == 0 && self.purges(parts);
        self.state.version =
            Some(VersionState { timestamp: parts.timestamp, stripe, closed: false, purged });
        Ok(())
    }

    /// Continues the version in an older stripe, into which the operands folded so far
    /// must not reach.
    fn begin_stripe(&mut self, parts: &KeyParts, stripe: usize) -> Result<()> {
        self.write_operand()?;
        let purged = stripe == 0 && self.purges(parts);
        let version = self.state.version.as_mut().expect("a version has begun");
        (version.stripe, version.closed, version.purged) = (stripe, false, purged);
        Ok(())
    }

    /// Returns whether the policy purges the version. Versions are ranked among those
    /// that every snapshot sees, so a purged version is purged for all of them. A
    /// marker that may be dropped only because nothing lies below it requires a rooted
    /// run. A version that an older run may also contain is kept: without it an
    /// overwritten value would reappear as soon as the policy changes or the newer
    /// versions are deleted.
    fn purges(&mut self, parts: &KeyParts) -> bool {
        let family = self.state.family.expect("cells of other groups are dropped");
        let policy = self.rules.schema.purge(family);
        let marker = parts.kind == Kind::Marker && self.rules.rooted;
        let version = self.state.ranks.next(policy, parts.timestamp, marker);
        let may_exist_below =
            self.rules.older_timestamp_max.is_some_and(|max| parts.timestamp <= max);
        !may_exist_below && policy.purges(&version, self.rules.now_micros)
    }

    fn take_operand(&mut self, fold: FoldId) -> Result<()> {
        let older = self.merge.value();
        if let Some(pending) = &mut self.state.pending {
            if pending.fold == fold && self.rules.folds.get(fold).is_some() {
                pending.operand = self.rules.folds.fold(fold, older, &pending.operand)?;
                return Ok(());
            }
            self.write_operand()?;
        }
        self.state.pending = Some(Pending {
            key: self.merge.key().to_vec(),
            fold,
            operand: self.merge.value().to_vec(),
        });
        Ok(())
    }

    fn take_base(&mut self, kind: Kind) -> Result<()> {
        self.state.version.as_mut().expect("a version has begun").closed = true;
        // Operands of a fold that this process does not know are kept unchanged.
        if let Some(pending) = &self.state.pending
            && kind == Kind::Put
            && self.rules.folds.get(pending.fold).is_none()
        {
            self.write_operand()?;
        }
        let Some(pending) = self.state.pending.take() else {
            let mut key = std::mem::take(&mut self.state.key);
            self.forget_txn(&mut key);
            let written = self.out.add(&key, self.merge.value());
            self.state.key = key;
            return written;
        };
        let value = match kind {
            Kind::Put => {
                self.rules.folds.fold(pending.fold, self.merge.value(), &pending.operand)?
            }
            _ => pending.operand,
        };
        let mut key = pending.key;
        key::set_kind(&mut key, Kind::Put);
        self.forget_txn(&mut key);
        self.out.add(&key, &value)
    }

    /// Zeroes the txn of a cell if nothing can depend on it. The txn orders the cell
    /// after older entries; with nothing below it and every snapshot above it there are
    /// none. Two things may still be older: tombstones of the row in other groups that
    /// are read together with this one or were part of it before the groups changed, and a
    /// dropped family of the same name.
    fn forget_txn(&self, key: &mut [u8]) {
        let schema = self.rules.schema;
        let family = self.state.family.expect("cells of other groups are dropped");
        let oldest = self.rules.rooted
            && self.rules.stripe(key::txn_of(key).expect("a complete key has a txn")) == 0;
        let alone = schema.visible_groups() == 1 && !self.rules.restricted;
        if oldest && alone && schema.since(family) == Txn::ZERO {
            key::set_txn(key, Txn::ZERO);
        }
    }

    /// Ends the version: nothing of it is left below.
    fn end_version(&mut self) -> Result<()> {
        self.state.version = None;
        let knows = |pending: &mut Pending| self.rules.folds.get(pending.fold).is_some();
        if self.rules.rooted
            && let Some(mut pending) = self.state.pending.take_if(knows)
        {
            key::set_kind(&mut pending.key, Kind::Put);
            self.forget_txn(&mut pending.key);
            return self.out.add(&pending.key, &pending.operand);
        }
        self.write_operand()
    }

    fn write_operand(&mut self) -> Result<()> {
        match self.state.pending.take() {
            Some(pending) => self.out.add(&pending.key, &pending.operand),
            None => Ok(()),
        }
    }
}
