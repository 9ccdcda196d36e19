//! ReadModifyWriteRow: increments and appends, applied atomically.

use std::collections::BTreeMap;

use stele_engine::{
    CellView, Columns, Commit, CommitBuilder, FamilyColumns, Flow, RowRange, ScanSpec, View,
};
use stele_grpc::offload::in_place_if_large;

use super::pace::Pace;
use super::request::Target;
use super::response_memory::ResponseMemory;
use super::retries::{Retries, is_conflict, is_outdated};
use super::row_read::RowSink;
use super::{Data, mutation};
use crate::error::{Error, Result};
use crate::name::excerpt;
use crate::proto::v2;
use crate::proto::v2::read_modify_write_rule::Rule;
use crate::table::{Table, check_row_key};

/// The maximum total size of the values that one request reads.
const VALUES_BYTES_MAX: usize = 128 << 20;

/// The factor by which a value is charged: it is kept as read, and copied into
/// the commit and then into the response.
const COPIES: usize = 2;

/// The columns that the rules name, each with its newest cell, in the order in
/// which they are read.
struct TouchedColumns<'r> {
    columns: Vec<Column<'r>>,
    /// The bytes of the values that were read, and of those that rules append.
    read_bytes: usize,
    appended_bytes: usize,
}

struct Column<'r> {
    family: &'r str,
    qualifier: &'r [u8],
    newest: Option<Newest>,
}

struct Newest {
    timestamp: i64,
    value: Vec<u8>,
}

impl<'r> TouchedColumns<'r> {
    fn new(rules: &'r [v2::ReadModifyWriteRule]) -> TouchedColumns<'r> {
        let columns = rules.iter().map(|rule| Column {
            family: &rule.family_name,
            qualifier: &rule.column_qualifier,
            newest: None,
        });
        let mut columns: Vec<_> = columns.collect();
        columns.sort_by_key(|column| (column.family, column.qualifier));
        columns.dedup_by_key(|column| (column.family, column.qualifier));
        let appended = rules.iter().map(|rule| match &rule.rule {
            Some(Rule::AppendValue(value)) => value.len(),
            _ => 0,
        });
        TouchedColumns { columns, read_bytes: 0, appended_bytes: appended.sum() }
    }

    /// Rejects values whose total size exceeds the limit.
    fn check(&self) -> Result<()> {
        if self.read_bytes <= VALUES_BYTES_MAX {
            return Ok(());
        }
        Err(Error::Precondition(format!(
            "The rules read cells of more than {VALUES_BYTES_MAX} bytes in total: use several requests"
        )))
    }

    fn newest(&mut self, family: &[u8], qualifier: &[u8]) -> &mut Option<Newest> {
        let order = |column: &Column<'_>| {
            (column.family.as_bytes(), column.qualifier).cmp(&(family, qualifier))
        };
        let at = self.columns.binary_search_by(order).expect("only touched columns are read");
        &mut self.columns[at].newest
    }
}

impl RowSink for TouchedColumns<'_> {
    fn cell(&mut self, cell: &CellView<'_>) -> Flow {
        self.read_bytes = self.read_bytes.saturating_add(cell.value.len());
        if self.read_bytes > VALUES_BYTES_MAX {
            return Flow::Stop;
        }
        let newest = Newest { timestamp: cell.timestamp, value: cell.value.to_vec() };
        *self.newest(cell.family, cell.qualifier) = Some(newest);
        Flow::Continue
    }

    fn kept_bytes(&self) -> usize {
        COPIES * (self.read_bytes.min(VALUES_BYTES_MAX) + self.appended_bytes)
    }

    fn value_cost(&self, value_bytes: usize) -> usize {
        // One more copy while the value is read, before it is kept.
        (COPIES + 1) * value_bytes
    }

    fn restart(&mut self) {
        self.read_bytes = 0;
        self.columns.iter_mut().for_each(|column| column.newest = None);
    }
}

