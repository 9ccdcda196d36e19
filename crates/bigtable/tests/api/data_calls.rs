//! Calls of the data service, and rows as the tests compare them.

use std::collections::BTreeMap;

use stele_bigtable::proto::v2;
use stele_bigtable::proto::v2::bigtable_client::BigtableClient;
use stele_bigtable::proto::v2::mutation::{Mutation, SetCell};
use stele_bigtable::proto::v2::read_rows_response::cell_chunk::RowStatus;
use stele_bigtable::table::{Definition, Family, Granularity};
use tonic::Status;
use tonic::service::Routes;

pub const TABLE: &str = "projects/p/instances/i/tables/t";

pub type Client = BigtableClient<Routes>;

pub fn definition() -> Definition {
    use stele_bigtable::proto::admin;
    use stele_bigtable::proto::admin::r#type::aggregate::{Aggregator, Max, Min, Sum};
    use stele_bigtable::proto::admin::r#type::{Aggregate, Kind};
    let aggregate = |aggregator| Family {
        gc_rule: None,
        value_type: Some(admin::Type {
            kind: Some(Kind::AggregateType(Box::new(Aggregate {
                aggregator: Some(aggregator),
                ..Default::default()
            }))),
        }),
    };
    let families = [
        ("f", Family::default()),
        ("g", Family::default()),
        ("sum", aggregate(Aggregator::Sum(Sum {}))),
        ("min", aggregate(Aggregator::Min(Min {}))),
        ("max", aggregate(Aggregator::Max(Max {}))),
    ];
    Definition {
        families: families.map(|(name, family)| (name.to_string(), family)).into(),
        granularity: Granularity::Millis,
        ..Definition::default()
    }
}

pub fn mutation(mutation: Mutation) -> v2::Mutation {
    v2::Mutation { mutation: Some(mutation), timestamp_origin: 0 }
}

pub fn set(
    family: &str,
    qualifier: &str,
    timestamp: i64,
    value: impl Into<Vec<u8>>,
) -> v2::Mutation {
    mutation(Mutation::SetCell(SetCell {
        family_name: family.into(),
        column_qualifier: qualifier.as_bytes().to_vec().into(),
        timestamp_micros: timestamp,
        value: value.into().into(),
    }))
}

pub fn mutate(key: &str, mutations: Vec<v2::Mutation>) -> v2::MutateRowRequest {
    v2::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: key.as_bytes().to_vec().into(),
        mutations,
        ..Default::default()
    }
}

pub async fn write(client: &mut Client, key: &str, mutations: Vec<v2::Mutation>) {
    client.mutate_row(mutate(key, mutations)).await.unwrap();
}

/// Rows with their cells, each written as `family:qualifier@timestamp=value`.
pub type Rows = Vec<(String, Vec<String>)>;

/// Reads to the end and assembles the chunks, as a strict client would.
pub async fn read(client: &mut Client, request: v2::ReadRowsRequest) -> Result<Rows, Status> {
    let mut stream = client.read_rows(request).await?.into_inner();
    let mut rows: Rows = Vec::new();
    let mut row: Option<(String, Vec<String>)> = None;
    let (mut family, mut qualifier) = (String::new(), Vec::new());
    let mut open: Option<(i64, Vec<String>, Vec<u8>, i32)> = None;
    while let Some(message) = stream.message().await? {
        for chunk in message.chunks {
            if row.is_none() {
                assert!(!chunk.row_key.is_empty(), "a row begins with its key");
                assert!(chunk.family_name.is_some() && chunk.qualifier.is_some());
                row = Some((chunk.row_key.escape_ascii().to_string(), Vec::new()));
            }
            let (_, cells) = row.as_mut().unwrap();
            if let Some(name) = chunk.family_name {
                assert!(chunk.qualifier.is_some(), "a family comes with a qualifier");
                family = name;
            }
            if let Some(bytes) = chunk.qualifier {
                qualifier = bytes;
            }
            let (timestamp, labels, mut value, size) = match open.take() {
                Some(cell) => cell,
                None => (chunk.timestamp_micros, chunk.labels, Vec::new(), chunk.value_size),
            };
            value.extend_from_slice(&chunk.value);
            let committed = chunk.row_status == Some(RowStatus::CommitRow(true));
            if chunk.value_size > 0 {
                assert!(!committed, "a piece commits");
                open = Some((timestamp, labels, value, size));
                continue;
            }
            assert!(size == 0 || size as usize == value.len(), "pieces add up");
            let labels: String = labels.iter().map(|label| format!("#{label}")).collect();
            let value = if value.len() > 64 {
                format!("({} bytes)", value.len())
            } else {
                value.escape_ascii().to_string()
            };
            let qualifier = qualifier.escape_ascii();
            cells.push(format!("{family}:{qualifier}@{timestamp}={value}{labels}"));
            if committed {
                rows.push(row.take().unwrap());
            }
        }
    }
    assert!(row.is_none(), "the stream ended inside a row");
    Ok(rows)
}

pub fn all() -> v2::ReadRowsRequest {
    v2::ReadRowsRequest { table_name: TABLE.into(), ..Default::default() }
}

pub async fn read_all(client: &mut Client) -> BTreeMap<String, Vec<String>> {
    read(client, all()).await.unwrap().into_iter().collect()
}
