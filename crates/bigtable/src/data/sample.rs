//! SampleRowKeys: keys that cut a table into parts of known size.

use stele_engine::RowRange;

use super::{Data, rows, target};
use crate::error::Result;
use crate::proto::v2;

impl Data {
    /// The table's splits within the range asked for, then its end.
    pub(super) fn sample(
        &self,
        request: &v2::SampleRowKeysRequest,
    ) -> Result<Vec<v2::SampleRowKeysResponse>> {
        let views = [&*request.authorized_view_name, &request.materialized_view_name];
        let table = target::table(&self.tables, &request.table_name, &views)?;
        let range = match &request.row_range {
            None => RowRange::all(),
            Some(range) => rows::range_of(range)?,
        };
        let inside = |split: &&Vec<u8>| **split > range.start && range.contains(split);
        let mut keys: Vec<Vec<u8>> =
            table.definition.splits.iter().filter(inside).cloned().collect();
        keys.push(range.end.clone().unwrap_or_default());
        let store = self.tables.store();
        // Nobody knows where in the table the rows in memory are: evenly.
        let memory_share = (store.memory_bytes(table.id)? / keys.len()) as u64;
        let mut start = range.start.clone();
        let mut offset = 0;
        let mut samples = Vec::with_capacity(keys.len());
        for key in keys {
            let part = if key.is_empty() {
                RowRange::from(start)
            } else {
                RowRange::new(start, key.clone())
            };
            offset += store.disk_bytes(table.id, &part)? + memory_share;
            start = key.clone();
            samples.push(v2::SampleRowKeysResponse {
                row_key: key.into(),
                offset_bytes: i64::try_from(offset).unwrap_or(i64::MAX),
            });
        }
        Ok(samples)
    }
}