impl Data {
    /// Returns the changed cells and the memory that they are charged to.
    pub(super) async fn read_modify_write(
        &self,
        request: v2::ReadModifyWriteRowRequest,
    ) -> Result<(v2::Row, ResponseMemory)> {
        let v2::ReadModifyWriteRowRequest { table_name, authorized_view_name, row_key, .. } =
            &request;
        let cost = request.rules.len() * mutation::MUTATION_COST;
        let mut memory = ResponseMemory::of_call();
        let mut retries = Retries::default();
        loop {
            let target = Target::find(&self.tables, table_name, authorized_view_name, "")?;
            let table = &target.table;
            let local = self.tables.local(table.id, row_key);
            let (mut touched, spec) = in_place_if_large(cost, || {
                check_view(&target, &request)?;
                check(table, &request)?;
                Ok::<_, Error>((TouchedColumns::new(&request.rules), spec(&request.rules)))
            })?;
            let charged = (&mut memory, 0);
            let pace = Pace::fast();
            let read_at =
                self.read_latest(local, row_key, &spec, pace, charged, &mut touched).await?;
            touched.check()?;
            let cost = cost + touched.kept_bytes();
            let commit = in_place_if_large(cost, || self.modified(table, &request, &mut touched))?;
            match self.apply(local, table, &commit, read_at, cost).await {
                Ok(txn) => {
                    drop(commit);
                    self.durable(local, txn).await?;
                    return Ok((row_message(&request, touched), memory));
                }
                Err(error) if is_conflict(&error) => retries.conflicted(row_key).await?,
                Err(error) if is_outdated(&error) => {
                    self.table_changed(&mut retries, row_key).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Applies the rules to the cells that were read.
    fn modified(
        &self,
        table: &Table,
        request: &v2::ReadModifyWriteRowRequest,
        touched: &mut TouchedColumns<'_>,
    ) -> Result<Commit> {
        let now = table.definition.granularity.truncate(self.now_micros());
        for rule in &request.rules {
            let newest = touched.newest(rule.family_name.as_bytes(), &rule.column_qualifier);
            let timestamp = newest.as_ref().map_or(now, |newest| newest.timestamp.max(now));
            let value = apply_rule(rule, newest.take().map(|newest| newest.value))?;
            mutation::check_value(&value)?;
            *newest = Some(Newest { timestamp, value });
        }
        let mut commit = CommitBuilder::new();
        commit.table(table.id).row(&request.row_key);
        for column in &touched.columns {
            let newest = column.newest.as_ref().expect("every column has a rule");
            let family = column.family.as_bytes();
            commit.set(family, column.qualifier, newest.timestamp, &newest.value);
        }
        Ok(commit.finish())
    }
}

fn check(table: &Table, request: &v2::ReadModifyWriteRowRequest) -> Result<()> {
    check_row_key(&request.row_key)?;
    if request.rules.is_empty() {
        return Err(Error::invalid("No rules provided"));
    }
    mutation::check_count_max(request.rules.len())?;
    for rule in &request.rules {
        if mutation::family(table, &rule.family_name)?.aggregate().is_some() {
            let name = &rule.family_name;
            let what = "use AddToCell instead of read-modify-write";
            return Err(Error::Invalid(format!("Column family {name} is an aggregate: {what}")));
        }
        mutation::check_qualifier(&rule.column_qualifier)?;
        if rule.rule.is_none() {
            return Err(Error::invalid("A rule must have append_value or increment_amount"));
        }
    }
    Ok(())
}

/// Returns a scan for the newest cell of each column that a rule names.
fn spec(rules: &[v2::ReadModifyWriteRule]) -> ScanSpec {
    let mut families: BTreeMap<&str, Vec<RowRange>> = BTreeMap::new();
    for rule in rules {
        let ranges = families.entry(&rule.family_name).or_default();
        ranges.push(RowRange::row(&rule.column_qualifier));
    }
    let families = families.into_iter().map(|(family, mut qualifiers)| {
        qualifiers.sort_by(|a, b| a.start.cmp(&b.start));
        qualifiers.dedup();
        FamilyColumns { family: family.into(), qualifiers: Some(qualifiers) }
    });
    ScanSpec {
        columns: Columns::Families(families.collect()),
        versions: Some(1),
        view: View::Latest,
        ..ScanSpec::default()
    }
}

/// Computes the new value of a cell; `None` is a missing cell.
fn apply_rule(rule: &v2::ReadModifyWriteRule, value: Option<Vec<u8>>) -> Result<Vec<u8>> {
    match rule.rule.as_ref().expect("rules were checked") {
        Rule::AppendValue(more) => {
            let mut value = value.unwrap_or_default();
            value.extend_from_slice(more);
            Ok(value)
        }
        Rule::IncrementAmount(amount) => {
            let old = match value.as_deref().map(<[u8; 8]>::try_from) {
                None => 0,
                Some(Ok(bytes)) => i64::from_be_bytes(bytes),
                Some(Err(_)) => return Err(not_a_number(rule, value.map_or(0, |v| v.len()))),
            };
            Ok(old.wrapping_add(*amount).to_be_bytes().to_vec())
        }
    }
}

fn not_a_number(rule: &v2::ReadModifyWriteRule, size: usize) -> Error {
    let qualifier = rule.column_qualifier.escape_ascii().to_string();
    let column = format!("{}:{}", rule.family_name, excerpt(&qualifier));
    let what = "The increment operation can only be performed on 64-bit values";
    Error::Precondition(format!("Cell of {size} bytes in column {column} : {what}"))
}

/// Refuses rules for columns that the view does not show.
fn check_view(target: &Target, request: &v2::ReadModifyWriteRowRequest) -> Result<()> {
    let Some(view) = &target.view else { return Ok(()) };
    let shows = |rule: &v2::ReadModifyWriteRule| {
        view.subset.has_column(&rule.family_name, &rule.column_qualifier)
    };
    let is_inside = view.subset.has_row(&request.row_key) && request.rules.iter().all(shows);
    if is_inside { Ok(()) } else { Err(view.outside()) }
}

fn row_message(request: &v2::ReadModifyWriteRowRequest, touched: TouchedColumns<'_>) -> v2::Row {
    let mut families: Vec<v2::Family> = Vec::new();
    for Column { family, qualifier, newest } in touched.columns {
        let newest = newest.expect("every column has a rule");
        let cell = v2::Cell {
            timestamp_micros: newest.timestamp,
            value: newest.value.into(),
            labels: Vec::new(),
        };
        let qualifier = qualifier.to_vec().into();
        let column = v2::Column { qualifier, cells: vec![cell] };
        match families.last_mut() {
            Some(last) if last.name == family => last.columns.push(column),
            _ => families.push(v2::Family { name: family.into(), columns: vec![column] }),
        }
    }
    v2::Row { key: request.row_key.clone(), families }
}
