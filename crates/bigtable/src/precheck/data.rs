//! Prechecks of requests of the data service.

use std::mem::size_of;

use bytes::Bytes;
use stele_grpc::Precheck;
use tonic::Status;

use super::shape::{Counter, Field, FieldKind, Shape, Survey, check_count};
use super::types::TYPE;
use crate::data::{ENTRIES_MAX, MUTATIONS_MAX, READ_REQUEST_BYTES_MAX, ROWS_MAX};
use crate::proto::v2;

/// The status of an entry, kept until the response is sent.
const OUTCOME_BYTES: usize = 256;
/// A range of rows, counting the copies that a scan makes of it.
const RANGE_BYTES: usize = 256;
/// A column that a rule reads, its range in the scan and its cell in the
/// response.
const RULE_BYTES: usize = 512;

static VALUE: Shape = Shape {
    fields: &[
        Field::text(3),
        Field::single(4, FieldKind::Message(&VALUES), 0),
        Field::single(7, FieldKind::Message(&TYPE), size_of::<v2::Type>()),
    ],
};

static VALUES: Shape = Shape {
    fields: &[Field::list(1, FieldKind::Message(&VALUE), size_of::<v2::Value>(), Counter::Nested)],
};

/// SetCell and the deletions: a family name, and fields that take no memory of
/// their own.
const FAMILY_FIRST: FieldKind = FieldKind::FirstText;

/// AddToCell and MergeToCell.
static ADDITION: Shape = Shape {
    fields: &[
        Field::text(1),
        Field::single(2, FieldKind::Message(&VALUE), 0),
        Field::single(3, FieldKind::Message(&VALUE), 0),
        Field::single(4, FieldKind::Message(&VALUE), 0),
    ],
};

static MUTATION: Shape = Shape {
    fields: &[
        Field::single(1, FAMILY_FIRST, 0),
        Field::single(2, FAMILY_FIRST, 0),
        Field::single(3, FAMILY_FIRST, 0),
        Field::single(5, FieldKind::Message(&ADDITION), 0),
        Field::single(6, FieldKind::Message(&ADDITION), 0),
    ],
};

const fn mutations(tag: u32, counter: Counter) -> Field {
    Field::list(tag, FieldKind::Message(&MUTATION), size_of::<v2::Mutation>(), counter)
}

static MUTATE_ROW: Shape = Shape {
    fields: &[Field::text(1), mutations(3, Counter::Main), Field::text(4), Field::text(6)],
};

static ENTRY: Shape = Shape { fields: &[mutations(2, Counter::Main)] };

static MUTATE_ROWS: Shape = Shape {
    fields: &[
        Field::text(1),
        Field::list(
            2,
            FieldKind::Message(&ENTRY),
            size_of::<v2::mutate_rows_request::Entry>(),
            Counter::Second,
        )
        .with_handling(OUTCOME_BYTES),
        Field::text(3),
        Field::text(5),
    ],
};

static CHECK_AND_MUTATE_ROW: Shape = Shape {
    fields: &[
        Field::text(1),
        mutations(4, Counter::Main),
        mutations(5, Counter::Second),
        Field::text(7),
        Field::text(9),
    ],
};

static READ_MODIFY_WRITE_ROW: Shape = Shape {
    fields: &[
        Field::text(1),
        Field::list(3, FAMILY_FIRST, size_of::<v2::ReadModifyWriteRule>(), Counter::Main)
            .with_handling(RULE_BYTES),
        Field::text(4),
        Field::text(6),
    ],
};

static ROW_SET: Shape = Shape {
    fields: &[
        Field::list(1, FieldKind::Bytes, size_of::<Bytes>(), Counter::Main)
            .with_handling(RANGE_BYTES),
        Field::list(2, FieldKind::Bytes, size_of::<v2::RowRange>(), Counter::Main)
            .with_handling(RANGE_BYTES),
    ],
};

static READ_ROWS: Shape = Shape {
    fields: &[
        Field::text(1),
        Field::single(2, FieldKind::Message(&ROW_SET), 0),
        Field::text(5),
        Field::text(9),
        Field::text(11),
    ],
};

