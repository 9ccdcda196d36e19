//! SampleRowKeys: keys that divide a table into parts of known size.

use stele_engine::RowRange;
use stele_grpc::offload::in_place;

use super::request::Target;
use super::response_memory::ResponseMemory;
use super::{Data, row_set};
use crate::error::Result;
use crate::proto::v2;

/// The maximum size of a part: parallel readers create a task for each part of a
/// large table.
const PART_BYTES_MAX: u64 = 256 << 20;
/// The minimum size of a part: smaller ones are not worth a reader.
const PART_BYTES_MIN: u64 = 16 << 20;
/// The number of parts of a table of medium size.
const PARTS: u64 = 16;
/// The memory of a sample in addition to its key.
const SAMPLE_BYTES: usize = size_of::<v2::SampleRowKeysResponse>();

impl Data {
    /// Returns keys within the requested range at which tablets meet, at which the
    /// table was split when it was created, or that divide it by size, then its end,
    /// each with the approximate number of bytes before it.
    pub(super) async fn sample(&self, request: &v2::SampleRowKeysRequest) -> Result<Samples> {
        let mut memory = ResponseMemory::of_call();
        // The sizes come from the indexes of all fragments, which may have to be
        // read from disk.
        let samples = in_place(|| self.samples(request))?;
        let keys = samples.iter().map(|sample| sample.row_key.len()).sum::<usize>();
        memory.wait_for(keys + samples.len() * SAMPLE_BYTES).await?;
        Ok(Samples { samples: samples.into_iter(), _memory: memory })
    }

    fn samples(
        &self,
        request: &v2::SampleRowKeysRequest,
    ) -> Result<Vec<v2::SampleRowKeysResponse>> {
        let Target { table, view } = Target::find(
            &self.tables,
            &request.table_name,
            &request.authorized_view_name,
            &request.materialized_view_name,
        )?;
        let range = match &request.row_range {
            None => RowRange::all(),
            Some(range) => row_set::to_range(range)?,
        };
        let local = self.tables.local(table.id, &range.start);
        let sizes = self.tables.tenure().open(local.sizes())?;
        let part_bytes = part_bytes(sizes.disk_bytes(&RowRange::all()));
        let inside = |split: &&Vec<u8>| **split > range.start && range.contains(split);
        let mut keys = sizes.boundaries(&range, part_bytes);
        keys.extend(sizes.tablet_starts(&range));
        keys.extend(table.definition.splits.iter().filter(inside).cloned());
        keys.sort_unstable();
        keys.dedup();
        // A view does not show the rows of others, nor how large they are.
        if let Some(view) = &view {
            keys.retain(|key| view.subset.has_row(key));
        }
        let disk_bytes = |part: &RowRange| match &view {
            None => sizes.disk_bytes(part),
            Some(view) => {
                view.subset.rows_within(part).iter().map(|shown| sizes.disk_bytes(shown)).sum()
            }
        };
        keys.push(range.end.clone().unwrap_or_default());
        // The distribution of rows in memory is unknown.
        let memory_share = sizes.memory_bytes() / keys.len() as u64;
        let mut start = range.start.clone();
        let mut offset = 0;
        let mut samples = Vec::with_capacity(keys.len());
        for key in keys {
            let part = if key.is_empty() {
                RowRange::from(start)
            } else {
                RowRange::new(start, key.clone())
            };
            offset += disk_bytes(&part) + memory_share;
            start = key.clone();
            samples.push(v2::SampleRowKeysResponse {
                row_key: key.into(),
                offset_bytes: i64::try_from(offset).unwrap_or(i64::MAX),
            });
        }
        Ok(samples)
    }
}

/// Samples that have not been sent, and the memory that they are charged to.
pub struct Samples {
    samples: std::vec::IntoIter<v2::SampleRowKeysResponse>,
    _memory: ResponseMemory,
}

impl Iterator for Samples {
    type Item = v2::SampleRowKeysResponse;

    fn next(&mut self) -> Option<v2::SampleRowKeysResponse> {
        self.samples.next()
    }
}

/// Returns the part size for a table of this size.
fn part_bytes(table_bytes: u64) -> u64 {
    (table_bytes / PARTS).clamp(PART_BYTES_MIN, PART_BYTES_MAX)
}
