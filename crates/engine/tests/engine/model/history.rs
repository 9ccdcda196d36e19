//! The model: every mutation ever committed, per row and in order, and a naive
//! interpreter that replays them from the beginning to answer any snapshot. Slow, but
//! obviously correct.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use stele_engine::schema::Schema;
use stele_engine::{CommitBuilder, Fold, FoldId, Printable, RowRange, TableId, TimeRange, Txn};

use super::policy::{self, Ranks};
use super::tablets::Loads;

/// A mutation that owns its bytes.
#[derive(Clone, Debug)]
pub enum Op {
    Set(Column, i64, Vec<u8>),
    Mark(Column, i64, Vec<u8>),
    Merge(Column, i64, FoldId, Vec<u8>),
    DeleteCells(Column, TimeRange),
    DeleteFamily(Vec<u8>),
    DeleteRow,
}

/// Family and qualifier.
pub type Column = (Vec<u8>, Vec<u8>);

impl Op {
    pub fn push(&self, builder: &mut CommitBuilder) {
        match self {
            Op::Set((f, q), at, value) => builder.set(f, q, *at, value),
            Op::Mark((f, q), at, value) => builder.mark(f, q, *at, value),
            Op::Merge((f, q), at, fold, operand) => builder.merge(*fold, f, q, *at, operand),
            Op::DeleteCells((f, q), times) => builder.delete_cells(f, q, *times),
            Op::DeleteFamily(f) => builder.delete_family(f),
            Op::DeleteRow => builder.delete_row(),
        };
    }
}

impl Op {
    /// Returns whether the mutation changes a hidden family.
    fn is_of_hidden(&self) -> bool {
        match self {
            Op::Set((family, _), ..) | Op::Mark((family, _), ..) | Op::Merge((family, _), ..) => {
                is_hidden(family)
            }
            Op::DeleteCells((family, _), _) | Op::DeleteFamily(family) => is_hidden(family),
            Op::DeleteRow => false,
        }
    }
}

/// Returns whether a family is hidden: only such names begin with an h.
pub fn is_hidden(family: &[u8]) -> bool {
    family.starts_with(b"h")
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = |(f, q): &Column| format!("{}:{}", f.escape_ascii(), q.escape_ascii());
        match self {
            Op::Set(c, at, v) => write!(f, "set {} @{at} {}", column(c), Printable(v.clone())),
            Op::Mark(c, at, v) => write!(f, "mark {} @{at} {}", column(c), Printable(v.clone())),
            Op::Merge(c, at, fold, v) => {
                write!(f, "merge {} @{at} {fold:?} {}", column(c), Printable(v.clone()))
            }
            Op::DeleteCells(c, times) => write!(f, "delete {} {times:?}", column(c)),
            Op::DeleteFamily(family) => write!(f, "delete family {}", family.escape_ascii()),
            Op::DeleteRow => write!(f, "delete row"),
        }
    }
}

/// The changes of one table in one commit.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub ranges: Vec<RowRange>,
    pub rows: BTreeMap<Vec<u8>, Vec<Op>>,
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ranges.iter().try_for_each(|range| write!(f, "delete {range:?} "))?;
        for (row, ops) in &self.rows {
            let ops: Vec<String> = ops.iter().map(Op::to_string).collect();
            write!(f, "\"{}\": {} ", row.escape_ascii(), ops.join(", "))?;
        }
        Ok(())
    }
}

/// A part of a version: the contribution of one mutation.
#[derive(Clone, Copy, Debug)]
pub struct VersionPart<'a> {
    pub txn: Txn,
    pub marker: bool,
    /// How it is merged into the previous parts; `None` for a first part that stands
    /// alone.
    pub fold: Option<FoldId>,
    pub value: &'a [u8],
}

/// Versions by timestamp, newest first, with the parts of each, oldest first.
pub type Versions<'a> = BTreeMap<Reverse<i64>, Vec<VersionPart<'a>>>;
pub type Row<'a> = BTreeMap<(&'a [u8], &'a [u8]), Versions<'a>>;

#[derive(Default)]
pub struct RowHistory {
    ops: Vec<(Txn, Op)>,
    purges: BTreeMap<(Column, i64), Purged>,
    /// The last commit that named the row.
    pub newest: Txn,
}

