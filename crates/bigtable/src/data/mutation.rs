//! Mutations of a row: validated as a whole, then added to an engine commit.

use stele_engine::{CommitBuilder, TimeRange};

use super::rows::check_key;
use crate::error::{Error, Result};
use crate::name::excerpt;
use crate::proto::v2;
use crate::proto::v2::mutation::{self, Mutation as Kind, TimestampOrigin};
use crate::proto::v2::value;
use crate::table::{Family, Table};

/// The maximum number of mutations in a request.
pub const MUTATIONS_MAX: usize = 100_000;
pub const QUALIFIER_BYTES_MAX: usize = 16 << 10;
pub const VALUE_BYTES_MAX: usize = 100 << 20;
/// The timestamp that requests the server's time.
const SERVER_TIME: i64 = -1;

/// Rejects a request with no mutations or too many.
pub fn check_count(mutations: usize) -> Result<()> {
    if mutations == 0 {
        return Err(Error::invalid("No mutations provided"));
    }
    check_count_max(mutations)
}

pub fn check_count_max(mutations: usize) -> Result<()> {
    if mutations > MUTATIONS_MAX {
        let what = format!("Too many mutations: {mutations} provided; limit {MUTATIONS_MAX}");
        return Err(Error::Invalid(what));
    }
    Ok(())
}

/// The number of bytes that could be copied in the time it takes to check or
/// apply a mutation.
pub const MUTATION_COST: usize = 4 << 10;

/// Returns the cost of applying these mutations, in bytes that could be copied in
/// the same time.
pub fn cost(mutations: &[v2::Mutation]) -> usize {
    let value = |mutation: &v2::Mutation| match &mutation.mutation {
        Some(Kind::SetCell(set)) => set.value.len(),
        _ => 0,
    };
    mutations.len() * MUTATION_COST + mutations.iter().map(value).sum::<usize>()
}

/// Returns the approximate size of a mutation in a commit.
pub fn encoded_bytes(mutation: &v2::Mutation) -> usize {
    const REST_BYTES: usize = 16;
    match &mutation.mutation {
        Some(Kind::SetCell(set)) => {
            let names = set.family_name.len() + set.column_qualifier.len();
            REST_BYTES + names + set.value.len()
        }
        _ => 2 * REST_BYTES,
    }
}

/// Rejects the mutations of a row unless [`append`] can take them all.
pub fn check(table: &Table, key: &[u8], mutations: &[v2::Mutation]) -> Result<()> {
    check_key(key)?;
    for (at, mutation) in mutations.iter().enumerate() {
        check_one(table, mutation).map_err(|error| in_element(at, error))?;
    }
    Ok(())
}

fn in_element(at: usize, error: Error) -> Error {
    let told = |what| format!("Error in field 'Mutation list' : Error in element #{at} : {what}");
    match error {
        Error::Invalid(what) => Error::Invalid(told(what)),
        Error::NotFound(what) => Error::NotFound(told(what)),
        Error::Unimplemented(what) => Error::Unimplemented(told(what)),
        other => other,
    }
}

fn check_one(table: &Table, mutation: &v2::Mutation) -> Result<()> {
    let origin = TimestampOrigin::try_from(mutation.timestamp_origin)
        .map_err(|_| Error::invalid("Unknown timestamp_origin"))?;
    match &mutation.mutation {
        None => Err(Error::invalid("No mutation set, or one that this server does not know")),
        Some(Kind::SetCell(set)) => {
            if family(table, &set.family_name)?.aggregate().is_some() {
                let name = &set.family_name;
                let what = "cells are added or merged, not set";
                return Err(Error::Invalid(format!(
                    "Column family {name} is an aggregate: {what}"
                )));
            }
            check_qualifier(&set.column_qualifier)?;
            check_value(&set.value)?;
            check_timestamp(table, set.timestamp_micros, origin)
        }
        Some(Kind::DeleteFromColumn(delete)) => {
            family(table, &delete.family_name)?;
            check_qualifier(&delete.column_qualifier)?;
            check_times(table, delete.time_range.as_ref())
        }
        Some(Kind::DeleteFromFamily(delete)) => family(table, &delete.family_name).map(drop),
        Some(Kind::DeleteFromRow(_)) => Ok(()),
        Some(Kind::AddToCell(_) | Kind::MergeToCell(_)) => addition(table, mutation).map(drop),
    }
}

/// Looks up a declared family.
pub fn family<'t>(table: &'t Table, name: &str) -> Result<&'t Family> {
    table.definition.families.get(name).ok_or_else(|| unknown_family(&table.name, name))
}

pub fn unknown_family(table: &str, family: &str) -> Error {
    let what = format!("Requested column family not found: {}", excerpt(family));
    Error::NotFound(format!("Error while mutating table '{table}' : {what}"))
}

pub fn check_qualifier(qualifier: &[u8]) -> Result<()> {
    check_size("Column qualifier", qualifier.len(), QUALIFIER_BYTES_MAX)
}

pub fn check_value(value: &[u8]) -> Result<()> {
    check_size("Cell value", value.len(), VALUE_BYTES_MAX)
}

fn check_size(what: &str, size: usize, limit: usize) -> Result<()> {
    if size > limit {
        return Err(Error::Invalid(format!("{what} of {size} bytes exceeds the limit of {limit}")));
    }
    Ok(())
}

fn check_timestamp(table: &Table, micros: i64, origin: TimestampOrigin) -> Result<()> {
    if micros < SERVER_TIME {
        return Err(Error::Invalid(format!("Timestamp must not be negative, but got {micros}")));
    }
    if micros == SERVER_TIME || origin == TimestampOrigin::ClientAutoGenerated {
        return Ok(());
    }
    check_granularity(table, micros)
}

