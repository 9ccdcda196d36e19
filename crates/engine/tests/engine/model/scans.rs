//! Checks the results of a scan, batch by batch, against the model: every row as of the
//! snapshot that its batch reported, none lost, duplicated or out of order.
//!
//! If a policy was free to purge a version permanently and a later delete or change of
//! policy uncovers it, the version may or may not be there; both cases are tracked, and
//! everything else is exact.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::schema::Schema;
use stele_engine::*;

use super::history::{Purged, RowHistory, TableHistory, VersionPart, Versions, fold, is_hidden};
use super::policy::{self, Ranks};

/// A cell that a scan returned.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub row: Vec<u8>,
    pub family: Vec<u8>,
    pub qualifier: Vec<u8>,
    pub timestamp: i64,
    pub txn: Txn,
    pub marker: bool,
    pub value: Vec<u8>,
}

impl Found {
    pub fn of(cell: &CellView<'_>) -> Found {
        Found {
            row: cell.row.to_vec(),
            family: cell.family.to_vec(),
            qualifier: cell.qualifier.to_vec(),
            timestamp: cell.timestamp,
            txn: cell.txn,
            marker: cell.marker,
            value: cell.value.to_vec(),
        }
    }
}

/// A snapshot and schema that rows may have been read under.
#[derive(Clone)]
struct Context {
    txn: Txn,
    schema: Arc<Schema>,
}

/// A row whose cells are still arriving.
struct RowInProgress {
    row: Vec<u8>,
    contexts: Vec<Context>,
    cells: Vec<Found>,
}

/// The state of one scan.
pub struct ScanCheck {
    pub table: usize,
    pub spec: ScanSpec,
    /// The purge clock.
    now: i64,
    /// Those of the last batch.
    contexts: Vec<Context>,
    /// When the last batch's snapshot was first reported.
    pub since: Duration,
    row: Option<RowInProgress>,
    /// The contexts under which rows after the last one returned may have been skipped.
    passing: Vec<Context>,
    rows: usize,
    cells: usize,
    pub batches: usize,
}

impl ScanCheck {
    pub fn new(table: usize, spec: ScanSpec, now: i64) -> ScanCheck {
        ScanCheck {
            table,
            spec,
            now,
            contexts: Vec::new(),
            since: Duration::ZERO,
            row: None,
            passing: Vec::new(),
            rows: 0,
            cells: 0,
            batches: 0,
        }
    }

    /// Returns the snapshot of the last batch.
    pub fn txn(&self) -> Option<Txn> {
        self.contexts.first().map(|context| context.txn)
    }

    /// Returns whether a batch begins inside the row in which the last one ended.
    pub fn continues_row(&self, found: &[Found]) -> bool {
        let next = found.first().map(|cell| &cell.row);
        self.row.as_ref().is_some_and(|in_progress| Some(&in_progress.row) == next)
    }

    /// Checks the cells of the next batch.
    pub fn batch(
        &mut self,
        table: &TableHistory,
        end: BatchEnd,
        found: Vec<Found>,
        elapsed: Duration,
    ) -> Result<(), String> {
        if self.txn().is_some_and(|last| end.txn < last) {
            return Err(format!("snapshot {} comes after {:?}", end.txn, self.txn()));
        }
        if self.txn() != Some(end.txn) {
            (self.contexts, self.since) = (Vec::new(), elapsed);
        }
        let present = |contexts: &[Context]| {
            let same = |context: &Context| Arc::ptr_eq(&context.schema, &table.schema);
            contexts.iter().any(|context| context.txn == end.txn && same(context))
        };
        if !present(&self.contexts) {
            self.contexts.push(Context { txn: end.txn, schema: table.schema.clone() });
        }
        if !present(&self.passing) {
            self.passing.extend(self.contexts.iter().cloned());
        }
        if self.continues_row(&found) {
            self.check_unchanged(table, end.txn)?;
        }
        for cell in found {
            self.cell(table, cell)?;
        }
        if end.done { self.finish(table) } else { Ok(()) }
    }

    /// Checks that the current row continues unchanged in another batch.
    fn check_unchanged(&self, table: &TableHistory, txn: Txn) -> Result<(), String> {
        let in_progress = self.row.as_ref().expect("a row is in progress");
        if in_progress.contexts[0].txn != txn {
            return Err(format!(
                "row {:?} was read at two snapshots",
                Printable(in_progress.row.clone())
            ));
        }
        let changed = table.rows[&in_progress.row].last_change() > txn;
        if self.spec.row_mode == RowMode::Unchanged && changed {
            return Err("the row changed and the scan continued".to_string());
        }
        Ok(())
    }