/// The txn up to which the parts of a version may have been purged permanently, because
/// at some time the policy purged the whole version.
#[derive(Clone, Copy, Debug, Default)]
pub struct Purged {
    pub through: Txn,
    /// The same if none of the parts were a marker. A marker that is purged only
    /// because it is a marker takes everything below it with it.
    pub through_as_value: Txn,
}

/// Which states of a row's history to examine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Moments {
    Last,
    /// Compaction may see old commits in isolation: below a held snapshot, or in the
    /// older fragments of a chain.
    All,
}

impl RowHistory {
    /// Returns the row as a reader at `snapshot` must see it, before any purge.
    pub fn at(&self, snapshot: Txn) -> Row<'_> {
        let seen = &self.ops[..self.ops.partition_point(|(txn, _)| *txn <= snapshot)];
        // Before the last delete of the row only hidden families matter.
        let cleared = seen.iter().rposition(|(_, op)| matches!(op, Op::DeleteRow)).unwrap_or(0);
        let mut row = Row::new();
        let spared = seen[..cleared].iter().filter(|(_, op)| op.is_of_hidden());
        for (txn, op) in spared.chain(&seen[cleared..]) {
            carry_out(&mut row, *txn, op);
        }
        row
    }

    /// Returns the last commit that named the row or deleted it with a range.
    pub fn last_change(&self) -> Txn {
        self.ops.last().map_or(self.newest, |(txn, _)| self.newest.max(*txn))
    }

    /// Returns the full history of the row as readable text.
    pub fn story(&self) -> String {
        let lines: Vec<String> =
            self.ops.iter().map(|(txn, op)| format!("    {txn} {op}")).collect();
        lines.join("\n")
    }

    pub fn purged(&self, column: (&[u8], &[u8]), timestamp: i64) -> Purged {
        if self.purges.is_empty() {
            return Purged::default();
        }
        let key = ((column.0.to_vec(), column.1.to_vec()), timestamp);
        self.purges.get(&key).copied().unwrap_or_default()
    }

    /// Records what a rewrite may purge from now on.
    fn note_purges(&mut self, schema: &Schema, now: i64, moments: Moments) {
        let mut found: Vec<((Column, i64), Purged)> = Vec::new();
        match moments {
            Moments::Last => purges(&self.at(Txn::MAX), schema, now, &mut found),
            Moments::All => {
                let mut row = Row::new();
                for (index, (txn, op)) in self.ops.iter().enumerate() {
                    carry_out(&mut row, *txn, op);
                    if self.ops.get(index + 1).is_none_or(|(next, _)| next != txn) {
                        purges(&row, schema, now, &mut found);
                    }
                }
            }
        }
        for (key, purged) in found {
            let known = self.purges.entry(key).or_default();
            known.through = known.through.max(purged.through);
            known.through_as_value = known.through_as_value.max(purged.through_as_value);
        }
    }
}

fn cell<'r, 'a>(row: &'r mut Row<'a>, column: &'a Column, at: i64) -> &'r mut Vec<VersionPart<'a>> {
    let versions = row.entry((&column.0, &column.1)).or_default();
    versions.entry(Reverse(at)).or_default()
}

fn carry_out<'a>(row: &mut Row<'a>, txn: Txn, op: &'a Op) {
    match op {
        Op::Set(column, at, value) => {
            *cell(row, column, *at) = vec![VersionPart { txn, marker: false, fold: None, value }];
        }
        Op::Mark(column, at, value) => {
            *cell(row, column, *at) = vec![VersionPart { txn, marker: true, fold: None, value }];
        }
        Op::Merge(column, at, fold, value) => {
            let parts = cell(row, column, *at);
            if parts.last().is_some_and(|last| last.marker) {
                parts.clear();
            }
            parts.push(VersionPart { txn, marker: false, fold: Some(*fold), value });
        }
        Op::DeleteCells((f, q), times) => {
            if let Some(versions) = row.get_mut(&(f.as_slice(), q.as_slice())) {
                versions.retain(|at, _| !times.contains(at.0));
            }
        }
        Op::DeleteFamily(family) => row.retain(|column, _| column.0 != family),
        Op::DeleteRow => row.retain(|column, _| is_hidden(column.0)),
    }
}

