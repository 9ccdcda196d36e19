//! The rows of a read that were not read yet.

use stele_bigtable_proto::v2;
use stele_bigtable_proto::v2::row_range::{EndKey, StartKey};
use stele_engine::RowRange;

/// Ranges of rows that do not overlap, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRanges(Vec<RowRange>);

impl RowRanges {
    /// Returns the rows of a request. `None` if a key or a range is not valid; the server
    /// that gets the request as it is says why.
    pub fn of(rows: Option<&v2::RowSet>) -> Option<RowRanges> {
        let all = || Some(RowRanges(vec![RowRange::all()]));
        let Some(rows) = rows else { return all() };
        if rows.row_keys.is_empty() && rows.row_ranges.is_empty() {
            return all();
        }
        let mut ranges = Vec::with_capacity(rows.row_keys.len() + rows.row_ranges.len());
        for key in &rows.row_keys {
            if key.is_empty() {
                return None;
            }
            ranges.push(RowRange::row(key));
        }
        for range in &rows.row_ranges {
            ranges.push(to_range(range)?);
        }
        ranges.sort_by(|a, b| a.start.cmp(&b.start));
        let mut merged: Vec<RowRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if last.end.as_ref().is_none_or(|end| *end >= range.start) => {
                    if last.end.is_some() && (range.end.is_none() || range.end > last.end) {
                        last.end = range.end;
                    }
                }
                _ => merged.push(range),
            }
        }
        Some(RowRanges(merged))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first row that may be read.
    pub fn first(&self) -> &[u8] {
        self.0.first().map_or(&[], |range| &range.start)
    }

    /// Returns the end of the last range.
    pub fn end(&self) -> Option<&[u8]> {
        self.0.last()?.end.as_deref()
    }

    /// Whether all rows are in a range.
    pub fn are_within(&self, rows: &RowRange) -> bool {
        let ends_within = match (&rows.end, self.end()) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(end), Some(own)) => own <= &end[..],
        };
        rows.start[..] <= *self.first() && ends_within
    }

    /// Returns the rows that are in a range.
    pub fn within(&self, rows: &RowRange) -> RowRanges {
        let within = self.0.iter().map(|range| range.intersection(rows));
        RowRanges(within.filter(|range| !range.is_empty()).collect())
    }

    /// Removes all rows up to this one.
    pub fn remove_through(&mut self, row: &[u8]) {
        let mut next = row.to_vec();
        next.push(0);
        *self = self.within(&RowRange::from(next));
    }

    /// Removes this row and all after it.
    pub fn remove_from(&mut self, row: &[u8]) {
        *self = match row.is_empty() {
            true => RowRanges(Vec::new()),
            false => self.within(&RowRange::new("", row)),
        };
    }

    /// Removes the rows of a range.
    pub fn remove(&mut self, rows: &RowRange) {
        let mut left = match rows.start.is_empty() {
            true => RowRanges(Vec::new()),
            false => self.within(&RowRange::new("", rows.start.clone())),
        };
        if let Some(end) = &rows.end {
            left.0.extend(self.within(&RowRange::from(end.clone())).0);
        }
        *self = left;
    }

    /// Returns them as a request names them.
    pub fn message(&self) -> v2::RowSet {
        let mut rows = v2::RowSet::default();
        for range in &self.0 {
            if let Some(row) = range.single_row().filter(|row| !row.is_empty()) {
                rows.row_keys.push(row.to_vec().into());
                continue;
            }
            let start = StartKey::StartKeyClosed(range.start.clone().into());
            rows.row_ranges.push(v2::RowRange {
                start_key: (!range.start.is_empty()).then_some(start),
                end_key: range.end.clone().map(|end| EndKey::EndKeyOpen(end.into())),
            });
        }
        rows
    }
}

/// Converts a range; `None` if it can hold no row.
pub fn to_range(range: &v2::RowRange) -> Option<RowRange> {
    let successor = |key: &[u8]| [key, &[0]].concat();
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
    match end {
        None => Some(RowRange::from(start)),
        Some(end) if start < end => Some(RowRange::new(start, end)),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &str, end: &str) -> v2::RowRange {
        v2::RowRange {
            start_key: Some(StartKey::StartKeyClosed(start.to_string().into())),
            end_key: (!end.is_empty()).then(|| EndKey::EndKeyOpen(end.to_string().into())),
        }
    }

    fn ranges(keys: &[&str], ranges: &[(&str, &str)]) -> Option<RowRanges> {
        RowRanges::of(Some(&v2::RowSet {
            row_keys: keys.iter().map(|key| key.to_string().into()).collect(),
            row_ranges: ranges.iter().map(|(start, end)| range(start, end)).collect(),
        }))
    }

    #[test]
    fn rows_are_merged_and_in_order() {
        let merged = ranges(&["x", "b", "bb"], &[("a", "c"), ("c", "e"), ("m", "")]).unwrap();
        assert_eq!(merged.0, [RowRange::new("a", "e"), RowRange::from("m")]);
        assert_eq!(ranges(&[], &[]).unwrap().0, [RowRange::all()]);
        assert_eq!(RowRanges::of(None).unwrap().0, [RowRange::all()]);
        assert_eq!(ranges(&[""], &[]), None);
        assert_eq!(ranges(&[], &[("b", "a")]), None);
    }

    #[test]
    fn what_was_read_is_removed_from_either_end() {
        let all = ranges(&["k"], &[("a", "e"), ("m", "")]).unwrap();
        let mut left = all.clone();
        left.remove_through(b"c");
        assert_eq!((left.first(), left.0.len()), (&b"c\0"[..], 3));
        left.remove_through(b"k");
        assert_eq!(left.0, [RowRange::from("m")]);
        let mut left = all.clone();
        left.remove_from(b"n");
        assert_eq!(left.end(), Some(&b"n"[..]));
        left.remove(&RowRange::new("b", "l"));
        assert_eq!(left.0, [RowRange::new("a", "b"), RowRange::new("m", "n")]);
        left.remove(&RowRange::all());
        assert!(left.is_empty());
    }

    #[test]
    fn rows_come_back_from_their_message() {
        let all = ranges(&["k"], &[("", "e"), ("m", "")]).unwrap();
        assert_eq!(RowRanges::of(Some(&all.message())).unwrap(), all);
        assert!(all.are_within(&RowRange::all()));
        assert!(!all.are_within(&RowRange::new("", "z")) && !all.are_within(&RowRange::from("a")));
        let within = all.within(&RowRange::new("c", "n"));
        assert!(within.are_within(&RowRange::new("c", "n")));
    }
}