    fn cell(&mut self, table: &TableHistory, cell: Found) -> Result<(), String> {
        self.cells += 1;
        if self.row.as_ref().is_none_or(|in_progress| in_progress.row != cell.row) {
            let last = self.finish_row(table, false)?;
            self.check_skipped(table, last.as_deref(), Some(&cell.row))?;
            self.passing.clone_from(&self.contexts);
            self.rows += 1;
            let (row, contexts) = (cell.row.clone(), self.contexts.clone());
            self.row = Some(RowInProgress { row, contexts, cells: Vec::new() });
        }
        self.row.as_mut().expect("a row is in progress").cells.push(cell);
        Ok(())
    }

    fn finish(&mut self, table: &TableHistory) -> Result<(), String> {
        let cells_limit = self.spec.cells_max.is_some_and(|most| self.cells >= most);
        let rows_limit = self.spec.rows_max.is_some_and(|most| self.rows >= most);
        if self.spec.cells_max.is_some_and(|most| self.cells > most)
            || self.spec.rows_max.is_some_and(|most| self.rows > most)
        {
            return Err("more than the limit came".to_string());
        }
        let last = self.finish_row(table, cells_limit)?;
        if cells_limit || rows_limit {
            return Ok(());
        }
        self.check_skipped(table, last.as_deref(), None)
    }

    /// Checks the current row once all of its cells have arrived. Returns the row.
    fn finish_row(&mut self, table: &TableHistory, cut: bool) -> Result<Option<Vec<u8>>, String> {
        let Some(RowInProgress { row, contexts, cells }) = self.row.take() else { return Ok(None) };
        if !self.spec.rows.is_empty() && !self.spec.rows.iter().any(|range| range.contains(&row)) {
            return Err(format!("row {} was not requested", Printable(row)));
        }
        self.check_row(table, &row, &contexts, &cells, cut)?;
        Ok(Some(row))
    }

    /// Checks that rows between two returned ones have no visible cells.
    fn check_skipped(
        &self,
        table: &TableHistory,
        last: Option<&[u8]>,
        next: Option<&[u8]>,
    ) -> Result<(), String> {
        let (low, high) = if self.spec.reverse { (next, last) } else { (last, next) };
        if let (Some(low), Some(high)) = (low, high)
            && low >= high
        {
            return Err(format!("rows out of order: {last:?}, then {next:?}"));
        }
        let is_requested = |row: &[u8]| {
            self.spec.rows.is_empty() || self.spec.rows.iter().any(|range| range.contains(row))
        };
        for row in table.rows.keys() {
            let between = low.is_none_or(|low| row.as_slice() > low)
                && high.is_none_or(|high| row.as_slice() < high);
            if between && is_requested(row) {
                self.check_row(table, row, &self.passing, &[], false)?;
            }
        }
        Ok(())
    }

    fn check_row(
        &self,
        table: &TableHistory,
        row: &[u8],
        contexts: &[Context],
        cells: &[Found],
        cut: bool,
    ) -> Result<(), String> {
        let Some(history) = table.rows.get(row) else {
            return Err(format!("row {} was never written", Printable(row.to_vec())));
        };
        if contexts.iter().any(|context| self.accepts(history, context, cells, cut)) {
            return Ok(());
        }
        Err(self.difference(history, row, contexts, cells))
    }

    fn accepts(&self, history: &RowHistory, context: &Context, cells: &[Found], cut: bool) -> bool {
        let mut rest = cells;
        for (column, versions) in history.at(context.txn) {
            if cut && rest.is_empty() {
                return true;
            }
            let Some(policy) = policy::of_family(&context.schema, column.0) else { continue };
            if !self.wants(column) {
                continue;
            }
            let same = |cell: &&Found| (&cell.family[..], &cell.qualifier[..]) == column;
            let (of_column, after) = rest.split_at(rest.iter().take_while(same).count());
            let check = ColumnCheck {
                spec: &self.spec,
                now: self.now,
                policy,
                cells: of_column,
                cut: cut && after.is_empty(),
            };
            let purged = |at| history.purged(column, at);
            if !check.accepts(&versions, &purged) {
                return false;
            }
            rest = after;
        }
        rest.is_empty()
    }

    fn wants(&self, (family, qualifier): (&[u8], &[u8])) -> bool {
        let Columns::Families(list) = &self.spec.columns else { return !is_hidden(family) };
        list.iter().any(|wanted| {
            wanted.family == family
                && wanted.qualifiers.as_ref().is_none_or(|ranges| {
                    ranges.iter().any(|range| {
                        *qualifier >= *range.start
                            && range.end.as_ref().is_none_or(|end| qualifier < end.as_slice())
                    })
                })
        })
    }