fn purges(row: &Row<'_>, schema: &Schema, now: i64, found: &mut Vec<((Column, i64), Purged)>) {
    for (&(family, qualifier), versions) in row {
        let Some(policy) = policy::of_family(schema, family) else { continue };
        if policy::never(policy) {
            continue;
        }
        let mut ranks = Ranks::default();
        for (&Reverse(at), parts) in versions {
            let last = parts.last().expect("a version has parts");
            ranks.count(policy, at);
            if policy::purges(policy, at, last.marker, ranks, now) {
                let as_value = policy::purges(policy, at, false, ranks, now);
                let purged = Purged {
                    through: last.txn,
                    through_as_value: if as_value { last.txn } else { Txn::ZERO },
                };
                found.push((((family.to_vec(), qualifier.to_vec()), at), purged));
            }
        }
    }
}

/// A fold whose result depends on the order of its operands, unlike the built-in ones.
pub const APPEND: FoldId = FoldId(9);

pub struct Append;

impl Fold for Append {
    fn check(&self, operand: &[u8]) -> Result<(), String> {
        if operand.is_empty() { Err("nothing to append".to_string()) } else { Ok(()) }
    }

    fn fold(&self, older: &[u8], newer: &[u8]) -> Vec<u8> {
        [older, newer].concat()
    }
}

/// Returns the folded value of the parts.
pub fn fold(parts: &[VersionPart<'_>]) -> Vec<u8> {
    let integer = |bytes: &[u8]| bytes.try_into().ok().map(i64::from_be_bytes);
    let mut value: Option<Vec<u8>> = None;
    for part in parts {
        let older = value.unwrap_or_default();
        value = Some(match (part.fold, integer(&older), integer(part.value)) {
            (Some(APPEND), _, _) => [&older, part.value].concat(),
            (Some(FoldId::SUM), Some(a), Some(b)) => a.wrapping_add(b).to_be_bytes().to_vec(),
            (Some(FoldId::MIN), Some(a), Some(b)) => a.min(b).to_be_bytes().to_vec(),
            (Some(FoldId::MAX), Some(a), Some(b)) => a.max(b).to_be_bytes().to_vec(),
            _ => part.value.to_vec(),
        });
    }
    value.expect("a version has parts")
}

pub struct TableHistory {
    pub id: TableId,
    pub schema: Arc<Schema>,
    pub rows: BTreeMap<Vec<u8>, RowHistory>,
    /// The last commit that touched the table, and the last that deleted a range of it.
    pub newest: Txn,
    pub range_deleted: Txn,
    pub loads: Loads,
}

impl TableHistory {
    pub fn new(id: TableId, schema: Arc<Schema>) -> TableHistory {
        let (newest, range_deleted) = (Txn::ZERO, Txn::ZERO);
        TableHistory {
            id,
            schema,
            rows: BTreeMap::new(),
            newest,
            range_deleted,
            loads: Loads::default(),
        }
    }

    pub fn apply(&mut self, txn: Txn, changes: &Changes, now: i64) {
        let mut touched: Vec<Vec<u8>> = Vec::new();
        for range in &changes.ranges {
            for (row, history) in self.rows.iter_mut().filter(|(row, _)| range.contains(row)) {
                history.ops.push((txn, Op::DeleteRow));
                touched.push(row.clone());
            }
            self.range_deleted = txn;
        }
        for (row, ops) in &changes.rows {
            let history = self.rows.entry(row.clone()).or_default();
            history.ops.extend(ops.iter().map(|op| (txn, op.clone())));
            history.newest = txn;
            touched.push(row.clone());
        }
        self.newest = txn;
        for row in touched {
            let history = self.rows.get_mut(&row).expect("the row was just touched");
            history.note_purges(&self.schema, now, Moments::Last);
        }
    }

    /// Records what may be purged after a change of the schema or the clock.
    pub fn note_purges(&mut self, now: i64) {
        for history in self.rows.values_mut() {
            history.note_purges(&self.schema, now, Moments::All);
        }
    }
}
