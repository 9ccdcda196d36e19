//! The ranges left to scan, clipped to tablets and around lost fragments.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cell::rows::RowRange;
use crate::error::Result;
use crate::tablet::{TableVersion, Tablet};

/// Returns the tablet with the first row of a range (in reverse, the last).
pub fn tablet_of<'v>(
    version: &'v TableVersion,
    range: &RowRange,
    reverse: bool,
) -> &'v Arc<Tablet> {
    if reverse {
        version.tablets.before(range.end.as_deref())
    } else {
        version.tablets.of(&range.start)
    }
}

/// Clips a range before the first row covered by a fragment known to be lost; fails
/// if the range starts with such a row.
pub fn clear_of_loss(
    tablet: &Tablet,
    groups: &[usize],
    mut range: RowRange,
    reverse: bool,
) -> Result<RowRange> {
    let runs = groups.iter().flat_map(|&group| &tablet.chains[group].runs);
    let requested = range.clone();
    for link in runs.flat_map(|run| run.links_of(&requested)) {
        let Some(error) = link.loss() else { continue };
        let lost = link.rows.intersection(&range);
        if lost.is_empty() {
            continue;
        }
        if reverse {
            let Some(end) = lost.end.filter(|end| Some(end) != range.end.as_ref()) else {
                return Err(error.clone());
            };
            range.start = end;
        } else if lost.start == range.start {
            return Err(error.clone());
        } else {
            range.end = Some(lost.start);
        }
    }
    Ok(range)
}

/// Sorts ranges, joins those that overlap or touch, and drops empty ones.
pub fn join_ranges(mut ranges: Vec<RowRange>) -> VecDeque<RowRange> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by(|a, b| a.start.cmp(&b.start));
    let mut joined: VecDeque<RowRange> = VecDeque::with_capacity(ranges.len());
    for range in ranges {
        match joined.back_mut() {
            Some(last) if last.end.as_ref().is_none_or(|end| *end >= range.start) => {
                if let Some(end) = &last.end
                    && range.end.as_ref().is_none_or(|other| other > end)
                {
                    last.end = range.end;
                }
            }
            _ => joined.push_back(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_sorted_joined_and_never_empty() {
        let range = RowRange::new;
        let joined = join_ranges(vec![
            range("m", "p"),
            range("x", "a"),
            range("a", "c"),
            range("b", "d"),
            range("p", "q"),
            RowRange::from("z"),
            range("zz", "zzz"),
        ]);
        assert_eq!(joined, [range("a", "d"), range("m", "q"), RowRange::from("z")]);
    }
}
