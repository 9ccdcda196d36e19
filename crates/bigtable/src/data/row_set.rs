//! Converts the row keys and ranges of a request to validated engine ranges.

use stele_engine::RowRange;

use crate::error::{Error, Result};
use crate::proto::v2;
use crate::proto::v2::row_range::{EndKey, StartKey};
use crate::table::{check_row_key, check_row_key_length};

/// The maximum number of row keys and ranges of a ReadRows request.
pub const ROWS_MAX: usize = 100_000;

/// Returns the ranges of a row set; none for the whole table.
pub fn to_ranges(rows: Option<&v2::RowSet>) -> Result<Vec<RowRange>> {
    let Some(rows) = rows else { return Ok(Vec::new()) };
    let mut ranges = Vec::with_capacity(rows.row_keys.len() + rows.row_ranges.len());
    for key in &rows.row_keys {
        check_row_key(key)?;
        ranges.push(RowRange::row(key));
    }
    for (at, range) in rows.row_ranges.iter().enumerate() {
        let range = to_range(range).map_err(|error| {
            error.within(&format!("Error in field 'row_ranges' : Error in element #{at}"))
        })?;
        ranges.push(range);
    }
    Ok(ranges)
}

/// Converts one range. An open start and a closed end become the key's successor.
pub fn to_range(range: &v2::RowRange) -> Result<RowRange> {
    let start = match &range.start_key {
        None => Vec::new(),
        Some(StartKey::StartKeyClosed(key)) => key.to_vec(),
        Some(StartKey::StartKeyOpen(key)) => successor(key),
    };
    let end = match &range.end_key {
        None => None,
        Some(EndKey::EndKeyOpen(key) | EndKey::EndKeyClosed(key)) if key.is_empty() => None,
        Some(EndKey::EndKeyOpen(key)) => Some(key.to_vec()),
        Some(EndKey::EndKeyClosed(key)) => Some(successor(key)),
    };
    check_row_key_length(&start[..start.len().saturating_sub(1)])?;
    let Some(end) = end else { return Ok(RowRange::from(start)) };
    check_row_key_length(&end[..end.len() - 1])?;
    if start >= end {
        return Err(Error::invalid("start_key must be less than end_key"));
    }
    Ok(RowRange::new(start, end))
}

fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::ROW_KEY_BYTES_MAX;

    fn range(start: Option<StartKey>, end: Option<EndKey>) -> Result<RowRange> {
        to_range(&v2::RowRange { start_key: start, end_key: end })
    }

    fn closed(key: &'static str) -> Option<StartKey> {
        Some(StartKey::StartKeyClosed(key.into()))
    }

    fn open(key: &'static str) -> Option<StartKey> {
        Some(StartKey::StartKeyOpen(key.into()))
    }

    fn until(key: &'static str) -> Option<EndKey> {
        Some(EndKey::EndKeyOpen(key.into()))
    }

    fn through(key: &'static str) -> Option<EndKey> {
        Some(EndKey::EndKeyClosed(key.into()))
    }

    #[test]
    fn ends_are_open_or_closed_as_requested() {
        assert_eq!(range(closed("a"), through("a")).unwrap(), RowRange::new("a", "a\0"));
        assert_eq!(range(open("a"), until("b")).unwrap(), RowRange::new("a\0", "b"));
        assert_eq!(range(None, None).unwrap(), RowRange::all());
        assert_eq!(range(closed("a"), until("")).unwrap(), RowRange::from("a"));
        assert_eq!(range(closed("a"), through("")).unwrap(), RowRange::from("a"));
        assert_eq!(range(open(""), None).unwrap(), RowRange::from("\0"));
    }

    #[test]
    fn a_range_that_can_hold_no_row_is_refused() {
        for (start, end) in [
            (closed("a"), until("a")),
            (open("a"), through("a")),
            (open("a"), until("a\0")),
            (closed("b"), until("a")),
            (closed("b"), through("a")),
        ] {
            let error = range(start, end).unwrap_err();
            assert_eq!(error.to_string(), "start_key must be less than end_key");
        }
    }

    #[test]
    fn empty_and_oversized_keys_are_refused() {
        let set = |key: Vec<u8>| v2::RowSet { row_keys: vec![key.into()], row_ranges: vec![] };
        assert!(to_ranges(Some(&set(vec![]))).is_err());
        assert!(to_ranges(Some(&set(vec![b'k'; ROW_KEY_BYTES_MAX + 1]))).is_err());
        assert_eq!(to_ranges(Some(&set(vec![b'k'; ROW_KEY_BYTES_MAX]))).unwrap().len(), 1);
        assert_eq!(to_ranges(Some(&v2::RowSet::default())).unwrap(), vec![]);
    }
}
