//! What the requests of the data service have in common: the table that they name,
//! and filters that stay encoded. Only the bytes of a filter distinguish one
//! without a kind from one of an unknown kind.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use crate::error::{Error, Result};
use crate::proto::v2;
use crate::table::{Table, Tables};

/// `ReadRowsRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct ReadRows {
    #[prost(string, tag = "1")]
    pub table_name: String,
    #[prost(string, tag = "9")]
    pub authorized_view_name: String,
    #[prost(string, tag = "11")]
    pub materialized_view_name: String,
    #[prost(message, optional, tag = "2")]
    pub rows: Option<v2::RowSet>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub filter: Option<Bytes>,
    #[prost(int64, tag = "4")]
    pub rows_limit: i64,
    #[prost(int32, tag = "6")]
    pub request_stats_view: i32,
    #[prost(bool, tag = "7")]
    pub reversed: bool,
}

/// `CheckAndMutateRowRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct CheckAndMutateRow {
    #[prost(string, tag = "1")]
    pub table_name: String,
    #[prost(string, tag = "9")]
    pub authorized_view_name: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub row_key: Bytes,
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub predicate_filter: Option<Bytes>,
    #[prost(message, repeated, tag = "4")]
    pub true_mutations: Vec<v2::Mutation>,
    #[prost(message, repeated, tag = "5")]
    pub false_mutations: Vec<v2::Mutation>,
}

/// Returns the table of a request; rejects requests that name a view, which
/// are not supported yet.
pub fn table(tables: &Tables, table: &str, views: &[&str]) -> Result<Arc<Table>> {
    if views.iter().all(|view| view.is_empty()) {
        return tables.get(table);
    }
    let named = views.iter().filter(|view| !view.is_empty()).count();
    if named > 1 || !table.is_empty() {
        return Err(Error::invalid("Exactly one of table name and view name must be set"));
    }
    Err(Error::Unimplemented("Authorized and materialized views are not supported".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_the_api_writes_them() {
        let filter =
            v2::RowFilter { filter: Some(v2::row_filter::Filter::CellsPerRowLimitFilter(3)) };
        let rows = v2::RowSet { row_keys: vec!["k".into()], row_ranges: vec![] };
        let sent = v2::ReadRowsRequest {
            table_name: "t".into(),
            authorized_view_name: "a".into(),
            materialized_view_name: "m".into(),
            app_profile_id: "ignored".into(),
            rows: Some(rows.clone()),
            filter: Some(filter.clone()),
            rows_limit: 7,
            request_stats_view: 2,
            reversed: true,
        };
        let read = ReadRows::decode(&sent.encode_to_vec()[..]).unwrap();
        let expected = ReadRows {
            table_name: "t".into(),
            authorized_view_name: "a".into(),
            materialized_view_name: "m".into(),
            rows: Some(rows),
            filter: Some(filter.encode_to_vec().into()),
            rows_limit: 7,
            request_stats_view: 2,
            reversed: true,
        };
        assert_eq!(read, expected);

        let sent = v2::CheckAndMutateRowRequest {
            table_name: "t".into(),
            authorized_view_name: "a".into(),
            app_profile_id: "ignored".into(),
            row_key: "k".into(),
            predicate_filter: Some(filter.clone()),
            true_mutations: vec![v2::Mutation::default()],
            false_mutations: vec![],
        };
        let read = CheckAndMutateRow::decode(&sent.encode_to_vec()[..]).unwrap();
        assert_eq!(read.predicate_filter.as_deref(), Some(&filter.encode_to_vec()[..]));
        assert_eq!((read.row_key, read.true_mutations.len()), ("k".into(), 1));
        assert_eq!((&*read.table_name, &*read.authorized_view_name), ("t", "a"));
    }
}