static SAMPLE_ROW_KEYS: Shape =
    Shape { fields: &[Field::text(1), Field::text(2), Field::text(4), Field::text(5)] };

/// Rejects read requests by length alone, as Google's service does.
fn check_length(message: &[u8]) -> Result<(), Status> {
    let bytes = message.len();
    if bytes > READ_REQUEST_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "Request of {bytes} bytes is too large: limit {READ_REQUEST_BYTES_MAX}; \
             use several requests"
        )));
    }
    Ok(())
}

/// Checks `MutateRowRequest`.
pub struct MutateRow;

impl Precheck for MutateRow {
    fn check(message: &[u8]) -> Result<usize, Status> {
        let survey = Survey::scan(&MUTATE_ROW, message)?;
        check_count("mutations", survey.main, MUTATIONS_MAX)?;
        Ok(survey.decoded_bytes)
    }
}

/// Checks `MutateRowsRequest`.
pub struct MutateRows;

impl Precheck for MutateRows {
    fn check(message: &[u8]) -> Result<usize, Status> {
        let survey = Survey::scan(&MUTATE_ROWS, message)?;
        check_count("mutations", survey.main, MUTATIONS_MAX)?;
        check_count("entries", survey.second, ENTRIES_MAX)?;
        Ok(survey.decoded_bytes)
    }
}

/// Checks `CheckAndMutateRowRequest`.
pub struct CheckAndMutateRow;

impl Precheck for CheckAndMutateRow {
    fn check(message: &[u8]) -> Result<usize, Status> {
        let survey = Survey::scan(&CHECK_AND_MUTATE_ROW, message)?;
        check_count("mutations", survey.main.max(survey.second), MUTATIONS_MAX)?;
        Ok(survey.decoded_bytes)
    }
}

/// Checks `ReadModifyWriteRowRequest`.
pub struct ReadModifyWriteRow;

impl Precheck for ReadModifyWriteRow {
    fn check(message: &[u8]) -> Result<usize, Status> {
        let survey = Survey::scan(&READ_MODIFY_WRITE_ROW, message)?;
        check_count("rules", survey.main, MUTATIONS_MAX)?;
        Ok(survey.decoded_bytes)
    }
}

/// Checks `ReadRowsRequest`.
pub struct ReadRows;

impl Precheck for ReadRows {
    fn check(message: &[u8]) -> Result<usize, Status> {
        check_length(message)?;
        let survey = Survey::scan(&READ_ROWS, message)?;
        check_count("row keys and row ranges", survey.main, ROWS_MAX)?;
        Ok(survey.decoded_bytes)
    }
}

/// Checks `SampleRowKeysRequest`.
pub struct SampleRowKeys;

