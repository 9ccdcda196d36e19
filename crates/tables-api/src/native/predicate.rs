//! The predicate of a scan, checked and turned into the engine's form.

use stele_engine::schema::Schema;
use stele_engine::{Columns, FamilyColumns, Printable, RowMode, RowRange, ScanSpec, TimeRange};

use super::packed::is_hidden;
use crate::error::{Error, Result};
use crate::proto;

/// Returns the engine's form of a predicate, without a view.
pub fn scan_spec(
    table: &str,
    schema: &Schema,
    predicate: proto::Predicate,
    isolation: proto::Isolation,
) -> Result<ScanSpec> {
    let proto::Predicate { rows, families, times, max_history } = predicate;
    let columns = match families.is_empty() {
        true => Columns::All,
        false => {
            let families = families.into_iter().map(|family| columns(table, schema, family));
            Columns::Families(families.collect::<Result<_>>()?)
        }
    };
    let times = times.map(|times| TimeRange { min: times.min, max: times.max });
    if times.is_some_and(|times| times.is_empty()) {
        return Err(Error::InvalidScan("the range of times is empty".into()));
    }
    let range = |rows: proto::RowRange| RowRange {
        start: rows.start.into(),
        end: rows.end.map(Into::into),
    };
    let row_mode = match isolation {
        proto::Isolation::LatestRow => RowMode::Unchanged,
        _ => RowMode::Isolated,
    };
    Ok(ScanSpec {
        rows: rows.into_iter().map(range).collect(),
        columns,
        times,
        versions: (max_history > 0).then_some(max_history),
        row_mode,
        ..ScanSpec::default()
    })
}

fn columns(
    table: &str,
    schema: &Schema,
    predicate: proto::FamilyPredicate,
) -> Result<FamilyColumns> {
    let proto::FamilyPredicate { family, qualifiers } = predicate;
    let family = family.into_bytes();
    if schema.find(&family).is_none() || is_hidden(schema, &family) {
        let family = Printable(family);
        return Err(stele_engine::Error::UnknownColumnFamily { table: table.into(), family }.into());
    }
    let range = |range: proto::QualifierRange| RowRange {
        start: range.start.into(),
        end: range.end.map(Into::into),
    };
    let qualifiers = qualifiers.into_iter().map(range).collect::<Vec<_>>();
    Ok(FamilyColumns { family, qualifiers: (!qualifiers.is_empty()).then_some(qualifiers) })
}
