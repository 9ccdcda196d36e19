//! Chooses what to compact: consecutive runs of one chain, and the rows of
//! them that are worth rewriting.

use std::ops::Range;
use std::sync::Arc;

use crate::cell::rows::RowRange;
use crate::link::Link;
use crate::options::CompactOptions;
use crate::run::Run;
use crate::table::Table;
use crate::tables::Tables;

/// Runs to be merged into one. Good for as long as the table's `compacting`
/// is held: others only add runs behind.
pub struct Choice {
    pub tablet: usize,
    pub group: usize,
    pub runs: Range<usize>,
    /// No link of the runs is partly inside.
    pub rows: RowRange,
}

/// A run joins those newer than it unless it is this many times larger than
/// all of them together.
const TIER_RATIO: u64 = 2;

/// The table most in need of a compaction: that with the longest chain of
/// those that can be shortened.
pub fn neediest(tables: &Tables) -> Option<Arc<Table>> {
    let all = tables.all();
    let needs = |table: &&Arc<Table>| due(table, &tables.options.compact).map(|(runs, _)| runs);
    let needy = all.values().filter_map(|table| needs(&table).map(|runs| (runs, table)));
    needy.max_by_key(|(runs, _)| *runs).map(|(_, table)| table.clone())
}

/// What is most in need in a table: how many runs the chain has, and which of
/// them to merge.
pub fn due(table: &Table, options: &CompactOptions) -> Option<(usize, Choice)> {
    let version = table.version();
    let mut best: Option<(usize, Choice)> = None;
    for (tablet, chains) in version.tablets.iter().map(|tablet| &tablet.chains).enumerate() {
        for (group, chain) in chains.iter().enumerate() {
            let length = chain.runs.len();
            if best.as_ref().is_some_and(|(longest, _)| *longest >= length) {
                continue;
            }
            if let Some((runs, rows)) = due_runs(&chain.runs, 0, options) {
                best = Some((length, Choice { tablet, group, runs, rows }));
            }
        }
    }
    best
}

/// What is due among the runs that are newer than those of a choice.
pub fn behind(table: &Table, choice: &Choice, options: &CompactOptions) -> Option<Choice> {
    let Choice { tablet, group, .. } = *choice;
    let version = table.version();
    let chain = &version.tablets[tablet].chains[group];
    let (runs, rows) = due_runs(&chain.runs, choice.runs.end, options)?;
    Some(Choice { tablet, group, runs, rows })
}

/// All runs of a chain from the oldest on, up to one that cannot be read.
pub fn whole_chain(table: &Table, tablet: usize, group: usize) -> Option<Choice> {
    let version = table.version();
    let tablets = version.tablets.get(tablet)?;
    let chain = tablets.chains.get(group)?;
    let units = units(&chain.runs);
    let readable = units.iter().take_while(|unit| unit.readable).last()?;
    let runs = 0..readable.runs.end;
    Some(Choice { tablet, group, runs, rows: tablets.rows.clone() })
}

/// Runs that must be merged together: one, or what a compaction that was
/// broken off has left. Its outputs stand in the oldest of its runs and are
/// as new as the newest, so nothing may be merged past a part of them.
struct Unit {
    runs: Range<usize>,
    bytes: u64,
    readable: bool,
}

fn units(runs: &[Run]) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::with_capacity(runs.len());
    let mut newest = None;
    for (at, run) in runs.iter().enumerate() {
        let (txn_min, txn_max) = run.txns();
        let readable = run.links().iter().all(|link| link.is_readable());
        match units.last_mut().filter(|_| newest >= Some(txn_min)) {
            Some(unit) => {
                unit.runs.end = at + 1;
                unit.bytes += run.bytes();
                unit.readable &= readable;
            }
            None => units.push(Unit { runs: at..at + 1, bytes: run.bytes(), readable }),
        }
        newest = newest.max(Some(txn_max));
    }
    units
}

/// Which of the runs from `oldest` on to merge, and which rows of them.
fn due_runs(
    runs: &[Run],
    oldest: usize,
    options: &CompactOptions,
) -> Option<(Range<usize>, RowRange)> {
    let due = due_units(&units(&runs[oldest..]), options)?;
    let due = oldest + due.start..oldest + due.end;
    let rows = rows_to_merge(&runs[due.clone()], options);
    Some((due, rows))
}

/// What was broken off comes first; else the last tier among those stretches
/// that can be read at all.
fn due_units(units: &[Unit], options: &CompactOptions) -> Option<Range<usize>> {
    if let Some(broken_off) = units.iter().find(|unit| unit.readable && unit.runs.len() > 1) {
        return Some(broken_off.runs.clone());
    }
    let mut chosen = None;
    for stretch in units.split(|unit| !unit.readable) {
        let sizes: Vec<u64> = stretch.iter().map(|unit| unit.bytes).collect();
        if let Some(tier) = tier(&sizes, options) {
            chosen = Some(stretch[tier.start].runs.start..stretch[tier.end - 1].runs.end);
        }
    }
    chosen
}

