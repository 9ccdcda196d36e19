//! Mutations of one row, and whether they are idempotent.

use bytes::Bytes;

use stele_bigtable_proto::v2;
use stele_bigtable_proto::v2::mutation::{self, Mutation as Kind};
use stele_bigtable_proto::v2::read_modify_write_rule::Rule as RuleKind;

/// The timestamp that requests the server's time.
const SERVER_TIME: i64 = -1;

/// A mutation of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Mutation(v2::Mutation);

impl Mutation {
    fn of(kind: Kind) -> Mutation {
        Mutation(v2::Mutation { mutation: Some(kind), ..Default::default() })
    }

    /// Sets a cell at the server's time. Not retried after an ambiguous failure,
    /// because each attempt would create another cell.
    pub fn set(family: &str, qualifier: impl Into<Bytes>, value: impl Into<Bytes>) -> Mutation {
        Mutation::set_at(family, qualifier, SERVER_TIME, value)
    }

    /// Sets the cell with this timestamp.
    pub fn set_at(
        family: &str,
        qualifier: impl Into<Bytes>,
        timestamp_micros: i64,
        value: impl Into<Bytes>,
    ) -> Mutation {
        Mutation::of(Kind::SetCell(mutation::SetCell {
            family_name: family.into(),
            column_qualifier: qualifier.into(),
            timestamp_micros,
            value: value.into(),
        }))
    }

    /// Folds a number into a cell of an aggregate family (sum, minimum, maximum).
    pub fn add(
        family: &str,
        qualifier: impl Into<Bytes>,
        timestamp_micros: i64,
        number: i64,
    ) -> Mutation {
        Mutation::of(Kind::AddToCell(mutation::AddToCell {
            family_name: family.into(),
            column_qualifier: Some(raw(qualifier.into())),
            timestamp: Some(at(timestamp_micros)),
            input: Some(value(v2::value::Kind::IntValue(number))),
        }))
    }

    /// Folds the state of another aggregate cell into a cell.
    pub fn merge(
        family: &str,
        qualifier: impl Into<Bytes>,
        timestamp_micros: i64,
        state: impl Into<Bytes>,
    ) -> Mutation {
        Mutation::of(Kind::MergeToCell(mutation::MergeToCell {
            family_name: family.into(),
            column_qualifier: Some(raw(qualifier.into())),
            timestamp: Some(at(timestamp_micros)),
            input: Some(raw(state.into())),
        }))
    }

    /// Deletes all cells of the row.
    pub fn delete_row() -> Mutation {
        Mutation::of(Kind::DeleteFromRow(mutation::DeleteFromRow {}))
    }

    /// Deletes all cells of a family.
    pub fn delete_family(family: &str) -> Mutation {
        Mutation::of(Kind::DeleteFromFamily(mutation::DeleteFromFamily {
            family_name: family.into(),
        }))
    }

    /// Deletes all versions of a column.
    pub fn delete_column(family: &str, qualifier: impl Into<Bytes>) -> Mutation {
        Mutation::delete_cells(family, qualifier, 0, None)
    }

    /// Deletes the versions from `start` (inclusive) to `end` (exclusive).
    pub fn delete_cells(
        family: &str,
        qualifier: impl Into<Bytes>,
        start_micros: i64,
        end_micros: Option<i64>,
    ) -> Mutation {
        let time_range = v2::TimestampRange {
            start_timestamp_micros: start_micros,
            end_timestamp_micros: end_micros.unwrap_or(0),
        };
        Mutation::of(Kind::DeleteFromColumn(mutation::DeleteFromColumn {
            family_name: family.into(),
            column_qualifier: qualifier.into(),
            time_range: (time_range != v2::TimestampRange::default()).then_some(time_range),
        }))
    }

    /// Returns whether applying the mutation twice has the same effect as once.
    pub fn is_idempotent(&self) -> bool {
        match &self.0.mutation {
            Some(Kind::SetCell(set)) => set.timestamp_micros != SERVER_TIME,
            Some(Kind::AddToCell(_) | Kind::MergeToCell(_)) => false,
            _ => true,
        }
    }

    /// Returns the mutation as a message.
    pub fn into_message(self) -> v2::Mutation {
        self.0
    }
}

/// All mutations of one row in a bulk write.
#[derive(Clone, Debug, PartialEq)]
pub struct RowMutations {
    pub key: Bytes,
    pub mutations: Vec<Mutation>,
}

impl RowMutations {
    /// Creates the mutations of the row with this key.
    pub fn new(
        key: impl Into<Bytes>,
        mutations: impl IntoIterator<Item = Mutation>,
    ) -> RowMutations {
        RowMutations { key: key.into(), mutations: mutations.into_iter().collect() }
    }
}

/// One step of a read-modify-write.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule(v2::ReadModifyWriteRule);

impl Rule {
    /// Adds to the number in a column; a missing cell counts as zero.
    pub fn increment(family: &str, qualifier: impl Into<Bytes>, amount: i64) -> Rule {
        Rule::of(family, qualifier.into(), RuleKind::IncrementAmount(amount))
    }

    /// Appends to the value of a column; a missing cell counts as empty.
    pub fn append(family: &str, qualifier: impl Into<Bytes>, bytes: impl Into<Bytes>) -> Rule {
        Rule::of(family, qualifier.into(), RuleKind::AppendValue(bytes.into()))
    }

    fn of(family: &str, column_qualifier: Bytes, rule: RuleKind) -> Rule {
        let family_name = family.into();
        Rule(v2::ReadModifyWriteRule { family_name, column_qualifier, rule: Some(rule) })
    }

    /// Returns the rule as a message.
    pub fn into_message(self) -> v2::ReadModifyWriteRule {
        self.0
    }
}

fn value(kind: v2::value::Kind) -> v2::Value {
    v2::Value { kind: Some(kind), ..Default::default() }
}

fn raw(bytes: Bytes) -> v2::Value {
    value(v2::value::Kind::RawValue(bytes))
}

fn at(timestamp_micros: i64) -> v2::Value {
    value(v2::value::Kind::RawTimestampMicros(timestamp_micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_timestamps_and_aggregates_are_not_idempotent() {
        for idempotent in [
            Mutation::set_at("f", "q", 1000, "v"),
            Mutation::delete_row(),
            Mutation::delete_family("f"),
            Mutation::delete_column("f", "q"),
            Mutation::delete_cells("f", "q", 1, Some(2)),
        ] {
            assert!(idempotent.is_idempotent(), "{idempotent:?}");
        }
        for mutation in [
            Mutation::set("f", "q", "v"),
            Mutation::add("f", "q", 0, 1),
            Mutation::merge("f", "q", 0, vec![0; 8]),
        ] {
            assert!(!mutation.is_idempotent(), "{mutation:?}");
        }
    }
}