    /// Returns both sides as readable text.
    fn difference(
        &self,
        history: &RowHistory,
        row: &[u8],
        contexts: &[Context],
        cells: &[Found],
    ) -> String {
        let mut lines = vec![format!("row {} differs", Printable(row.to_vec()))];
        let show = |bytes: &[u8]| bytes.escape_ascii().to_string();
        lines.push("the scan returned:".to_string());
        for cell in cells {
            lines.push(format!(
                "  {}:{} @{} txn {} {}{}",
                show(&cell.family),
                show(&cell.qualifier),
                cell.timestamp,
                cell.txn,
                if cell.marker { "marker " } else { "" },
                show(&cell.value)
            ));
        }
        for context in contexts {
            lines.push(format!("the model has, at {} with clock {}:", context.txn, self.now));
            for (column, versions) in history.at(context.txn) {
                let policy = policy::of_family(&context.schema, column.0);
                lines.push(format!("  {}:{} {policy:?}", show(column.0), show(column.1)));
                for (Reverse(at), parts) in versions {
                    let through = history.purged(column, at).through;
                    lines.push(format!(
                        "    @{at} = {} (purged through {through})",
                        show(&fold(&parts))
                    ));
                    for part in parts {
                        let VersionPart { txn, marker, fold, value } = part;
                        lines.push(format!("      {txn} {marker} {fold:?} {}", show(value)));
                    }
                }
            }
            lines.push(format!("  history:\n{}", history.story()));
        }
        lines.join("\n")
    }
}

/// The check of one column of one row.
struct ColumnCheck<'a> {
    spec: &'a ScanSpec,
    now: i64,
    policy: &'a schema::Purge,
    cells: &'a [Found],
    /// The scan's limit was reached with the last cell.
    cut: bool,
}

/// One possible stored state of the versions so far.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    ranks: Ranks,
    returned: u32,
    matched: usize,
    /// From this version on, everything committed up to this txn is gone.
    gone_through: Txn,
}

impl ColumnCheck<'_> {
    /// Returns whether these versions can produce the cells. A version that the policy
    /// was free to purge permanently may or may not be stored.
    fn accepts(&self, versions: &Versions<'_>, purged: &dyn Fn(i64) -> Purged) -> bool {
        let ranks = Ranks::default();
        let start = Way { ranks, returned: 0, matched: 0, gone_through: Txn::ZERO };
        let mut ways = BTreeSet::from([start]);
        for (&Reverse(at), parts) in versions {
            let Purged { through, through_as_value } = purged(at);
            let newest = parts.last().expect("a version has parts").txn;
            let mut next = BTreeSet::new();
            for way in ways {
                if newest <= through {
                    let mut gone = way;
                    if newest > through_as_value {
                        gone.gone_through = gone.gone_through.max(newest);
                    }
                    next.insert(gone);
                }
                if newest <= way.gone_through {
                    continue;
                }
                match self.stored(way, at, parts, through) {
                    Step::To(way) => drop(next.insert(way)),
                    Step::Cut => return true,
                    Step::Differs => {}
                }
            }
            ways = next;
        }
        ways.iter().any(|way| way.matched == self.cells.len())
    }

    fn stored(&self, mut way: Way, at: i64, parts: &[VersionPart<'_>], through: Txn) -> Step {
        let marker = parts.last().expect("a version has parts").marker;
        way.ranks.count(self.policy, at);
        let purged = policy::purges(self.policy, at, marker, way.ranks, self.now);
        if purged || self.spec.times.is_some_and(|times| at < times.min || at > times.max) {
            return Step::To(way);
        }
        if self.spec.versions.is_some_and(|most| way.returned >= most) {
            return Step::To(way);
        }
        way.returned += 1;
        if marker && !self.spec.markers {
            return Step::To(way);
        }
        let Some(cell) = self.cells.get(way.matched) else {
            return if self.cut { Step::Cut } else { Step::Differs };
        };
        way.matched += 1;
        let same = cell.timestamp == at && cell.marker == marker && is_value(cell, parts, through);
        if same { Step::To(way) } else { Step::Differs }
    }
}

enum Step {
    To(Way),
    Cut,
    Differs,
}

/// Returns whether the parts fold to the cell. Those at or below `through` may have
/// been purged, always an older one before a newer one.
fn is_value(cell: &Found, parts: &[VersionPart<'_>], through: Txn) -> bool {
    let loose = parts.iter().filter(|part| part.txn <= through).count();
    (0..=loose).any(|gone| {
        let stored = &parts[gone..];
        // A cell with nothing older below it may have lost its txn.
        let txn = stored.last().is_some_and(|last| [last.txn, Txn::ZERO].contains(&cell.txn));
        txn && fold(stored) == cell.value
    })
}