/// Size-tiered choice over a chain, oldest first: the newest runs, taken
/// together as long as each older one is not much larger than the sum so far.
/// Of very many, the cheapest neighbours: a chain is shorter only when a
/// compaction is complete, and writers may be waiting for that.
fn tier(sizes: &[u64], options: &CompactOptions) -> Option<Range<usize>> {
    if sizes.len() < options.chain_min.max(2) {
        return None;
    }
    let mut start = sizes.len() - 1;
    let mut sum = sizes[start];
    while start > 0 && sizes[start - 1] <= sum.saturating_mul(TIER_RATIO) {
        start -= 1;
        sum += sizes[start];
    }
    if sizes.len() - start >= options.chain_min.max(2) {
        let width = options.chain_max.max(options.chain_min).max(2);
        return Some(cheapest(sizes, start, width));
    }
    // No tier is full, but a chain must not grow without end.
    let too_long = sizes.len() > options.chain_max;
    too_long.then(|| cheapest(sizes, 0, options.chain_min.max(2)))
}

/// The cheapest neighbours to merge, from the run at `start` on: `width` of
/// them, or all.
fn cheapest(sizes: &[u64], start: usize, width: usize) -> Range<usize> {
    let width = width.min(sizes.len() - start);
    let cost = |start: &usize| sizes[*start..*start + width].iter().sum::<u64>();
    let start = (start..=sizes.len() - width).min_by_key(cost).expect("there is one at least");
    start..start + width
}

/// The rows that the newer runs have, with all links of the oldest run that
/// share any of them. Links of the oldest run on either side can stay as they
/// are, unless they are small: those go along, or there would be ever more.
fn rows_to_merge(runs: &[Run], options: &CompactOptions) -> RowRange {
    let rows_of = |link: &Arc<Link>| Some(link.file.rows.clone());
    let (oldest, newer) = runs.split_first().expect("a choice has runs");
    let newer = newer.iter().flat_map(Run::links).map(rows_of);
    let Some(mut rows) = newer.reduce(RowRange::hull).flatten() else { return RowRange::all() };
    let links = oldest.links();
    let mut places = oldest.places_of(&rows);
    let small = |link: &Arc<Link>| link.bytes() < options.output_bytes / 2;
    while places.start > 0 && small(&links[places.start - 1]) {
        places.start -= 1;
    }
    while places.end < links.len() && small(&links[places.end]) {
        places.end += 1;
    }
    for link in &links[places] {
        rows = RowRange::hull(Some(rows), rows_of(link)).expect("it has rows already");
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: CompactOptions = CompactOptions {
        chain_min: 4,
        chain_max: 8,
        chain_slow: 24,
        chain_stop: 36,
        output_bytes: 100,
    };

    #[test]
    fn runs_of_like_size_are_merged_once_there_are_enough() {
        assert_eq!(tier(&[10, 10, 10], &OPTIONS), None);
        assert_eq!(tier(&[10, 10, 10, 10], &OPTIONS), Some(0..4));
        assert_eq!(tier(&[1000, 10, 10, 10, 10], &OPTIONS), Some(1..5));
        assert_eq!(tier(&[70, 10, 10, 10, 10], &OPTIONS), Some(0..5));
    }

    #[test]
    fn a_chain_never_stays_longer_than_the_limit() {
        let growing: Vec<u64> = (0..9).rev().map(|power| 10u64.pow(power)).collect();
        assert_eq!(tier(&growing[..8], &OPTIONS), None);
        assert_eq!(tier(&growing, &OPTIONS), Some(5..9));
        let falling: Vec<u64> = growing.iter().rev().copied().collect();
        assert_eq!(tier(&falling, &OPTIONS), Some(0..8));
    }

    #[test]
    fn of_very_many_runs_the_cheapest_are_merged_first() {
        let mut sizes = [10; 30];
        assert_eq!(tier(&sizes, &OPTIONS), Some(0..8));
        sizes[..9].fill(11);
        assert_eq!(tier(&sizes, &OPTIONS), Some(9..17));
    }

    #[test]
    fn a_chosen_tier_is_always_inside_the_chain_and_shortens_it() {
        let mut state = 7u64;
        for length in 0..40 {
            let sizes: Vec<u64> = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                    state >> 44
                })
                .collect();
            match tier(&sizes, &OPTIONS) {
                Some(range) => {
                    assert!(range.end <= length);
                    assert!((2..=OPTIONS.chain_max).contains(&range.len()));
                }
                None => assert!(length <= OPTIONS.chain_max),
            }
        }
    }
}
