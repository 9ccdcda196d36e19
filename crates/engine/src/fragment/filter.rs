//! Row filters: binary fuse filters over row hashes, which state what rows a fragment
//! may contain. A file has one filter per `FILTER_ROWS` rows, which bounds the memory
//! for building one.

use xorf::{BinaryFuse8, Descriptor, Filter};
use xxhash_rust::xxh3::xxh3_64;

use crate::cache::LastUse;
use crate::varint::ByteReader;

/// A filter is closed once it has this many rows.
pub const FILTER_ROWS: usize = 1 << 17;

/// Returns the hash of a row that the filters of all fragments use.
pub fn row_hash(row: &[u8]) -> u64 {
    xxh3_64(row)
}

/// Collects the rows of a file, in order.
#[derive(Default)]
pub struct FilterBuilder {
    done: Vec<EncodedFilter>,
    first_row: Vec<u8>,
    hashes: Vec<u64>,
}

/// A filter in its stored form.
pub struct EncodedFilter {
    pub bytes: Vec<u8>,
    pub first_row: Vec<u8>,
}

impl FilterBuilder {
    pub fn add(&mut self, row: &[u8]) {
        if self.hashes.is_empty() {
            self.first_row = row.to_vec();
        }
        self.hashes.push(row_hash(row));
        if self.hashes.len() == FILTER_ROWS {
            self.close();
        }
    }

    /// Returns the approximate size of the filters.
    pub fn bytes(&self) -> usize {
        self.done.iter().map(|filter| filter.bytes.len()).sum::<usize>() + self.hashes.len() * 9 / 8
    }

    pub fn finish(mut self) -> Vec<EncodedFilter> {
        self.close();
        self.done
    }

    fn close(&mut self) {
        if self.hashes.is_empty() {
            return;
        }
        // The filter does not accept duplicates; rows with equal hashes count as one.
        self.hashes.sort_unstable();
        self.hashes.dedup();
        let bytes = match BinaryFuse8::try_from(self.hashes.as_slice()) {
            Ok(filter) => encode(&filter),
            Err(_) => Vec::new(),
        };
        let first_row = std::mem::take(&mut self.first_row);
        self.done.push(EncodedFilter { bytes, first_row });
        self.hashes.clear();
    }
}

fn encode(filter: &BinaryFuse8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + filter.fingerprints.len());
    bytes.extend_from_slice(&filter.descriptor.seed.to_le_bytes());
    bytes.extend_from_slice(&filter.descriptor.segment_length.to_le_bytes());
    bytes.extend_from_slice(&filter.descriptor.segment_count_length.to_le_bytes());
    bytes.extend_from_slice(&filter.fingerprints);
    bytes
}

/// A filter in memory. If none could be built, it accepts every row.
pub struct RowFilter {
    fuse: Option<BinaryFuse8>,
    last_use: LastUse,
}

impl RowFilter {
    /// Returns a filter that accepts every row.
    pub fn accept_all() -> RowFilter {
        RowFilter { fuse: None, last_use: LastUse::default() }
    }

    pub fn parse(bytes: &[u8]) -> Option<RowFilter> {
        if bytes.is_empty() {
            return Some(RowFilter::accept_all());
        }
        let mut read = ByteReader::new(bytes);
        let seed = read.u64()?;
        let segment_length = read.u32()?;
        let segment_count_length = read.u32()?;
        let fingerprints = &bytes[16..];
        // A lookup reads up to two segments past the last counted one.
        let needed = u64::from(segment_count_length) + 2 * u64::from(segment_length);
        if !segment_length.is_power_of_two()
            || !segment_count_length.is_multiple_of(segment_length)
            || segment_count_length == 0
            || needed > fingerprints.len() as u64
            || needed > u64::from(u32::MAX)
        {
            return None;
        }
        let descriptor = Descriptor {
            seed,
            segment_length,
            segment_length_mask: segment_length - 1,
            segment_count_length,
        };
        Some(RowFilter {
            fuse: Some(BinaryFuse8 { descriptor, fingerprints: fingerprints.into() }),
            last_use: LastUse::default(),
        })
    }

    pub fn may_hold(&self, row_hash: u64) -> bool {
        self.fuse.as_ref().is_none_or(|fuse| fuse.contains(&row_hash))
    }

    pub(crate) fn last_use(&self) -> &LastUse {
        &self.last_use
    }

    /// Returns the size of this filter in memory.
    pub fn bytes(&self) -> usize {
        size_of::<RowFilter>() + self.fuse.as_ref().map_or(0, |fuse| fuse.fingerprints.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filter_of(rows: impl Iterator<Item = u64>) -> RowFilter {
        let mut builder = FilterBuilder::default();
        rows.for_each(|row| builder.add(&row.to_be_bytes()));
        let filters = builder.finish();
        assert_eq!(filters.len(), 1);
        RowFilter::parse(&filters[0].bytes).unwrap()
    }

    #[test]
    fn a_filter_knows_all_its_rows_and_few_others() {
        const ROWS: u64 = 50_000;
        let filter = filter_of(0..ROWS);
        assert!((0..ROWS).all(|row| filter.may_hold(row_hash(&row.to_be_bytes()))));
        let wrong = (ROWS..3 * ROWS).filter(|row| filter.may_hold(row_hash(&row.to_be_bytes())));
        assert!(wrong.count() < (2 * ROWS / 100) as usize, "one percent at most");
    }

    #[test]
    fn filters_are_cut_by_count_and_name_their_first_row() {
        let mut builder = FilterBuilder::default();
        (0..FILTER_ROWS as u64 + 1).for_each(|row| builder.add(&row.to_be_bytes()));
        let first_rows: Vec<Vec<u8>> =
            builder.finish().into_iter().map(|filter| filter.first_row).collect();
        assert_eq!(first_rows, [0u64.to_be_bytes(), (FILTER_ROWS as u64).to_be_bytes()]);
    }

    proptest! {
        #[test]
        fn small_filters_have_no_false_negative(count in 1u64..300) {
            let filter = filter_of(0..count);
            prop_assert!((0..count).all(|row| filter.may_hold(row_hash(&row.to_be_bytes()))));
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in prop::collection::vec(prop_oneof![Just(0u8), 0u8..9, any::<u8>()], 0..80),
            hashes in prop::collection::vec(any::<u64>(), 10),
        ) {
            if let Some(filter) = RowFilter::parse(&bytes) {
                hashes.iter().for_each(|&hash| {
                    filter.may_hold(hash);
                });
            }
        }
    }
}
