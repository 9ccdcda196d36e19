//! The calls of the model on the wire. The value of a row is in the columns `a` and `b`,
//! always written together; the counter is in `n`.

use stele_bigtable::proto::v2;
use stele_bigtable::proto::v2::bigtable_client::BigtableClient;
use stele_bigtable::proto::v2::mutation::{DeleteFromRow, Mutation, SetCell};
use stele_bigtable::proto::v2::read_modify_write_rule::Rule;
use stele_bigtable::proto::v2::row_filter::{Chain, Filter};
use tonic::Status;
use tonic::transport::Channel;

use super::row::{Answer, Call, Row};
use crate::support::TABLE;

pub type Client = BigtableClient<Channel>;

/// Sends a call about one row and reads its response.
pub async fn send(client: &mut Client, key: &str, call: Call) -> Result<Answer, Status> {
    let row_key = key.to_string().into();
    let table_name = TABLE.to_string();
    match call {
        Call::Set(_) | Call::Delete => {
            let mutations = match call {
                Call::Set(value) => set_value(value),
                _ => vec![mutation(Mutation::DeleteFromRow(DeleteFromRow {}))],
            };
            let request =
                v2::MutateRowRequest { table_name, row_key, mutations, ..Default::default() };
            client.mutate_row(request).await?;
            Ok(Answer::Done)
        }
        Call::Increment(by) => {
            let rule = v2::ReadModifyWriteRule {
                family_name: "f".into(),
                column_qualifier: "n".into(),
                rule: Some(Rule::IncrementAmount(by)),
            };
            let request = v2::ReadModifyWriteRowRequest {
                table_name,
                row_key,
                rules: vec![rule],
                ..Default::default()
            };
            let row = client.read_modify_write_row(request).await?.into_inner().row.unwrap();
            Ok(Answer::Count(number(&row.families[0].columns[0].cells[0].value)))
        }
        Call::Swap { from, to } => {
            let request = v2::CheckAndMutateRowRequest {
                table_name,
                row_key,
                predicate_filter: Some(value_is(from)),
                true_mutations: set_value(to),
                ..Default::default()
            };
            let response = client.check_and_mutate_row(request).await?.into_inner();
            Ok(Answer::Matched(response.predicate_matched))
        }
        Call::Read => read(client, key).await.map(Answer::Row),
    }
}

/// Sets a cell of family `f` at a fixed time.
pub fn set(qualifier: &'static str, value: impl Into<Vec<u8>>) -> v2::Mutation {
    mutation(Mutation::SetCell(SetCell {
        family_name: "f".into(),
        column_qualifier: qualifier.into(),
        timestamp_micros: 1000,
        value: value.into().into(),
    }))
}

fn mutation(mutation: Mutation) -> v2::Mutation {
    v2::Mutation { mutation: Some(mutation), ..Default::default() }
}

fn set_value(value: u64) -> Vec<v2::Mutation> {
    ["a", "b"].map(|qualifier| set(qualifier, value.to_string())).into()
}

fn filter(filter: Filter) -> v2::RowFilter {
    v2::RowFilter { filter: Some(filter) }
}

fn value_is(value: u64) -> v2::RowFilter {
    let column = filter(Filter::ColumnQualifierRegexFilter("a".into()));
    let value = filter(Filter::ValueRegexFilter(value.to_string().into()));
    filter(Filter::Chain(Chain { filters: vec![column, value] }))
}

fn number(bytes: &[u8]) -> i64 {
    i64::from_be_bytes(bytes.try_into().expect("a counter has eight bytes"))
}

async fn read(client: &mut Client, key: &str) -> Result<Row, Status> {
    let request = v2::ReadRowsRequest {
        table_name: TABLE.into(),
        rows: Some(v2::RowSet { row_keys: vec![key.to_string().into()], row_ranges: vec![] }),
        filter: Some(filter(Filter::CellsPerColumnLimitFilter(1))),
        ..Default::default()
    };
    let mut stream = client.read_rows(request).await?.into_inner();
    let mut values = [None, None];
    let mut count = None;
    while let Some(message) = stream.message().await? {
        for chunk in message.chunks {
            let value = || String::from_utf8_lossy(&chunk.value).parse().expect("a number");
            match chunk.qualifier.as_deref() {
                Some(b"a") => values[0] = Some(value()),
                Some(b"b") => values[1] = Some(value()),
                Some(b"n") => count = Some(number(&chunk.value)),
                other => panic!("a column that nobody wrote: {other:?}"),
            }
        }
    }
    assert_eq!(values[0], values[1], "half of a mutation of {key} is seen");
    Ok(Row { value: values[0], count })
}
