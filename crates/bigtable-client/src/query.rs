//! Queries for `read_rows`: which rows to read, and how.

use std::time::Duration;

use bytes::Bytes;

use crate::filter::Filter;
use crate::row_range::RowRange;
use stele_bigtable_proto::v2;

/// A read of many rows. Reads the whole table unless restricted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Query {
    /// `None` is the whole table; an empty selection reads nothing.
    rows: Option<Selection>,
    filter: Option<Filter>,
    limit: Option<u64>,
    reversed: bool,
    pub(crate) deadline: Option<Duration>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Selection {
    keys: Vec<Bytes>,
    ranges: Vec<RowRange>,
}

impl Query {
    /// Selects every row of the table.
    pub fn all() -> Query {
        Query::default()
    }

    /// Selects these rows; without keys, no rows.
    pub fn keys<K: Into<Bytes>>(keys: impl IntoIterator<Item = K>) -> Query {
        let keys = keys.into_iter().map(Into::into).collect();
        Query { rows: Some(Selection { keys, ranges: Vec::new() }), ..Query::default() }
    }

    /// Selects the rows of one range.
    pub fn range(range: RowRange) -> Query {
        Query::ranges([range])
    }

    /// Selects these ranges; without ranges, no rows.
    pub fn ranges(ranges: impl IntoIterator<Item = RowRange>) -> Query {
        let ranges = ranges.into_iter().collect();
        Query { rows: Some(Selection { keys: Vec::new(), ranges }), ..Query::default() }
    }

    /// Selects the rows whose keys begin with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> Query {
        Query::range(RowRange::prefix(prefix))
    }

    /// Adds one row to the selection; has no effect if all rows are selected.
    pub fn and_key(mut self, key: impl Into<Bytes>) -> Query {
        if let Some(rows) = &mut self.rows {
            rows.keys.push(key.into());
        }
        self
    }

    /// Adds one range to the selection; has no effect if all rows are selected.
    pub fn and_range(mut self, range: RowRange) -> Query {
        if let Some(rows) = &mut self.rows {
            rows.ranges.push(range);
        }
        self
    }

    /// Returns only the cells that pass the filter.
    pub fn filter(mut self, filter: Filter) -> Query {
        self.filter = Some(filter);
        self
    }

    /// Limits the number of rows.
    pub fn limit(mut self, rows: u64) -> Query {
        self.limit = Some(rows);
        self
    }

    /// Reads from the last row to the first.
    pub fn reversed(mut self) -> Query {
        self.reversed = true;
        self
    }

    /// Limits the time of the whole read. By default, a read may take any time as
    /// long as it makes progress within the client's deadline.
    pub fn deadline(mut self, deadline: Duration) -> Query {
        self.deadline = Some(deadline);
        self
    }

    pub(crate) fn is_reversed(&self) -> bool {
        self.reversed
    }

    /// Excludes everything up to and including `key`.
    pub(crate) fn resume_after(&mut self, key: &[u8]) {
        let reversed = self.reversed;
        let rows = self
            .rows
            .get_or_insert_with(|| Selection { keys: Vec::new(), ranges: vec![RowRange::all()] });
        rows.keys.retain(|other| if reversed { other < key } else { other > key });
        let ranges = std::mem::take(&mut rows.ranges);
        rows.ranges = ranges.into_iter().map(|range| range.beyond(key, reversed)).collect();
    }

    /// Counts a row that was returned.
    pub(crate) fn count_row(&mut self) {
        if let Some(limit) = &mut self.limit {
            *limit = limit.saturating_sub(1);
        }
    }

    /// Returns whether no more rows can follow.
    pub(crate) fn is_done(&self) -> bool {
        let no_rows =
            |rows: &Selection| rows.keys.is_empty() && rows.ranges.iter().all(RowRange::is_empty);
        self.limit == Some(0) || self.rows.as_ref().is_some_and(no_rows)
    }

    pub(crate) fn message(&self, table_name: &str, app_profile_id: &str) -> v2::ReadRowsRequest {
        let rows = self.rows.as_ref().map(|rows| v2::RowSet {
            row_keys: rows.keys.clone(),
            // The server rejects empty ranges.
            row_ranges: rows
                .ranges
                .iter()
                .filter(|range| !range.is_empty())
                .map(RowRange::message)
                .collect(),
        });
        v2::ReadRowsRequest {
            table_name: table_name.into(),
            app_profile_id: app_profile_id.into(),
            rows,
            filter: self.filter.clone().map(Filter::into_message),
            rows_limit: self.limit.map_or(0, |limit| i64::try_from(limit).unwrap_or(i64::MAX)),
            reversed: self.reversed,
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_selection_reads_no_rows() {
        assert!(Query::keys(Vec::<Bytes>::new()).is_done());
        assert!(Query::ranges([]).is_done());
        assert!(Query::range(RowRange::new("b", "a")).is_done());
        assert!(!Query::all().is_done());
        assert!(Query::all().limit(0).is_done());
    }

    #[test]
    fn what_was_read_is_not_requested_again() {
        let mut query = Query::keys(["a", "c", "e"]).and_range(RowRange::new("b", "d")).limit(3);
        query.count_row();
        query.resume_after(b"c");
        let message = query.message("t", "p");
        let rows = message.rows.unwrap();
        assert_eq!(rows.row_keys, ["e"]);
        assert_eq!(rows.row_ranges, [RowRange::new("c\0", "d").message()]);
        assert_eq!(message.rows_limit, 2);
        query.resume_after(b"e");
        assert!(query.is_done());
    }

    #[test]
    fn a_reversed_read_resumes_below() {
        let mut query = Query::all().reversed();
        query.resume_after(b"m");
        let rows = query.message("t", "").rows.unwrap();
        assert_eq!(rows.row_ranges, [RowRange::until("m").message()]);
        let mut query = Query::keys(["a", "m", "z"]).reversed();
        query.resume_after(b"m");
        assert_eq!(query.message("t", "").rows.unwrap().row_keys, ["a"]);
    }
}
