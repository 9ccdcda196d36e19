//! The rows and columns of a view.

use std::collections::BTreeMap;

use bytes::Bytes;
use stele_engine::{Columns, FamilyColumns, RowRange, ScanSpec};

use crate::error::{Error, Result};
use crate::filter::ranges::Ranges;
use crate::proto::admin::authorized_view::{FamilySubsets, SubsetView};
use crate::proto::v2;
use crate::proto::v2::mutation::Mutation as Kind;
use crate::proto::v2::value;
use crate::table::{Table, check_family_name};

/// The maximum number of prefixes and qualifiers of a view.
const PARTS_MAX: usize = 4096;
const PREFIX_BYTES_MAX: usize = 4 << 10;
const QUALIFIER_BYTES_MAX: usize = 16 << 10;

/// The rows and columns of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subset {
    rows: Ranges,
    /// The qualifiers of each family.
    columns: BTreeMap<String, Ranges>,
}

impl Subset {
    /// Validates the subset that a request declares.
    pub fn from_message(message: &SubsetView) -> Result<Subset> {
        let field = "Error in field 'authorized_view.subset_view";
        let parts = message
            .family_subsets
            .values()
            .map(|family| 1 + family.qualifiers.len() + family.qualifier_prefixes.len());
        let parts = message.row_prefixes.len() + parts.sum::<usize>();
        if parts > PARTS_MAX {
            return Err(Error::Invalid(format!(
                "{field}' : {parts} prefixes and qualifiers exceed the limit of {PARTS_MAX}"
            )));
        }
        let check_length = |what: &str, bytes: &Bytes, max: usize| match bytes.len() > max {
            true => Err(Error::Invalid(format!(
                "{field}.{what}' : {} bytes exceed the limit of {max}",
                bytes.len()
            ))),
            false => Ok(()),
        };
        for prefix in &message.row_prefixes {
            check_length("row_prefixes", prefix, PREFIX_BYTES_MAX)?;
        }
        let mut columns = BTreeMap::new();
        for (family, subsets) in &message.family_subsets {
            check_family_name(family).map_err(|e| e.within(&format!("{field}.family_subsets'")))?;
            let FamilySubsets { qualifiers, qualifier_prefixes } = subsets;
            for qualifier in qualifiers.iter().chain(qualifier_prefixes) {
                check_length("family_subsets", qualifier, QUALIFIER_BYTES_MAX)?;
            }
            let exact = qualifiers.iter().map(|qualifier| RowRange::row(qualifier));
            let ranges = exact.chain(qualifier_prefixes.iter().map(|prefix| with_prefix(prefix)));
            columns.insert(family.clone(), Ranges::from_unsorted(ranges.collect()));
        }
        let rows = message.row_prefixes.iter().map(|prefix| with_prefix(prefix));
        Ok(Subset { rows: Ranges::from_unsorted(rows.collect()), columns })
    }

    /// Excludes everything outside of the view from a scan of a table.
    pub fn narrow(&self, table: &Table, spec: &mut ScanSpec) {
        let rows = match spec.rows.is_empty() {
            true => self.rows.clone(),
            false => Ranges::from_unsorted(std::mem::take(&mut spec.rows)).intersection(&self.rows),
        };
        let families = self.columns.iter().filter(|(family, qualifiers)| {
            !qualifiers.is_empty() && table.definition.families.contains_key(*family)
        });
        let families = families.map(|(family, qualifiers)| FamilyColumns {
            family: family.as_bytes().to_vec(),
            qualifiers: (!qualifiers.is_all()).then(|| qualifiers.list().to_vec()),
        });
        let families: Vec<FamilyColumns> = families.collect();
        // A scan without ranges is one of all rows.
        let is_nothing = rows.is_empty() || families.is_empty();
        spec.rows = if is_nothing { vec![RowRange::new("", "")] } else { rows.into_list() };
        spec.columns = Columns::Families(families);
    }

    pub fn has_row(&self, row: &[u8]) -> bool {
        self.rows.contains(row)
    }

    pub fn has_column(&self, family: &str, qualifier: &[u8]) -> bool {
        self.columns.get(family).is_some_and(|qualifiers| qualifiers.contains(qualifier))
    }

    fn has_family(&self, family: &str) -> bool {
        self.columns.get(family).is_some_and(Ranges::is_all)
    }

    /// Whether a row can be changed in this way by someone who sees only the view.
    pub fn has_mutation(&self, table: &Table, row: &[u8], mutation: &v2::Mutation) -> bool {
        if !self.has_row(row) {
            return false;
        }
        let raw = |qualifier: &Option<v2::Value>| match qualifier {
            Some(v2::Value { kind: Some(value::Kind::RawValue(bytes)), .. }) => bytes.clone(),
            _ => Bytes::new(),
        };
        match &mutation.mutation {
            None => true,
            Some(Kind::SetCell(set)) => self.has_column(&set.family_name, &set.column_qualifier),
            Some(Kind::AddToCell(add)) => {
                self.has_column(&add.family_name, &raw(&add.column_qualifier))
            }
            Some(Kind::MergeToCell(merge)) => {
                self.has_column(&merge.family_name, &raw(&merge.column_qualifier))
            }
            Some(Kind::DeleteFromColumn(delete)) => {
                self.has_column(&delete.family_name, &delete.column_qualifier)
            }
            Some(Kind::DeleteFromFamily(delete)) => self.has_family(&delete.family_name),
            Some(Kind::DeleteFromRow(_)) => {
                table.definition.families.keys().all(|family| self.has_family(family))
            }
        }
    }