impl Precheck for SampleRowKeys {
    fn check(message: &[u8]) -> Result<usize, Status> {
        check_length(message)?;
        Ok(Survey::scan(&SAMPLE_ROW_KEYS, message)?.decoded_bytes)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use tonic::Code;

    use super::*;
    use crate::proto::v2::mutation::{AddToCell, Mutation as Kind, SetCell};
    use crate::proto::v2::value;

    fn refusal<P: Precheck>(message: &impl Message) -> String {
        let status = P::check(&message.encode_to_vec()).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{}", status.message());
        status.message().into()
    }

    fn estimate<P: Precheck>(message: &impl Message) -> usize {
        P::check(&message.encode_to_vec()).unwrap()
    }

    fn empty_mutations(count: usize) -> Vec<v2::Mutation> {
        vec![v2::Mutation::default(); count]
    }

    #[test]
    fn more_mutations_than_a_request_may_have_are_refused_on_the_wire() {
        let text = "Too many mutations: 100001 provided; limit 100000";
        let row = |count| v2::MutateRowRequest {
            mutations: empty_mutations(count),
            ..Default::default()
        };
        assert_eq!(refusal::<MutateRow>(&row(MUTATIONS_MAX + 1)), text);
        assert!(
            estimate::<MutateRow>(&row(MUTATIONS_MAX)) > MUTATIONS_MAX * size_of::<v2::Mutation>()
        );
        let entry = |count| v2::mutate_rows_request::Entry {
            mutations: empty_mutations(count),
            ..Default::default()
        };
        let rows = |entries| v2::MutateRowsRequest { entries, ..Default::default() };
        assert_eq!(refusal::<MutateRows>(&rows(vec![entry(50_000), entry(50_001)])), text);
        let entries = vec![entry(0); ENTRIES_MAX + 1];
        assert!(refusal::<MutateRows>(&rows(entries)).starts_with("Too many entries: 100001"));
        let check = |yes, no| v2::CheckAndMutateRowRequest {
            true_mutations: empty_mutations(yes),
            false_mutations: empty_mutations(no),
            ..Default::default()
        };
        assert_eq!(refusal::<CheckAndMutateRow>(&check(MUTATIONS_MAX, MUTATIONS_MAX + 1)), text);
        estimate::<CheckAndMutateRow>(&check(MUTATIONS_MAX, MUTATIONS_MAX));
        let rules = vec![v2::ReadModifyWriteRule::default(); MUTATIONS_MAX + 1];
        let modify = v2::ReadModifyWriteRowRequest { rules, ..Default::default() };
        assert!(refusal::<ReadModifyWriteRow>(&modify).starts_with("Too many rules: 100001"));
    }

    #[test]
    fn a_read_is_limited_by_its_length_and_by_its_keys_and_ranges() {
        let read = |row_keys, row_ranges| v2::ReadRowsRequest {
            rows: Some(v2::RowSet { row_keys, row_ranges }),
            ..Default::default()
        };
        let keys = |count| vec![Bytes::from_static(b"k"); count];
        let ranges = |count| vec![v2::RowRange::default(); count];
        estimate::<ReadRows>(&read(keys(50_000), ranges(50_000)));
        let many = refusal::<ReadRows>(&read(keys(50_000), ranges(50_001)));
        assert!(many.starts_with("Too many row keys and row ranges: 100001"), "{many}");
        let long = read(vec![Bytes::from(vec![b'k'; READ_REQUEST_BYTES_MAX])], vec![]);
        assert!(refusal::<ReadRows>(&long).contains("is too large"));
        let sample = v2::SampleRowKeysRequest {
            table_name: "t".repeat(READ_REQUEST_BYTES_MAX + 1),
            ..Default::default()
        };
        assert!(refusal::<SampleRowKeys>(&sample).contains("is too large"));
        // A singular field may still be sent in several parts.
        let part = read(keys(50_001), vec![]).encode_to_vec();
        assert!(ReadRows::check(&part.repeat(2)).is_err());
    }

    #[test]
    fn values_of_a_cell_cost_nothing_beside_their_message() {
        let set = SetCell { value: vec![7; 1 << 20].into(), ..Default::default() };
        let mutation = v2::Mutation { mutation: Some(Kind::SetCell(set)), timestamp_origin: 0 };
        let row = v2::MutateRowRequest { mutations: vec![mutation], ..Default::default() };
        assert!(estimate::<MutateRow>(&row) < 4 << 10);
    }

    #[test]
    fn nested_values_are_counted() {
        let array = |count| v2::ArrayValue { values: vec![v2::Value::default(); count] };
        let row = |count| {
            let kind = Some(value::Kind::ArrayValue(array(count)));
            let input = Some(v2::Value { kind, r#type: None });
            let add = Kind::AddToCell(AddToCell { input, ..Default::default() });
            let mutation = v2::Mutation { mutation: Some(add), timestamp_origin: 0 };
            v2::MutateRowRequest { mutations: vec![mutation], ..Default::default() }
        };
        assert!(estimate::<MutateRow>(&row(10_000)) > 10_000 * size_of::<v2::Value>());
        assert!(refusal::<MutateRow>(&row(10_001)).contains("nested values"));
    }
}
