//! What the requests of the data service have in common: the table that they name,
//! and filters that stay encoded. Only the bytes of a filter distinguish one
//! without a kind from one of an unknown kind.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use crate::authorized::View;
use crate::error::{Error, Result};
use crate::name::AuthorizedViewName;
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
    #[prost(string, tag = "5")]
    pub app_profile_id: String,
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
    #[prost(string, tag = "7")]
    pub app_profile_id: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub row_key: Bytes,
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub predicate_filter: Option<Bytes>,
    #[prost(message, repeated, tag = "4")]
    pub true_mutations: Vec<v2::Mutation>,
    #[prost(message, repeated, tag = "5")]
    pub false_mutations: Vec<v2::Mutation>,
}

/// What a request reads or writes: a table, or the part of it that a view shows.
pub struct Target {
    pub table: Arc<Table>,
    pub view: Option<Arc<View>>,
}

impl Target {
    /// Finds the target of a request, which names a table or a view.
    pub fn find(
        tables: &Tables,
        table: &str,
        authorized_view: &str,
        materialized_view: &str,
    ) -> Result<Target> {
        if authorized_view.is_empty() && materialized_view.is_empty() {
            return Ok(Target { table: tables.get(table)?, view: None });
        }
        let named = [table, authorized_view, materialized_view];
        if named.iter().filter(|name| !name.is_empty()).count() > 1 {
            return Err(Error::invalid("Exactly one of table name and view name must be set"));
        }
        if authorized_view.is_empty() {
            return Err(Error::Unimplemented("Materialized views are not supported".into()));
        }
        let view = tables.views().get(authorized_view)?;
        let table = AuthorizedViewName::parse(authorized_view)?.table.to_string();
        let table = tables.get(&table)?;
        // A view belongs to one table, not to whichever has the name.
        if table.id != view.table {
            return Err(crate::authorized::not_found(authorized_view));
        }
        Ok(Target { table, view: Some(view) })
    }

    /// Refuses mutations of what the view does not show.
    pub fn check(&self, row: &[u8], mutations: &[v2::Mutation]) -> Result<()> {
        match &self.view {
            Some(view) => view.check(&self.table, row, mutations),
            None => Ok(()),
        }
    }
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
            app_profile_id: "profile".into(),
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
            app_profile_id: "profile".into(),
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
            app_profile_id: "profile".into(),
            row_key: "k".into(),
            predicate_filter: Some(filter.clone()),
            true_mutations: vec![v2::Mutation::default()],
            false_mutations: vec![],
        };
        let read = CheckAndMutateRow::decode(&sent.encode_to_vec()[..]).unwrap();
        assert_eq!(read.predicate_filter.as_deref(), Some(&filter.encode_to_vec()[..]));
        assert_eq!((read.row_key, read.true_mutations.len()), ("k".into(), 1));
        assert_eq!((&*read.table_name, &*read.authorized_view_name), ("t", "a"));
        assert_eq!(read.app_profile_id, "profile");
    }
}