fn check_granularity(table: &Table, micros: i64) -> Result<()> {
    let unit = table.definition.granularity.micros();
    if micros % unit == 0 {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "Timestamp granularity mismatch. Expected a multiple of {unit} (millisecond granularity), \
         but got {micros}."
    )))
}

fn check_times(table: &Table, range: Option<&v2::TimestampRange>) -> Result<()> {
    let Some(range) = range else { return Ok(()) };
    let (start, end) = (range.start_timestamp_micros, range.end_timestamp_micros);
    if start < 0 || end < 0 {
        return Err(Error::invalid("Time range must not be negative"));
    }
    if end != 0 && start >= end {
        return Err(Error::invalid(
            "start_timestamp_micros must be less than end_timestamp_micros",
        ));
    }
    check_granularity(table, start)?;
    check_granularity(table, end)
}

/// A state to fold into a cell.
struct Addition<'a> {
    family: &'a str,
    qualifier: &'a [u8],
    timestamp: i64,
    fold: stele_engine::FoldId,
    /// The state to fold; `None` changes nothing.
    state: Option<[u8; 8]>,
}

fn addition<'a>(table: &Table, mutation: &'a v2::Mutation) -> Result<Addition<'a>> {
    let (name, qualifier, timestamp, input, merge) = match &mutation.mutation {
        Some(Kind::AddToCell(mutation::AddToCell {
            family_name,
            column_qualifier,
            timestamp,
            input,
        })) => (family_name, column_qualifier, timestamp, input, false),
        Some(Kind::MergeToCell(mutation::MergeToCell {
            family_name,
            column_qualifier,
            timestamp,
            input,
        })) => (family_name, column_qualifier, timestamp, input, true),
        _ => unreachable!("only additions are asked for"),
    };
    let Some(fold) = family(table, name)?.aggregate() else {
        let what = "is not an aggregate: set its cells";
        return Err(Error::Invalid(format!("Column family {name} {what}")));
    };
    let kind = |value: &'a Option<v2::Value>| value.as_ref().and_then(|value| value.kind.as_ref());
    let Some(value::Kind::RawValue(qualifier)) = kind(qualifier) else {
        return Err(Error::invalid("column_qualifier must be a raw_value"));
    };
    let Some(value::Kind::RawTimestampMicros(micros)) = kind(timestamp) else {
        return Err(Error::invalid("timestamp must be a raw_timestamp_micros"));
    };
    if *micros < 0 {
        return Err(Error::Invalid(format!("Timestamp must not be negative, but got {micros}")));
    }
    check_qualifier(qualifier)?;
    let origin = TimestampOrigin::try_from(mutation.timestamp_origin).unwrap_or_default();
    let timestamp = match origin {
        TimestampOrigin::ClientAutoGenerated => table.definition.granularity.truncate(*micros),
        _ => {
            check_granularity(table, *micros)?;
            *micros
        }
    };
    let state = match (merge, kind(input)) {
        (false, Some(value::Kind::IntValue(number))) => Some(number.to_be_bytes()),
        (false, _) => return Err(Error::invalid("input of AddToCell must be an int_value")),
        (true, None) => None,
        (true, Some(value::Kind::RawValue(state))) => match <[u8; 8]>::try_from(&state[..]) {
            Ok(state) => Some(state),
            Err(_) => {
                let size = state.len();
                let what = "input of MergeToCell must be a 64-bit big-endian state";
                return Err(Error::Invalid(format!("{what}, but has {size} bytes")));
            }
        },
        (true, _) => return Err(Error::invalid("input of MergeToCell must be a raw_value")),
    };
    Ok(Addition { family: name, qualifier, timestamp, fold, state })
}

/// Adds validated mutations to the commit, after its row. `now_micros` is the
/// server's time.
pub fn append(
    commit: &mut CommitBuilder,
    table: &Table,
    mutations: &[v2::Mutation],
    now_micros: i64,
) {
    let granularity = table.definition.granularity;
    for mutation in mutations {
        match mutation.mutation.as_ref().expect("mutations were checked") {
            Kind::SetCell(set) => {
                let timestamp = match set.timestamp_micros {
                    SERVER_TIME => granularity.truncate(now_micros),
                    // Only timestamps that the client generated automatically can be
                    // finer; see `check`.
                    micros => granularity.truncate(micros),
                };
                let (family, qualifier) = (set.family_name.as_bytes(), &set.column_qualifier);
                commit.set(family, qualifier, timestamp, &set.value);
            }
            Kind::DeleteFromColumn(delete) => {
                let (family, qualifier) = (delete.family_name.as_bytes(), &delete.column_qualifier);
                commit.delete_cells(family, qualifier, times(delete.time_range.as_ref()));
            }
            Kind::DeleteFromFamily(delete) => {
                commit.delete_family(delete.family_name.as_bytes());
            }
            Kind::DeleteFromRow(_) => {
                commit.delete_row();
            }
            Kind::AddToCell(_) | Kind::MergeToCell(_) => {
                let add = addition(table, mutation).expect("mutations were checked");
                if let Some(state) = add.state {
                    let (family, qualifier) = (add.family.as_bytes(), add.qualifier);
                    commit.merge(add.fold, family, qualifier, add.timestamp, &state);
                }
            }
        }
    }
}

/// Converts a time range to the engine's form, in which both ends are inclusive.
pub fn times(range: Option<&v2::TimestampRange>) -> TimeRange {
    let Some(range) = range else { return TimeRange::ALL };
    let (start, end) = (range.start_timestamp_micros, range.end_timestamp_micros);
    if (start, end) == (0, 0) {
        return TimeRange::ALL;
    }
    TimeRange { min: start, max: if end == 0 { i64::MAX } else { end - 1 } }
}