    /// Returns the parts of a range of rows that are in the view.
    pub fn rows_within(&self, range: &RowRange) -> Vec<RowRange> {
        Ranges::from_unsorted(vec![range.clone()]).intersection(&self.rows).into_list()
    }
}

fn with_prefix(prefix: &[u8]) -> RowRange {
    if prefix.is_empty() { RowRange::all() } else { RowRange::prefix(prefix) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::simulated;

    fn subset(
        prefixes: &[&'static str],
        families: &[(&str, &[&'static str], &[&'static str])],
    ) -> Subset {
        let list = |texts: &[&'static str]| texts.iter().map(|text| Bytes::from(*text)).collect();
        let families = families.iter().map(|(family, qualifiers, qualifier_prefixes)| {
            let qualifiers: Vec<Bytes> = list(qualifiers);
            let qualifier_prefixes: Vec<Bytes> = list(qualifier_prefixes);
            (family.to_string(), FamilySubsets { qualifiers, qualifier_prefixes })
        });
        let message =
            SubsetView { row_prefixes: list(prefixes), family_subsets: families.collect() };
        Subset::from_message(&message).unwrap()
    }

    #[test]
    fn a_scan_is_narrowed_to_the_rows_and_columns_of_the_view() {
        let (_data, table) = simulated::data();
        let view = subset(&["a", "c"], &[("f", &["x"], &["p"]), ("gone", &[], &[""])]);
        let mut spec = ScanSpec::default();
        view.narrow(&table, &mut spec);
        assert_eq!(spec.rows, [RowRange::new("a", "b"), RowRange::new("c", "d")]);
        let qualifiers = Some(vec![RowRange::new("p", "q"), RowRange::row(b"x")]);
        let expected = FamilyColumns { family: b"f".to_vec(), qualifiers };
        assert_eq!(spec.columns, Columns::Families(vec![expected]));
        let mut spec = ScanSpec { rows: vec![RowRange::row(b"b")], ..ScanSpec::default() };
        view.narrow(&table, &mut spec);
        assert!(spec.rows.iter().all(RowRange::is_empty) && !spec.rows.is_empty());
    }

    #[test]
    fn an_empty_prefix_is_everything_and_no_prefix_nothing() {
        let (_data, table) = simulated::data();
        let all = subset(&[""], &[("f", &[], &[""])]);
        assert!(all.has_row(b"any") && all.has_column("f", b"") && !all.has_column("g", b""));
        let mut spec = ScanSpec::default();
        all.narrow(&table, &mut spec);
        assert_eq!(spec.columns, Columns::Families(vec![FamilyColumns::all("f")]));
        for nothing in [subset(&[], &[("f", &[], &[""])]), subset(&[""], &[("f", &[], &[])])] {
            let mut spec = ScanSpec::default();
            nothing.narrow(&table, &mut spec);
            assert!(spec.rows.iter().all(RowRange::is_empty) && !spec.rows.is_empty());
        }
    }

    #[test]
    fn deletes_need_everything_that_they_delete() {
        let (_data, table) = simulated::data();
        let delete = |mutation| v2::Mutation { mutation: Some(mutation), timestamp_origin: 0 };
        let family = delete(Kind::DeleteFromFamily(v2::mutation::DeleteFromFamily {
            family_name: "f".into(),
        }));
        let row = delete(Kind::DeleteFromRow(v2::mutation::DeleteFromRow {}));
        let part = subset(&[""], &[("f", &[], &["p"])]);
        let whole = subset(&["a"], &[("f", &[], &[""])]);
        for mutation in [&family, &row] {
            assert!(!part.has_mutation(&table, b"a", mutation));
            assert!(whole.has_mutation(&table, b"a", mutation));
            assert!(!whole.has_mutation(&table, b"b", mutation), "the row is outside");
        }
    }

    #[test]
    fn too_many_and_too_long_parts_are_refused() {
        let many =
            SubsetView { row_prefixes: vec![Bytes::new(); PARTS_MAX + 1], ..SubsetView::default() };
        assert!(matches!(Subset::from_message(&many), Err(Error::Invalid(_))));
        let long = SubsetView {
            row_prefixes: vec![vec![b'x'; PREFIX_BYTES_MAX + 1].into()],
            ..SubsetView::default()
        };
        assert!(matches!(Subset::from_message(&long), Err(Error::Invalid(_))));
    }
}
